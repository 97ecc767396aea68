/* SPDX-License-Identifier: Apache-2.0
 * launch.h - the jobs of one launch: their parts in pinned memory and on the device, the kernels
 * that process them, and the reports of these. */
#ifndef DW_CUDA_LAUNCH_H
#define DW_CUDA_LAUNCH_H

#include "codecs/plan.h"
#include "device.h"
#include "heads.h"

typedef struct dw_cuda_engine dw_cuda_engine;

/* Where the data of a job is, and which kernels it is launched with. */
typedef struct dw_cuda_place_of {
    dw_cuda_needs needs;
    uint32_t part, group;
    uint64_t chosen;        /* index of its first element in the launch's `chosen` */
    uint64_t room;          /* offset of its room from that of the first job */
    const dw_stage *behind; /* of a decoder: the stage that reads the payload; NULL: none */
    uint64_t serial;
} dw_cuda_place_of;

/* Consecutive parts that the same kernels process. */
typedef struct dw_cuda_group {
    int kernel[DW_CUDA_PHASES];
    uint32_t first, n;
    uint64_t blocks[DW_CUDA_PHASES];
    uint64_t tiles_per_block; /* how many tiles a block processes, where it may process several */
} dw_cuda_group;

/* `staged` begins with parts and sums, which are copied to the device together. The reports behind
 * them exist in pinned memory only. */
struct dw_launch {
    dw_launch *next;
    dw_cuda_engine *engine;
    unsigned users;
    bool encodes;
    uint32_t n;
    uint32_t n_groups;
    dw_cuda_group *groups;
    dw_cuda_place_of *places; /* one per job */
    uint64_t groups_cap, places_cap, chosen, rooms;
    dw_cuda_block staged, device;
    uint64_t staged_bytes, device_bytes;
    dw_cuda_heads heads;
};

/* Sorts the jobs into groups and writes their parts. Errors: NO_MEMORY, LIMIT, UNSUPPORTED; nothing
 * has been enqueued then. */
dw_status dw_launch_fill(dw_launch *launch, dw_jobs jobs, uint32_t n, dw_heads heads,
                         uint64_t *serial, dw_why *why);

/* Enqueues the copy, the kernels of the jobs and then the kernel for heads. To be called in the
 * context. *enqueued: how many operations were enqueued. */
dw_cuda_result dw_launch_enqueue(const dw_launch *launch, dw_cuda_stream stream,
                                 uint32_t *enqueued);

dw_status dw_launch_refill(dw_launch *launch, uint32_t first, dw_jobs jobs, uint32_t n,
                           const dw_head *head, uint64_t *serial, dw_why *why);
dw_status dw_launch_done(const dw_launch *launch, uint32_t first, uint32_t n,
                         dw_chunk_result *results);
void dw_launch_release(dw_launch *launch); /* frees its memory, but not the struct */

/* A copy of a profile on the device. of: NULL: there is none. */
typedef struct dw_cuda_profile {
    const struct dw_profile *of;
    dw_channels channels; /* in `block` */
    dw_cuda_block block;
} dw_cuda_profile;

struct dw_cuda_engine {
    dw_cuda *cuda;
    dw_allocator allocator;
    uint64_t serial;   /* of the last part that was written */
    unsigned users;    /* its encoder or decoder, and every launch that is not spare */
    bool prev_on_host; /* its encoder or decoder keeps prev in pinned memory of the host */
    dw_cuda_profile profiles[DW_PROFILES_MOST]; /* that its encoder or decoder knows */
    dw_launch *spare;
    dw_cuda_stream copy_stream; /* for saving and restoring copies of prev; NULL until the first use
                                 */
};

#endif
