/* SPDX-License-Identifier: Apache-2.0
 * slot.c - slots: their table, and the buffers of operations. All that an operation needs is
 * allocated before it starts, and used again by the next one of the slot. */
#include "slot.h"

#include "base/clock.h"
#include "base/cuda_memory.h"
#include "base/mem.h"

/* ---- The table ------------------------------------------------------------------------------- */

enum { LEAST_BITS = 4, MOST_BITS = 40 };

static dw_group_slot **bucket_of(const dw_slots *slots, uint64_t number)
{
    /* Other ranks choose numbers. Multiply-shift hashing: for any two different ones, few keys put
     * both into the same list. */
    uint64_t mixed = number * slots->key[0] + slots->key[1];
    return &slots->table[mixed >> (64 - slots->bits)];
}

static void give_table(dw_slots *slots, const dw_allocator *allocator)
{
    dw_mem_release(allocator, slots->table, slots->table ? sizeof *slots->table << slots->bits : 0);
    slots->table = NULL;
}

static void put_in_table(dw_slots *slots, dw_group_slot *slot)
{
    dw_group_slot **bucket = bucket_of(slots, slot->number);
    slot->next = *bucket;
    *bucket = slot;
}

/* Makes the table, or doubles the number of its lists. Without memory it stays as it is. */
static void grow(dw_slots *slots, const dw_allocator *allocator)
{
    uint32_t bits = slots->table ? slots->bits + 1 : LEAST_BITS;
    if (bits > MOST_BITS) return;
    dw_group_slot **table = dw_mem_allocate_zeroed(allocator, 1, sizeof(dw_group_slot *) << bits);
    if (!table) return;
    if (!slots->table) {
        slots->key[0] = dw_mem_random() | 1;
        slots->key[1] = dw_mem_random();
    }
    give_table(slots, allocator);
    slots->table = table;
    slots->bits = bits;
    for (dw_group_slot *slot = slots->newest; slot; slot = slot->made_before)
        put_in_table(slots, slot);
}

dw_group_slot *dw_slot_find(const dw_slots *slots, uint64_t number)
{
    dw_group_slot *slot = slots->table ? *bucket_of(slots, number) : NULL;
    while (slot && slot->number != number) slot = slot->next;
    return slot;
}

dw_group_slot *dw_slot_get(dw_slots *slots, const dw_allocator *allocator, uint64_t number)
{
    dw_group_slot *slot = dw_slot_find(slots, number);
    if (slot) return slot;
    if (!slots->table || slots->count >> slots->bits != 0) grow(slots, allocator);
    if (slots->table) slot = dw_mem_allocate_zeroed(allocator, 1, sizeof *slot);
    if (!slot) return NULL;
    slot->number = number;
    put_in_table(slots, slot);
    slot->made_before = slots->newest;
    slots->newest = slot;
    slots->count++;
    return slot;
}

bool dw_slot_all_rest(const dw_slots *slots)
{
    bool at_rest = true;
    for (const dw_group_slot *slot = slots->newest; slot; slot = slot->made_before)
        at_rest &= slot->state != DW_SLOT_RUNNING && slot->state != DW_SLOT_STARTING;
    return at_rest;
}

void dw_slot_append(dw_slot_list *list, dw_group_slot *slot)
{
    slot->next_running = NULL;
    if (list->last)
        list->last->next_running = slot;
    else
        list->first = slot;
    list->last = slot;
}

void dw_slot_remove(dw_slot_list *list, dw_group_slot *slot)
{
    dw_group_slot *before = NULL;
    for (dw_group_slot *at = list->first; at != slot; at = at->next_running) before = at;
    if (before)
        before->next_running = slot->next_running;
    else
        list->first = slot->next_running;
    if (list->last == slot) list->last = before;
    slot->next_running = NULL;
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
    uint64_t sums, result, ready, added, due, waiting, taken, contributions, results, contributed,
        first_piece, sent, digests, kept;
    uint64_t staged, staged_bytes, bytes;
} layout;

static layout lay_out(const dw_settings *settings, const dw_operation_state *now)
{
    const dw_group_job *job = &now->job;
    uint64_t ranks = settings->ranks, pieces = 0, each = dw_dtype_bytes(job->dtype);
    bool adds = dw_job_reduces(job), gathers = dw_job_gathers(settings, job);
    uint64_t own = now->own_pieces, added = adds ? own : 0;
    for (uint32_t r = 0; r < settings->ranks; r++) pieces += dw_partition_pieces(&now->cut, r);
    layout at = {0};
    at.result = reserve(&at.bytes, gathers ? job->n : job->dtype != DW_F32 ? now->count : 0, each);
    /* Sums in f32 share memory with the own part of the result: a piece of the sums is encoded
     * before its result is decoded to the same place. With error feedback they need memory of their
     * own, because the sums are read again if the operation fails (rollback.c). */
    bool lie_there = job->dtype == DW_F32 && settings->result.feedback <= DW_FEEDBACK_NONE;
    at.sums = adds && gathers && lie_there
                  ? at.result + now->begin * each
                  : reserve(&at.bytes, adds ? now->count : 0, sizeof(float));
    at.ready = reserve(&at.bytes, own, sizeof(uint32_t));
    at.added = reserve(&at.bytes, added, sizeof(uint32_t));
    at.due = reserve(&at.bytes, added, sizeof(uint32_t));
    at.waiting = reserve(&at.bytes, added * ranks, sizeof(dw_received *));
    at.taken = reserve(&at.bytes, gathers ? pieces : 0, 1);
    at.contributions = reserve(&at.bytes, ranks, sizeof(uint32_t));
    at.results = reserve(&at.bytes, ranks, sizeof(uint32_t));
    at.contributed = reserve(&at.bytes, ranks, sizeof(uint32_t));
    at.first_piece = reserve(&at.bytes, ranks, sizeof(uint64_t));
    at.sent = reserve(&at.bytes, ranks, sizeof(uint32_t));
    at.digests = reserve(&at.bytes, settings->verifies ? ranks : 0, sizeof(dw_peer_digest));
    at.kept = reserve(&at.bytes, own, sizeof(dw_received *));
    at.staged_bytes = job->cuda ? dw_job_reads(settings, job) * each : 0;
    at.staged = reserve(&at.bytes, at.staged_bytes, 1);
    return at;
}

