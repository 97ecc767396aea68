/* SPDX-License-Identifier: Apache-2.0
 * decoder_calls.c - the way in through an engine elsewhere: check and enqueue now, compare digests
 * and commit when it is done. */
#include <string.h>

#include "decoder.h"
#include "deltawire/cuda.h"
#include "params.h"
#include "tensor.h"

struct dw_decode_ticket {
    dw_decode_ticket *next;
    dw_arrival arrival; /* arrival.frame is a copy, which nobody else writes */
    dw_tensor y;
    const uint8_t *body;
    uint8_t *head;
    dw_incoming *plans;
    const dw_decode_job **jobs;
    dw_chunk_result *results;
    uint64_t head_cap, plans_cap, jobs_cap, results_cap;
    dw_launch *launch;
    uint32_t first;  /* of the launch's jobs, the first of this frame */
    uint64_t number; /* in the order of the calls */
    bool captured;   /* it stays when its frame is finished */
    bool flying;
    bool tables_intact;
    dw_status refusal; /* not 0: the frame was refused before it flew */
    dw_why why;
};

dw_status dw_decoder_settle(dw_decoder *decoder, const dw_remote *remote, dw_why *why)
{
    dw_params params;
    dw_status status = dw_params_resolve(&params, &decoder->config, DW_F32);
    if (!status &&
        (params.key == DW_KEY_F32 || params.key == DW_KEY_F16 || params.key == DW_KEY_BF16)) {
        status = DW_ERR_UNSUPPORTED;
        if (why)
            snprintf(
                why->text, sizeof why->text,
                "there are no kernels for floats: take codec delta with key=2..8, or codec direct");
    }
    if (status) return status;
    decoder->remote = remote;
    dw_predictor_use(&decoder->predictor, &remote->store);
    return DW_OK;
}

static void free_tickets(dw_decoder *decoder, dw_decode_ticket *t)
{
    for (dw_decode_ticket *next; t; t = next) {
        next = t->next;
        if (t->launch) decoder->remote->close(t->launch);
        dw_mem_release(&decoder->allocator, t->head, t->head_cap);
        dw_mem_release(&decoder->allocator, t->plans, t->plans_cap * sizeof *t->plans);
        dw_mem_release(&decoder->allocator, t->jobs, t->jobs_cap * sizeof *t->jobs);
        dw_mem_release(&decoder->allocator, t->results, t->results_cap * sizeof *t->results);
        dw_mem_release(&decoder->allocator, t, sizeof *t);
    }
}

void dw_decoder_end_tickets(dw_decoder *decoder)
{
    free_tickets(decoder, decoder->tickets);
    free_tickets(decoder, decoder->spare_tickets);
    decoder->tickets = decoder->spare_tickets = NULL;
}

static dw_decode_ticket *take_ticket(dw_decoder *decoder)
{
    dw_decode_ticket *t = decoder->spare_tickets;
    if (t) {
        decoder->spare_tickets = t->next;
    } else {
        t = dw_mem_allocate(&decoder->allocator, sizeof *t);
        if (!t) return NULL;
        memset(t, 0, sizeof *t);
    }
    t->arrival.decoder = decoder;
    t->next = decoder->tickets;
    decoder->tickets = t;
    return t;
}

static void give_ticket(dw_decode_ticket *t)
{
    dw_decoder *decoder = t->arrival.decoder;
    dw_decode_ticket **link = &decoder->tickets;
    while (*link != t) link = &(*link)->next;
    *link = t->next;
    if (t->launch) decoder->remote->close(t->launch);
    t->launch = NULL;
    t->captured = t->flying = false;
    t->refusal = DW_OK;
    t->next = decoder->spare_tickets;
    decoder->spare_tickets = t;
}

/* Header and tables, as they are now: whoever writes into the caller's memory later does not change
 * what was checked. */
