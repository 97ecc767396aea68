/* SPDX-License-Identifier: Apache-2.0
 * slab.h - slots for copies of prev, carved from large blocks of the device's memory or of pinned
 * memory.
 *
 * Which slots are free is kept in main memory: the pool of mem.h writes into free slots. Errors:
 * take gives NULL. State: what is given back goes to the next taker of the same size. Threads: one
 * at a time. */
#ifndef DW_CUDA_SLAB_H
#define DW_CUDA_SLAB_H

#include "device.h"

typedef struct dw_cuda_slots { /* of one size */
    uint64_t bytes;
    dw_cuda_address *free;
    uint64_t n_free, cap, all;
} dw_cuda_slots;

typedef struct dw_cuda_slab {
    const dw_cuda *cuda;
    bool pinned;
    dw_allocator allocator;
    dw_cuda_slots *sizes;
    dw_cuda_block *blocks;
    uint64_t n_sizes, sizes_cap, n_blocks, blocks_cap;
} dw_cuda_slab;

void *dw_cuda_slab_take(void *slab, uint64_t bytes);
void dw_cuda_slab_give(void *slab, void *slot, uint64_t bytes);
void dw_cuda_slab_release(dw_cuda_slab *slab); /* every slot ends */

#endif
