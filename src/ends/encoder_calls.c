/* SPDX-License-Identifier: Apache-2.0
 * encoder_calls.c - the way out through an engine elsewhere: plan and enqueue now, seal and commit
 * when it is done. */
#include <string.h>

#include "deltawire/cuda.h"
#include "encoder.h"
#include "tensor.h"

/* A forgotten key that the frame tells of, and the frame that told it before. */
typedef struct told {
    dw_key key;
    uint64_t before;
} told;

struct dw_encode_ticket {
    dw_encode_ticket *next;
    dw_draft draft;
    dw_tensor x;
    uint8_t *frame;
    size_t cap;
    uint64_t total;
    dw_outgoing *plans;
    told *told;
    const dw_encode_job **jobs;
    dw_chunk_result *results;
    uint64_t plans_cap, told_cap, jobs_cap, results_cap;
    dw_launch *launch;
    uint32_t first; /* of the launch's jobs, the first of this frame */
    bool captured;  /* it stays when its frame is finished */
    bool flying;
};

size_t dw_frame_head_bound(uint32_t n)
{
    uint64_t bytes;
    return dw_frame_table_end(n, n, &bytes) ? (size_t)bytes : 0;
}

dw_status dw_encoder_settle(dw_encoder *encoder, const dw_remote *remote, dw_why *why)
{
    dw_params params;
    dw_status status = dw_params_resolve(&params, &encoder->config, DW_F32);
    if (!status && dw_dtype_of(params.key)) {
        status = DW_ERR_UNSUPPORTED;
        if (why)
            snprintf(
                why->text, sizeof why->text,
                "there are no kernels for floats: take codec delta with key=2..8, or codec direct");
    }
    if (status) return status;
    encoder->remote = remote;
    dw_predictor_use(&encoder->predictor, &remote->store);
    return DW_OK;
}

static void free_tickets(dw_encoder *encoder, dw_encode_ticket *t)
{
    for (dw_encode_ticket *next; t; t = next) {
        next = t->next;
        if (t->launch) encoder->remote->close(t->launch);
        dw_mem_release(&encoder->allocator, t->plans, t->plans_cap * sizeof *t->plans);
        dw_mem_release(&encoder->allocator, t->told, t->told_cap * sizeof *t->told);
        dw_mem_release(&encoder->allocator, t->jobs, t->jobs_cap * sizeof *t->jobs);
        dw_mem_release(&encoder->allocator, t->results, t->results_cap * sizeof *t->results);
        dw_mem_release(&encoder->allocator, t, sizeof *t);
    }
}

void dw_encoder_end_tickets(dw_encoder *encoder)
{
    free_tickets(encoder, encoder->tickets);
    free_tickets(encoder, encoder->spare_tickets);
    encoder->tickets = encoder->spare_tickets = NULL;
}

void dw_encoder_hear(dw_encoder *encoder, const dw_reply_entry *entry, bool accepted)
{
    for (dw_encode_ticket *t = encoder->tickets; t; t = t->next) {
        for (uint32_t i = 0; t->flying && i < t->draft.info.n; i++) {
            dw_outgoing *p = &t->plans[i];
            if (!p->held || p->entry.key.sample != entry->key.sample ||
                p->entry.key.slice != entry->key.slice)
                continue;
            p->heard = *entry;
            p->is_heard = true;
            p->heard_accepted = accepted;
        }
    }
}

static dw_encode_ticket *take_ticket(dw_encoder *encoder)
{
    dw_encode_ticket *t = encoder->spare_tickets;
    if (t) {
        encoder->spare_tickets = t->next;
    } else {
        t = dw_mem_allocate(&encoder->allocator, sizeof *t);
        if (!t) return NULL;
        memset(t, 0, sizeof *t);
    }
    t->next = encoder->tickets;
    encoder->tickets = t;
    return t;
}

static void give_ticket(dw_encode_ticket *t)
{
    dw_encoder *encoder = t->draft.encoder;
    dw_encode_ticket **link = &encoder->tickets;
    while (*link != t) link = &(*link)->next;
    *link = t->next;
    if (t->launch) encoder->remote->close(t->launch);
    t->launch = NULL;
    t->captured = t->flying = false;
    t->next = encoder->spare_tickets;
    encoder->spare_tickets = t;
}

