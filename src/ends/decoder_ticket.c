/* SPDX-License-Identifier: Apache-2.0
 * decoder_ticket.c - a frame from its receipt to its end: reserved, submitted, dropped. */
#include "ends/decoder.h"

#include <string.h>

static void free_memory(const dw_allocator *allocator, dw_decode_memory *m)
{
    dw_mem_release(allocator, m->head, m->head_cap);
    dw_mem_release(allocator, m->jobs, m->jobs_cap * sizeof *m->jobs);
    dw_mem_release(allocator, m->results, m->results_cap * sizeof *m->results);
    dw_mem_release(allocator, m->work, m->work_cap);
}

static void free_tickets(dw_decoder *decoder, dw_decode_ticket *t)
{
    const dw_allocator *allocator = &decoder->end.host.allocator;
    for (dw_decode_ticket *next; t; t = next) {
        next = t->next;
        if (t->flight.launch) decoder->end.engine.close(t->flight.launch);
        dw_mem_release(allocator, t->in, t->in_cap * sizeof *t->in);
        free_memory(allocator, &t->memory);
        dw_mem_release(allocator, t, sizeof *t);
    }
}

void dw_decoder_end_tickets(dw_decoder *decoder)
{
    free_tickets(decoder, decoder->tickets);
    free_tickets(decoder, decoder->spare_tickets);
    decoder->tickets = decoder->spare_tickets = NULL;
}

dw_decode_ticket *dw_decode_ticket_take(dw_decoder *decoder)
{
    dw_decode_ticket *t = decoder->spare_tickets;
    if (t) {
        decoder->spare_tickets = t->next;
    } else {
        t = dw_mem_allocate(&decoder->end.host.allocator, sizeof *t);
        if (!t) return NULL;
        memset(t, 0, sizeof *t);
    }
    t->decoder = decoder;
    t->next = decoder->tickets;
    decoder->tickets = t;
    return t;
}

void dw_decode_ticket_give(dw_decode_ticket *t)
{
    dw_decoder *decoder = t->decoder;
    dw_decode_ticket **link = &decoder->tickets;
    while (*link != t) link = &(*link)->next;
    *link = t->next;
    if (t->flight.launch) decoder->end.engine.close(t->flight.launch);
    t->flight = (dw_flight){0};
    t->refusal = DW_OK;
    t->next = decoder->spare_tickets;
    decoder->spare_tickets = t;
}

/* Whether a frame of another incarnation is in flight. A frame of a new incarnation drops all
 * copies of earlier ones, which a frame in flight may still read. */
static bool other_incarnation_in_flight(const dw_decode_ticket *t)
{
    for (const dw_decode_ticket *other = t->decoder->tickets; other; other = other->next)
        if (other->flight.in_flight && other->header.incarnation != t->header.incarnation)
            return true;
    return false;
}

/* Refuses what a device cannot do: forms without kernels, and stateless entries without a y. */
static dw_status check_entries(dw_decode_ticket *t)
{
    dw_decoder *decoder = t->decoder;
    for (uint32_t i = 0; i < t->header.n && decoder->end.engine.device; i++) {
        const dw_entry *entry = &t->in[i].entry;
        const dw_form *form = t->plans->of[entry->use].form;
        if (!form->device) {
            snprintf(
                decoder->end.why.text, sizeof decoder->end.why.text,
                "the frame carries values in the form \"%s\", for which there are no kernels on "
                "this device",
                form->name);
            return DW_ERR_UNSUPPORTED;
        }
        if (!dw_role_has_state(entry->role) && !t->asked.y.data)
            return dw_decoder_fail(decoder, DW_ERR_ARGUMENT,
                                   "the frame has stateless entries, which are written to y "
                                   "alone: set y's data");
    }
    return DW_OK;
}

/* Gives every job the memory that its form and a stage behind it need. A device has memory of its
 * own. */
static bool prepare_work(dw_decode_ticket *t)
{
    uint64_t bytes = 0;
    bool on_device = t->decoder->end.engine.device != NULL;
    for (uint32_t i = 0; i < t->header.n; i++)
        if (!dw_end_add_work(t->in[i].job.plan, &bytes)) return false;
    if (!on_device &&
        !dw_end_grow(&t->decoder->end, &t->memory.work, &t->memory.work_cap, bytes, 1))
        return false;
    bytes = 0;
    for (uint32_t i = 0; i < t->header.n; i++) {
        dw_decode_job *job = &t->in[i].job;
        dw_work work = on_device ? (dw_work){0} : dw_end_work(job->plan, t->memory.work, bytes);
        if (job->plan->behind) job->coded = job->payload;
        if (work.plain) job->payload = job->plain = work.plain;
        job->scratch = work.scratch;
        job->room = work.room;
        job->copies = dw_end_expand(job->plan, &work, &job->prev, &job->next);
        (void)dw_end_add_work(job->plan, &bytes);
    }
    return true;
}

