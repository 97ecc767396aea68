/* SPDX-License-Identifier: Apache-2.0
 * decoder_calls.c - the public calls that take frames: synchronous on the CPU, with tickets on a
 * device. */
#include <string.h>

#include "common/tensor.h"
#include "ends/decoder.h"

static dw_status check_tensor(dw_decoder *decoder, const dw_tensor *y, const void *frame,
                              uint64_t len)
{
    if (y->n == 0)
        return dw_decoder_fail(decoder, DW_ERR_ARGUMENT,
                               "y has no samples (n is 0): there is nothing to decode into");
    const char *why;
    dw_status status = dw_tensor_check_why(y, &why);
    if (!status && dw_tensor_overlaps(y)) {
        status = DW_ERR_ARGUMENT;
        why = "its samples overlap";
    }
    if (!status && dw_tensor_meets(y, frame, len)) {
        status = DW_ERR_ARGUMENT;
        why = "it and the frame overlap in memory";
    }
    if (!status) return DW_OK;
    snprintf(decoder->end.why.text, sizeof decoder->end.why.text,
             "y is not a valid tensor to write to: %s", why);
    return status;
}

static dw_status check_reply(dw_decoder *decoder, uint32_t n, const void *reply, size_t cap,
                             const size_t *len)
{
    if (reply && !len) return dw_decoder_fail(decoder, DW_ERR_ARGUMENT, "an argument is NULL");
    if (!reply || cap >= dw_reply_bound(n)) return DW_OK;
    snprintf(decoder->end.why.text, sizeof decoder->end.why.text,
             "the reply takes up to %zu bytes but there is room for %zu: dw_reply_bound returns a "
             "size that is always enough",
             dw_reply_bound(n), cap);
    return DW_ERR_BUFFER_TOO_SMALL;
}

/* Verifies and commits a frame whose results are known. A frame that was refused before keeps its
 * status. */
static dw_status receive(dw_decode_ticket *t)
{
    dw_decoder *decoder = t->decoder;
    if (t->refusal) {
        decoder->end.why = t->why;
        return t->refusal;
    }
    dw_status status = dw_incoming_verify(t);
    dw_decode_ticket_close(t);
    if (status || t->asked.only_checks) {
        dw_incoming_drop(t);
        return status;
    }
    if (t->asked.y.data && decoder->end.engine.write_output)
        decoder->end.counters.overflowed_values += decoder->end.engine.write_output(
            decoder->end.engine.context, (dw_jobs){.decode = t->memory.jobs}, t->header.n);
    dw_incoming_commit(t);
    return DW_OK;
}

/* Ends a frame whose results are known: returns its status and writes its reply. */
static dw_status finish(dw_decode_ticket *t, void *reply, size_t reply_cap, size_t *reply_len)
{
    dw_decoder *decoder = t->decoder;
    dw_status status = receive(t);
    bool answers = t->tables_intact && reply && !t->asked.only_checks &&
                   reply_cap >= dw_reply_bound(t->header.n) && dw_decoder_asks_for_reply(t);
    if (answers) *reply_len = dw_decoder_write_reply(t, status != DW_OK, reply);
    if (status && !t->asked.only_checks) decoder->end.counters.rejected_frames++;
    return status;
}

/* Reserves a frame and submits it to an engine that has finished when submit returns. An error of
 * the call itself, such as lack of memory, becomes the status of the frame. */
static void run(dw_decode_ticket *t, uint64_t len)
{
    dw_decoder *decoder = t->decoder;
    dw_status status = dw_decode_ticket_reserve(t, len);
    if (!status && t->flight.in_flight) {
        status = dw_decode_ticket_submit(&t, 1, NULL);
        if (status) {
            dw_decode_ticket_close(t);
            dw_incoming_drop(t);
        } else {
            (void)dw_end_done(&decoder->end, &t->flight, t->header.n, t->memory.results);
        }
    }
    if (!status) return;
    t->refusal = status;
    t->why = decoder->end.why;
}

static dw_status take_options(dw_decoder *decoder, const dw_decode_options *given,
                              dw_decode_options *options)
{
    dw_why why;
    *options = (dw_decode_options){.struct_size = sizeof *options};
    if (!given || !dw_take_asked(options, sizeof *options, given, "dw_decode_options", &why))
        return DW_OK;
    return dw_decoder_fail(decoder, DW_ERR_ARGUMENT, why.text);
}

