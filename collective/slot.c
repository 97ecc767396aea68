/* SPDX-License-Identifier: Apache-2.0
 * slot.c - slots: their table, and the buffers of operations. All that an operation needs is
 * allocated before it starts, and used again by the next one of the slot. */
#include <string.h>

#include "deltawire/cuda.h"
#include "group.h"

/* ---- The table ------------------------------------------------------------------------------- */

enum { LEAST_BITS = 4, MOST_BITS = 40 };

static dw_group_slot **bucket_of(const dw_group *group, uint64_t number)
{
    /* Other ranks choose numbers. Multiply-shift hashing: for any two different ones, few keys put
     * both into the same list. */
    uint64_t mixed = number * group->slot_key[0] + group->slot_key[1];
    return &group->slots[mixed >> (64 - group->slot_bits)];
}

static void give_table(dw_group *group)
{
    dw_group_memory_give(&group->allocator, group->slots,
                         group->slots ? sizeof *group->slots << group->slot_bits : 0);
    group->slots = NULL;
}

static void put_in_table(dw_group *group, dw_group_slot *slot)
{
    dw_group_slot **bucket = bucket_of(group, slot->number);
    slot->next = *bucket;
    *bucket = slot;
}

/* Makes the table, or doubles the number of its lists. Without memory it stays as it is. */
static void grow(dw_group *group)
{
    uint32_t bits = group->slots ? group->slot_bits + 1 : LEAST_BITS;
    if (bits > MOST_BITS) return;
    dw_group_slot **slots =
        dw_group_memory_zeroed(&group->allocator, sizeof(dw_group_slot *) << bits);
    if (!slots) return;
    if (!group->slots) {
        group->slot_key[0] = dw_group_random() | 1;
        group->slot_key[1] = dw_group_random();
    }
    give_table(group);
    group->slots = slots;
    group->slot_bits = bits;
    for (dw_group_slot *slot = group->newest; slot; slot = slot->made_before)
        put_in_table(group, slot);
}

dw_group_slot *dw_slot_find(const dw_group *group, uint64_t number)
{
    dw_group_slot *slot = group->slots ? *bucket_of(group, number) : NULL;
    while (slot && slot->number != number) slot = slot->next;
    return slot;
}

dw_group_slot *dw_slot_get(dw_group *group, uint64_t number)
{
    dw_group_slot *slot = dw_slot_find(group, number);
    if (slot) return slot;
    if (!group->slots || group->counters.slots >> group->slot_bits != 0) grow(group);
    if (group->slots) slot = dw_group_memory_zeroed(&group->allocator, sizeof *slot);
    if (!slot) return NULL;
    slot->number = number;
    put_in_table(group, slot);
    slot->made_before = group->newest;
    group->newest = slot;
    group->counters.slots++;
    return slot;
}

dw_group_slot *dw_slot_newest(dw_group *group)
{
    pthread_mutex_lock(&group->lock);
    dw_group_slot *newest = group->newest;
    pthread_mutex_unlock(&group->lock);
    return newest;
}

bool dw_slot_all_rest(const dw_group *group)
{
    bool at_rest = true;
    for (const dw_group_slot *slot = group->newest; slot; slot = slot->made_before)
        at_rest &= slot->state != DW_SLOT_RUNNING && slot->state != DW_SLOT_STARTING;
    return at_rest;
}

/* ---- Buffers --------------------------------------------------------------------------------- */

/* Adds room for n elements of so many bytes to *bytes, aligned to 64; returns where it begins. */
static uint64_t reserve(uint64_t *bytes, uint64_t n, uint64_t each)
{
    uint64_t at = *bytes;
    *bytes += (n * each + 63) / 64 * 64;
    return at;
}

/* Where the arrays of a slot begin in its memory. */
typedef struct layout {
    uint64_t sums, result, ready, added, due, waiting, taken, owes_part, owes_result, contributed,
        first_piece, sent, digests, kept;
    uint64_t staged, staged_bytes, bytes;
} layout;

static layout lay_out(const dw_group *group, const dw_operation_state *now)
{
    const dw_group_job *job = &now->job;
    uint64_t ranks = group->ranks, pieces = 0, each = dw_dtype_bytes(job->dtype);
    bool adds = dw_job_reduces(job), shares = dw_job_gathers(group, job);
    for (uint32_t r = 0; r < group->ranks; r++) pieces += dw_job_pieces(group, job, r);
    layout at = {0};
    at.result = reserve(&at.bytes, shares ? job->n : job->dtype != DW_F32 ? now->count : 0, each);
    /* Sums in f32 share memory with the own part of the result: a piece of the sums is encoded
     * before its result is decoded to the same place. With error feedback they need memory of their
     * own, because the sums are read again if the operation fails (rollback.c). */
    bool lie_there = job->dtype == DW_F32 && group->result.feedback <= DW_FEEDBACK_NONE;
    at.sums = adds && shares && lie_there
                  ? at.result + now->begin * each
                  : reserve(&at.bytes, adds ? now->count : 0, sizeof(float));
    at.ready = reserve(&at.bytes, now->own_pieces, sizeof(uint32_t));
    at.added = reserve(&at.bytes, adds ? now->own_pieces : 0, sizeof(uint32_t));
    at.due = reserve(&at.bytes, adds ? now->own_pieces : 0, sizeof(uint32_t));
    at.waiting = reserve(&at.bytes, adds ? now->own_pieces * ranks : 0, sizeof(dw_received *));
    at.taken = reserve(&at.bytes, shares ? pieces : 0, 1);
    at.owes_part = reserve(&at.bytes, ranks, sizeof(uint32_t));
    at.owes_result = reserve(&at.bytes, ranks, sizeof(uint32_t));
    at.contributed = reserve(&at.bytes, ranks, sizeof(uint32_t));
    at.first_piece = reserve(&at.bytes, ranks, sizeof(uint64_t));
    at.sent = reserve(&at.bytes, ranks, sizeof(uint32_t));
    at.digests = reserve(&at.bytes, group->verifies ? ranks : 0, sizeof(dw_peer_digest));
    at.kept = reserve(&at.bytes, now->own_pieces, sizeof(dw_received *));
    at.staged_bytes = job->cuda ? dw_job_reads(group, job) * each : 0;
    at.staged = reserve(&at.bytes, at.staged_bytes, 1);
    return at;
}

