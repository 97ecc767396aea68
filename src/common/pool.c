/* SPDX-License-Identifier: Apache-2.0
 * pool.c - slots of any size, cut from chunks that are returned when all of their slots are
 * free. */
#include <assert.h>
#include <string.h>

#include "common/pool.h"

enum {
    GRANULE = 64,
    RECORDS = 42,
    LARGE_ABOVE = DW_POOL_CHUNK_BYTES / 2,
    FIRST_TABLE = 64,
    SMALL = 512
};

/* The states of a block, which is a contiguous part of a chunk. TAKEN: the caller has it as a slot.
 * RESTING: it was given back recently and is likely to be taken again soon, so it is not yet in a
 * bin and not joined with its neighbours. FREE: it is in a bin. Two free blocks are never
 * neighbours, because they are joined. */
typedef enum block_state { FREE, RESTING, TAKEN } block_state;

struct dw_pool_block {
    unsigned char *address;
    dw_pool_block *chained; /* next in its chain of the hash table */
    uint64_t bytes;
    /* Links: of a resting block, the next one of the same size; of a free block, its neighbours in
     * its bin; of an unused record, the next unused one. */
    dw_pool_block *next, *previous;
    block_state state;
    uint32_t bin;
    dw_pool_block *before, *after; /* neighbours in the chunk; NULL at its ends */
    dw_pool_block *older, *newer;  /* neighbours in the list of chunks that are wholly free */
    void *handle;                  /* set in the first block of a chunk: the source's handle */
    bool large; /* this block is a memory block of its own, not part of a chunk */
};

struct dw_pool_records {
    dw_pool_records *next;
    dw_pool_block blocks[RECORDS];
};

/* --- sizes and bins --- */

/* The number of significant bits; 0 for 0. */
static uint32_t bits_of(uint64_t number)
{
#if defined(__GNUC__)
    return number ? 64 - (uint32_t)__builtin_clzll(number) : 0;
#else
    uint32_t bits = 0;
    while (number >> bits) bits++;
    return bits;
#endif
}

/* Slot sizes are multiples of a step, granule << level. Every slot has at most 32 steps, and all
 * but the smallest have at least 17, so that rounding up wastes at most a sixteenth. granules: the
 * requested size. */
static uint32_t level_of(uint64_t granules)
{
    uint32_t bits = bits_of(granules - 1);
    return bits > 5 ? bits - 5 : 0;
}

static uint64_t slot_size(const dw_pool *pool, uint64_t bytes)
{
    uint64_t granules = ((bytes - 1) >> pool->granule_bits) + 1;
    uint32_t level = level_of(granules);
    return (((granules - 1) >> level) + 1) << level << pool->granule_bits;
}

/* The bin of a free block: that of the largest slot size that fits into the block. */
static uint32_t bin_of(const dw_pool *pool, uint64_t bytes, bool large)
{
    uint64_t granules = bytes >> pool->granule_bits;
    uint32_t level = level_of(granules);
    return 16 * (level + large) + (uint32_t)(granules >> level) - 1;
}

static uint32_t lowest_bit(uint64_t set)
{
    return bits_of(set & (~set + 1)) - 1;
}

/* Finds the smallest free block that can hold a slot of this size. Large slots need a block of
 * exactly their size. */
static dw_pool_block *find_free(const dw_pool *pool, uint64_t bytes)
{
    bool large = bytes > LARGE_ABOVE;
    uint32_t bin = bin_of(pool, bytes, large), last = large ? bin : pool->last_small;
    uint64_t set = pool->filled[bin / 64] >> bin % 64 << bin % 64;
    for (uint32_t word = bin / 64; word <= last / 64; set = pool->filled[++word]) {
        if (!set) continue;
        bin = 64 * word + lowest_bit(set);
        return bin <= last ? pool->bins[bin] : NULL;
    }
    return NULL;
}

static bool is_whole(const dw_pool_block *block)
{
    return !block->before && !block->after;
}

static void enter_bin(dw_pool *pool, dw_pool_block *block)
{
    uint32_t bin = block->bin = bin_of(pool, block->bytes, block->large);
    block->previous = NULL;
    block->next = pool->bins[bin];
    if (block->next) block->next->previous = block;
    pool->bins[bin] = block;
    pool->filled[bin / 64] |= UINT64_C(1) << bin % 64;
    if (!is_whole(block)) return;
    block->newer = NULL;
    block->older = pool->newest;
    if (pool->newest)
        pool->newest->newer = block;
    else
        pool->oldest = block;
    pool->newest = block;
}