static dw_status copy_head(dw_decode_ticket *t, const uint8_t *head, uint64_t head_len,
                           uint64_t len)
{
    dw_decoder *decoder = t->arrival.decoder;
    void *grown = t->head;
    uint64_t bytes = dw_frame_reach(head, head_len < len ? head_len : len);
    if (!dw_mem_grow(&decoder->allocator, &grown, &t->head_cap, bytes, 1))
        return dw_decoder_fail(decoder, DW_ERR_NO_MEMORY, NULL);
    t->head = grown;
    if (bytes) memcpy(t->head, head, (size_t)bytes);
    t->arrival =
        (dw_arrival){.decoder = decoder, .frame = t->head, .body = t->body, .len = len, .y = &t->y};
    const char *why;
    t->refusal = dw_frame_open_head(t->head, bytes, len, &t->arrival.info, &t->tables_intact, &why);
    if (t->refusal)
        snprintf(decoder->why.text, sizeof decoder->why.text, "the frame cannot be read: %s", why);
    return DW_OK;
}

/* A frame of another life ends all that earlier lives left: not while one of these is on its way.
 */
static bool meets_another_life(const dw_decode_ticket *t)
{
    const dw_decoder *decoder = t->arrival.decoder;
    for (const dw_decode_ticket *other = decoder->tickets; other; other = other->next)
        if (other->flying && other->arrival.info.incarnation != t->arrival.info.incarnation)
            return true;
    return false;
}

static dw_status check_entries(dw_decode_ticket *t)
{
    dw_decoder *decoder = t->arrival.decoder;
    for (uint32_t i = 0; i < t->arrival.info.n; i++) {
        dw_entry_kind kind = t->plans[i].entry.kind;
        if (kind == DW_ENTRY_SYNC) {
            t->refusal = DW_ERR_UNSUPPORTED;
            return dw_decoder_fail(decoder, DW_ERR_UNSUPPORTED,
                                   "the frame carries prev itself, for which there are no kernels: "
                                   "a key frame will follow");
        }
        if (!dw_kind_has_state(kind) && !t->y.data)
            return dw_decoder_fail(
                decoder, DW_ERR_ARGUMENT,
                "the frame has stateless entries, which go nowhere but to y: give y its data");
    }
    return DW_OK;
}

static dw_status prepare_jobs(dw_decode_ticket *t)
{
    dw_arrival *a = &t->arrival;
    uint32_t n = a->info.n;
    void *jobs = t->jobs, *results = t->results;
    bool grown = dw_mem_grow(&a->decoder->allocator, &jobs, &t->jobs_cap, n, sizeof *t->jobs);
    t->jobs = jobs;
    grown = grown &&
            dw_mem_grow(&a->decoder->allocator, &results, &t->results_cap, n, sizeof *t->results);
    t->results = results;
    if (!grown) return dw_decoder_fail(a->decoder, DW_ERR_NO_MEMORY, NULL);
    for (uint32_t i = 0; i < n; i++) {
        t->plans[i].job = dw_arrival_job(a, &t->plans[i], i);
        t->jobs[i] = &t->plans[i].job;
    }
    return DW_OK;
}

/* What frames that come meanwhile must know of this one. */
static void take_off(dw_decode_ticket *t)
{
    dw_decoder *decoder = t->arrival.decoder;
    for (uint32_t i = 0; i < t->arrival.info.n; i++)
        if (t->plans[i].held) t->plans[i].held->busy = true;
    decoder->predictor.reserved_bytes += t->arrival.growth;
    t->number = decoder->calls;
    t->flying = true;
}

static void land(dw_decode_ticket *t)
{
    dw_decoder *decoder = t->arrival.decoder;
    for (uint32_t i = 0; i < t->arrival.info.n; i++)
        if (t->plans[i].held) t->plans[i].held->busy = false;
    decoder->predictor.reserved_bytes -= t->arrival.growth;
    t->flying = false;
}

/* All that the host can check. What is wrong with the frame becomes t->refusal; other errors are
 * the call's. */
