/* SPDX-License-Identifier: Apache-2.0
 * encoder_ticket.c - a frame from reservation to its end: reserved, submitted, dropped. */
#include "ends/encoder.h"

#include <string.h>

#include "common/cpu.h"
#include "common/tensor.h"

static void free_memory(const dw_allocator *allocator, dw_encode_memory *m)
{
    dw_mem_release(allocator, m->jobs, m->jobs_cap * sizeof *m->jobs);
    dw_mem_release(allocator, m->again, m->again_cap * sizeof *m->again);
    dw_mem_release(allocator, m->again_jobs, m->again_jobs_cap * sizeof *m->again_jobs);
    dw_mem_release(allocator, m->results, m->results_cap * sizeof *m->results);
    dw_mem_release(allocator, m->draft, m->draft_cap);
    dw_mem_release(allocator, m->heads, m->heads_cap * sizeof *m->heads);
    dw_mem_release(allocator, m->work, m->work_cap);
}

static void free_tickets(dw_encoder *encoder, dw_encode_ticket *t)
{
    const dw_allocator *allocator = &encoder->end.host.allocator;
    for (dw_encode_ticket *next; t; t = next) {
        next = t->next;
        if (t->flight.launch) encoder->end.engine.close(t->flight.launch);
        dw_mem_release(allocator, t->out, t->out_cap * sizeof *t->out);
        dw_mem_release(allocator, t->announced, t->announced_cap * sizeof *t->announced);
        free_memory(allocator, &t->memory);
        dw_mem_release(allocator, t, sizeof *t);
    }
}

void dw_encoder_end_tickets(dw_encoder *encoder)
{
    free_tickets(encoder, encoder->tickets);
    free_tickets(encoder, encoder->spare_tickets);
    encoder->tickets = encoder->spare_tickets = NULL;
}

dw_encode_ticket *dw_ticket_take(dw_encoder *encoder)
{
    dw_encode_ticket *t = encoder->spare_tickets;
    if (t) {
        encoder->spare_tickets = t->next;
    } else {
        t = dw_mem_allocate(&encoder->end.host.allocator, sizeof *t);
        if (!t) return NULL;
        memset(t, 0, sizeof *t);
    }
    t->encoder = encoder;
    t->is_whole = encoder->is_whole;
    t->next = encoder->tickets;
    encoder->tickets = t;
    return t;
}

void dw_ticket_give(dw_encode_ticket *t)
{
    dw_encoder *encoder = t->encoder;
    dw_encode_ticket **link = &encoder->tickets;
    while (*link != t) link = &(*link)->next;
    *link = t->next;
    if (t->flight.launch) encoder->end.engine.close(t->flight.launch);
    t->flight = (dw_flight){0};
    t->next = encoder->spare_tickets;
    encoder->spare_tickets = t;
}

/* Reserves memory for the draft of any head that this ticket can get. */
static bool prepare_draft(dw_encode_ticket *t)
{
    return !t->is_whole || dw_end_grow(&t->encoder->end, &t->memory.draft, &t->memory.draft_cap,
                                       dw_ticket_head_most(t), sizeof *t->memory.draft);
}

/* For a device, which has memory of its own for plain payloads: if any payload of the frame has a
 * stage, sets `coded` in all jobs, because the device then moves all payloads together
 * (codecs/job.h). */
static void prepare_moves(dw_encode_ticket *t)
{
    bool moves = false;
    for (uint32_t i = 0; i < t->header.n; i++) moves = moves || t->out[i].job.plan->behind;
    for (uint32_t i = 0; i < t->header.n && moves; i++) t->out[i].job.coded = t->out[i].job.payload;
}

/* A sync entry carries a copy as it is, which is expanded and not stored again. */
static void expand_copies(const dw_encode_ticket *t, dw_encode_job *job, const dw_work *work)
{
    const void *held = job->prev;
    if (!t->asked.has_x) held = job->x;
    dw_copies copies = dw_end_expand(job->plan, work, &held, &job->next);
    if (!copies.bits) return;
    job->copies = copies;
    if (t->asked.has_x) {
        job->prev = held;
        return;
    }
    job->copies.base = job->next;
    job->copies.fresh = NULL;
    job->x = job->next;
}

/* Gives every job the memory that its form and a stage behind it need. A device has memory of its
 * own. */
static bool prepare_work(dw_encode_ticket *t)
{
    uint64_t bytes = 0;
    bool on_device = t->encoder->end.engine.device != NULL;
    if (on_device) prepare_moves(t);
    for (uint32_t i = 0; i < t->header.n; i++)
        if (!dw_end_add_work(t->out[i].job.plan, &bytes)) return false;
    if (!on_device &&
        !dw_end_grow(&t->encoder->end, &t->memory.work, &t->memory.work_cap, bytes, 1))
        return false;
    bytes = 0;
    for (uint32_t i = 0; i < t->header.n; i++) {
        dw_encode_job *job = &t->out[i].job;
        dw_work work = on_device ? (dw_work){0} : dw_end_work(job->plan, t->memory.work, bytes);
        if (work.plain) {
            job->coded = job->payload;
            job->payload = work.plain;
        }
        job->scratch = work.scratch;
        job->room = work.room;
        expand_copies(t, job, &work);
        (void)dw_end_add_work(job->plan, &bytes);
    }
    return true;
}

