/* SPDX-License-Identifier: Apache-2.0
 * predict.h - what an encoder or decoder holds of each key: copies of prev, their versions and
 * chains, the undo copy, and the key's share of the quota.
 *
 * Nothing is advanced in place: the new prev is computed in a new slot, and commit exchanges slots,
 * which cannot fail.
 *
 * wide table:
 * | name   | meaning                                                                       | owner   |
 * | now    | the newest copy; not held where there is none                                 | predict |
 * | undo   | encoder: an older copy that the decoder may still hold, until now is confirmed| predict |
 * | base   | encoder: which copy the next delta starts from                                | caller  |
 *
 * Errors: NO_MEMORY, LIMIT (the quota), with nothing changed. The state machine is described in
 * docs/architecture.md, Staying in step. Threads: one at a time. Source: AQ-SGD (arXiv:2206.01299),
 * where the copies are called m(xi). */
#ifndef DW_PREDICT_H
#define DW_PREDICT_H

#include "common/compact.h"
#include "state/paging.h"

typedef enum dw_base { DW_BASE_NOW, DW_BASE_UNDO, DW_BASE_NOTHING } dw_base;

typedef struct dw_held {
    dw_key key;
    uint32_t t, c;
    dw_dtype dtype; /* of the values of a copy; or that it is compact (common/compact.h) */
    /* Bytes behind the values of a copy: what a form keeps of the key beside a residual. */
    uint64_t more;
    uint64_t incarnation;
    /* Number of the last call that touched the key; shows that a key occurs twice in a frame. */
    uint64_t mark;
    uint64_t checked; /* number of the last call that verified state_digest */
    /* Bytes that the key takes of the quota: the size of the largest copy that the other end may
     * hold. */
    uint64_t counted;
    dw_copy now, undo;
    dw_base base;
    bool busy; /* a frame in flight carries this key */
    /* Decoder: the encoder has forgotten the key, but a frame in flight still carries it. It is
     * dropped when that frame ends. */
    bool drop_when_done;
    bool forgotten;     /* encoder: its copies are gone, but the decoder may not know yet */
    uint64_t announced; /* sequence of the last frame that announced this; 0: none yet */
    struct dw_held *older, *newer; /* neighbours in the list of forgotten keys */
    dw_order_link links[DW_ORDERS];
    uint64_t used; /* number of its last use, among those of all keys */
} dw_held;

typedef struct dw_predictor {
    dw_pool pool;
    dw_paging paging;
    dw_held **table; /* hash table with open addressing and linear probing */
    uint64_t table_cap, keys;
    uint64_t seed; /* random, so that nobody who chooses keys can produce collisions */
    uint64_t quota_bytes, held_bytes; /* held_bytes: the sum of `counted` over all keys */
    uint64_t reserved_bytes;          /* how much frames in flight will add to held_bytes */
    dw_held *oldest_forgotten, *newest_forgotten;
    uint64_t n_forgotten;
    uint64_t dropped_incarnation, dropped_sequence; /* decoder: see dw_predictor_refuse_until */
} dw_predictor;

void dw_predictor_init(dw_predictor *predictor, const dw_allocator *allocator,
                       uint64_t quota_bytes);

/* To be called before the first key is added. use: the predictor keeps copies in *store. Whoever
 * made the store ends it, and all copies with it; with page, not before dw_predictor_release. page:
 * it moves copies to a backing store, with *copier if the CPU cannot reach the slots, and says
 * errors of that in *why. */
void dw_predictor_use(dw_predictor *predictor, const dw_store *store);
void dw_predictor_page(dw_predictor *predictor, const dw_backing *backing,
                       const dw_slot_copier *copier, dw_why *why);

/* Bytes in use: all copies, and the records of their keys. */
uint64_t dw_predictor_bytes(const dw_predictor *predictor);

/* Bytes taken from allocator and store that dw_predictor_bytes does not count: free room for the
 * next copies (bounded, see pool.h), tables, and a copier's buffer. */
