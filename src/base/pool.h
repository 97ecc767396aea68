/* SPDX-License-Identifier: Apache-2.0
 * pool.h - slots of any size, carved from chunks of two mebibytes that go back when they are free.
 *
 * A slot that is given back is the next one taken of its size. When chunks have no other room left,
 * all such slots join their free neighbours, so that their room serves any size, before another
 * chunk is taken; of free room the smallest that is large enough is cut first. Slots of more than
 * half a chunk have memory of their own, of their exact size, which serves the same size again. All
 * bookkeeping lies apart from the slots, so that they may be memory that this processor cannot
 * reach.
 *
 * What is bounded: chunks that are wholly free are kept for the next takers, as long as all that
 * was taken from the source is at most twice what was lately in use at once, plus one chunk; beyond
 * that they go back, the one that was free for longest first. "Lately" is the last one or two times
 * that as many slots were given back as are in use. So a steady state, in which the same sizes
 * come and go, allocates and releases nothing once every size has its room, and a pool whose takers
 * went away follows them down. A chunk of which a slot is in use stays, and its free room counts as
 * slack.
 *
 * Errors: NULL where the source has no memory, after all free chunks were given back; nothing else
 * has changed then. Giving back cannot fail. Take and give need the same time however much is held,
 * but for what the source needs. Threads: one at a time. */
#ifndef DW_POOL_H
#define DW_POOL_H

#include "base/mem.h"

/* handle: whatever the source needs to release the memory. */
typedef struct dw_pool_memory {
    void *address, *handle;
} dw_pool_memory;

/* Where chunks come from. allocate: false where there is none; *memory is aligned to the
 * granule. */
typedef struct dw_pool_source {
    bool (*allocate)(void *context, uint64_t bytes, dw_pool_memory *memory);
    void (*release)(void *context, dw_pool_memory memory, uint64_t bytes);
    void *context;
} dw_pool_source;

/* Free room is kept in bins: sixteen sizes to a power of two, from the granule up to 2^63, and
 * another power of two for the sizes that both kinds of memory hold. */
enum { DW_POOL_BINS = 16 * 61, DW_POOL_CHUNK_BYTES = 2 << 20 };

typedef struct dw_pool_block dw_pool_block;
typedef struct dw_pool_records dw_pool_records;

typedef struct dw_pool {
    dw_allocator allocator; /* of the bookkeeping; of chunks too where source has no functions */
    dw_pool_source source;
    uint32_t granule_bits;                  /* all slots begin at a multiple of 1 << granule_bits */
    uint32_t last_small;                    /* the last bin of sizes that lie in chunks */
    dw_pool_block *bins[DW_POOL_BINS];      /* of free blocks */
    uint64_t filled[DW_POOL_BINS / 64 + 2]; /* a bit for every bin that is not empty */
    dw_pool_block *resting[DW_POOL_BINS];   /* blocks given back a moment ago, by their size */
    uint64_t rested[DW_POOL_BINS / 64 + 1]; /* a bit for every size of which some are */
    dw_pool_block **table;                  /* all blocks by address: chains */
    uint64_t table_cap, blocks;
    dw_pool_block *spare;              /* records in nobody's hands */
    dw_pool_records *records;          /* what all of them were carved from */
    dw_pool_block *oldest, *newest;    /* chunks that are wholly free, as they became so */
    uint64_t taken_bytes, taken_slots; /* in the hands of takers */
    uint64_t chunk_bytes;              /* all that was taken from the source */
    uint64_t book_bytes;               /* all that the bookkeeping takes */
    /* Most taken_bytes since the turn, and from the turn before to it. */
    uint64_t peak, peak_before;
    uint64_t until_turn; /* slots to be given back before the next turn */
} dw_pool;

/* Slots are aligned to 64 bytes. No memory is taken yet. */
void dw_pool_init(dw_pool *pool, const dw_allocator *allocator);

/* The same with another source and granule, a power of two. */
void dw_pool_init_source(dw_pool *pool, const dw_allocator *allocator, const dw_pool_source *source,
                         uint64_t granule);
void dw_pool_release(dw_pool *pool); /* every slot ends */

/* A slot of at least so many bytes, at most a sixteenth larger (or than the granule's multiple). */
void *dw_pool_take(dw_pool *pool, uint64_t bytes);
void dw_pool_give(dw_pool *pool, void *slot); /* NULL is fine */

/* All that is taken from allocator and source, but for what takers have in their hands. */
uint64_t dw_pool_slack(const dw_pool *pool);

#endif
