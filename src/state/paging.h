/* SPDX-License-Identifier: Apache-2.0
 * paging.h - the memory of copies: slots, which copies lie in the backing store instead, and the
 * order in which keys were used.
 *
 * A copy is resident if its values are in memory, and paged out if only the backing store has them.
 * A copy that was paged in keeps its record there, so that it need not be written again.
 *
 * Errors, with nothing changed: NO_MEMORY; IO, where the backing store cannot write, or a copy
 * cannot be brought to its slot or from there, with a sentence in *why. Threads: one at a time. */
#ifndef DW_PAGING_H
#define DW_PAGING_H

#include "common/pool.h"

/* A residual of error feedback is a copy, too, in f32 and without a digest. Its version is the
 * sequence of the last frame of the key, and its chain that of the first frame that can still be
 * given back (ends/encoder_residual.c). */
typedef struct dw_copy {
    void *data;      /* NULL: not in memory */
    uint64_t record; /* in the backing store; 0: not there */
    uint64_t version, chain, state_digest;
    uint32_t audit; /* the stride that state_digest was computed with; 0: there is no digest */
} dw_copy;

static inline bool dw_copy_is_held(const dw_copy *copy)
{
    return copy->data || copy->record;
}

struct dw_held;

/* Two lists of keys, in the order of their last use: those with resident copies, which may be paged
 * out, and all that were used, which may be evicted. */
typedef enum dw_order { DW_ORDER_RESIDENT, DW_ORDER_USED, DW_ORDERS } dw_order;

typedef struct dw_order_link {
    struct dw_held *before, *after;
    bool is_listed;
} dw_order_link;

/* Copies bytes between a slot that the CPU cannot reach and main memory. Errors: NO_MEMORY; IO,
 * with a sentence in *why. */
typedef struct dw_slot_copier {
    dw_status (*copy)(void *context, void *to, const void *from, uint64_t bytes, dw_why *why);
    void *context;
} dw_slot_copier;

/* A key that was evicted, and the number of its last use. 0: there is none. */
typedef struct dw_watched {
    dw_key key;
    uint64_t used;
} dw_watched;

enum { DW_WATCHED = 32 };

typedef struct dw_paging {
    dw_pool *pool;         /* of main memory */
    dw_store store;        /* for slots; take NULL: the pool is used */
    uint64_t stored_bytes; /* taken from store */
    dw_backing backing;    /* write NULL: there is none */
    dw_slot_copier copier; /* copy NULL: the CPU reaches all slots */
    void *staged;          /* with a copier: a copy on its way to the backing store, or from it */
    uint64_t staged_cap;
    dw_why *why;      /* where errors of the backing store, and of the copier, are said */
    uint64_t bytes;   /* of slots that are in use; only counted with a backing store */
    uint64_t call;    /* keys with this mark are in use by the current call */
    uint64_t lost;    /* copies that could not be read */
    bool keeps_order; /* set where there is a backing store or a quota */
    struct dw_held *oldest[DW_ORDERS], *newest[DW_ORDERS];
    uint64_t uses;    /* number of uses of all keys */
    uint64_t longest; /* the largest number of uses between two of the same key */
    dw_watched watched[DW_WATCHED];
} dw_paging;

/* Takes a slot for a copy. With a backing store, copies of keys that were not used for the longest
 * time, and not by the current call, are paged out first. */
dw_status dw_paging_take(dw_paging *paging, uint64_t bytes, void **slot);
void dw_paging_give(dw_paging *paging, void *slot, uint64_t bytes);

/* To be called when a call begins to use a key: its copies stay resident until the next call. */
void dw_paging_mark(dw_paging *paging, struct dw_held *held, uint64_t call);

/* To be called when the call cannot fail any more and the key has not got its new copy yet. Puts
 * the key at the end of the lists, whether copies of it are held or not. */
void dw_paging_use(dw_paging *paging, struct dw_held *held);

/* Puts a key at the end of the lists whose copy was read from a saved state. It does not count as
 * used by that. */
void dw_paging_list(dw_paging *paging, struct dw_held *held);

/* Returns a key that was not used for more than twice as many uses as lay between any two of the
 * same key, so it will hardly come again; NULL: there is none. With shuffled epochs every
 * other key is as likely to come next as any, and the best choice is to keep those that are held.
 */
struct dw_held *dw_paging_stale(const dw_paging *paging);

/* To be called when a key is evicted that was not used for long. Some of these keys are watched: if
 * one comes again after all, dw_paging_use knows from then on that keys stay away for so long. So
 * the first few uses, of which some may be of the same key, do not decide for ever. */
void dw_paging_watch(dw_paging *paging, const struct dw_held *held);

/* Makes a copy of the key resident. DW_OK also where nothing is held, or where the copy is lost:
 * then the copy is empty. */
dw_status dw_paging_in(dw_paging *paging, struct dw_held *held, dw_copy *copy);

/* Lets the backing store begin to read the copies that a change would start from. */
void dw_paging_prefetch(const dw_paging *paging, const struct dw_held *held);

/* Empties a copy of a key, and returns its memory and its record. */
void dw_paging_drop(dw_paging *paging, const struct dw_held *held, dw_copy *copy);

/* Takes a key off both lists. */
void dw_paging_unlist(dw_paging *paging, struct dw_held *held);

#endif