static void give_memory(const dw_allocator *allocator, const dw_group_slot *slot)
{
    if (slot->pinned)
        dw_cuda_unpin(slot->pinned, slot->memory);
    else
        dw_mem_release(allocator, slot->memory, slot->bytes);
}

/* Memory of at least so many bytes. With buffers on a GPU it is pinned, so that copies need no
 * second copy by the driver. It stays so, and never becomes smaller, so that a slot that is used in
 * turn for buffers of both kinds allocates nothing either. */
static dw_status reserve_memory(dw_slots *slots, const dw_allocator *allocator, dw_group_slot *slot,
                                uint64_t bytes, dw_why *why)
{
    dw_cuda *pins = slot->pinned ? slot->pinned : slot->now.job.cuda;
    if (slot->memory && bytes <= slot->bytes && pins == slot->pinned) return DW_OK;
    if (bytes < slot->bytes) bytes = slot->bytes;
    if (bytes > SIZE_MAX / 2)
        return dw_say(why, DW_ERR_LIMIT, "the buffers of a slot exceed the address space");
    void *memory = NULL;
    if (pins) {
        dw_status status = dw_cuda_pin(pins, (size_t)bytes, &memory, why);
        if (status != DW_OK) return status;
    } else {
        memory = dw_mem_allocate(allocator, (size_t)bytes);
        if (!memory) return dw_say(why, DW_ERR_NO_MEMORY, "no memory for the buffers of a slot");
    }
    give_memory(allocator, slot);
    slots->state_bytes += bytes - slot->bytes;
    slot->memory = memory;
    slot->bytes = (size_t)bytes;
    slot->pinned = pins;
    return DW_OK;
}

/* The slot's arrays, and nothing done yet. */
static void place_arrays(dw_group_slot *slot, const layout *at)
{
    unsigned char *memory = slot->memory;
    slot->reduce = (dw_reduce_scatter){.sums = (void *)(memory + at->sums),
                                       .added = (void *)(memory + at->added),
                                       .due = (void *)(memory + at->due),
                                       .waiting = (void *)(memory + at->waiting),
                                       .owes = (void *)(memory + at->contributions),
                                       .contributed = (void *)(memory + at->contributed)};
    slot->gather = (dw_all_gather){.result = memory + at->result,
                                   .ready = (void *)(memory + at->ready),
                                   .owes = (void *)(memory + at->results),
                                   .first_piece = (void *)(memory + at->first_piece),
                                   .taken = memory + at->taken};
    slot->fan =
        (dw_fan_out){.sent = (void *)(memory + at->sent), .kept = (void *)(memory + at->kept)};
    slot->verify = (dw_verification){.of = (void *)(memory + at->digests)};
    slot->staged = memory + at->staged;
    slot->staged_bytes = (size_t)at->staged_bytes;
}

dw_status dw_slot_prepare(dw_slots *slots, const dw_settings *settings, dw_group_slot *slot,
                          const dw_group_job *job, dw_why *why)
{
    dw_partition cut = dw_partition_make(settings, job);
    dw_piece own = dw_partition_part(&cut, cut.own_part);
    slot->now = (dw_operation_state){.job = *job,
                                     .cut = cut,
                                     .begin = own.begin,
                                     .count = own.count,
                                     .own_pieces = dw_partition_pieces(&cut, cut.own_part),
                                     .start_ns = dw_now_ns()};
    layout at = lay_out(settings, &slot->now);
    dw_status status = reserve_memory(slots, &settings->allocator, slot, at.bytes, why);
    if (status == DW_OK) place_arrays(slot, &at);
    return status;
}

void dw_slot_empty(dw_slots *slots, const dw_coding *coding, dw_group_slot *slot)
{
    dw_coders_destroy(coding, &slot->coders);
    slot->coders.forgotten_at = slot->visit;
    give_memory(&coding->settings->allocator, slot);
    slots->state_bytes -= slot->bytes;
    slot->memory = NULL;
    slot->bytes = 0;
    slot->pinned = NULL;
}

void dw_slot_free_all(dw_slots *slots, const dw_coding *coding, dw_received_pool *pool)
{
    const dw_allocator *allocator = &coding->settings->allocator;
    for (dw_group_slot *slot; (slot = slots->newest) != NULL;) {
        slots->newest = slot->made_before;
        dw_received *received;
        while ((received = dw_received_pop(&slot->early)) != NULL) dw_received_give(pool, received);
        dw_slot_empty(slots, coding, slot);
        dw_mem_release(allocator, slot, sizeof *slot);
    }
    give_table(slots, allocator);
}
