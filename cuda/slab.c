/* SPDX-License-Identifier: Apache-2.0
 * slab.c - slots for copies of prev, in memory that the host may be unable to reach. */
#include <string.h>

#include "slab.h"

/* The alignment of a warp's widest access. */
enum { GRANULE = 256 };

static bool allocate(void *context, uint64_t bytes, dw_pool_memory *memory)
{
    const dw_cuda_slab *slab = context;
    dw_cuda_block block;
    if (dw_cuda_allocate(slab->cuda, slab->pinned, bytes, &block)) return false;
    *memory = (dw_pool_memory){(void *)(uintptr_t)block.address, block.host};
    return true;
}

static void release(void *context, dw_pool_memory memory, uint64_t bytes)
{
    const dw_cuda_slab *slab = context;
    (void)bytes;
    dw_cuda_free(slab->cuda, &(dw_cuda_block){(dw_cuda_address)memory.address, memory.handle});
}

void dw_cuda_slab_init(dw_cuda_slab *slab, const dw_cuda *cuda, bool pinned,
                       const dw_allocator *allocator)
{
    *slab = (dw_cuda_slab){.cuda = cuda, .pinned = pinned};
    dw_pool_init_source(&slab->pool, allocator, &(dw_pool_source){allocate, release, slab},
                        GRANULE);
}

void dw_cuda_slab_release(dw_cuda_slab *slab)
{
    dw_pool_release(&slab->pool);
}

static void *take(void *context, uint64_t bytes)
{
    return dw_pool_take(&((dw_cuda_slab *)context)->pool, bytes);
}

static void give(void *context, void *slot, uint64_t bytes)
{
    (void)bytes;
    dw_pool_give(&((dw_cuda_slab *)context)->pool, slot);
}

static uint64_t slack(void *context)
{
    return dw_pool_slack(&((dw_cuda_slab *)context)->pool);
}

dw_store dw_cuda_slab_store(dw_cuda_slab *slab)
{
    return (dw_store){take, give, slack, slab};
}