static dw_status book(dw_decode_ticket *t, const uint8_t *head, uint64_t head_len, uint64_t len)
{
    dw_decoder *decoder = t->arrival.decoder;
    dw_arrival *a = &t->arrival;
    decoder->calls++;
    dw_status status = copy_head(t, head, head_len, len);
    if (!status && !t->refusal) t->refusal = dw_arrival_agrees(a);
    t->why = decoder->why;
    if (status || t->refusal) return status;
    if (a->info.codec == DW_CODEC_DELTA && meets_another_life(t))
        return dw_decoder_fail(
            decoder, DW_ERR_ARGUMENT,
            "a frame of another life of the encoder is in flight: finish or cancel it first");
    status = dw_arrival_plan(a, &t->plans, &t->plans_cap);
    if (!status) status = check_entries(t);
    if (!status) status = prepare_jobs(t);
    if (!status) status = dw_arrival_admit(a);
    if (status) dw_arrival_give_up(a);
    if (status == DW_ERR_ARGUMENT || status == DW_ERR_NO_MEMORY) return status;
    t->refusal = status;
    if (status)
        t->why = decoder->why;
    else
        take_off(t);
    return DW_OK;
}

static dw_status check_item(const dw_decode_item *item)
{
    dw_decoder *decoder = item->decoder;
    if (!decoder) return DW_ERR_ARGUMENT;
    if (!decoder->remote)
        return dw_decoder_fail(decoder, DW_ERR_UNSUPPORTED,
                               "this decoder computes on the CPU: call dw_decode");
    if (!item->head || !item->frame || !item->y)
        return dw_decoder_fail(decoder, DW_ERR_ARGUMENT, "an argument is NULL");
    if ((uintptr_t)item->frame % 16)
        return dw_decoder_fail(decoder, DW_ERR_ARGUMENT, "frame must be aligned to 16 bytes");
    dw_status status = dw_tensor_check(item->y);
    if (status || dw_tensor_overlaps(item->y))
        return dw_decoder_fail(
            decoder, status ? status : DW_ERR_ARGUMENT,
            "y is no tensor that can be written: see its dtype, alignment, extents and strides");
    return DW_OK;
}

static dw_status book_item(dw_decode_item *item)
{
    dw_decode_ticket *t = take_ticket(item->decoder);
    if (!t) return dw_decoder_fail(item->decoder, DW_ERR_NO_MEMORY, NULL);
    t->y = *item->y;
    t->body = item->frame;
    dw_status status = book(t, item->head, item->head_len, item->len);
    if (status)
        give_ticket(t);
    else
        item->ticket = t;
    return status;
}

static void drop_items(dw_decode_item *items, size_t count)
{
    for (size_t i = count; i-- > 0;) {
        dw_decode_ticket *t = items[i].ticket;
        if (t->flying) {
            land(t);
            dw_arrival_give_up(&t->arrival);
        }
        give_ticket(t);
        items[i].ticket = NULL;
    }
}

/* The jobs of all frames that were not refused into the first one's array, then one launch; of
 * none, nothing. */
static dw_status launch_items(dw_decode_item *items, size_t count, void *stream)
{
    dw_decode_ticket *first = items[0].ticket;
    dw_decoder *decoder = items[0].decoder;
    dw_launch *launch;
    bool captured, launched = false;
    uint64_t n = 0, at = 0;
    for (size_t i = 0; i < count; i++)
        n += items[i].ticket->flying ? items[i].ticket->arrival.info.n : 0;
    if (n == 0) return DW_OK;
    void *jobs = first->jobs;
    if (n > UINT32_MAX) return dw_decoder_fail(decoder, DW_ERR_LIMIT, NULL);
    if (!dw_mem_grow(&decoder->allocator, &jobs, &first->jobs_cap, n, sizeof *first->jobs))
        return dw_decoder_fail(decoder, DW_ERR_NO_MEMORY, NULL);
    first->jobs = jobs;
    for (size_t i = 0; i < count; i++) {
        dw_decode_ticket *t = items[i].ticket;
        t->first = (uint32_t)at;
        for (uint32_t k = 0; t->flying && k < t->arrival.info.n; k++)
            first->jobs[at++] = &t->plans[k].job;
    }
    dw_status status =
        decoder->remote->launch(decoder->remote->context, false, (dw_jobs){.decode = first->jobs},
                                (uint32_t)n, stream, &launch, &captured, &decoder->why);
    for (size_t i = 0; i < count && !status; i++) {
        dw_decode_ticket *t = items[i].ticket;
        if (!t->flying) continue;
        if (launched) decoder->remote->share(launch);
        launched = true;
        t->launch = launch;
        t->captured = captured;
    }
    return status;
}