static void give_memory(dw_group *group, const dw_group_slot *slot)
{
    if (slot->is_pinned)
        dw_cuda_unpin(group->cuda, slot->memory);
    else
        dw_group_memory_give(&group->allocator, slot->memory, slot->bytes);
}

/* Memory of at least so many bytes. With buffers on a GPU it is pinned, so that copies need no
 * second copy by the driver. It stays so, and never becomes smaller, so that a slot that is used in
 * turn for buffers of both kinds allocates nothing either. */
static dw_status reserve_memory(dw_group *group, dw_group_slot *slot, uint64_t bytes, dw_why *why)
{
    bool pins = slot->is_pinned || slot->now.job.cuda;
    if (slot->memory && bytes <= slot->bytes && pins == slot->is_pinned) return DW_OK;
    if (bytes < slot->bytes) bytes = slot->bytes;
    if (bytes > SIZE_MAX / 2)
        return dw_group_say(why, DW_ERR_LIMIT, "the buffers of a slot exceed the address space");
    void *memory = NULL;
    if (pins) {
        dw_status status = dw_cuda_pin(group->cuda, (size_t)bytes, &memory, why);
        if (status != DW_OK) return status;
    } else {
        memory = dw_group_memory_take(&group->allocator, (size_t)bytes);
        if (!memory)
            return dw_group_say(why, DW_ERR_NO_MEMORY, "no memory for the buffers of a slot");
    }
    give_memory(group, slot);
    pthread_mutex_lock(&group->lock);
    group->counters.state_bytes += bytes - slot->bytes;
    pthread_mutex_unlock(&group->lock);
    slot->memory = memory;
    slot->bytes = (size_t)bytes;
    slot->is_pinned = pins;
    return DW_OK;
}

static dw_status make_buffers(dw_group *group, dw_group_slot *slot, dw_why *why)
{
    layout at = lay_out(group, &slot->now);
    dw_status status = reserve_memory(group, slot, at.bytes, why);
    if (status != DW_OK) return status;
    unsigned char *memory = slot->memory;
    slot->sums = (void *)(memory + at.sums);
    slot->result = memory + at.result;
    slot->ready = (void *)(memory + at.ready);
    slot->added = (void *)(memory + at.added);
    slot->due = (void *)(memory + at.due);
    slot->waiting = (void *)(memory + at.waiting);
    slot->taken = memory + at.taken;
    slot->owes_part = (void *)(memory + at.owes_part);
    slot->owes_result = (void *)(memory + at.owes_result);
    slot->contributed = (void *)(memory + at.contributed);
    slot->first_piece = (void *)(memory + at.first_piece);
    slot->sent = (void *)(memory + at.sent);
    slot->digests = (void *)(memory + at.digests);
    slot->kept = (void *)(memory + at.kept);
    slot->staged = memory + at.staged;
    slot->staged_bytes = (size_t)at.staged_bytes;
    return DW_OK;
}

dw_status dw_slot_prepare(dw_group *group, dw_group_slot *slot, const dw_group_job *job,
                          dw_why *why)
{
    slot->now = (dw_operation_state){.job = *job, .start_ns = dw_group_now_ns()};
    uint32_t part = dw_job_own_part(group, job);
    dw_piece own = dw_job_part(group, job, part);
    slot->now.begin = own.begin;
    slot->now.count = own.count;
    slot->now.own_pieces = dw_job_pieces(group, job, part);
    dw_status status = dw_coders_prepare(group, slot);
    if (status == DW_OK) return make_buffers(group, slot, why);
    return dw_group_say(why, status, "no memory for the encoders and decoders of a slot");
}

void dw_slot_empty(dw_group *group, dw_group_slot *slot)
{
    dw_coders_destroy(group, &slot->coders);
    give_memory(group, slot);
    pthread_mutex_lock(&group->lock);
    group->counters.state_bytes -= slot->bytes;
    pthread_mutex_unlock(&group->lock);
    slot->memory = NULL;
    slot->bytes = 0;
    slot->is_pinned = false;
}

void dw_slot_free_all(dw_group *group)
{
    for (dw_group_slot *slot; (slot = group->newest) != NULL;) {
        group->newest = slot->made_before;
        dw_received *received;
        while ((received = dw_received_pop(&slot->early)) != NULL)
            dw_received_give(group, received);
        dw_slot_empty(group, slot);
        dw_group_memory_give(&group->allocator, slot, sizeof *slot);
    }
    give_table(group);
}
