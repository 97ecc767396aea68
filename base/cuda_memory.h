/* SPDX-License-Identifier: Apache-2.0
 * cuda_memory.h - pinned memory, streams and copies, for those who carry frames through host
 * memory: channels, groups and the Python package. libdeltawire exports them, but no public header
 * names them. */
#ifndef DW_CUDA_MEMORY_H
#define DW_CUDA_MEMORY_H

#include "deltawire/deltawire.h"

/* pin: allocates pinned host memory, which the device reaches at the same address. stream_create:
 * makes a stream that does not wait for other streams. stream_check: checks that a stream (NULL:
 * the default stream) can be waited for. stream_wait: waits until the stream has done all work that
 * was enqueued. copy: copies from and to memory that the device reaches, after that work, and
 * waits; bytes 0: only waits. After IO, `to` is undefined. The device must stay open while memory
 * and streams are in use. Errors: ARGUMENT (also: a stream that is capturing), NO_MEMORY,
 * UNSUPPORTED (no unified addressing), IO (CUDA failed). Threads: any. */
DW_API dw_status dw_cuda_pin(dw_cuda *cuda, size_t bytes, void **memory, dw_why *why);
DW_API void dw_cuda_unpin(dw_cuda *cuda, void *memory); /* NULL is allowed */
DW_API dw_status dw_cuda_stream_create(dw_cuda *cuda, void **stream, dw_why *why);
DW_API void dw_cuda_stream_destroy(dw_cuda *cuda, void *stream); /* NULL is allowed */
DW_API dw_status dw_cuda_stream_check(dw_cuda *cuda, void *stream, dw_why *why);
DW_API dw_status dw_cuda_stream_wait(dw_cuda *cuda, void *stream, dw_why *why);
DW_API dw_status dw_cuda_copy(dw_cuda *cuda, void *to, const void *from, size_t bytes, void *stream,
                              dw_why *why);

#endif
