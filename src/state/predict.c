/* SPDX-License-Identifier: Apache-2.0
 * predict.c - the table of keys, and the copies of prev that an encoder or decoder holds of
 * each. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <string.h>

#include "state/predict.h"

void dw_predictor_init(dw_predictor *predictor, const dw_allocator *allocator, uint64_t quota_bytes)
{
    memset(predictor, 0, sizeof *predictor);
    dw_pool_init(&predictor->pool, allocator);
    predictor->paging.pool = &predictor->pool;
    predictor->paging.call = UINT64_MAX; /* none yet */
    predictor->seed = dw_mem_random();
    predictor->quota_bytes = quota_bytes;
    predictor->paging.keeps_order = quota_bytes != 0;
}

void dw_predictor_use(dw_predictor *predictor, const dw_store *store)
{
    predictor->paging.store = *store;
}

void dw_predictor_page(dw_predictor *predictor, const dw_backing *backing,
                       const dw_slot_copier *copier, dw_why *why)
{
    predictor->paging.backing = *backing;
    predictor->paging.copier = *copier;
    predictor->paging.why = why;
    predictor->paging.keeps_order = true;
}

uint64_t dw_predictor_bytes(const dw_predictor *predictor)
{
    return predictor->pool.taken_bytes + predictor->paging.stored_bytes;
}

uint64_t dw_predictor_slack(const dw_predictor *predictor)
{
    const dw_store *store = &predictor->paging.store;
    return dw_pool_slack(&predictor->pool) + predictor->table_cap * sizeof *predictor->table +
           predictor->paging.staged_cap + (store->slack ? store->slack(store->context) : 0);
}

void dw_predictor_release(dw_predictor *predictor)
{
    if (predictor->paging.backing.write) dw_predictor_clear(predictor); /* gives records back */
    dw_mem_release(&predictor->pool.allocator, predictor->paging.staged,
                   predictor->paging.staged_cap);
    dw_mem_release(&predictor->pool.allocator, predictor->table,
                   predictor->table_cap * sizeof *predictor->table);
    dw_pool_release(&predictor->pool);
    predictor->table = NULL;
    predictor->table_cap = predictor->keys = 0;
}

static bool same_key(dw_key a, dw_key b)
{
    return a.sample == b.sample && a.slice == b.slice;
}

static uint64_t home(const dw_predictor *predictor, dw_key key)
{
    uint64_t words[2] = {key.sample, key.slice};
    return XXH3_64bits_withSeed(words, sizeof words, predictor->seed) & (predictor->table_cap - 1);
}

dw_held *dw_predictor_find(const dw_predictor *predictor, dw_key key)
{
    if (!predictor->table_cap) return NULL;
    uint64_t mask = predictor->table_cap - 1;
    for (uint64_t i = home(predictor, key); predictor->table[i]; i = (i + 1) & mask)
        if (same_key(predictor->table[i]->key, key)) return predictor->table[i];
    return NULL;
}

static void place(dw_predictor *predictor, dw_held *held)
{
    uint64_t mask = predictor->table_cap - 1, i = home(predictor, held->key);
    while (predictor->table[i]) i = (i + 1) & mask;
    predictor->table[i] = held;
}

/* The table is kept at most half full, so that probe sequences stay short. */
static bool make_room(dw_predictor *predictor)
{
    if (2 * (predictor->keys + 1) <= predictor->table_cap) return true;
    uint64_t old_cap = predictor->table_cap, cap = old_cap ? 2 * old_cap : 64, bytes;
    if (!dw_size_multiply(cap, sizeof(dw_held *), &bytes)) return false;
    dw_held **old = predictor->table, **fresh = dw_mem_allocate(&predictor->pool.allocator, bytes);
    if (!fresh) return false;
    for (uint64_t i = 0; i < cap; i++) fresh[i] = NULL;
    predictor->table = fresh;
    predictor->table_cap = cap;
    for (uint64_t i = 0; i < old_cap; i++)
        if (old[i]) place(predictor, old[i]);
    dw_mem_release(&predictor->pool.allocator, old, old_cap * sizeof *old);
    return true;
}