dw_status dw_decode(dw_decoder *decoder, const void *frame, size_t len, const dw_tensor *y,
                    const dw_decode_options *given, void *reply, size_t reply_cap,
                    size_t *reply_len)
{
    dw_decode_options options;
    if (reply_len) *reply_len = 0;
    if (!decoder) return DW_ERR_ARGUMENT;
    if (decoder->end.engine.device)
        return dw_decoder_fail(decoder, DW_ERR_UNSUPPORTED,
                               "this decoder computes on a GPU: call dw_decode_async");
    if (!frame || !y) return dw_decoder_fail(decoder, DW_ERR_ARGUMENT, "an argument is NULL");
    dw_status status = check_tensor(decoder, y, frame, len);
    if (!status) status = check_reply(decoder, y->n, reply, reply_cap, reply_len);
    if (!status) status = take_options(decoder, given, &options);
    if (status) return status;
    uint64_t started = dw_end_now(&decoder->end);
    dw_decode_ticket *t = dw_decode_ticket_take(decoder);
    if (!t) return dw_decoder_fail(decoder, DW_ERR_NO_MEMORY, NULL);
    t->asked = (dw_decode_request){.frame = frame,
                                   .body = frame,
                                   .len = len,
                                   .y = *y,
                                   .adds = options.adds != 0,
                                   .factor = options.factor,
                                   .bypasses_caches = options.bypass_caches != 0,
                                   .only_checks = options.only_checks != 0};
    run(t, len);
    status = finish(t, reply, reply_cap, reply_len);
    dw_decode_ticket_give(t);
    decoder->end.counters.busy_ns += dw_end_now(&decoder->end) - started;
    return status;
}

/* ---- Tickets --------------------------------------------------------------------------------- */

static dw_status check_item(const dw_decode_item *item)
{
    dw_decoder *decoder = item->decoder;
    if (!decoder) return DW_ERR_ARGUMENT;
    if (!decoder->end.engine.device)
        return dw_decoder_fail(decoder, DW_ERR_UNSUPPORTED,
                               "this decoder computes on the CPU: call dw_decode");
    if (!item->head || !item->frame || !item->y)
        return dw_decoder_fail(decoder, DW_ERR_ARGUMENT, "an argument is NULL");
    if ((uintptr_t)item->frame % 16)
        return dw_decoder_fail(decoder, DW_ERR_ARGUMENT, "frame must be aligned to 16 bytes");
    return check_tensor(decoder, item->y, item->frame, item->len);
}

/* Copies header and tables, so that later writes to the caller's memory cannot change what was
 * checked. */
static dw_status copy_head(dw_decode_ticket *t, const uint8_t *head, uint64_t head_len,
                           uint64_t len, uint64_t *bytes)
{
    *bytes = dw_frame_reach(head, head_len < len ? head_len : len);
    if (!dw_end_grow(&t->decoder->end, &t->memory.head, &t->memory.head_cap, *bytes, 1))
        return dw_decoder_fail(t->decoder, DW_ERR_NO_MEMORY, NULL);
    if (*bytes) memcpy(t->memory.head, head, (size_t)*bytes);
    t->asked.frame = t->memory.head;
    t->asked.len = len;
    return DW_OK;
}

static dw_status reserve(dw_decode_ticket *t, const void *head, size_t head_len, size_t len)
{
    uint64_t bytes;
    dw_status status = copy_head(t, head, head_len, len, &bytes);
    return status ? status : dw_decode_ticket_reserve(t, bytes);
}

static dw_status reserve_item(dw_decode_item *item)
{
    dw_decode_ticket *t = dw_decode_ticket_take(item->decoder);
    if (!t) return dw_decoder_fail(item->decoder, DW_ERR_NO_MEMORY, NULL);
    t->asked = (dw_decode_request){.y = *item->y, .body = item->frame};
    dw_status status = reserve(t, item->head, item->head_len, item->len);
    if (status)
        dw_decode_ticket_give(t);
    else
        item->ticket = t;
    return status;
}

static void drop(dw_decode_ticket *t)
{
    dw_decode_ticket_close(t);
    dw_incoming_drop(t);
}

static void drop_items(dw_decode_item *items, size_t count)
{
    for (size_t i = count; i-- > 0;) {
        dw_decode_ticket *t = items[i].ticket;
        if (t->flight.in_flight) drop(t);
        dw_decode_ticket_give(t);
        items[i].ticket = NULL;
    }
}

