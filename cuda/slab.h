/* SPDX-License-Identifier: Apache-2.0
 * slab.h - slots for copies of prev, in the device's memory or in pinned memory.
 *
 * A pool (base/pool.h) whose chunks come from the driver: what it keeps free is bounded as there.
 * Giving a chunk back lets the driver wait for the device; in a steady state none is. Errors: take
 * gives NULL. Threads: one at a time. */
#ifndef DW_CUDA_SLAB_H
#define DW_CUDA_SLAB_H

#include "base/pool.h"
#include "device.h"

typedef struct dw_cuda_slab {
    const dw_cuda *cuda;
    bool pinned;
    dw_pool pool;
} dw_cuda_slab;

/* allocator: of the bookkeeping. The slab stays where it is until it is released. */
void dw_cuda_slab_init(dw_cuda_slab *slab, const dw_cuda *cuda, bool pinned,
                       const dw_allocator *allocator);
void dw_cuda_slab_release(dw_cuda_slab *slab); /* every slot ends */

/* What copies live in. */
dw_store dw_cuda_slab_store(dw_cuda_slab *slab);

#endif
