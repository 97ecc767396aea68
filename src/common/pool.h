/* SPDX-License-Identifier: Apache-2.0
 * pool.h - slots of any size, cut from chunks that are returned when they are wholly free.
 *
 * The first chunk has 4 KiB, or twice the slot that it is for, and each further one as much as the
 * pool has by then, up to 2 MiB. So a pool of a few small slots is small, and a large one asks
 * seldom. Chunks of another source than the allocator all have 2 MiB.
 *
 * A slot that is given back is kept as it is ("resting") and is the next one taken of its size.
 * When no free room is left, and before another chunk is allocated, all resting slots are joined
 * with their free neighbours, so that their room can serve any size. Of the free blocks the
 * smallest that is large enough is cut first. A slot of more than 1 MiB gets a memory block of its
 * own, of exactly its size, which can only be reused for the same size. All bookkeeping lies
 * outside the slots, so slots may be memory that the CPU cannot address.
 *
 * Bound: wholly free chunks are kept for reuse as long as all memory taken from the source is at
 * most twice the recent peak of use, plus 2 MiB. Beyond that they are returned, the one that was
 * free for the longest time first. "Recent" means the current and the previous period; a period
 * ends when as many slots were given back as were in use at its beginning, plus 256. So a steady
 * state, in which the same sizes come and go, allocates and releases nothing once every size has
 * its room, and the pool shrinks when its users go away. A chunk with at least one slot in use is
 * kept, and its free room counts as slack.
 *
 * Errors: NULL where the source has no memory even after all free chunks were returned; nothing
 * else has changed then. Giving back cannot fail. Apart from calls of the source, take and give
 * need constant time. Threads: one at a time. */
#ifndef DW_POOL_H
#define DW_POOL_H

#include "base/mem.h"

/* handle: anything that the source needs in order to release the memory. */
typedef struct dw_pool_memory {
    void *address, *handle;
} dw_pool_memory;

/* Where chunks come from. allocate returns false where there is no memory; *memory is aligned to
 * the granule. */
typedef struct dw_pool_source {
    bool (*allocate)(void *context, uint64_t bytes, dw_pool_memory *memory);
    void (*release)(void *context, dw_pool_memory memory, uint64_t bytes);
    void *context;
} dw_pool_source;

/* Free blocks are kept in bins: sixteen per power of two, for all sizes from the granule up to
 * 2^63, and sixteen more so that blocks within chunks and large blocks of the same size class have
 * separate bins. */
enum { DW_POOL_BINS = 16 * 61, DW_POOL_FIRST_BYTES = 4 << 10, DW_POOL_CHUNK_BYTES = 2 << 20 };

typedef struct dw_pool_block dw_pool_block;
typedef struct dw_pool_records dw_pool_records;

typedef struct dw_pool {
    dw_allocator allocator; /* for the bookkeeping; also for chunks where source has no functions */
    dw_pool_source source;
    uint32_t granule_bits;                  /* all slots begin at a multiple of 1 << granule_bits */
    uint32_t last_small;                    /* the last bin of blocks that lie within chunks */
    dw_pool_block *bins[DW_POOL_BINS];      /* of free blocks */
    uint64_t filled[DW_POOL_BINS / 64 + 2]; /* one bit per bin: the bin is not empty */
    dw_pool_block *resting[DW_POOL_BINS];   /* resting blocks by size */
    uint64_t rested[DW_POOL_BINS / 64 + 1]; /* one bit per size: some blocks of it are resting */
    dw_pool_block **table;                  /* hash table of all blocks by address, with chaining */
    uint64_t table_cap, blocks;
    dw_pool_block *spare;           /* unused records */
    dw_pool_records *records;       /* the memory that all records were cut from */
    dw_pool_block *oldest, *newest; /* list of wholly free chunks, in the order in which they became
                                       free */
    uint64_t taken_bytes, taken_slots; /* sizes and number of slots in use */
    uint64_t chunk_bytes;              /* bytes taken from the source */
    uint64_t book_bytes;               /* bytes of the bookkeeping */
    /* Largest taken_bytes in the current period, and in the previous one. */
    uint64_t peak, peak_before;
    uint64_t until_period; /* slots still to be given back before the next period starts */
} dw_pool;

/* Slots are aligned to 64 bytes. Allocates nothing yet. */
void dw_pool_init(dw_pool *pool, const dw_allocator *allocator);

/* The same with another source, and slots aligned to another granule, a power of two. */
void dw_pool_init_source(dw_pool *pool, const dw_allocator *allocator, const dw_pool_source *source,
                         uint64_t granule);
void dw_pool_release(dw_pool *pool); /* frees everything; all slots become invalid */

/* Returns a slot of at least `bytes` bytes. It is larger by at most a sixteenth, or by less than a
 * granule. */
void *dw_pool_take(dw_pool *pool, uint64_t bytes);
void dw_pool_give(dw_pool *pool, void *slot); /* NULL is fine */

/* Bytes taken from allocator and source, apart from the slots in use. */
uint64_t dw_pool_slack(const dw_pool *pool);

/* A source of memory for copies of prev that the CPU may be unable to address, such as GPU memory.
 * take returns NULL where there is none; give cannot fail. slack returns the bytes that the store
 * occupies, in any memory, beyond what was taken from it. */
typedef struct dw_store {
    void *(*take)(void *context, uint64_t bytes);
    void (*give)(void *context, void *slot, uint64_t bytes);
    uint64_t (*slack)(void *context);
    void *context;
} dw_store;

#endif
