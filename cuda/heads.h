/* SPDX-License-Identifier: Apache-2.0
 * heads.h - the heads that a launch completes behind its jobs (message_head.h): their parts and
 * drafts, which the device reads where they lie, in pinned memory.
 *
 * Errors: NO_MEMORY, UNSUPPORTED (no kernel), with a sentence. State: memory is kept from launch to
 * launch. */
#ifndef DW_CUDA_HEADS_H
#define DW_CUDA_HEADS_H

#include "device.h"
#include "message_head.h"

typedef struct dw_cuda_heads {
    uint32_t n;
    dw_cuda_block staged; /* parts, then what was sealed last of each, then drafts */
    uint64_t staged_bytes;
} dw_cuda_heads;

/* reports: of the launch's jobs, where the device reaches them. */
dw_status dw_cuda_heads_fill(dw_cuda_heads *heads, const dw_cuda *cuda, dw_heads given,
                             const dw_cuda_report *reports, uint64_t *serial, dw_why *why);

/* Another draft for the head over the jobs from given->first on. */
void dw_cuda_heads_refill(dw_cuda_heads *heads, const dw_head *given, uint64_t *serial);

/* Nothing where there are none. In the current context. */
dw_cuda_result dw_cuda_heads_enqueue(const dw_cuda_heads *heads, const dw_cuda *cuda,
                                     dw_cuda_stream stream);

/* The head over the jobs from `first` on is in its frame, or there is none. */
bool dw_cuda_heads_done(const dw_cuda_heads *heads, uint32_t first);

#endif