dw_status dw_decode_many_async(dw_decode_item *items, size_t count, void *stream)
{
    size_t booked = 0;
    dw_status status = DW_OK;
    if (!items || count == 0) return DW_ERR_ARGUMENT;
    for (size_t i = 0; i < count; i++) items[i].ticket = NULL;
    for (size_t i = 0; i < count && !status; i++) {
        status = check_item(&items[i]);
        if (!status && items[i].decoder->remote->device != items[0].decoder->remote->device)
            status = dw_decoder_fail(items[i].decoder, DW_ERR_ARGUMENT,
                                     "the decoders of one launch must be of one dw_cuda");
    }
    for (; booked < count && !status; booked += !status) status = book_item(&items[booked]);
    if (!status) status = launch_items(items, count, stream);
    if (status) drop_items(items, booked);
    return status;
}

dw_status dw_decode_async(dw_decoder *decoder, const void *head, size_t head_len, const void *frame,
                          size_t len, const dw_tensor *y, void *stream, dw_decode_ticket **ticket)
{
    dw_decode_item item = {decoder, head, frame, head_len, len, y, NULL};
    if (!decoder) return DW_ERR_ARGUMENT;
    if (!ticket) return dw_decoder_fail(decoder, DW_ERR_ARGUMENT, "an argument is NULL");
    dw_status status = dw_decode_many_async(&item, 1, stream);
    if (!status) *ticket = item.ticket;
    return status;
}

dw_status dw_decode_again(dw_decode_ticket *t, const void *head, size_t head_len, size_t len)
{
    if (!t) return DW_ERR_ARGUMENT;
    dw_decoder *decoder = t->arrival.decoder;
    if (!head) return dw_decoder_fail(decoder, DW_ERR_ARGUMENT, "an argument is NULL");
    if (!t->captured || t->flying || t->refusal)
        return dw_decoder_fail(decoder, DW_ERR_ARGUMENT,
                               "only a ticket that a stream captured is used again, after finish");
    dw_status status = book(t, head, head_len, len);
    if (status || t->refusal) return status ? status : t->refusal;
    status = decoder->remote->reuse(t->launch, t->first, (dw_jobs){.decode = t->jobs},
                                    t->arrival.info.n, &decoder->why);
    if (status) {
        land(t);
        dw_arrival_give_up(&t->arrival);
    }
    return status;
}

/* Steps 6, 8 and 9 of docs/format.md, 2, from what the device found. */
static dw_status judge(dw_decode_ticket *t)
{
    dw_arrival *a = &t->arrival;
    dw_status status = DW_OK;
    for (uint32_t i = 0; i < a->info.n; i++)
        if (dw_digest_of_sum(t->results[i].payload_sum) != t->plans[i].entry.payload_digest)
            return dw_decoder_fail(
                a->decoder, DW_ERR_CORRUPT,
                "a payload's checksum does not match: its bytes were changed on the way");
    for (uint32_t i = 0; i < a->info.n; i++) {
        dw_incoming *p = &t->plans[i];
        if (!dw_kind_has_state(p->entry.kind)) continue;
        p->fresh.version = a->info.sequence;
        p->fresh.chain = dw_frame_chain(&a->info, &p->entry);
        p->fresh.audit = a->info.audit;
        if (!a->info.audit) continue;
        p->fresh.state_digest = dw_digest_of_sum(t->results[i].state_sum);
        if (p->fresh.state_digest == p->entry.state_digest) continue;
        status = DW_ERR_STATE;
        p->gives_up = p->entry.kind == DW_ENTRY_DELTA;
    }
    return status ? dw_decoder_fail(a->decoder, status, NULL) : DW_OK;
}

