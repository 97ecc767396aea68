/* SPDX-License-Identifier: Apache-2.0
 * encoder_calls.c - the public calls that make frames: synchronous on the CPU, with tickets on a
 * device. */
#include <string.h>

#include "common/cpu.h"
#include "common/tensor.h"
#include "ends/encoder.h"

dw_status dw_encoder_check_tensor(dw_encoder *encoder, const dw_tensor *x)
{
    if (!x || !x->data) return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, "an argument is NULL");
    if (x->n == 0)
        return dw_encoder_fail(encoder, DW_ERR_ARGUMENT,
                               "x has no samples (n is 0): there is nothing to encode");
    const char *why;
    dw_status status = dw_tensor_check_why(x, &why);
    if (!status) return DW_OK;
    snprintf(encoder->end.why.text, sizeof encoder->end.why.text, "x is not a valid tensor: %s",
             why);
    return status;
}

/* Drops a reserved frame, whose sequence number can be used again. */
static void drop_and_reuse_number(dw_encode_ticket *t)
{
    dw_ticket_drop(t);
    t->encoder->sequence = t->header.sequence - 1;
}

/* Submits a reserved frame to an engine that has finished when submit returns, and finalizes it. If
 * the caller asked for the reconstruction, it is computed before the payloads are moved. */
static dw_status run(dw_encode_ticket *t, bool reconstructs)
{
    dw_encoder *encoder = t->encoder;
    dw_status status = dw_ticket_submit(&t, 1, NULL);
    if (status) {
        drop_and_reuse_number(t);
        return status;
    }
    (void)dw_end_done(&encoder->end, &t->flight, t->header.n, t->memory.results);
    if (reconstructs)
        (void)encoder->end.engine.write_output(
            encoder->end.engine.context, (dw_jobs){.decode = t->memory.again_jobs}, t->header.n);
    dw_cpu_mode mode = dw_cpu_enter_exact(); /* the counters' sums are rounded in this mode, too */
    dw_ticket_close_gaps(t);
    dw_ticket_finalize(t, t->asked.frame);
    dw_cpu_leave_exact(mode);
    return DW_OK;
}

/* Prepares decode jobs that compute, in y, what the decoder will make of the frame: from its
 * payloads and the new prev, with the decoder's own code. */
static dw_status prepare_reconstruction(dw_encode_ticket *t, const dw_tensor *y)
{
    dw_encoder *encoder = t->encoder;
    uint32_t n = t->header.n;
    if (dw_tensor_meets(y, t->asked.frame, t->header.length))
        return dw_encoder_fail(encoder, DW_ERR_ARGUMENT,
                               "the reconstruction and frame overlap in memory: give each of them "
                               "its own memory");
    dw_encode_memory *m = &t->memory;
    if (!dw_end_grow(&encoder->end, &m->again, &m->again_cap, n, sizeof *m->again) ||
        !dw_end_grow(&encoder->end, &m->again_jobs, &m->again_jobs_cap, n, sizeof *m->again_jobs))
        return dw_encoder_fail(encoder, DW_ERR_NO_MEMORY, NULL);
    uint64_t y_bytes = 0;
    (void)dw_tensor_bytes(n, y->t, y->c, y->dtype, &y_bytes);
    for (uint32_t i = 0; i < n; i++) {
        const dw_encode_job *job = &t->out[i].job;
        bool has_state = dw_role_has_state(t->out[i].entry.role); /* at the decoder */
        m->again[i] = (dw_decode_job){.layout = job->layout,
                                      .payload = job->payload,
                                      .prev = has_state ? job->prev : NULL,
                                      .next = has_state ? job->next : NULL,
                                      .prev_dtype = job->prev_dtype,
                                      .y = dw_tensor_sample(y, i),
                                      .y_dtype = y->dtype,
                                      .stride = y->stride_t,
                                      .draws_key = job->draws_key,
                                      .channels = job->channels,
                                      .is_exact = t->out[i].entry.role == DW_ROLE_STATELESS,
                                      .room = job->room,
                                      .bypasses_caches = y_bytes >= encoder->end.engine.past_from,
                                      .plan = job->plan,
                                      .kernels = job->kernels};
        m->again_jobs[i] = &m->again[i];
    }
    return DW_OK;
}

static dw_status check_reconstruction(dw_encoder *encoder, const dw_tensor *x, const dw_tensor *y)
{
    if (!y) return DW_OK;
    if (dw_tensor_check(y) || !y->data || dw_tensor_overlaps(y))
        return dw_encoder_fail(encoder, DW_ERR_ARGUMENT,
                               "the reconstruction is not a valid tensor to write to: check its "
                               "dtype, alignment, shape and strides");
    if (y->n != x->n || y->t != x->t || y->c != x->c)
        return dw_encoder_fail(encoder, DW_ERR_SHAPE,
                               "the reconstruction and x have different shapes");
    return DW_OK;
}

