/* SPDX-License-Identifier: Apache-2.0
 * paging.c - takes and gives slots for copies, moves copies to the backing store and back, and
 * knows which keys were not used for long. */
#include "state/paging.h"

#include <string.h>

#include "base/sentence.h"
#include "state/predict.h"

static bool has_backing(const dw_paging *paging)
{
    return paging->backing.write != NULL;
}

void dw_paging_give(dw_paging *paging, void *slot, uint64_t bytes)
{
    if (!slot) return;
    if (has_backing(paging)) paging->bytes -= bytes;
    if (!paging->store.take) {
        dw_pool_give(paging->pool, slot);
        return;
    }
    paging->store.give(paging->store.context, slot, bytes);
    paging->stored_bytes -= bytes;
}

void dw_paging_drop(dw_paging *paging, const dw_held *held, dw_copy *copy)
{
    dw_paging_give(paging, copy->data, dw_held_bytes(held));
    if (copy->record) paging->backing.release(paging->backing.context, copy->record);
    memset(copy, 0, sizeof *copy);
}

static void unlist(dw_paging *paging, dw_held *held, dw_order order)
{
    dw_order_link *link = &held->links[order];
    if (!link->is_listed) return;
    if (link->before)
        link->before->links[order].after = link->after;
    else
        paging->oldest[order] = link->after;
    if (link->after)
        link->after->links[order].before = link->before;
    else
        paging->newest[order] = link->before;
    *link = (dw_order_link){0};
}

void dw_paging_unlist(dw_paging *paging, dw_held *held)
{
    for (int order = 0; order < DW_ORDERS; order++) unlist(paging, held, (dw_order)order);
}

static void list(dw_paging *paging, dw_held *held, dw_order order)
{
    unlist(paging, held, order);
    dw_held *last = paging->newest[order];
    held->links[order] = (dw_order_link){.before = last, .is_listed = true};
    if (last)
        last->links[order].after = held;
    else
        paging->oldest[order] = held;
    paging->newest[order] = held;
}

void dw_paging_mark(dw_paging *paging, dw_held *held, uint64_t call)
{
    held->mark = paging->call = call;
}

/* Returns the number of the last use of a key that is watched, and watches it no more. 0: it is
 * not. */
static uint64_t stop_watching(dw_paging *paging, dw_key key)
{
    for (int i = 0; i < DW_WATCHED; i++) {
        dw_watched *watched = &paging->watched[i];
        uint64_t used = watched->used;
        if (!used || watched->key.sample != key.sample || watched->key.slice != key.slice) continue;
        watched->used = 0;
        return used;
    }
    return 0;
}

/* Place i is kept for 256 * 2^i uses. So a key is soon watched for as long as any stays away,
 * however many keys there are that never come again. */
void dw_paging_watch(dw_paging *paging, const dw_held *held)
{
    for (int i = DW_WATCHED; i-- > 0;) {
        dw_watched *watched = &paging->watched[i];
        if (watched->used && paging->uses - watched->used <= UINT64_C(256) << i) continue;
        *watched = (dw_watched){held->key, held->used};
        return;
    }
}

void dw_paging_use(dw_paging *paging, dw_held *held)
{
    if (!paging->keeps_order) return;
    paging->uses++;
    uint64_t used = held->used ? held->used : stop_watching(paging, held->key);
    if (used && paging->uses - used > paging->longest) paging->longest = paging->uses - used;
    held->used = paging->uses;
    dw_paging_list(paging, held);
}

void dw_paging_list(dw_paging *paging, dw_held *held)
{
    if (!paging->keeps_order) return;
    list(paging, held, DW_ORDER_USED);
    if (has_backing(paging)) list(paging, held, DW_ORDER_RESIDENT);
}

dw_held *dw_paging_stale(const dw_paging *paging)
{
    for (dw_held *held = paging->oldest[DW_ORDER_USED]; held && paging->longest;
         held = held->links[DW_ORDER_USED].after) {
        if (paging->uses - held->used <= 2 * paging->longest) return NULL;
        if (!held->busy && !held->forgotten && held->mark != paging->call) return held;
    }
    return NULL;
}

static bool make_staged(dw_paging *paging, uint64_t bytes)
{
    return dw_mem_grow(&paging->pool->allocator, &paging->staged, &paging->staged_cap, bytes, 1);
}

/* Whatever a write has left as a number or a sentence, *record changes only if all went well, and
 * the sentence of an earlier error only if not. */