static void leave_bin(dw_pool *pool, dw_pool_block *block)
{
    uint32_t bin = block->bin;
    if (block->next) block->next->previous = block->previous;
    if (block->previous)
        block->previous->next = block->next;
    else
        pool->bins[bin] = block->next;
    if (!pool->bins[bin]) pool->filled[bin / 64] &= ~(UINT64_C(1) << bin % 64);
    if (!is_whole(block)) return;
    if (block->older)
        block->older->newer = block->newer;
    else
        pool->oldest = block->newer;
    if (block->newer)
        block->newer->older = block->older;
    else
        pool->newest = block->older;
}

void dw_pool_init(dw_pool *pool, const dw_allocator *allocator)
{
    dw_pool_init_source(pool, allocator, &(dw_pool_source){0}, GRANULE);
}

void dw_pool_init_source(dw_pool *pool, const dw_allocator *allocator, const dw_pool_source *source,
                         uint64_t granule)
{
    memset(pool, 0, sizeof *pool);
    pool->allocator = *allocator;
    pool->source = *source;
    while (UINT64_C(1) << pool->granule_bits < granule) pool->granule_bits++;
    pool->last_small = bin_of(pool, DW_POOL_CHUNK_BYTES, false);
}

/* --- the hash table of blocks, and their records --- */

static dw_pool_block **chain_of(const dw_pool *pool, const void *address)
{
    uint64_t mixed = (uint64_t)(uintptr_t)address * UINT64_C(0x9E3779B97F4A7C15);
    return &pool->table[(mixed >> 32) & (pool->table_cap - 1)];
}

static void enter_table(dw_pool *pool, dw_pool_block *block)
{
    dw_pool_block **chain = chain_of(pool, block->address);
    block->chained = *chain;
    *chain = block;
    pool->blocks++;
}

static void leave_table(dw_pool *pool, dw_pool_block *block)
{
    dw_pool_block **link = chain_of(pool, block->address);
    while (*link != block) link = &(*link)->chained;
    *link = block->chained;
    pool->blocks--;
    block->next = pool->spare;
    pool->spare = block;
}

static bool grow_table(dw_pool *pool)
{
    uint64_t old_cap = pool->table_cap, cap = old_cap ? 2 * old_cap : FIRST_TABLE, bytes;
    if (!dw_size_multiply(cap, sizeof *pool->table, &bytes)) return false;
    dw_pool_block **old = pool->table, **fresh = dw_mem_allocate(&pool->allocator, bytes);
    if (!fresh) return false;
    for (uint64_t i = 0; i < cap; i++) fresh[i] = NULL;
    pool->table = fresh;
    pool->table_cap = cap;
    pool->blocks = 0;
    for (uint64_t i = 0; i < old_cap; i++)
        for (dw_pool_block *block = old[i], *next; block; block = next) {
            next = block->chained;
            enter_table(pool, block);
        }
    dw_mem_release(&pool->allocator, old, old_cap * sizeof *old);
    pool->book_bytes += (cap - old_cap) * sizeof *old;
    return true;
}

/* A take needs at most two new records (when it adds a chunk and splits it). Reserves them, and
 * their room in the table, before anything is changed. */
static bool reserve_records(dw_pool *pool)
{
    if (pool->blocks + 2 > pool->table_cap && !grow_table(pool)) return false;
    if (pool->spare && pool->spare->next) return true;
    dw_pool_records *more = dw_mem_allocate(&pool->allocator, sizeof *more);
    if (!more) return false;
    more->next = pool->records;
    pool->records = more;
    pool->book_bytes += sizeof *more;
    for (int i = 0; i < RECORDS; i++) {
        more->blocks[i].next = pool->spare;
        pool->spare = &more->blocks[i];
    }
    return true;
}

static dw_pool_block *new_block(dw_pool *pool, dw_pool_block what)
{
    dw_pool_block *block = pool->spare;
    pool->spare = block->next;
    *block = what;
    enter_table(pool, block);
    return block;
}

/* --- chunks --- */

static bool get_memory(dw_pool *pool, uint64_t bytes, dw_pool_memory *memory)
{
    if (pool->source.allocate) return pool->source.allocate(pool->source.context, bytes, memory);
    *memory = (dw_pool_memory){.address = dw_mem_allocate(&pool->allocator, bytes)};
    return memory->address != NULL;
}