static void count_groups(dw_decode_ticket *t)
{
    dw_counters *counters = &t->arrival.decoder->counters;
    for (uint32_t i = 0; i < t->arrival.info.n; i++) {
        const dw_sums *sums = &t->results[i].sums;
        counters->groups += t->plans[i].job.layout.pieces;
        counters->direct_groups += sums->direct;
        counters->zero_groups += sums->zero;
        counters->poisoned_groups += sums->poisoned;
    }
}

static bool another_comes_first(const dw_decode_ticket *t)
{
    for (const dw_decode_ticket *other = t->arrival.decoder->tickets; other; other = other->next)
        if (other->flying && other->number < t->number) return true;
    return false;
}

static dw_status receive(dw_decode_ticket *t)
{
    dw_decoder *decoder = t->arrival.decoder;
    if (t->refusal) {
        decoder->why = t->why;
        return t->refusal;
    }
    dw_status status = judge(t);
    land(t);
    if (status) {
        dw_arrival_give_up(&t->arrival);
        return status;
    }
    count_groups(t);
    dw_arrival_commit(&t->arrival);
    return DW_OK;
}

dw_status dw_decode_finish(dw_decode_ticket *t, void *reply, size_t reply_cap, size_t *reply_len)
{
    if (reply_len) *reply_len = 0;
    if (!t) return DW_ERR_ARGUMENT;
    dw_decoder *decoder = t->arrival.decoder;
    if (reply && !reply_len)
        return dw_decoder_fail(decoder, DW_ERR_ARGUMENT, "an argument is NULL");
    if (!t->flying && !t->refusal)
        return dw_decoder_fail(decoder, DW_ERR_ARGUMENT, "the ticket has no frame in flight");
    if (reply && reply_cap < dw_reply_bound(t->y.n))
        return dw_decoder_fail(
            decoder, DW_ERR_NO_ROOM,
            "the reply does not fit: dw_reply_bound tells the room that is enough");
    if (t->flying) {
        if (another_comes_first(t))
            return dw_decoder_fail(decoder, DW_ERR_ARGUMENT,
                                   "an earlier frame is in flight: finish that one first");
        if (decoder->remote->done(t->launch, t->first, t->arrival.info.n, t->results) == DW_PENDING)
            return DW_PENDING;
    }
    decoder->calls++;
    dw_status status = receive(t);
    bool answers = t->tables_intact && reply && reply_cap >= dw_reply_bound(t->arrival.info.n) &&
                   dw_decoder_asks_for_reply(&t->arrival);
    if (answers) *reply_len = dw_decoder_write_reply(&t->arrival, status != DW_OK, reply);
    if (status) decoder->counters.rejected_frames++;
    t->refusal = DW_OK;
    if (!t->captured) give_ticket(t);
    return status;
}

dw_status dw_decode_cancel(dw_decode_ticket *t)
{
    if (!t) return DW_ERR_ARGUMENT;
    dw_decoder *decoder = t->arrival.decoder;
    if (!t->flying && !t->captured && !t->refusal)
        return dw_decoder_fail(decoder, DW_ERR_ARGUMENT, "the ticket has ended");
    if (t->flying) {
        if (!t->captured &&
            decoder->remote->done(t->launch, t->first, t->arrival.info.n, t->results) == DW_PENDING)
            return DW_PENDING;
        land(t);
        dw_arrival_give_up(&t->arrival);
    }
    give_ticket(t);
    return DW_OK;
}
