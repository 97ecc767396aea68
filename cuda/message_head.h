/* SPDX-License-Identifier: Apache-2.0
 * message_head.h - the interface between host and device for the head of a whole frame, which the
 * device completes in the order of the stream.
 *
 * wide table:
 * | name    | unit  | meaning                                                                       | memory        |
 * | draft   | bytes | the head without its digests; a digest that is needed is a word other than 0  | pinned, host  |
 * | reports |       | of its entries, in their order                                                | pinned, host  |
 * | frame   |       | where to write the head                                                       | caller        |
 * | sealed  |       | the serial of the last head written for this part; stored last                | pinned, host  |
 * | serial  |       | identifies this use of the part; not 0                                        | pinned, host  |
 * | bytes   | bytes | of the head, a multiple of 16                                                 | pinned, host  |
 * | entries | bytes | offset of the entries                                                         | pinned, host  |
 *
 * Kernel: dw_finalize_heads(parts, number of parts), one block per part, after all kernels of
 * message.h. If a part is used again without a new serial, the header becomes ten words of 0, which
 * no decoder accepts as a frame. The host changes parts and drafts between two replays of a graph,
 * so the device reads them from pinned memory, without a copy. */
#ifndef DW_CUDA_MESSAGE_HEAD_H
#define DW_CUDA_MESSAGE_HEAD_H

#include "message.h"
#include "wire/frame.h"

typedef struct dw_cuda_head_part {
    const uint64_t *draft;
    const dw_cuda_report *reports;
    uint64_t *frame, *sealed;
    uint64_t serial, bytes, entries;
    uint32_t first, n; /* the jobs of its entries, in the launch */
} dw_cuda_head_part;

#endif