static bool grow(dw_encoder *encoder, void *array, uint64_t *cap, uint64_t need, size_t element)
{
    void *grown;
    memcpy(&grown, array, sizeof grown);
    bool done = dw_mem_grow(&encoder->allocator, &grown, cap, need, element);
    memcpy(array, &grown, sizeof grown);
    return done;
}

static dw_status prepare_jobs(dw_encode_ticket *t)
{
    dw_draft *d = &t->draft;
    uint32_t n = d->info.n;
    if (!grow(d->encoder, &t->jobs, &t->jobs_cap, n, sizeof *t->jobs) ||
        !grow(d->encoder, &t->results, &t->results_cap, n, sizeof *t->results) ||
        !grow(d->encoder, &t->told, &t->told_cap, d->info.n_forgotten, sizeof *t->told))
        return dw_encoder_fail(d->encoder, DW_ERR_NO_MEMORY, NULL);
    for (uint32_t i = 0; i < n; i++) {
        t->plans[i].job = dw_draft_job(d, &t->plans[i], i);
        t->jobs[i] = &t->plans[i].job;
    }
    return DW_OK;
}

/* Plans a frame and takes its number: what other frames that are planned meanwhile must know of it.
 */
static dw_status book(dw_encode_ticket *t, dw_encoder *encoder, const dw_key *keys)
{
    dw_draft *d = &t->draft;
    if (encoder->sequence == UINT64_MAX) dw_encoder_begin_life(encoder);
    *d = (dw_draft){
        .encoder = encoder, .keys = keys, .x = &t->x, .frame = t->frame, .most_forgotten = t->x.n};
    dw_status status = dw_params_resolve(&d->params, &encoder->config, t->x.dtype);
    if (status) return dw_encoder_fail(encoder, status, NULL);
    dw_draft_describe(d, t->x.n, t->x.t, t->x.c, t->x.dtype);
    if ((status = dw_draft_plan(d, &t->plans, &t->plans_cap)) != DW_OK) return status;
    status = dw_draft_lay_out(d, t->cap, &t->total);
    if (!status) status = prepare_jobs(t);
    if (status) {
        dw_draft_unplan(d, d->info.n);
        return status;
    }
    dw_held *tell = dw_draft_next_to_tell(d, encoder->predictor.oldest_forgotten);
    for (uint32_t i = 0; i < d->info.n_forgotten; i++) {
        t->told[i] = (told){tell->key, tell->told};
        dw_held *next = dw_draft_next_to_tell(d, tell->newer);
        tell->told = d->info.sequence;
        tell = next;
    }
    for (uint32_t i = 0; i < d->info.n; i++)
        if (t->plans[i].held) t->plans[i].held->busy = true;
    encoder->predictor.reserved_bytes += d->growth;
    encoder->sequence = d->info.sequence;
    return DW_OK;
}

/* The i-th key that the frame tells of, where nothing has become of it since. */
static dw_held *still_told(const dw_encode_ticket *t, uint32_t i)
{
    dw_held *held = dw_predictor_find(&t->draft.encoder->predictor, t->told[i].key);
    return held && held->forgotten && held->told == t->draft.info.sequence ? held : NULL;
}

static void close_booking(dw_encode_ticket *t)
{
    dw_predictor *predictor = &t->draft.encoder->predictor;
    t->flying = false;
    predictor->reserved_bytes -= t->draft.growth;
    for (uint32_t i = 0; i < t->draft.info.n; i++)
        if (t->plans[i].held) t->plans[i].held->busy = false;
}

/* Keys that were among the forgotten go back there: all of them, or those of which nothing is held
 * after all. */
static void forget_again(dw_encode_ticket *t, bool all)
{
    for (uint32_t i = 0; i < t->draft.info.n; i++) {
        dw_outgoing *p = &t->plans[i];
        if (p->revived && (all || !dw_kind_has_state(p->entry.kind)))
            dw_predictor_forget(&t->draft.encoder->predictor, p->held);
    }
}

static void drop_booking(dw_encode_ticket *t)
{
    close_booking(t);
    for (uint32_t i = 0; i < t->draft.info.n_forgotten; i++) {
        dw_held *held = still_told(t, i);
        if (held) held->told = t->told[i].before;
    }
    forget_again(t, true);
    dw_draft_unplan(&t->draft, t->draft.info.n);
}

