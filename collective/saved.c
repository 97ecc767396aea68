/* SPDX-License-Identifier: Apache-2.0
 * saved.c - the state of slots: saved, restored, forgotten.
 *
 * A piece of saved state is the state of one key of one encoder or decoder, behind this header:
 *
 * | offset | bytes | field                                                                |
 * | 0      | 4     | "DWGS"                                                               |
 * | 4      | 4     | 1: encoder of contributions; 2: decoder of contributions; 3: encoder |
 * |        |       | of results; 4: decoder of results; 5: encoder of contributions to    |
 * |        |       | all, in an all-reduce of one hop; 6: decoder of these                |
 * | 8      | 8     | slot                                                                 |
 * | 16     | 4     | rank that saved it                                                   |
 * | 20     | 4     | number of ranks                                                      |
 * | 24     | 4     | the other rank; of 3 and 5: 0                                        |
 * | 28     | 4     | 0                                                                    |
 * | 32     |       | what dw_encoder_export or dw_decoder_export wrote                    |
 */
#include <string.h>

#include "base/mem.h"
#include "group.h"

enum { HEAD_BYTES = 32 };
static const char magic[4] = {'D', 'W', 'G', 'S'};

/* ---- Export ---------------------------------------------------------------------------------- */

typedef struct exporter {
    const dw_settings *settings;
    dw_group_saved_visit *visit;
    void *context;
    uint64_t slot;
    dw_coder coder;
    unsigned char *room;
    size_t cap;
} exporter;

static dw_status visit_saved(void *context, dw_key key, const void *saved, size_t len)
{
    exporter *e = context;
    /* What an encoder keeps beside its keys belongs to no slot, and is not saved. */
    if (key.sample == UINT64_MAX && key.slice == UINT32_MAX) return DW_OK;
    if (HEAD_BYTES + len > e->cap) {
        void *room = dw_mem_allocate(&e->settings->allocator, HEAD_BYTES + len);
        if (!room) return DW_ERR_NO_MEMORY;
        dw_mem_release(&e->settings->allocator, e->room, e->cap);
        e->room = room;
        e->cap = HEAD_BYTES + len;
    }
    memset(e->room, 0, HEAD_BYTES);
    memcpy(e->room, magic, sizeof magic);
    dw_put(e->room + 4, e->coder.kind, 4);
    dw_put(e->room + 8, e->slot, 8);
    dw_put(e->room + 16, e->settings->rank, 4);
    dw_put(e->room + 20, e->settings->ranks, 4);
    dw_put(e->room + 24, e->coder.other, 4);
    memcpy(e->room + HEAD_BYTES, saved, len);
    return e->visit(e->context, e->slot, e->room, HEAD_BYTES + len);
}

static dw_status export_coder(void *context, const dw_coder *coder)
{
    exporter *e = context;
    e->coder = *coder;
    return coder->encoder ? dw_encoder_export(coder->encoder, NULL, visit_saved, e)
                          : dw_decoder_export(coder->decoder, NULL, visit_saved, e);
}

/* Slots whose operation is in progress must not be saved; the others do not change while somebody
 * has exclusive access. */
static dw_status export_all(dw_group *group, exporter *e)
{
    pthread_mutex_lock(&group->lock);
    const dw_group_slot *slot = group->slots.newest;
    dw_status status = dw_slot_all_rest(&group->slots) ? DW_OK : DW_ERR_ARGUMENT;
    pthread_mutex_unlock(&group->lock);
    for (; slot && status == DW_OK; slot = slot->made_before) {
        e->slot = slot->number;
        status = dw_coders_visit(&group->exchange.coding, &slot->coders, export_coder, e);
    }
    return status;
}

dw_status dw_group_export(dw_group *group, dw_group_saved_visit *visit, void *context)
{
    DW_UNCANCELLED;
    if (!dw_group_is_ours(group) || !visit) return DW_ERR_ARGUMENT;
    dw_exclusive_begin(group);
    const dw_settings *settings = &group->exchange.settings;
    exporter e = {.settings = settings, .visit = visit, .context = context};
    dw_status status = export_all(group, &e);
    dw_mem_release(&settings->allocator, e.room, e.cap);
    dw_exclusive_end(group);
    return status;
}

/* ---- Import ---------------------------------------------------------------------------------- */

/* Takes a slot that has no operation, as the caller of a start does. Returns OK with *slot NULL if
 * there is none. imports: makes it, unless an operation was started before. */