dw_status dw_predictor_add(dw_predictor *predictor, dw_key key, dw_held **held)
{
    *held = dw_predictor_find(predictor, key);
    if (*held) return DW_OK;
    if (!make_room(predictor)) return DW_ERR_NO_MEMORY;
    dw_held *fresh = dw_pool_take(&predictor->pool, sizeof *fresh);
    if (!fresh) return DW_ERR_NO_MEMORY;
    memset(fresh, 0, sizeof *fresh);
    fresh->key = key;
    place(predictor, fresh);
    predictor->keys++;
    *held = fresh;
    return DW_OK;
}

uint64_t dw_held_values_bytes(const dw_held *held)
{
    return dw_prev_bytes(held->dtype, (uint64_t)held->t * held->c);
}

uint64_t dw_held_bytes(const dw_held *held)
{
    return dw_held_values_bytes(held) + held->more;
}

static void drop_both(dw_predictor *predictor, dw_held *held)
{
    dw_paging_drop(&predictor->paging, held, &held->now);
    dw_paging_drop(&predictor->paging, held, &held->undo);
}

/* Deletes from a table with linear probing without leaving tombstones: an entry behind the gap
 * moves into it, unless its home position lies behind the gap. */
static void close_gap(dw_predictor *predictor, uint64_t gap)
{
    uint64_t mask = predictor->table_cap - 1;
    for (uint64_t i = (gap + 1) & mask; predictor->table[i]; i = (i + 1) & mask) {
        uint64_t wanted = home(predictor, predictor->table[i]->key);
        if (((i - wanted) & mask) < ((i - gap) & mask)) continue;
        predictor->table[gap] = predictor->table[i];
        gap = i;
    }
    predictor->table[gap] = NULL;
}

static void unlink_forgotten(dw_predictor *predictor, dw_held *held)
{
    if (held->older)
        held->older->newer = held->newer;
    else
        predictor->oldest_forgotten = held->newer;
    if (held->newer)
        held->newer->older = held->older;
    else
        predictor->newest_forgotten = held->older;
    held->older = held->newer = NULL;
    held->forgotten = false;
    held->announced = 0;
    predictor->n_forgotten--;
}

void dw_predictor_revive(dw_predictor *predictor, dw_held *held)
{
    if (held->forgotten) unlink_forgotten(predictor, held);
}

void dw_predictor_forget(dw_predictor *predictor, dw_held *held)
{
    if (held->forgotten) return;
    drop_both(predictor, held);
    held->forgotten = true;
    held->older = predictor->newest_forgotten;
    if (held->older)
        held->older->newer = held;
    else
        predictor->oldest_forgotten = held;
    predictor->newest_forgotten = held;
    predictor->n_forgotten++;
}

void dw_predictor_remove(dw_predictor *predictor, dw_held *held)
{
    uint64_t mask = predictor->table_cap - 1, i = home(predictor, held->key);
    while (predictor->table[i] != held) i = (i + 1) & mask;
    close_gap(predictor, i);
    predictor->held_bytes -= held->counted;
    if (held->forgotten) unlink_forgotten(predictor, held);
    drop_both(predictor, held);
    dw_paging_unlist(&predictor->paging, held);
    dw_pool_give(&predictor->pool, held);
    predictor->keys--;
}

void dw_predictor_refuse_until(dw_predictor *predictor, uint64_t incarnation, uint64_t sequence)
{
    bool same = predictor->dropped_incarnation == incarnation;
    if (same && predictor->dropped_sequence >= sequence) return;
    predictor->dropped_incarnation = incarnation;
    predictor->dropped_sequence = sequence;
}

void dw_predictor_retire(dw_predictor *predictor, uint64_t incarnation)
{
    if (predictor->dropped_incarnation == incarnation) predictor->dropped_incarnation = 0;
}

bool dw_predictor_refuses(const dw_predictor *predictor, uint64_t incarnation, uint64_t sequence)
{
    return predictor->dropped_incarnation == incarnation && sequence <= predictor->dropped_sequence;
}

