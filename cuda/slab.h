/* SPDX-License-Identifier: Apache-2.0
 * slab.h - slots for copies of prev, in device memory or in pinned memory.
 *
 * A pool (common/pool.h) whose chunks come from the driver; the free memory that it keeps is
 * bounded as described there. To release a chunk, the driver may wait for the device; in a steady
 * state no chunk is released. Errors: take returns NULL. Threads: one at a time. */
#ifndef DW_CUDA_SLAB_H
#define DW_CUDA_SLAB_H

#include "common/pool.h"
#include "device.h"

typedef struct dw_cuda_slab {
    const dw_cuda *cuda;
    bool pinned;
    dw_pool pool;
} dw_cuda_slab;

/* allocator: for the bookkeeping. The struct must not be moved before it is released. */
void dw_cuda_slab_init(dw_cuda_slab *slab, const dw_cuda *cuda, bool pinned,
                       const dw_allocator *allocator);
void dw_cuda_slab_release(dw_cuda_slab *slab); /* frees everything; all slots become invalid */

/* The store that a predictor keeps its copies in. */
dw_store dw_cuda_slab_store(dw_cuda_slab *slab);

#endif