static void put_memory(dw_pool *pool, dw_pool_memory memory, uint64_t bytes)
{
    if (pool->source.allocate)
        pool->source.release(pool->source.context, memory, bytes);
    else
        dw_mem_release(&pool->allocator, memory.address, bytes);
    pool->chunk_bytes -= bytes;
}

static void release_chunk(dw_pool *pool, dw_pool_block *whole)
{
    leave_bin(pool, whole);
    put_memory(pool, (dw_pool_memory){whole->address, whole->handle}, whole->bytes);
    leave_table(pool, whole);
}

/* Does the pool hold more memory than it is likely to need soon? The limit is twice the recent peak
 * of use, because sizes that alternate each need room of their own, plus one chunk of the longest
 * kind. more: bytes that are about to be added. */
static bool is_too_much(const dw_pool *pool, uint64_t more)
{
    uint64_t peak = pool->peak > pool->peak_before ? pool->peak : pool->peak_before;
    if (more && pool->taken_bytes + more > peak) peak = pool->taken_bytes + more;
    return pool->chunk_bytes + more > 2 * peak + DW_POOL_CHUNK_BYTES;
}

static void trim(dw_pool *pool, uint64_t more)
{
    while (pool->oldest && is_too_much(pool, more)) release_chunk(pool, pool->oldest);
}

/* Returns how long the next chunk is, which is for a slot that lies within a chunk. */
static uint64_t next_chunk_bytes(const dw_pool *pool, uint64_t slot_bytes)
{
    if (pool->source.allocate) return DW_POOL_CHUNK_BYTES;
    uint64_t bytes = DW_POOL_FIRST_BYTES;
    while (bytes < DW_POOL_CHUNK_BYTES && (bytes < 2 * slot_bytes || bytes < pool->chunk_bytes))
        bytes *= 2;
    return bytes;
}

static dw_pool_block *add_chunk(dw_pool *pool, uint64_t slot_bytes)
{
    bool large = slot_bytes > LARGE_ABOVE, had_some;
    uint64_t bytes = large ? slot_bytes : next_chunk_bytes(pool, slot_bytes);
    dw_pool_memory memory;
    trim(pool, bytes);
    while (!get_memory(pool, bytes, &memory)) {
        had_some = pool->oldest != NULL;
        while (pool->oldest) release_chunk(pool, pool->oldest);
        if (!had_some) return NULL;
    }
    pool->chunk_bytes += bytes;
    dw_pool_block *block = new_block(pool, (dw_pool_block){.address = memory.address,
                                                           .bytes = bytes,
                                                           .handle = memory.handle,
                                                           .large = large});
    enter_bin(pool, block);
    return block;
}

/* --- slots --- */

/* The block keeps its first `bytes` bytes; the rest becomes a new block, which is in no bin yet. */
static dw_pool_block *split(dw_pool *pool, dw_pool_block *block, uint64_t bytes)
{
    dw_pool_block *rest = new_block(pool, (dw_pool_block){.address = block->address + bytes,
                                                          .bytes = block->bytes - bytes,
                                                          .before = block,
                                                          .after = block->after});
    if (rest->after) rest->after->before = rest;
    block->after = rest;
    block->bytes = bytes;
    return rest;
}

/* Cuts a slot from a free block that is larger than needed. Small slots, which are mostly
 * long-lived records, are cut from its end, and copies of prev from its beginning, so that they
 * fragment each other's room less. */
static dw_pool_block *cut(dw_pool *pool, dw_pool_block *block, uint64_t bytes)
{
    bool small = bytes <= SMALL;
    dw_pool_block *rest = split(pool, block, small ? block->bytes - bytes : bytes);
    enter_bin(pool, small ? block : rest);
    return small ? rest : block;
}

/* Extends `block` by its right neighbour, whose record is freed. Neither is in a bin. */
static void join(dw_pool *pool, dw_pool_block *block)
{
    dw_pool_block *behind = block->after;
    block->bytes += behind->bytes;
    block->after = behind->after;
    if (block->after) block->after->before = block;
    leave_table(pool, behind);
}

