/* SPDX-License-Identifier: Apache-2.0
 * launch.h - jobs of one launch: their parts in pinned memory and on the device, the kernels that
 * work on them, and what those report. */
#ifndef DW_CUDA_LAUNCH_H
#define DW_CUDA_LAUNCH_H

#include "device.h"
#include "heads.h"

typedef struct dw_cuda_engine dw_cuda_engine;

/* Where a job is: its part, and what its kernels were launched with. */
typedef struct dw_cuda_place_of {
    dw_cuda_needs needs;
    uint32_t part, group;
    uint64_t chosen; /* its first element of those of the launch */
    uint64_t serial;
} dw_cuda_place_of;

/* Parts that the same kernels work on, one behind the other. */
typedef struct dw_cuda_group {
    int kernel[DW_CUDA_PHASES];
    uint32_t first, n;
    uint64_t blocks[DW_CUDA_PHASES];
} dw_cuda_group;

/* Staged: parts, then sums, which go to the device in one copy; behind them, and only in pinned
 * memory, the reports. */
struct dw_launch {
    dw_launch *next;
    dw_cuda_engine *engine;
    unsigned users;
    bool encodes;
    uint32_t n;
    uint32_t n_groups;
    dw_cuda_group *groups;
    dw_cuda_place_of *places; /* of every job */
    uint64_t groups_cap, places_cap, chosen;
    dw_cuda_block staged, device;
    uint64_t staged_bytes, device_bytes;
    dw_cuda_heads heads;
};

/* Sorts the jobs into groups and writes their parts. Errors: NO_MEMORY, LIMIT, UNSUPPORTED; nothing
 * was enqueued. */
dw_status dw_launch_fill(dw_launch *launch, dw_jobs jobs, uint32_t n, dw_heads heads,
                         uint64_t *serial, dw_why *why);

/* The copy and the kernels, that of the heads last, in the current context. */
dw_cuda_result dw_launch_enqueue(const dw_launch *launch, dw_cuda_stream stream,
                                 uint32_t *enqueued);

dw_status dw_launch_refill(dw_launch *launch, uint32_t first, dw_jobs jobs, uint32_t n,
                           const dw_head *head, uint64_t *serial, dw_why *why);
dw_status dw_launch_done(const dw_launch *launch, uint32_t first, uint32_t n,
                         dw_chunk_result *results);
void dw_launch_release(dw_launch *launch); /* its memory; not the struct */

struct dw_cuda_engine {
    dw_cuda *cuda;
    dw_allocator allocator;
    uint64_t serial; /* of the last part that was written */
    unsigned users;  /* its encoder or decoder, and every launch in somebody's hands */
    dw_launch *spare;
    dw_cuda_stream aside; /* for copies of saved states; NULL until the first */
};

#endif