static dw_status prepare_jobs(dw_encode_ticket *t)
{
    dw_encoder *encoder = t->encoder;
    dw_encode_memory *m = &t->memory;
    uint32_t n = t->header.n;
    if (!prepare_draft(t) ||
        !dw_end_grow(&encoder->end, &m->jobs, &m->jobs_cap, n, sizeof *m->jobs) ||
        !dw_end_grow(&encoder->end, &m->results, &m->results_cap, n, sizeof *m->results) ||
        !dw_end_grow(&encoder->end, &t->announced, &t->announced_cap, t->header.n_forgotten,
                     sizeof *t->announced))
        return dw_encoder_fail(encoder, DW_ERR_NO_MEMORY, NULL);
    dw_cpu_mode mode = dw_cpu_enter_exact(); /* jobs contain quotients of options */
    for (uint32_t i = 0; i < n; i++) {
        t->out[i].job = dw_ticket_job(t, i);
        m->jobs[i] = &t->out[i].job;
    }
    dw_cpu_leave_exact(mode);
    return prepare_work(t) ? DW_OK : dw_encoder_fail(encoder, DW_ERR_NO_MEMORY, NULL);
}

/* Fills in the header as far as it is known before the entries are planned. t->asked.x gives the
 * shape. */
static dw_status describe(dw_encode_ticket *t)
{
    dw_encoder *encoder = t->encoder;
    dw_status status = DW_OK;
    t->plans = dw_plan_cache_get(&encoder->end.plans, &encoder->end.config, t->asked.x.dtype,
                                 t->asked.x.t, t->asked.x.c, &status, &encoder->end.why);
    if (!t->plans) return status;
    if (encoder->end.engine.device) { /* other frames may be planned while this one is computed */
        t->own = *t->plans;
        t->plans = &t->own;
    }
    const dw_params *params = &t->plans->params;
    bool needs_keys = (params->keeps_prev || params->keeps_residual) && !t->asked.is_stateless;
    if (!t->keys && needs_keys)
        return dw_encoder_fail(encoder, DW_ERR_ARGUMENT,
                               params->keeps_prev
                                   ? "keys is NULL, but this codec needs keys"
                                   : "keys is NULL, but error feedback needs keys: give every "
                                     "tensor a key of its own");
    t->header = (dw_header){.codec = params->codec,
                            .wants_reply = params->wants_reply,
                            .incarnation = encoder->end.incarnation,
                            .sequence = encoder->sequence + 1,
                            .n = t->asked.x.n,
                            .t = t->asked.x.t,
                            .c = t->asked.x.c,
                            .x = t->asked.x.dtype,
                            .n_parameters = params->n_parameters};
    for (int use = 0; use < DW_USES; use++) {
        const dw_plan *plan = &t->plans->of[use];
        if (plan->form && plan->draws) t->header.seed = encoder->end.config.seed;
        if (plan->form && dw_plan_draws_places(plan) && t->asked.places) {
            t->header.seed = t->asked.places;
            t->header.draws_alike = true;
        }
    }
    t->sums = (dw_sums){0};
    return DW_OK;
}

/* Reserves what frames that are planned before this one is finished must not touch: its keys, its
 * bytes of the quota, its sequence number, and the forgotten keys that it announces. */
static void mark(dw_encode_ticket *t)
{
    dw_encoder *encoder = t->encoder;
    dw_held *held = dw_ticket_next_to_announce(t, encoder->end.predictor.oldest_forgotten);
    for (uint32_t i = 0; i < t->header.n_forgotten; i++) {
        t->announced[i] = (dw_announcement){held->key, held->announced};
        dw_held *next = dw_ticket_next_to_announce(t, held->newer);
        held->announced = t->header.sequence;
        held = next;
    }
    for (uint32_t i = 0; i < t->header.n; i++)
        if (t->out[i].held) t->out[i].held->busy = true;
    encoder->end.predictor.reserved_bytes += t->growth;
    encoder->sequence = t->header.sequence;
}

dw_status dw_ticket_reserve(dw_encode_ticket *t, const dw_key *keys, bool is_sync)
{
    t->keys = keys;
    dw_status status = describe(t);
    if (status) return status;
    status = is_sync ? dw_ticket_plan_sync(t) : dw_ticket_plan(t);
    if (status) return status;
    status = dw_ticket_lay_out(t);
    if (!status) status = prepare_jobs(t);
    if (status)
        dw_ticket_unplan(t, t->header.n);
    else
        mark(t);
    return status;
}

dw_held *dw_ticket_still_announced(const dw_encode_ticket *t, uint32_t i)
{
    dw_held *held = dw_predictor_find(&t->encoder->end.predictor, t->announced[i].key);
    return held && held->forgotten && held->announced == t->header.sequence ? held : NULL;
}

