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

#include "group.h"

enum { HEAD_BYTES = 32 };
enum {
    OF_CONTRIBUTION = 1,
    OF_ADDING = 2,
    OF_SHARING = 3,
    OF_TAKING = 4,
    OF_GATHERING = 5,
    OF_GATHERED = 6
};
static const char magic[4] = {'D', 'W', 'G', 'S'};

/* ---- Export ---------------------------------------------------------------------------------- */

typedef struct exporter {
    dw_group *group;
    dw_group_saved_visit *visit;
    void *context;
    uint32_t kind, other;
    unsigned char *room;
    size_t cap;
} exporter;

static dw_status visit_saved(void *context, dw_key key, const void *saved, size_t len)
{
    exporter *e = context;
    if (HEAD_BYTES + len > e->cap) {
        void *room = dw_group_memory_take(&e->group->allocator, HEAD_BYTES + len);
        if (!room) return DW_ERR_NO_MEMORY;
        dw_group_memory_give(&e->group->allocator, e->room, e->cap);
        e->room = room;
        e->cap = HEAD_BYTES + len;
    }
    memset(e->room, 0, HEAD_BYTES);
    memcpy(e->room, magic, sizeof magic);
    dw_message_put(e->room + 4, e->kind, 4);
    dw_message_put(e->room + 8, key.sample, 8);
    dw_message_put(e->room + 16, e->group->rank, 4);
    dw_message_put(e->room + 20, e->group->ranks, 4);
    dw_message_put(e->room + 24, e->other, 4);
    memcpy(e->room + HEAD_BYTES, saved, len);
    return e->visit(e->context, key.sample, e->room, HEAD_BYTES + len);
}

static dw_status export_all(exporter *e)
{
    dw_status status = DW_OK;
    const dw_group_coders *coders = &e->group->coders;
    for (uint32_t r = 0; r < e->group->ranks && status == DW_OK; r++) {
        e->other = r;
        e->kind = OF_CONTRIBUTION;
        status = dw_encoder_export_all(coders->contribute[r], visit_saved, e);
        e->kind = OF_ADDING;
        if (status == DW_OK) status = dw_decoder_export_all(coders->add[r], visit_saved, e);
        e->kind = OF_TAKING;
        if (status == DW_OK) status = dw_decoder_export_all(coders->take[r], visit_saved, e);
        e->kind = OF_GATHERED;
        if (status == DW_OK && coders->gathered)
            status = dw_decoder_export_all(coders->gathered[r], visit_saved, e);
    }
    e->other = 0;
    e->kind = OF_SHARING;
    if (status == DW_OK) status = dw_encoder_export_all(coders->share, visit_saved, e);
    e->kind = OF_GATHERING;
    if (status == DW_OK && coders->gather)
        status = dw_encoder_export_all(coders->gather, visit_saved, e);
    return status;
}

/* Slots whose operation is in progress must not be saved; the others do not change while the caller
 * is a visitor. */
static bool is_at_rest(dw_group *group)
{
    pthread_mutex_lock(&group->lock);
    bool at_rest = dw_slot_all_rest(group);
    pthread_mutex_unlock(&group->lock);
    return at_rest;
}

dw_status dw_group_export_all(dw_group *group, dw_group_saved_visit *visit, void *context)
{
    DW_UNCANCELLED;
    if (!dw_group_is_ours(group) || !visit) return DW_ERR_ARGUMENT;
    dw_group_visit(group);
    dw_status status = is_at_rest(group) ? DW_OK : DW_ERR_ARGUMENT;
    exporter e = {.group = group, .visit = visit, .context = context};
    if (status == DW_OK) status = export_all(&e);
    dw_group_memory_give(&group->allocator, e.room, e.cap);
    dw_group_leave(group);
    return status;
}

/* ---- Import ---------------------------------------------------------------------------------- */

static dw_status import_into(const dw_group_coders *coders, uint32_t kind, uint32_t other,
                             const void *saved, size_t len)
{
    switch (kind) {
    case OF_CONTRIBUTION: return dw_encoder_import(coders->contribute[other], saved, len);
    case OF_ADDING: return dw_decoder_import(coders->add[other], saved, len);
    case OF_SHARING: return dw_encoder_import(coders->share, saved, len);
    case OF_GATHERING: return dw_encoder_import(coders->gather, saved, len);
    case OF_GATHERED: return dw_decoder_import(coders->gathered[other], saved, len);
    default: return dw_decoder_import(coders->take[other], saved, len);
    }
}

dw_status dw_group_import(dw_group *group, const void *saved, size_t len)
{
    DW_UNCANCELLED;
    const unsigned char *bytes = saved;
    if (!dw_group_is_ours(group) || !saved) return DW_ERR_ARGUMENT;
    if (len < HEAD_BYTES || memcmp(bytes, magic, sizeof magic) != 0) return DW_ERR_FORMAT;
    uint32_t kind = (uint32_t)dw_message_get(bytes + 4, 4);
    uint32_t other = (uint32_t)dw_message_get(bytes + 24, 4);
    if (kind < OF_CONTRIBUTION || kind > OF_GATHERED || dw_message_get(bytes + 28, 4) != 0)
        return DW_ERR_FORMAT;
    bool is_of_result = kind == OF_SHARING || kind == OF_TAKING;
    if (dw_message_get(bytes + 16, 4) != group->rank ||
        dw_message_get(bytes + 20, 4) != group->ranks || other >= group->ranks ||
        !group->keeps_state[is_of_result] || (kind >= OF_GATHERING && group->hops != 1))
        return DW_ERR_MISMATCH;
    dw_group_visit(group);
    pthread_mutex_lock(&group->lock);
    dw_status status = group->status;
    if (status == DW_OK && group->counters.started > 0) status = DW_ERR_ARGUMENT;
    pthread_mutex_unlock(&group->lock);
    if (status == DW_OK)
        status = import_into(&group->coders, kind, other, bytes + HEAD_BYTES, len - HEAD_BYTES);
    dw_group_leave(group);
    return status;
}

/* ---- Forgetting ------------------------------------------------------------------------------ */

dw_status dw_group_forget(dw_group *group, uint64_t number)
{
    DW_UNCANCELLED;
    if (!dw_group_is_ours(group)) return DW_ERR_ARGUMENT;
    dw_group_visit(group);
    pthread_mutex_lock(&group->lock);
    dw_status status = group->status;
    dw_group_slot *slot = dw_slot_find(group, number);
    if (status == DW_OK && slot && slot->state != DW_SLOT_IDLE) status = DW_ERR_ARGUMENT;
    bool has_slot = status == DW_OK && slot;
    if (has_slot) slot->state = DW_SLOT_STARTING; /* so that nobody else starts anything in it */
    pthread_mutex_unlock(&group->lock);
    if (has_slot) {
        status = dw_coders_forget(group, number);
        pthread_mutex_lock(&group->lock);
        if (status == DW_OK) group->counters.state_bytes -= slot->bytes;
        pthread_mutex_unlock(&group->lock);
        /* This frees the slot's buffers only. slot->visit is kept, because messages carry it. */
        if (status == DW_OK) dw_slot_empty(group, slot);
        pthread_mutex_lock(&group->lock);
        slot->state = DW_SLOT_IDLE;
        pthread_mutex_unlock(&group->lock);
    }
    dw_group_leave(group);
    return status;
}