static dw_status submit_items(dw_decode_item *items, size_t count, void *stream)
{
    dw_decoder *decoder = items[0].decoder;
    dw_decode_ticket *few[16], **tickets = few;
    uint64_t bytes = count * sizeof *tickets;
    if (count > sizeof few / sizeof *few)
        tickets = dw_mem_allocate(&decoder->end.host.allocator, bytes);
    if (!tickets) return dw_decoder_fail(decoder, DW_ERR_NO_MEMORY, NULL);
    for (size_t i = 0; i < count; i++) tickets[i] = items[i].ticket;
    dw_status status = dw_decode_ticket_submit(tickets, count, stream);
    if (tickets != few) dw_mem_release(&decoder->end.host.allocator, tickets, bytes);
    return status;
}

dw_status dw_decode_async(dw_decode_item *items, size_t count, void *stream)
{
    size_t reserved = 0;
    dw_status status = DW_OK;
    if (!items || count == 0) return DW_ERR_ARGUMENT;
    for (size_t i = 0; i < count; i++) items[i].ticket = NULL;
    for (size_t i = 0; i < count && !status; i++) {
        status = check_item(&items[i]);
        if (!status && items[i].decoder->end.engine.device != items[0].decoder->end.engine.device)
            status = dw_decoder_fail(items[i].decoder, DW_ERR_ARGUMENT,
                                     "all decoders of one launch must belong to the same dw_cuda");
    }
    for (; reserved < count && !status; reserved += !status)
        status = reserve_item(&items[reserved]);
    if (!status) status = submit_items(items, count, stream);
    if (status) drop_items(items, reserved);
    return status;
}

dw_status dw_decode_again(dw_decode_ticket *t, const void *head, size_t head_len, size_t len)
{
    if (!t) return DW_ERR_ARGUMENT;
    dw_decoder *decoder = t->decoder;
    if (!head) return dw_decoder_fail(decoder, DW_ERR_ARGUMENT, "an argument is NULL");
    if (!t->flight.captured || t->flight.in_flight || t->refusal)
        return dw_decoder_fail(
            decoder, DW_ERR_ARGUMENT,
            "only a ticket captured by a stream can be used again, and only after finish");
    dw_status status = reserve(t, head, head_len, len);
    if (status || t->refusal) return status ? status : t->refusal;
    status = decoder->end.engine.reuse(t->flight.launch, t->flight.first,
                                       (dw_jobs){.decode = t->memory.jobs}, t->header.n, NULL,
                                       &decoder->end.why);
    if (status) drop(t);
    return status;
}

static bool another_comes_first(const dw_decode_ticket *t)
{
    for (const dw_decode_ticket *other = t->decoder->tickets; other; other = other->next)
        if (other->flight.in_flight && other->number < t->number) return true;
    return false;
}

dw_status dw_decode_finish(dw_decode_ticket *t, void *reply, size_t reply_cap, size_t *reply_len)
{
    if (reply_len) *reply_len = 0;
    if (!t) return DW_ERR_ARGUMENT;
    dw_decoder *decoder = t->decoder;
    if (!t->flight.in_flight && !t->refusal)
        return dw_decoder_fail(decoder, DW_ERR_ARGUMENT, "the ticket has no frame in flight");
    dw_status status = check_reply(decoder, t->asked.y.n, reply, reply_cap, reply_len);
    if (status) return status;
    if (t->flight.in_flight) {
        if (another_comes_first(t))
            return dw_decoder_fail(decoder, DW_ERR_ARGUMENT,
                                   "an earlier frame is in flight: finish that one first");
        if (dw_end_done(&decoder->end, &t->flight, t->header.n, t->memory.results) == DW_PENDING)
            return DW_PENDING;
    }
    decoder->calls++;
    status = finish(t, reply, reply_cap, reply_len);
    t->refusal = DW_OK;
    if (!t->flight.captured) dw_decode_ticket_give(t);
    return status;
}

dw_status dw_decode_cancel(dw_decode_ticket *t)
{
    if (!t) return DW_ERR_ARGUMENT;
    dw_decoder *decoder = t->decoder;
    if (!t->flight.in_flight && !t->flight.captured && !t->refusal)
        return dw_decoder_fail(decoder, DW_ERR_ARGUMENT, "the ticket has ended");
    if (t->flight.in_flight) {
        if (!t->flight.captured &&
            dw_end_done(&decoder->end, &t->flight, t->header.n, t->memory.results) == DW_PENDING)
            return DW_PENDING;
        drop(t);
    }
    dw_decode_ticket_give(t);
    return DW_OK;
}