void dw_ticket_close(dw_encode_ticket *t)
{
    t->flight.in_flight = false;
    t->encoder->end.predictor.reserved_bytes -= t->growth;
    for (uint32_t i = 0; i < t->header.n; i++)
        if (t->out[i].held) t->out[i].held->busy = false;
}

void dw_ticket_drop(dw_encode_ticket *t)
{
    dw_predictor *predictor = &t->encoder->end.predictor;
    dw_ticket_close(t);
    for (uint32_t i = 0; i < t->header.n_forgotten; i++) {
        dw_held *held = dw_ticket_still_announced(t, i);
        if (!held) continue;
        held->announced = t->announced[i].before;
        if (held->announced) continue;
        dw_predictor_revive(predictor, held);
        dw_predictor_forget(predictor, held); /* behind all that were announced */
    }
    for (uint32_t i = 0; i < t->header.n; i++)
        if (t->out[i].revived) dw_predictor_forget(predictor, t->out[i].held);
    dw_ticket_unplan(t, t->header.n);
}

/* There was no room for a sample. Forgets one that will hardly come again, so that there is room
 * for a later one when the decoder has heard of it. Residuals are not lost for that. */
static void evict(dw_encode_ticket *t)
{
    dw_predictor *predictor = &t->encoder->end.predictor;
    dw_held *stale = t->plans->params.keeps_prev ? dw_paging_stale(&predictor->paging) : NULL;
    if (!stale) return;
    dw_paging_watch(&predictor->paging, stale);
    dw_predictor_forget(predictor, stale);
    t->encoder->end.counters.evicted_keys++;
}

/* From here on the engine may be writing, so the frame can only be finished or cancelled. A
 * forgotten key that this frame carries is taken off the list, so that no other frame announces
 * it. Keys are evicted here, too, because frames come here in the order in which they are made, on
 * every engine. */
void dw_ticket_set_in_flight(dw_encode_ticket *t)
{
    for (uint32_t i = 0; i < t->header.n; i++) {
        dw_outgoing *p = &t->out[i];
        p->revived = p->held && p->held->forgotten;
        if (p->revived) dw_predictor_revive(&t->encoder->end.predictor, p->held);
        if (p->held && t->asked.has_x) /* a resync is no visit */
            dw_paging_use(&t->encoder->end.predictor.paging, p->held);
    }
    for (uint32_t i = 0; i < t->header.n; i++)
        if (t->out[i].lacks_room) evict(t);
    t->flight.in_flight = true;
}

/* Collects the heads that the engine is to complete in the first ticket's array. false: no
 * memory. */
static bool prepare_heads(dw_encode_ticket **tickets, size_t count, dw_heads *heads)
{
    dw_encode_memory *all = &tickets[0]->memory;
    uint32_t n = 0;
    for (size_t i = 0; i < count; i++) n += tickets[i]->is_whole;
    if (!dw_end_grow(&tickets[0]->encoder->end, &all->heads, &all->heads_cap, n,
                     sizeof *all->heads))
        return false;
    *heads = (dw_heads){all->heads, n};
    n = 0;
    for (size_t i = 0; i < count; i++)
        if (tickets[i]->is_whole) all->heads[n++] = dw_ticket_draft(tickets[i]);
    return true;
}

/* Collects all jobs in the first ticket's array, then makes one launch. */
dw_status dw_ticket_submit(dw_encode_ticket **tickets, size_t count, void *stream)
{
    dw_encoder *encoder = tickets[0]->encoder;
    dw_encode_memory *all = &tickets[0]->memory;
    const dw_engine *engine = &encoder->end.engine;
    dw_launch *launch;
    dw_heads heads;
    bool captured;
    uint64_t n = 0, at = 0;
    for (size_t i = 0; i < count; i++) n += tickets[i]->header.n;
    if (n > UINT32_MAX) return dw_encoder_fail(encoder, DW_ERR_LIMIT, NULL);
    if (!dw_end_grow(&encoder->end, &all->jobs, &all->jobs_cap, n, sizeof *all->jobs))
        return dw_encoder_fail(encoder, DW_ERR_NO_MEMORY, NULL);
    for (size_t i = 0; i < count; i++) {
        dw_encode_ticket *t = tickets[i];
        t->flight.first = (uint32_t)at;
        for (uint32_t k = 0; k < t->header.n; k++) all->jobs[at++] = &t->out[k].job;
    }
    if (!prepare_heads(tickets, count, &heads))
        return dw_encoder_fail(encoder, DW_ERR_NO_MEMORY, NULL);
    dw_status status =
        engine->submit(engine->context, true, (dw_jobs){.encode = all->jobs}, (uint32_t)n, heads,
                       stream, &launch, &captured, &encoder->end.why);
    if (status == DW_ERR_NO_MEMORY) (void)dw_encoder_fail(encoder, status, NULL);
    if (status) return status;
    for (size_t i = 0; i < count; i++) {
        tickets[i]->flight.launch = launch;
        tickets[i]->flight.captured = captured;
        if (i) engine->share(launch);
        dw_ticket_set_in_flight(tickets[i]);
    }
    return DW_OK;
}
