/* SPDX-License-Identifier: Apache-2.0
 * predict.h - what both ends hold of a key: copies of prev, versions, chains, undo, quota.
 *
 * Nothing here is advanced in place: a new prev is made in a fresh slot, and commit swaps slots,
 * which cannot fail.
 *
 * wide table:
 * | name   | meaning                                                                       | owner   |
 * | now    | the newest copy; data NULL where there is none                                | predict |
 * | undo   | encoder: an older copy that the decoder may still hold, until now is confirmed| predict |
 * | base   | encoder: what the next delta starts from                                      | caller  |
 *
 * Errors: NO_MEMORY, LIMIT (the quota), with everything as it was. State machine:
 * docs/architecture.md, Staying in step. Threads: one at a time. Source: AQ-SGD (arXiv:2206.01299),
 * m(xi). */
#ifndef DW_PREDICT_H
#define DW_PREDICT_H

#include "base/pool.h"

typedef struct dw_copy {
    void *data;
    uint64_t version, chain, state_digest;
    uint32_t audit; /* the stride that state_digest was taken with; 0: there is none */
} dw_copy;

typedef enum dw_base { DW_BASE_NOW, DW_BASE_UNDO, DW_BASE_NOTHING } dw_base;

typedef struct dw_held {
    dw_key key;
    uint32_t t, c;
    dw_dtype dtype;
    uint64_t incarnation;
    uint64_t mark;    /* the call that touched it last: shows that a frame names a key twice */
    uint64_t checked; /* the call that re-hashed it last */
    /* Bytes that it takes of the quota: the largest copy that the other end may hold. */
    uint64_t counted;
    dw_copy now, undo;
    dw_base base;
    bool busy;   /* a frame in flight carries it */
    bool doomed; /* decoder: announced as forgotten while a frame that carries it was in flight */
    bool forgotten;     /* encoder: no copies any more, but the decoder may not know yet */
    uint64_t announced; /* the last frame that announced that it is forgotten; 0: none has */
    struct dw_held *older, *newer; /* among the forgotten */
} dw_held;

typedef struct dw_predictor {
    dw_pool pool;
    dw_store store;        /* of copies; take NULL: the pool */
    uint64_t stored_bytes; /* taken from it */
    dw_held **table;       /* open addressing, linear probing */
    uint64_t table_cap, keys;
    uint64_t seed;                    /* so that nobody who names the keys can choose collisions */
    uint64_t quota_bytes, held_bytes; /* held_bytes: what all keys take of the quota */
    uint64_t reserved_bytes;          /* what frames in flight will add to it */
    dw_held *oldest_forgotten, *newest_forgotten;
    uint64_t n_forgotten;
    uint64_t dropped_incarnation, dropped_sequence; /* decoder: see dw_predictor_refuse_until */
} dw_predictor;

void dw_predictor_init(dw_predictor *predictor, const dw_allocator *allocator,
                       uint64_t quota_bytes);

/* Before the first key: copies live there. Whoever made the store ends it, and with it all
 * copies. */
void dw_predictor_use(dw_predictor *predictor, const dw_store *store);

/* All that is in use: copies and what is known of their keys. */
uint64_t dw_predictor_bytes(const dw_predictor *predictor);

/* All that is taken from allocator and store beside it: free room for the next copies (pool.h says
 * how much at most), and tables. */
uint64_t dw_predictor_slack(const dw_predictor *predictor);

void dw_predictor_release(dw_predictor *predictor);

/* NULL: nothing is held of the key. */
dw_held *dw_predictor_find(const dw_predictor *predictor, dw_key key);

/* Finds a key or adds it, with no copies. */
dw_status dw_predictor_add(dw_predictor *predictor, dw_key key, dw_held **held);

/* Gives up all keys. */
void dw_predictor_clear(dw_predictor *predictor);

/* Gives up a key and its copies. */
void dw_predictor_remove(dw_predictor *predictor, dw_held *held);

/* Decoder: frame `sequence` of this incarnation dropped a key, or the copy that it had made. Were
 * an earlier frame with that key to arrive late or twice, the decoder would hold the key again and
 * the encoder would not know; so frames up to this number are refused where they carry a key that
 * is not held. One number serves all keys: a new key in a late frame may be refused too, and is
 * then sent again. */
void dw_predictor_refuse_until(dw_predictor *predictor, uint64_t incarnation, uint64_t sequence);
bool dw_predictor_refuses(const dw_predictor *predictor, uint64_t incarnation, uint64_t sequence);

/* Decoder: gives up a key, and refuses all frames up to the one that made its copy. */
void dw_predictor_drop(dw_predictor *predictor, dw_held *held);

/* Drops all keys whose copies another incarnation made: no delta can start from them. Keys that a
 * frame in flight carries are marked as doomed instead, and take nothing of the quota. */
void dw_predictor_remove_lives_but(dw_predictor *predictor, uint64_t incarnation);

/* Gives up the copies but remembers the key, and its share of the quota, until it is removed or
 * committed anew. */
void dw_predictor_forget(dw_predictor *predictor, dw_held *held);

/* The key counts as never forgotten; its copies are gone all the same. */
void dw_predictor_revive(dw_predictor *predictor, dw_held *held);

uint64_t dw_held_bytes(const dw_held *held); /* of one copy */

/* A slot for a copy of these bytes; LIMIT where *used and what the key grows by pass the quota.
 * *used begins with what the keys take of the quota and is advanced, so that the keys of one frame
 * are counted together. */
dw_status dw_predictor_take(dw_predictor *predictor, uint64_t bytes, uint64_t growth,
                            uint64_t *used, void **slot);
void dw_predictor_give(dw_predictor *predictor, void *slot, uint64_t bytes);

/* Makes `fresh` what is held, with the shape, dtype and incarnation of *shape (a dw_held with no
 * copies). keep_undo: one older copy stays as undo: the one that was undo already, which the
 * decoder is likelier to hold, else what was held until now. */
void dw_predictor_commit(dw_predictor *predictor, dw_held *held, const dw_held *shape,
                         dw_copy fresh, bool keep_undo);

/* The decoder holds `now`: older copies can go. */
void dw_predictor_confirm(dw_predictor *predictor, dw_held *held);

#endif