static dw_status take_options(dw_encoder *encoder, const dw_encode_options *given,
                              dw_encode_options *options)
{
    dw_why why;
    *options = (dw_encode_options){.struct_size = sizeof *options};
    if (!given || !dw_take_asked(options, sizeof *options, given, "dw_encode_options", &why))
        return DW_OK;
    return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, why.text);
}

dw_status dw_encode(dw_encoder *encoder, const dw_key *keys, const dw_tensor *x,
                    const dw_encode_options *given, void *frame, size_t cap, size_t *len)
{
    dw_encode_options options;
    if (!encoder) return DW_ERR_ARGUMENT;
    if (!frame || !len) return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, "an argument is NULL");
    if (encoder->end.engine.device)
        return dw_encoder_fail(encoder, DW_ERR_UNSUPPORTED,
                               "this encoder computes on a GPU: call dw_encode_async");
    dw_status status = dw_encoder_check_tensor(encoder, x);
    if (!status) status = take_options(encoder, given, &options);
    if (!status) status = check_reconstruction(encoder, x, options.reconstruction);
    if (status) return status;
    uint64_t started = dw_end_now(&encoder->end);
    dw_encode_ticket *t = dw_ticket_take(encoder);
    if (!t) return dw_encoder_fail(encoder, DW_ERR_NO_MEMORY, NULL);
    t->asked =
        (dw_encode_request){.x = *x,
                            .has_x = true,
                            .is_stateless = options.stateless != 0,
                            .places = options.places,
                            .bypasses_caches = options.bypass_caches != 0,
                            .frame = frame,
                            .room = options.limit && options.limit < cap ? options.limit : cap,
                            .most_forgotten = UINT32_MAX};
    status = dw_ticket_reserve(t, keys, false);
    if (!status && options.reconstruction) {
        status = prepare_reconstruction(t, options.reconstruction);
        if (status) drop_and_reuse_number(t);
    }
    if (!status) status = run(t, options.reconstruction != NULL);
    if (!status) {
        *len = (size_t)t->header.length;
        dw_ticket_commit(t);
    }
    dw_ticket_give(t);
    if (!status) encoder->end.counters.busy_ns += dw_end_now(&encoder->end) - started;
    return status;
}

/* Returns the shape of the keys' prev as a tensor without data. */
static dw_status shape_of_keys(dw_encoder *encoder, const dw_key *keys, uint32_t n, dw_tensor *x)
{
    if (encoder->end.config.feedback > DW_FEEDBACK_NONE)
        return dw_encoder_fail(encoder, DW_ERR_ARGUMENT,
                               "this encoder keeps no prev that it could send");
    const dw_held *held = dw_predictor_find(&encoder->end.predictor, keys[0]);
    if (!held || !dw_copy_is_held(&held->now))
        return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, "a key is not held");
    *x = dw_tensor_3d(NULL, dw_prev_dtype(held->dtype), n, held->t, held->c);
    return DW_OK;
}

/* Takes a ticket for a frame of prev itself, which needs no x, and reserves it. */
static dw_status reserve_resync(dw_encoder *encoder, const dw_key *keys, uint32_t n, void *frame,
                                size_t cap, uint32_t most_forgotten, dw_encode_ticket **ticket)
{
    dw_tensor shape;
    dw_status status = shape_of_keys(encoder, keys, n, &shape);
    if (status) return status;
    dw_encode_ticket *t = dw_ticket_take(encoder);
    if (!t) return dw_encoder_fail(encoder, DW_ERR_NO_MEMORY, NULL);
    t->asked = (dw_encode_request){
        .x = shape, .frame = frame, .room = cap, .most_forgotten = most_forgotten};
    status = dw_ticket_reserve(t, keys, true);
    if (status)
        dw_ticket_give(t);
    else
        *ticket = t;
    return status;
}

dw_status dw_encoder_resync(dw_encoder *encoder, const dw_key *keys, uint32_t n, void *frame,
                            size_t cap, size_t *len)
{
    dw_encode_ticket *t;
    if (!encoder) return DW_ERR_ARGUMENT;
    if (!keys || n == 0 || !frame || !len)
        return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, "an argument is NULL or zero");
    if (encoder->end.engine.device)
        return dw_encoder_fail(encoder, DW_ERR_UNSUPPORTED,
                               "this encoder computes on a GPU: call dw_encoder_resync_async");
    dw_status status = reserve_resync(encoder, keys, n, frame, cap, UINT32_MAX, &t);
    if (status) return status;
    status = run(t, false);
    if (!status) {
        *len = (size_t)t->header.length;
        dw_ticket_commit(t);
    }
    dw_ticket_give(t);
    return status;
}