static dw_status write_record(dw_paging *paging, const void *slot, uint64_t bytes, uint64_t *record)
{
    const dw_slot_copier *copier = &paging->copier;
    dw_status status = DW_OK;
    uint64_t number = 0;
    dw_why why = {.text = "", .offset = -1};
    if (copier->copy && !make_staged(paging, bytes)) return DW_ERR_NO_MEMORY;
    if (copier->copy) status = copier->copy(copier->context, paging->staged, slot, bytes, &why);
    if (!status)
        status = paging->backing.write(paging->backing.context,
                                       copier->copy ? paging->staged : slot, bytes, &number, &why);
    if (!status && !number)
        status = dw_say(&why, DW_ERR_IO, "host.backing has written a copy without a number");
    if (!status) *record = number;
    if (!status || status == DW_ERR_NO_MEMORY) return status;
    return dw_say(paging->why, DW_ERR_IO, "%s",
                  why.text[0] ? why.text : "host.backing cannot write a copy");
}

static dw_status page_out(dw_paging *paging, dw_held *held, dw_copy *copy)
{
    uint64_t bytes = dw_held_bytes(held);
    if (!copy->data) return DW_OK;
    dw_status status =
        copy->record ? DW_OK : write_record(paging, copy->data, bytes, &copy->record);
    if (status) return status;
    dw_paging_give(paging, copy->data, bytes);
    copy->data = NULL;
    return DW_OK;
}

/* Keys that the current call uses are the newest but for those that it forgets, so few are passed
 * over here. */
static dw_status make_room(dw_paging *paging, uint64_t bytes)
{
    uint64_t most = paging->backing.cache_bytes;
    dw_held *next;
    for (dw_held *held = paging->oldest[DW_ORDER_RESIDENT];
         held && (paging->bytes > most || bytes > most - paging->bytes); held = next) {
        next = held->links[DW_ORDER_RESIDENT].after;
        if (held->busy || held->mark == paging->call) continue;
        dw_status status = page_out(paging, held, &held->now);
        if (!status) status = page_out(paging, held, &held->undo);
        if (status) return status;
        unlist(paging, held, DW_ORDER_RESIDENT);
    }
    return DW_OK;
}

dw_status dw_paging_take(dw_paging *paging, uint64_t bytes, void **slot)
{
    dw_status status = has_backing(paging) ? make_room(paging, bytes) : DW_OK;
    if (status) return status;
    const dw_store *store = &paging->store;
    *slot = store->take ? store->take(store->context, bytes) : dw_pool_take(paging->pool, bytes);
    if (!*slot) return DW_ERR_NO_MEMORY;
    if (store->take) paging->stored_bytes += bytes;
    if (has_backing(paging)) paging->bytes += bytes;
    return DW_OK;
}

/* Reads a record into a slot. *lost: the backing store does not have it any more. */
static dw_status read_record(dw_paging *paging, uint64_t record, void *slot, uint64_t bytes,
                             bool *lost)
{
    const dw_slot_copier *copier = &paging->copier;
    *lost = false;
    if (copier->copy && !make_staged(paging, bytes)) return DW_ERR_NO_MEMORY;
    dw_why why = {.text = "", .offset = -1};
    dw_status status = paging->backing.read(paging->backing.context, record,
                                            copier->copy ? paging->staged : slot, bytes, &why);
    *lost = status && status != DW_ERR_NO_MEMORY;
    if (*lost && why.text[0]) dw_say(paging->why, status, "%s", why.text);
    if (status || !copier->copy) return status;
    return copier->copy(copier->context, slot, paging->staged, bytes, paging->why);
}

dw_status dw_paging_in(dw_paging *paging, dw_held *held, dw_copy *copy)
{
    uint64_t bytes = dw_held_bytes(held);
    void *slot;
    bool lost;
    if (copy->data || !copy->record) return DW_OK;
    dw_status status = dw_paging_take(paging, bytes, &slot);
    if (status) return status;
    status = read_record(paging, copy->record, slot, bytes, &lost);
    if (status) {
        dw_paging_give(paging, slot, bytes);
        if (!lost) return status;
        paging->lost++;
        dw_paging_drop(paging, held, copy);
        return DW_OK;
    }
    copy->data = slot;
    list(paging, held, DW_ORDER_RESIDENT);
    return DW_OK;
}

void dw_paging_prefetch(const dw_paging *paging, const dw_held *held)
{
    const dw_copy *base = held->base == DW_BASE_UNDO ? &held->undo : &held->now;
    if (!has_backing(paging) || !paging->backing.prefetch || base->data || !base->record) return;
    paging->backing.prefetch(paging->backing.context, base->record);
}