/* Nothing can fail any more: a forgotten key that this frame carries is told by no other. */
static void take_off(dw_encode_ticket *t)
{
    for (uint32_t i = 0; i < t->draft.info.n; i++) {
        dw_outgoing *p = &t->plans[i];
        p->revived = p->held && p->held->forgotten;
        if (p->revived) dw_predictor_revive(&t->draft.encoder->predictor, p->held);
    }
    t->flying = true;
}

static void learn_what_was_heard(dw_encode_ticket *t)
{
    for (uint32_t i = 0; i < t->draft.info.n; i++)
        if (t->plans[i].is_heard)
            dw_encoder_learn(t->draft.encoder, &t->plans[i].heard, t->plans[i].heard_accepted);
}

static dw_status check_item(const dw_encode_item *item)
{
    dw_encoder *encoder = item->encoder;
    if (!encoder) return DW_ERR_ARGUMENT;
    if (!encoder->remote)
        return dw_encoder_fail(encoder, DW_ERR_UNSUPPORTED,
                               "this encoder computes on the CPU: call dw_encode");
    if (!item->keys || !item->x || !item->x->data || !item->frame)
        return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, "an argument is NULL");
    dw_status status = dw_tensor_check(item->x);
    if (status)
        return dw_encoder_fail(
            encoder, status,
            "x is no tensor that can be walked: see its dtype, alignment, extents and strides");
    if ((uintptr_t)item->frame % 16)
        return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, "frame must be aligned to 16 bytes");
    return DW_OK;
}

/* Books item i; a ticket that could not be booked is given back. */
static dw_status book_item(dw_encode_item *item)
{
    dw_encoder *encoder = item->encoder;
    dw_encode_ticket *t = take_ticket(encoder);
    if (!t) return dw_encoder_fail(encoder, DW_ERR_NO_MEMORY, NULL);
    t->draft.encoder = encoder;
    t->x = *item->x;
    t->frame = item->frame;
    t->cap = item->cap;
    dw_status status = book(t, encoder, item->keys);
    if (status)
        give_ticket(t);
    else
        item->ticket = t;
    return status;
}

/* The last one first, so that the numbers of frames go back as they came. */
static void drop_items(dw_encode_item *items, size_t count)
{
    for (size_t i = count; i-- > 0;) {
        dw_encode_ticket *t = items[i].ticket;
        drop_booking(t);
        items[i].encoder->sequence = t->draft.info.sequence - 1;
        give_ticket(t);
        items[i].ticket = NULL;
    }
}

/* All jobs into the first ticket's array, then one launch. */
static dw_status launch_items(dw_encode_item *items, size_t count, void *stream)
{
    dw_encode_ticket *first = items[0].ticket;
    dw_encoder *encoder = items[0].encoder;
    dw_launch *launch;
    bool captured;
    uint64_t n = 0, at = 0;
    for (size_t i = 0; i < count; i++) n += items[i].ticket->draft.info.n;
    if (n > UINT32_MAX) return dw_encoder_fail(encoder, DW_ERR_LIMIT, NULL);
    if (!grow(encoder, &first->jobs, &first->jobs_cap, n, sizeof *first->jobs))
        return dw_encoder_fail(encoder, DW_ERR_NO_MEMORY, NULL);
    for (size_t i = 0; i < count; i++) {
        dw_encode_ticket *t = items[i].ticket;
        t->first = (uint32_t)at;
        for (uint32_t k = 0; k < t->draft.info.n; k++) first->jobs[at++] = &t->plans[k].job;
    }
    dw_status status =
        encoder->remote->launch(encoder->remote->context, true, (dw_jobs){.encode = first->jobs},
                                (uint32_t)n, stream, &launch, &captured, &encoder->why);
    if (status) return status;
    for (size_t i = 0; i < count; i++) {
        items[i].ticket->launch = launch;
        items[i].ticket->captured = captured;
        if (i) encoder->remote->share(launch);
        take_off(items[i].ticket);
    }
    return DW_OK;
}

dw_status dw_encode_many_async(dw_encode_item *items, size_t count, void *stream)
{
    size_t booked = 0;
    dw_status status = DW_OK;
    if (!items || count == 0) return DW_ERR_ARGUMENT;
    for (size_t i = 0; i < count; i++) items[i].ticket = NULL;
    for (size_t i = 0; i < count && !status; i++) {
        status = check_item(&items[i]);
        if (!status && items[i].encoder->remote->device != items[0].encoder->remote->device)
            status = dw_encoder_fail(items[i].encoder, DW_ERR_ARGUMENT,
                                     "the encoders of one launch must be of one dw_cuda");
    }
    for (; booked < count && !status; booked += !status) status = book_item(&items[booked]);
    if (!status) status = launch_items(items, count, stream);
    if (status) drop_items(items, booked);
    return status;
}

