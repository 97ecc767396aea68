/* SPDX-License-Identifier: Apache-2.0
 * slab.c - slots for copies of prev, in memory that the host need not reach. */
#include <string.h>

#include "slab.h"

/* The driver gives memory in pages of 2 MiB; slots begin where a warp's widest access does. */
enum { BLOCK_BYTES = 2 << 20, ALIGNMENT = 256 };

/* At most a sixteenth of a slot is slack, so that lengths which differ a little share their slots.
 */
static uint64_t slot_bytes(uint64_t bytes)
{
    uint64_t step = ALIGNMENT;
    while (bytes > 32 * step) step *= 2;
    return dw_round_up(bytes, step);
}

static dw_cuda_slots *find_size(const dw_cuda_slab *slab, uint64_t bytes)
{
    for (uint64_t i = 0; i < slab->n_sizes; i++)
        if (slab->sizes[i].bytes == bytes) return &slab->sizes[i];
    return NULL;
}

static dw_cuda_slots *add_size(dw_cuda_slab *slab, uint64_t bytes)
{
    void *sizes = slab->sizes;
    if (!dw_mem_grow(&slab->allocator, &sizes, &slab->sizes_cap, slab->n_sizes + 1,
                     sizeof *slab->sizes))
        return NULL;
    slab->sizes = sizes;
    slab->sizes[slab->n_sizes] = (dw_cuda_slots){.bytes = bytes};
    return &slab->sizes[slab->n_sizes++];
}

/* One block more, cut into free slots. There is room in the list for every slot, so that giving
 * back cannot fail. */
static bool carve(dw_cuda_slab *slab, dw_cuda_slots *slots)
{
    uint64_t n = slots->bytes < BLOCK_BYTES ? BLOCK_BYTES / slots->bytes : 1;
    void *list = slots->free, *blocks = slab->blocks;
    if (!dw_mem_grow(&slab->allocator, &list, &slots->cap, slots->all + n, sizeof *slots->free))
        return false;
    slots->free = list;
    if (!dw_mem_grow(&slab->allocator, &blocks, &slab->blocks_cap, slab->n_blocks + 1,
                     sizeof *slab->blocks))
        return false;
    slab->blocks = blocks;
    dw_cuda_block *block = &slab->blocks[slab->n_blocks];
    if (dw_cuda_allocate(slab->cuda, slab->pinned, n * slots->bytes, block)) return false;
    slab->n_blocks++;
    for (uint64_t i = n; i-- > 0;)
        slots->free[slots->n_free++] = block->address + (dw_cuda_address)(i * slots->bytes);
    slots->all += n;
    return true;
}

void *dw_cuda_slab_take(void *context, uint64_t bytes)
{
    dw_cuda_slab *slab = context;
    if (bytes == 0 || bytes > PTRDIFF_MAX / 2) return NULL;
    dw_cuda_slots *slots = find_size(slab, slot_bytes(bytes));
    if (!slots) slots = add_size(slab, slot_bytes(bytes));
    if (!slots || (slots->n_free == 0 && !carve(slab, slots))) return NULL;
    return (void *)slots->free[--slots->n_free];
}

void dw_cuda_slab_give(void *context, void *slot, uint64_t bytes)
{
    dw_cuda_slots *slots = find_size(context, slot_bytes(bytes));
    slots->free[slots->n_free++] = (dw_cuda_address)slot;
}

void dw_cuda_slab_release(dw_cuda_slab *slab)
{
    for (uint64_t i = 0; i < slab->n_blocks; i++) dw_cuda_free(slab->cuda, &slab->blocks[i]);
    for (uint64_t i = 0; i < slab->n_sizes; i++)
        dw_mem_release(&slab->allocator, slab->sizes[i].free,
                       slab->sizes[i].cap * sizeof *slab->sizes[i].free);
    dw_mem_release(&slab->allocator, slab->sizes, slab->sizes_cap * sizeof *slab->sizes);
    dw_mem_release(&slab->allocator, slab->blocks, slab->blocks_cap * sizeof *slab->blocks);
    memset(slab, 0, sizeof *slab);
}