uint64_t dw_predictor_slack(const dw_predictor *predictor);

void dw_predictor_release(dw_predictor *predictor);

/* NULL: nothing is held of the key. */
dw_held *dw_predictor_find(const dw_predictor *predictor, dw_key key);

/* Finds the key, or adds it without any copies. */
dw_status dw_predictor_add(dw_predictor *predictor, dw_key key, dw_held **held);

/* Like dw_paging_in. If the newest copy is lost, frames up to the one that made it are refused, as
 * when a decoder drops a key. */
dw_status dw_predictor_page_in(dw_predictor *predictor, dw_held *held, dw_copy *copy);

/* Removes all keys and their copies. */
void dw_predictor_clear(dw_predictor *predictor);

/* Removes a key and its copies. */
void dw_predictor_remove(dw_predictor *predictor, dw_held *held);

/* Decoder: makes dw_predictor_refuses true for frames of this incarnation up to `sequence`. To be
 * called when a key is dropped, with the sequence of the frame that announced it as forgotten, or
 * that made its copy.
 *
 * The reason: an older frame with the dropped key may still arrive, late or as a duplicate. If it
 * were accepted, the decoder would hold the key again and the encoder would not know. So frames up
 * to that sequence are refused if they carry a key that is not held. There is only one number for
 * all keys. So the first frame of a new key can be refused, too, if it arrives late; the encoder
 * then sends the key again. */
void dw_predictor_refuse_until(dw_predictor *predictor, uint64_t incarnation, uint64_t sequence);
/* Decoder: the incarnation was replaced, so all of its frames are refused without a number. */
void dw_predictor_retire(dw_predictor *predictor, uint64_t incarnation);
bool dw_predictor_refuses(const dw_predictor *predictor, uint64_t incarnation, uint64_t sequence);

/* Decoder: removes a key, and refuses frames up to the one that made its copy. */
void dw_predictor_drop(dw_predictor *predictor, dw_held *held);

/* Drops all keys whose copies were made by other incarnations, because no delta can start from them
 * any more. Keys that a frame in flight carries are marked as drop_when_done instead, and no longer
 * count in the quota. */
void dw_predictor_remove_other_incarnations(dw_predictor *predictor, uint64_t incarnation);

/* Encoder: drops the key's copies but keeps its record and its share of the quota, until the key is
 * removed or committed again. */
void dw_predictor_forget(dw_predictor *predictor, dw_held *held);

/* Makes so many bytes the key's share of the quota. */
void dw_predictor_count(dw_predictor *predictor, dw_held *held, uint64_t bytes);

/* Takes the key off the list of forgotten keys. Its copies are gone all the same. */
void dw_predictor_revive(dw_predictor *predictor, dw_held *held);

/* The size of the values of one copy, and of one copy. */
uint64_t dw_held_values_bytes(const dw_held *held);
uint64_t dw_held_bytes(const dw_held *held);

/* Takes a slot for a copy of so many bytes. Errors: those of paging.h; LIMIT where *used + growth
 * exceeds the quota; growth: the bytes by which the key's share of the quota increases. *used
 * starts as the current sum and is increased by each call, so that all keys of a frame are counted
 * together. */
dw_status dw_predictor_take(dw_predictor *predictor, uint64_t bytes, uint64_t growth,
                            uint64_t *used, void **slot);
void dw_predictor_give(dw_predictor *predictor, void *slot, uint64_t bytes);

/* Installs `fresh` as the newest copy, with shape, dtype and incarnation of *shape (a dw_held
 * without copies); cannot fail. keep_undo: keep one older copy as undo. If there is an undo copy
 * already, that one is kept, because the decoder is more likely to hold it; otherwise the copy that
 * was newest becomes undo. */
void dw_predictor_commit(dw_predictor *predictor, dw_held *held, const dw_held *shape,
                         dw_copy fresh, bool keep_undo);

/* The decoder has confirmed that it holds `now`: drops the undo copy. */
void dw_predictor_confirm(dw_predictor *predictor, dw_held *held);

#endif