dw_status dw_encode_async(dw_encoder *encoder, const dw_key *keys, const dw_tensor *x, void *frame,
                          size_t cap, void *stream, dw_encode_ticket **ticket)
{
    dw_encode_item item = {encoder, keys, x, frame, cap, NULL};
    if (!encoder) return DW_ERR_ARGUMENT;
    if (!ticket) return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, "an argument is NULL");
    dw_status status = dw_encode_many_async(&item, 1, stream);
    if (!status) *ticket = item.ticket;
    return status;
}

dw_status dw_encode_again(dw_encode_ticket *t, const dw_key *keys)
{
    if (!t) return DW_ERR_ARGUMENT;
    dw_encoder *encoder = t->draft.encoder;
    if (!keys) return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, "an argument is NULL");
    if (!t->captured || t->flying)
        return dw_encoder_fail(encoder, DW_ERR_ARGUMENT,
                               "only a ticket that a stream captured is used again, after finish");
    dw_status status = book(t, encoder, keys);
    if (status) return status;
    status = encoder->remote->reuse(t->launch, t->first, (dw_jobs){.encode = t->jobs},
                                    t->draft.info.n, &encoder->why);
    if (!status) {
        take_off(t);
        return DW_OK;
    }
    drop_booking(t);
    encoder->sequence = t->draft.info.sequence - 1;
    return status;
}

static void seal(dw_encode_ticket *t, uint8_t *head)
{
    dw_draft *d = &t->draft;
    for (uint32_t i = 0; i < d->info.n; i++) {
        dw_outgoing *p = &t->plans[i];
        t->results[i].sums.pieces = p->job.layout.pieces;
        dw_sums_add(&d->sums, &t->results[i].sums);
        p->entry.payload_digest = dw_digest_of_sum(t->results[i].payload_sum);
        bool audited = dw_kind_has_state(p->entry.kind) && d->info.audit;
        p->entry.state_digest = audited ? dw_digest_of_sum(t->results[i].state_sum) : 0;
        dw_draft_put_entry(d, p, i, head);
    }
    for (uint32_t i = 0; i < d->info.n_forgotten; i++)
        dw_frame_put_forgotten(head, d->info.n, i, t->told[i].key);
    dw_frame_seal(head, &d->info);
}

dw_status dw_encode_finish(dw_encode_ticket *t, void *head, size_t head_cap, size_t *head_len,
                           size_t *len)
{
    uint64_t end;
    if (!t) return DW_ERR_ARGUMENT;
    dw_draft *d = &t->draft;
    dw_encoder *encoder = d->encoder;
    if (!head || !head_len || !len)
        return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, "an argument is NULL");
    if (!t->flying)
        return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, "the ticket has no frame in flight");
    (void)dw_frame_table_end(d->info.n, d->info.n_forgotten, &end);
    if (end > head_cap)
        return dw_encoder_fail(
            encoder, DW_ERR_NO_ROOM,
            "the head does not fit: dw_frame_head_bound tells the room that is enough");
    dw_status status = encoder->remote->done(t->launch, t->first, d->info.n, t->results);
    if (status) return status;
    seal(t, head);
    close_booking(t);
    for (uint32_t i = 0; i < d->info.n_forgotten && !d->params.wants_reply; i++) {
        dw_held *held = still_told(t, i);
        if (held) dw_predictor_remove(&encoder->predictor, held);
    }
    forget_again(t, false);
    dw_draft_commit(d, t->total);
    learn_what_was_heard(t);
    *head_len = (size_t)end;
    *len = (size_t)t->total;
    if (!t->captured) give_ticket(t);
    return DW_OK;
}

dw_status dw_encode_cancel(dw_encode_ticket *t)
{
    if (!t) return DW_ERR_ARGUMENT;
    dw_encoder *encoder = t->draft.encoder;
    if (!t->flying && !t->captured)
        return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, "the ticket has ended");
    if (t->flying) {
        if (!t->captured &&
            encoder->remote->done(t->launch, t->first, t->draft.info.n, t->results) == DW_PENDING)
            return DW_PENDING;
        drop_booking(t);
        learn_what_was_heard(t);
    }
    give_ticket(t);
    return DW_OK;
}
