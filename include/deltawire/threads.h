/* SPDX-License-Identifier: Apache-2.0
 * threads.h - a pool of threads that share the work of encoders and decoders: a ready
 * parallel_for for their hosts. */
#ifndef DELTAWIRE_THREADS_H
#define DELTAWIRE_THREADS_H

#include "deltawire/deltawire.h"
#ifdef __cplusplus
extern "C" {
#endif

/* Creates a pool of threads. To use it, set host.parallel_for = dw_threads_parallel_for and
 * host.parallel_context = the pool. A pool may serve any number of encoders and decoders, and
 * must outlive them.
 *
 * | name | meaning                                                                     |
 * | n    | number of threads that work on a call, including the caller, 1..1024. 0: as |
 * |      | many as the processors on which the caller may run                          |
 *
 * Errors: ARGUMENT, LIMIT (n), NO_MEMORY; *threads is then NULL, and *why, which may be NULL, has a
 * sentence. Threads: any thread may call. While the pool works for one caller, other callers do
 * their work alone. The pool's threads block all signals, and sleep between calls. After fork() the
 * child has no pool threads: calls work alone, with the same bits, and dw_threads_destroy only
 * frees memory. Source: threads/threads.c. */
typedef struct dw_threads dw_threads;
DW_API dw_status dw_threads_create(dw_threads **threads, uint32_t n, dw_why *why);

/* Ends the threads and frees the pool. No call may use it any more. NULL is allowed. */
DW_API void dw_threads_destroy(dw_threads *threads);

/* Returns the number of threads, including the caller; 0 for NULL. */
DW_API uint32_t dw_threads_size(const dw_threads *threads);

/* The function for dw_host.parallel_for. threads: a dw_threads; NULL: the caller works alone. */
DW_API void dw_threads_parallel_for(void *threads, size_t n, dw_task *task, void *task_context);
#ifdef __cplusplus
}
#endif
#endif
