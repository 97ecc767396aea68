/* SPDX-License-Identifier: Apache-2.0
 * message_head.h - the head of a frame, for the device: what it completes in the order of the
 * stream.
 *
 * wide table:
 * | name    | unit  | meaning                                                                       | memory        |
 * | draft   | bytes | the head but for its digests. Where an entry is to have one, a word that is not 0 | pinned, host  |
 * | reports |       | of its entries, in their order                                                | pinned, host  |
 * | frame   |       | where the head goes                                                           | caller        |
 * | sealed  |       | the serial of the last head that was made of this part; stored last           | pinned, host  |
 * | serial  |       | a number of this use of the part, not 0                                       | pinned, host  |
 * | bytes   | bytes | of the head, a multiple of 16                                                 | pinned, host  |
 * | entries | bytes | where the entries begin                                                       | pinned, host  |
 *
 * Kernel: dw_seal_heads(parts, number of parts), a block for each, behind all kernels of message.h.
 * A part that is used once more without a new serial makes ten words of 0 instead of a header: no
 * decoder takes that for a frame. The host writes parts and drafts anew between two replays of a
 * graph, so they are read where it wrote them. */
#ifndef DW_CUDA_MESSAGE_HEAD_H
#define DW_CUDA_MESSAGE_HEAD_H

#include "message.h"
#include "wire/frame.h"

typedef struct dw_cuda_head_part {
    const uint64_t *draft;
    const dw_cuda_report *reports;
    uint64_t *frame, *sealed;
    uint64_t serial, bytes, entries;
    uint32_t first, n; /* its entries' jobs, of the launch */
} dw_cuda_head_part;

#endif