/* ---- Tickets --------------------------------------------------------------------------------- */

size_t dw_frame_head_bound(uint32_t n)
{
    uint64_t bytes;
    return dw_frame_table_end(DW_PARAMETERS_MOST, n, n, &bytes) ? (size_t)bytes : 0;
}

dw_status dw_encoder_whole_frames(dw_encoder *encoder, int whole)
{
    if (!encoder) return DW_ERR_ARGUMENT;
    if (!encoder->end.engine.device)
        return dw_encoder_fail(encoder, DW_ERR_UNSUPPORTED,
                               "this encoder computes on the CPU, where dw_encode returns whole "
                               "frames: do not call dw_encoder_whole_frames");
    encoder->is_whole = whole != 0;
    return DW_OK;
}

static const char misaligned[] = "frame must be aligned to 16 bytes";

static dw_status check_item(const dw_encode_item *item)
{
    dw_encoder *encoder = item->encoder;
    if (!encoder) return DW_ERR_ARGUMENT;
    if (!encoder->end.engine.device)
        return dw_encoder_fail(encoder, DW_ERR_UNSUPPORTED,
                               "this encoder computes on the CPU: call dw_encode");
    if (!item->frame) return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, "an argument is NULL");
    dw_status status = dw_encoder_check_tensor(encoder, item->x);
    if (status) return status;
    if ((uintptr_t)item->frame % 16) return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, misaligned);
    return DW_OK;
}

/* Reserves item i. A ticket that cannot be reserved is returned to the free list. */
static dw_status reserve_item(dw_encode_item *item)
{
    dw_encoder *encoder = item->encoder;
    dw_encode_ticket *t = dw_ticket_take(encoder);
    if (!t) return dw_encoder_fail(encoder, DW_ERR_NO_MEMORY, NULL);
    t->asked = (dw_encode_request){.x = *item->x,
                                   .has_x = true,
                                   .frame = item->frame,
                                   .room = item->cap,
                                   .most_forgotten = item->x->n};
    dw_status status = dw_ticket_reserve(t, item->keys, false);
    if (status)
        dw_ticket_give(t);
    else
        item->ticket = t;
    return status;
}

/* Drops the frames in reverse order, so that their sequence numbers can be used again. */
static void drop_items(dw_encode_item *items, size_t count)
{
    for (size_t i = count; i-- > 0;) {
        drop_and_reuse_number(items[i].ticket);
        dw_ticket_give(items[i].ticket);
        items[i].ticket = NULL;
    }
}

static dw_status submit_items(dw_encode_item *items, size_t count, void *stream)
{
    dw_encoder *encoder = items[0].encoder;
    dw_encode_ticket *few[16], **tickets = few;
    uint64_t bytes = count * sizeof *tickets;
    if (count > sizeof few / sizeof *few)
        tickets = dw_mem_allocate(&encoder->end.host.allocator, bytes);
    if (!tickets) return dw_encoder_fail(encoder, DW_ERR_NO_MEMORY, NULL);
    for (size_t i = 0; i < count; i++) tickets[i] = items[i].ticket;
    dw_status status = dw_ticket_submit(tickets, count, stream);
    if (tickets != few) dw_mem_release(&encoder->end.host.allocator, tickets, bytes);
    return status;
}

dw_status dw_encode_async(dw_encode_item *items, size_t count, void *stream)
{
    size_t reserved = 0;
    dw_status status = DW_OK;
    if (!items || count == 0) return DW_ERR_ARGUMENT;
    for (size_t i = 0; i < count; i++) items[i].ticket = NULL;
    for (size_t i = 0; i < count && !status; i++) {
        status = check_item(&items[i]);
        if (!status && items[i].encoder->end.engine.device != items[0].encoder->end.engine.device)
            status = dw_encoder_fail(items[i].encoder, DW_ERR_ARGUMENT,
                                     "all encoders of one launch must belong to the same dw_cuda");
    }
    for (; reserved < count && !status; reserved += !status)
        status = reserve_item(&items[reserved]);
    if (!status) status = submit_items(items, count, stream);
    if (status) drop_items(items, reserved);
    return status;
}

dw_status dw_encoder_resync_async(dw_encoder *encoder, const dw_key *keys, uint32_t n, void *frame,
                                  size_t cap, void *stream, dw_encode_ticket **ticket)
{
    dw_encode_ticket *t;
    if (!encoder) return DW_ERR_ARGUMENT;
    if (!encoder->end.engine.device)
        return dw_encoder_fail(encoder, DW_ERR_UNSUPPORTED,
                               "this encoder computes on the CPU: call dw_encoder_resync");
    if (!keys || n == 0 || !frame || !ticket)
        return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, "an argument is NULL or zero");
    if ((uintptr_t)frame % 16) return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, misaligned);
    dw_status status = reserve_resync(encoder, keys, n, frame, cap, n, &t);
    if (status) return status;
    status = dw_ticket_submit(&t, 1, stream);
    if (status) {
        drop_and_reuse_number(t);
        dw_ticket_give(t);
    } else {
        *ticket = t;
    }
    return status;
}