static dw_status claim(dw_group *group, uint64_t number, bool imports, dw_group_slot **slot)
{
    pthread_mutex_lock(&group->lock);
    dw_status status = group->failure.status;
    if (status == DW_OK && imports && group->counters.started > 0) status = DW_ERR_ARGUMENT;
    *slot = dw_slot_find(&group->slots, number);
    if (status == DW_OK && !*slot && imports &&
        !(*slot = dw_slot_get(&group->slots, &group->exchange.settings.allocator, number)))
        status = DW_ERR_NO_MEMORY;
    if (status == DW_OK && *slot && (*slot)->state != DW_SLOT_IDLE) status = DW_ERR_ARGUMENT;
    if (status != DW_OK) *slot = NULL;
    if (*slot) (*slot)->state = DW_SLOT_STARTING;
    pthread_mutex_unlock(&group->lock);
    return status;
}

static void release(dw_group *group, dw_group_slot *slot)
{
    pthread_mutex_lock(&group->lock);
    slot->state = DW_SLOT_IDLE;
    pthread_mutex_unlock(&group->lock);
}

/* If the state is refused, the slot is as it was. */
static dw_status import_into(const dw_coding *coding, dw_coders *own, dw_coder_kind kind,
                             uint32_t other, const void *saved, size_t len)
{
    bool had_some = own->encoders || own->decoders;
    dw_status status = dw_coders_make(coding, own, kind, other);
    if (status == DW_OK)
        status = dw_coder_is_encoder(kind)
                     ? dw_encoder_import(dw_coders_encoder(coding, own, kind, other), saved, len)
                     : dw_decoder_import(dw_coders_decoder(coding, own, kind, other), saved, len);
    if (status != DW_OK && !had_some) dw_coders_destroy(coding, own);
    return status;
}

/* Whether the state of a key, as in docs/format.md, 7, is that of the slot which the head names.
 * With feedback=lazy, residuals lie under the number of their place, which is 0. */
static bool is_of_slot(const dw_settings *settings, const unsigned char *bytes, size_t len)
{
    enum { KEY_AT = 8 };
    if (len < HEAD_BYTES + KEY_AT + 8) return false;
    uint64_t key = dw_get(bytes + HEAD_BYTES + KEY_AT, 8), slot = dw_get(bytes + 8, 8);
    bool is_lazy = settings->codec.feedback == DW_FEEDBACK_LAZY ||
                   settings->result.feedback == DW_FEEDBACK_LAZY;
    return key == slot || (is_lazy && key == 0);
}

dw_status dw_group_import(dw_group *group, const void *saved, size_t len)
{
    DW_UNCANCELLED;
    const unsigned char *bytes = saved;
    if (!dw_group_is_ours(group) || !saved) return DW_ERR_ARGUMENT;
    if (len < HEAD_BYTES || memcmp(bytes, magic, sizeof magic) != 0) return DW_ERR_FORMAT;
    uint32_t kind = (uint32_t)dw_get(bytes + 4, 4);
    uint32_t other = (uint32_t)dw_get(bytes + 24, 4);
    if (kind < DW_REDUCE_SCATTER_ENCODER || kind > DW_ONE_SHOT_DECODER ||
        dw_get(bytes + 28, 4) != 0)
        return DW_ERR_FORMAT;
    if (dw_get(bytes + 16, 4) != group->exchange.settings.rank ||
        dw_get(bytes + 20, 4) != group->exchange.settings.ranks ||
        other >= group->exchange.settings.ranks ||
        !group->exchange.settings.keeps_state[dw_coder_is_of_result(kind)] ||
        (kind >= DW_ONE_SHOT_ENCODER && group->exchange.settings.hops != 1))
        return DW_ERR_MISMATCH;
    if (!is_of_slot(&group->exchange.settings, bytes, len)) return DW_ERR_FORMAT;
    dw_exclusive_begin(group);
    dw_group_slot *slot;
    dw_status status = claim(group, dw_get(bytes + 8, 8), true, &slot);
    if (slot) {
        status = import_into(&group->exchange.coding, &slot->coders, kind, other,
                             bytes + HEAD_BYTES, len - HEAD_BYTES);
        release(group, slot);
    }
    dw_exclusive_end(group);
    return status;
}

/* ---- Forgetting ------------------------------------------------------------------------------ */

/* The slot itself stays, because messages carry the number of its visits. */
dw_status dw_group_forget(dw_group *group, uint64_t number)
{
    DW_UNCANCELLED;
    if (!dw_group_is_ours(group)) return DW_ERR_ARGUMENT;
    dw_exclusive_begin(group);
    dw_group_slot *slot;
    dw_status status = claim(group, number, false, &slot);
    if (slot) {
        dw_slot_empty(&group->slots, &group->exchange.coding, slot);
        release(group, slot);
    }
    dw_exclusive_end(group);
    return status;
}