static dw_status prepare_jobs(dw_decode_ticket *t)
{
    dw_decoder *decoder = t->decoder;
    uint32_t n = t->header.n;
    dw_decode_memory *m = &t->memory;
    if (!dw_end_grow(&decoder->end, &m->jobs, &m->jobs_cap, n, sizeof *m->jobs) ||
        !dw_end_grow(&decoder->end, &m->results, &m->results_cap, n, sizeof *m->results))
        return dw_decoder_fail(decoder, DW_ERR_NO_MEMORY, NULL);
    for (uint32_t i = 0; i < n; i++) {
        t->in[i].job = dw_incoming_job(t, i);
        m->jobs[i] = &t->in[i].job;
    }
    return prepare_work(t) ? DW_OK : dw_decoder_fail(decoder, DW_ERR_NO_MEMORY, NULL);
}

/* Reserves what frames that arrive before this one is finished must not touch: its keys, and its
 * bytes of the quota. */
static void mark_in_flight(dw_decode_ticket *t)
{
    dw_decoder *decoder = t->decoder;
    for (uint32_t i = 0; i < t->header.n; i++)
        if (t->in[i].held) t->in[i].held->busy = true;
    decoder->end.predictor.reserved_bytes += t->growth;
    t->number = decoder->calls;
    t->flight.in_flight = true;
}

void dw_decode_ticket_close(dw_decode_ticket *t)
{
    dw_decoder *decoder = t->decoder;
    for (uint32_t i = 0; i < t->header.n; i++)
        if (t->in[i].held) t->in[i].held->busy = false;
    decoder->end.predictor.reserved_bytes -= t->growth;
    t->flight.in_flight = false;
}

dw_status dw_decode_ticket_reserve(dw_decode_ticket *t, uint64_t head_len)
{
    dw_decoder *decoder = t->decoder;
    decoder->calls++;
    t->n_planned = 0;
    t->refusal = dw_incoming_open(t, head_len);
    if (!t->refusal) t->refusal = dw_incoming_agrees(t);
    t->why = decoder->end.why;
    if (t->refusal) return DW_OK;
    if (t->plans->params.keeps_prev && other_incarnation_in_flight(t))
        return dw_decoder_fail(
            decoder, DW_ERR_ARGUMENT,
            "a frame of another incarnation of the encoder is in flight: finish or "
            "cancel it first");
    dw_status status = dw_incoming_plan(t);
    if (!status) status = check_entries(t);
    if (!status) status = dw_incoming_admit(t);
    if (!status) status = prepare_jobs(t);
    if (status) dw_incoming_drop(t);
    if (status == DW_ERR_ARGUMENT || status == DW_ERR_NO_MEMORY || status == DW_ERR_IO)
        return status; /* not the frame's fault */
    t->refusal = status;
    if (status)
        t->why = decoder->end.why;
    else
        mark_in_flight(t);
    return DW_OK;
}

/* Collects the jobs of all frames that were not refused in the first ticket's array, then makes one
 * launch. */
dw_status dw_decode_ticket_submit(dw_decode_ticket **tickets, size_t count, void *stream)
{
    dw_decoder *decoder = tickets[0]->decoder;
    dw_decode_memory *all = &tickets[0]->memory;
    const dw_engine *engine = &decoder->end.engine;
    dw_launch *launch;
    bool captured, launched = false;
    uint64_t n = 0, at = 0;
    for (size_t i = 0; i < count; i++) n += tickets[i]->flight.in_flight ? tickets[i]->header.n : 0;
    if (n == 0) return DW_OK;
    if (n > UINT32_MAX) return dw_decoder_fail(decoder, DW_ERR_LIMIT, NULL);
    if (!dw_end_grow(&decoder->end, &all->jobs, &all->jobs_cap, n, sizeof *all->jobs))
        return dw_decoder_fail(decoder, DW_ERR_NO_MEMORY, NULL);
    for (size_t i = 0; i < count; i++) {
        dw_decode_ticket *t = tickets[i];
        t->flight.first = (uint32_t)at;
        for (uint32_t k = 0; t->flight.in_flight && k < t->header.n; k++)
            all->jobs[at++] = &t->in[k].job;
    }
    dw_status status =
        engine->submit(engine->context, false, (dw_jobs){.decode = all->jobs}, (uint32_t)n,
                       (dw_heads){NULL, 0}, stream, &launch, &captured, &decoder->end.why);
    if (status == DW_ERR_NO_MEMORY) (void)dw_decoder_fail(decoder, status, NULL);
    for (size_t i = 0; i < count && !status; i++) {
        dw_decode_ticket *t = tickets[i];
        if (!t->flight.in_flight) continue;
        if (launched) engine->share(launch);
        launched = true;
        t->flight.launch = launch;
        t->flight.captured = captured;
    }
    return status;
}