/* The size of a frame that carries prev itself depends on the keys' copies, whose shape may have
 * changed since the capture. */
static dw_status check_again(dw_encode_ticket *t, const dw_key *keys)
{
    dw_tensor shape;
    if (t->asked.has_x) return DW_OK;
    dw_status status = shape_of_keys(t->encoder, keys, t->asked.x.n, &shape);
    if (status) return status;
    if (shape.t == t->asked.x.t && shape.c == t->asked.x.c && shape.dtype == t->asked.x.dtype)
        return DW_OK;
    return dw_encoder_fail(
        t->encoder, DW_ERR_SHAPE,
        "the keys' copies do not have the captured shape: capture a frame of their shape");
}

dw_status dw_encode_again(dw_encode_ticket *t, const dw_key *keys)
{
    if (!t) return DW_ERR_ARGUMENT;
    dw_encoder *encoder = t->encoder;
    if (!keys) return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, "an argument is NULL");
    if (!t->flight.captured || t->flight.in_flight)
        return dw_encoder_fail(
            encoder, DW_ERR_ARGUMENT,
            "only a ticket captured by a stream can be used again, and only after finish");
    dw_status status = check_again(t, keys);
    if (!status) status = dw_ticket_reserve(t, keys, !t->asked.has_x);
    if (status) return status;
    dw_head head = t->is_whole ? dw_ticket_draft(t) : (dw_head){0};
    status = encoder->end.engine.reuse(t->flight.launch, t->flight.first,
                                       (dw_jobs){.encode = t->memory.jobs}, t->header.n,
                                       t->is_whole ? &head : NULL, &encoder->end.why);
    if (status)
        drop_and_reuse_number(t);
    else
        dw_ticket_set_in_flight(t);
    return status;
}

dw_status dw_encode_finish(dw_encode_ticket *t, void *head, size_t head_cap, size_t *head_len,
                           size_t *len)
{
    uint64_t end;
    if (!t) return DW_ERR_ARGUMENT;
    dw_encoder *encoder = t->encoder;
    bool in_frame = t->is_whole && !head; /* the device completes the head, and the caller wants no
                                             copy of it */
    if (!len || (!in_frame && (!head || !head_len)))
        return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, "an argument is NULL");
    if (!t->flight.in_flight)
        return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, "the ticket has no frame in flight");
    (void)dw_frame_table_end(t->header.n_parameters, t->header.n, t->header.n_forgotten, &end);
    if (end > head_cap && !in_frame)
        return dw_encoder_fail(
            encoder, DW_ERR_BUFFER_TOO_SMALL,
            "the head does not fit: dw_frame_head_bound returns a size that is always enough");
    dw_status status = dw_end_done(&encoder->end, &t->flight, t->header.n, t->memory.results);
    if (status) return status;
    for (uint32_t i = 0; i < t->header.n; i++)
        t->memory.results[i].sums.pieces = t->out[i].job.layout.pieces;
    dw_ticket_close_gaps(t);
    dw_ticket_finalize(t, in_frame ? t->memory.draft : head);
    if (head_len) *head_len = (size_t)end;
    *len = (size_t)t->header.length;
    dw_ticket_commit(t);
    if (!t->flight.captured) dw_ticket_give(t);
    return DW_OK;
}

dw_status dw_encode_length(const dw_encode_ticket *t, size_t *len)
{
    if (!t) return DW_ERR_ARGUMENT;
    if (!len) return dw_encoder_fail(t->encoder, DW_ERR_ARGUMENT, "an argument is NULL");
    if (!t->flight.in_flight)
        return dw_encoder_fail(t->encoder, DW_ERR_ARGUMENT, "the ticket has no frame in flight");
    *len = (size_t)t->header.length;
    return DW_OK;
}

dw_status dw_encode_cancel(dw_encode_ticket *t)
{
    if (!t) return DW_ERR_ARGUMENT;
    dw_encoder *encoder = t->encoder;
    if (!t->flight.in_flight && !t->flight.captured)
        return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, "the ticket has ended");
    if (t->flight.in_flight) {
        if (!t->flight.captured &&
            dw_end_done(&encoder->end, &t->flight, t->header.n, t->memory.results) == DW_PENDING)
            return DW_PENDING;
        dw_ticket_drop(t);
        for (uint32_t i = 0; i < t->header.n; i++)
            if (t->out[i].is_deferred)
                dw_encoder_learn(encoder, &t->out[i].deferred, t->out[i].deferred_accepted);
    }
    dw_ticket_give(t);
    return DW_OK;
}