dw_status dw_predictor_page_in(dw_predictor *predictor, dw_held *held, dw_copy *copy)
{
    bool was_newest = copy == &held->now && dw_copy_is_held(copy);
    uint64_t version = copy->version;
    dw_status status = dw_paging_in(&predictor->paging, held, copy);
    if (!status && was_newest && !dw_copy_is_held(copy))
        dw_predictor_refuse_until(predictor, held->incarnation, version);
    return status;
}

void dw_predictor_drop(dw_predictor *predictor, dw_held *held)
{
    if (dw_copy_is_held(&held->now))
        dw_predictor_refuse_until(predictor, held->incarnation, held->now.version);
    dw_predictor_remove(predictor, held);
}

/* Removing an entry may move another one to its position, so the same position is examined
 * again. */
void dw_predictor_clear(dw_predictor *predictor)
{
    for (uint64_t i = 0; i < predictor->table_cap;)
        if (predictor->table[i])
            dw_predictor_remove(predictor, predictor->table[i]);
        else
            i++;
}

void dw_predictor_count(dw_predictor *predictor, dw_held *held, uint64_t bytes)
{
    predictor->held_bytes = predictor->held_bytes - held->counted + bytes;
    held->counted = bytes;
}

/* Removing an entry may move another one to its position, so the same position is examined
 * again. */
void dw_predictor_remove_other_incarnations(dw_predictor *predictor, uint64_t incarnation)
{
    for (uint64_t i = 0; i < predictor->table_cap;) {
        dw_held *held = predictor->table[i];
        if (held && held->incarnation != incarnation && !held->busy) {
            dw_predictor_remove(predictor, held);
            continue;
        }
        if (held && held->incarnation != incarnation) {
            held->drop_when_done = true;
            dw_predictor_count(predictor, held, 0);
        }
        i++;
    }
}

dw_status dw_predictor_take(dw_predictor *predictor, uint64_t bytes, uint64_t growth,
                            uint64_t *used, void **slot)
{
    uint64_t quota = predictor->quota_bytes;
    if (quota && growth && (*used > quota || growth > quota - *used)) return DW_ERR_LIMIT;
    dw_status status = dw_paging_take(&predictor->paging, bytes, slot);
    if (!status) *used += growth;
    return status;
}

void dw_predictor_give(dw_predictor *predictor, void *slot, uint64_t bytes)
{
    dw_paging_give(&predictor->paging, slot, bytes);
}

void dw_predictor_commit(dw_predictor *predictor, dw_held *held, const dw_held *shape,
                         dw_copy fresh, bool keep_undo)
{
    bool same_shape = held->t == shape->t && held->c == shape->c && held->dtype == shape->dtype &&
                      held->more == shape->more;
    uint64_t counted = held->counted;
    if (held->forgotten) unlink_forgotten(predictor, held);
    if (!keep_undo || !same_shape || held->base == DW_BASE_NOTHING) {
        drop_both(predictor, held);
    } else if (dw_copy_is_held(&held->undo)) {
        /* The older copy is either the base of the new one, or the last one that the decoder
         * confirmed. Keep that one, and drop the one that the decoder has not confirmed. */
        dw_paging_drop(&predictor->paging, held, &held->now);
    } else {
        held->undo = held->now;
    }
    held->t = shape->t;
    held->c = shape->c;
    held->dtype = shape->dtype;
    held->more = shape->more;
    held->incarnation = shape->incarnation;
    held->now = fresh;
    held->base = DW_BASE_NOW;
    held->drop_when_done = false;
    /* Until the new copy is confirmed, the decoder may still hold the earlier one, which may be
     * larger. */
    dw_predictor_count(predictor, held,
                       keep_undo && counted > dw_held_bytes(held) ? counted : dw_held_bytes(held));
}

void dw_predictor_confirm(dw_predictor *predictor, dw_held *held)
{
    dw_paging_drop(&predictor->paging, held, &held->undo);
    held->base = DW_BASE_NOW;
    dw_predictor_count(predictor, held, dw_held_bytes(held));
}