/* Frees a block and joins it with its free neighbours. */
static void free_block(dw_pool *pool, dw_pool_block *block)
{
    block->state = FREE;
    if (block->after && block->after->state == FREE) {
        leave_bin(pool, block->after);
        join(pool, block);
    }
    if (block->before && block->before->state == FREE) {
        block = block->before;
        leave_bin(pool, block);
        join(pool, block);
    }
    enter_bin(pool, block);
}

static void end_rests(dw_pool *pool)
{
    for (uint32_t word = 0; word < sizeof pool->rested / sizeof *pool->rested; word++)
        while (pool->rested[word]) {
            uint32_t bin = 64 * word + lowest_bit(pool->rested[word]);
            pool->rested[word] &= pool->rested[word] - 1;
            for (dw_pool_block *block = pool->resting[bin], *next; block; block = next) {
                next = block->next;
                free_block(pool, block);
            }
            pool->resting[bin] = NULL;
        }
}

static dw_pool_block *take_rested(dw_pool *pool, uint64_t slot_bytes)
{
    uint32_t bin = bin_of(pool, slot_bytes, false);
    dw_pool_block *block = pool->resting[bin];
    if (!block) return NULL;
    pool->resting[bin] = block->next;
    if (!block->next) pool->rested[bin / 64] &= ~(UINT64_C(1) << bin % 64);
    return block;
}

static dw_pool_block *take_free(dw_pool *pool, uint64_t slot_bytes)
{
    if (!reserve_records(pool)) return NULL;
    dw_pool_block *block = find_free(pool, slot_bytes);
    if (!block) {
        end_rests(pool);
        block = find_free(pool, slot_bytes);
    }
    if (!block) block = add_chunk(pool, slot_bytes);
    if (!block) return NULL;
    leave_bin(pool, block);
    return block->bytes > slot_bytes ? cut(pool, block, slot_bytes) : block;
}

void *dw_pool_take(dw_pool *pool, uint64_t bytes)
{
    if (bytes == 0 || bytes > PTRDIFF_MAX / 4) return NULL;
    uint64_t slot_bytes = slot_size(pool, bytes);
    dw_pool_block *block = take_rested(pool, slot_bytes);
    if (!block) block = take_free(pool, slot_bytes);
    if (!block) return NULL;
    block->state = TAKEN;
    pool->taken_bytes += slot_bytes;
    pool->taken_slots++;
    if (pool->taken_bytes > pool->peak) pool->peak = pool->taken_bytes;
    return block->address;
}

/* Starts a new period for the measurement of peaks. Only the peaks of this period and of the
 * previous one are kept. */
static void start_period(dw_pool *pool)
{
    pool->peak_before = pool->peak;
    pool->peak = pool->taken_bytes;
    pool->until_period = 256 + pool->taken_slots;
    if (is_too_much(pool, 0)) end_rests(pool);
}

void dw_pool_give(dw_pool *pool, void *slot)
{
    if (!slot) return;
    dw_pool_block *block = *chain_of(pool, slot);
    while (block->address != slot) block = block->chained;
    assert(block->state == TAKEN);
    pool->taken_bytes -= block->bytes;
    pool->taken_slots--;
    if (block->large) {
        free_block(pool, block);
    } else {
        uint32_t bin = bin_of(pool, block->bytes, false);
        block->state = RESTING;
        block->next = pool->resting[bin];
        pool->resting[bin] = block;
        pool->rested[bin / 64] |= UINT64_C(1) << bin % 64;
    }
    if (pool->until_period-- == 0) start_period(pool);
    trim(pool, 0);
}

void dw_pool_release(dw_pool *pool)
{
    for (uint64_t i = 0; i < pool->table_cap; i++)
        for (dw_pool_block *block = pool->table[i]; block; block = block->chained) {
            uint64_t bytes = 0;
            if (block->before) continue;
            for (dw_pool_block *part = block; part; part = part->after) bytes += part->bytes;
            put_memory(pool, (dw_pool_memory){block->address, block->handle}, bytes);
        }
    dw_mem_release(&pool->allocator, pool->table, pool->table_cap * sizeof *pool->table);
    for (dw_pool_records *records = pool->records, *next; records; records = next) {
        next = records->next;
        dw_mem_release(&pool->allocator, records, sizeof *records);
    }
    dw_pool_init(pool, &(dw_allocator){0});
}

uint64_t dw_pool_slack(const dw_pool *pool)
{
    return pool->chunk_bytes - pool->taken_bytes + pool->book_bytes;
}
