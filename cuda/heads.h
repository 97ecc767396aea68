/* SPDX-License-Identifier: Apache-2.0
 * heads.h - the heads of whole frames, which a launch completes after its jobs (message_head.h):
 * their parts and drafts, in pinned memory, where the device reads them.
 *
 * Errors: NO_MEMORY, UNSUPPORTED (no kernel), with a sentence. State: memory is kept from launch to
 * launch. */
#ifndef DW_CUDA_HEADS_H
#define DW_CUDA_HEADS_H

#include "device.h"
#include "message_head.h"

typedef struct dw_cuda_heads {
    uint32_t n;
    /* Three arrays: the parts; for each head the serial of the draft that the device last
     * completed; the drafts. */
    dw_cuda_block staged;
    uint64_t staged_bytes;
} dw_cuda_heads;

/* Writes the parts and drafts of all heads. reports: those of the launch's jobs, at an address for
 * the device. */
dw_status dw_cuda_heads_fill(dw_cuda_heads *heads, const dw_cuda *cuda, dw_heads given,
                             const dw_cuda_report *reports, uint64_t *serial, dw_why *why);

/* Replaces the draft of the head whose first job is given->first. */
void dw_cuda_heads_refill(dw_cuda_heads *heads, const dw_head *given, uint64_t *serial);

/* Enqueues the kernel, if there are any heads. To be called in the context. */
dw_cuda_result dw_cuda_heads_enqueue(const dw_cuda_heads *heads, const dw_cuda *cuda,
                                     dw_cuda_stream stream);

/* True where the head whose first job is `first` has been written to its frame, or where there is
 * no such head. */
bool dw_cuda_heads_done(const dw_cuda_heads *heads, uint32_t first);

#endif
