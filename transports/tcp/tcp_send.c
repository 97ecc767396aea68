/* SPDX-License-Identifier: Apache-2.0
 * tcp_send.c - cuts messages into records, gives these to free stripes, and keeps the messages
 * until the peer has acknowledged them. */
#include <string.h>

#include "base/bytes.h"
#include "common/report.h"
#include "tcp/tcp_end.h"

static dw_tcp_kept *kept_of(const dw_tcp_sending *sending, uint64_t number)
{
    return &sending->kept[number % DW_TCP_KEPT_MOST];
}

static size_t chunk_bytes(const dw_tcp_kept *kept, uint32_t chunk)
{
    size_t offset = (size_t)chunk * kept->chunk_len;
    return kept->len - offset < kept->chunk_len ? kept->len - offset : kept->chunk_len;
}

bool dw_tcp_can_advance(const dw_tcp_sending *sending)
{
    const dw_tcp_request *request = sending->request;
    if (!request) return false;
    return request->is_kept ? sending->cursor > request->number
                            : sending->next_message - sending->acked < DW_TCP_KEPT_MOST;
}

void dw_tcp_begin_sending(dw_tcp_sending *sending)
{
    sending->peer_limit = 0;
}

void dw_tcp_post_send(dw_tcp_sending *sending, const dw_tcp_request *request)
{
    sending->request = request;
}

bool dw_tcp_send_is_done(dw_tcp_sending *sending, const dw_tcp_request *request)
{
    if (sending->cursor <= request->number) return false;
    dw_tcp_wire_send_done(sending->receiving->wire);
    sending->answered = request->number + 1;
    sending->request = NULL;
    return true;
}

bool dw_tcp_keep(dw_tcp_sending *sending, dw_tcp_request *request)
{
    if (sending->next_message - sending->acked >= DW_TCP_KEPT_MOST) return false;
    dw_tcp_kept *kept = kept_of(sending, sending->next_message);
    if (sending->receiving->settings->copies) {
        kept->copy = dw_tcp_take_room(sending->receiving, request->len);
        if (!kept->copy)
            dw_tcp_fail(sending->receiving->failure, DW_ERR_NO_MEMORY,
                        "no memory for a message to %s", sending->receiving->failure->peer);
        if (!kept->copy) return false;
        if (request->len > 0) memcpy(kept->copy->data, request->data, request->len);
    }
    kept->data = sending->receiving->settings->copies ? kept->copy->data : request->data;
    kept->len = request->len;
    kept->chunk_len = dw_tcp_chunk_len(request->len);
    kept->chunks =
        request->len == 0 ? 1 : (uint32_t)((request->len + kept->chunk_len - 1) / kept->chunk_len);
    kept->position = sending->next_position;
    if (sending->acked == sending->next_message) dw_tcp_progress_begin(sending->progress);
    memset(kept->on, 0, kept->chunks);
    request->number = sending->next_message++;
    request->is_kept = true;
    sending->next_position += request->len;
    return true;
}

/* ---- Records --------------------------------------------------------------------------------- */

/* Begins a record of any kind: writes the header's common fields. */
static void begin_record(dw_tcp_sending *sending, dw_tcp_stripe *stripe, int kind, size_t len,
                         uint64_t message)
{
    unsigned char *header = stripe->out.header;
    uint64_t whole = dw_tcp_whole(sending->receiving), limit = dw_tcp_limit(sending->receiving);
    dw_put32(header, (uint32_t)kind);
    dw_put32(header + 4, (uint32_t)len);
    dw_put64(header + 8, message);
    dw_put64(header + 16, whole);
    dw_put64(header + 24, limit);
    dw_tcp_ack_sent(&sending->receiving->ack, whole, limit);
    stripe->out.header_len = DW_TCP_RECORD_BYTES;
    stripe->out.header_done = 0;
    stripe->out.body = NULL;
    stripe->out.body_len = len;
    stripe->out.body_done = 0;
    stripe->out.body_message = message;
    stripe->out.is_writing = true;
}

static void begin_chunk(dw_tcp_sending *sending, dw_tcp_stripe *stripe, dw_tcp_kept *kept,
                        uint64_t number, uint32_t chunk)
{
    size_t offset = (size_t)chunk * kept->chunk_len;
    bool is_chunk = kept->len > DW_TCP_CHUNK_BYTES;
    begin_record(sending, stripe, is_chunk ? DW_TCP_CHUNK : DW_TCP_MESSAGE,
                 chunk_bytes(kept, chunk), number);
    if (is_chunk) {
        dw_put64(stripe->out.header + 32, offset);
        dw_put64(stripe->out.header + 40, kept->len);
        stripe->out.header_len = DW_TCP_CHUNK_RECORD_BYTES;
    }
    stripe->out.body = kept->data + offset;
    kept->on[chunk] |= (uint8_t)(1u << stripe->index);
    if (stripe->progress.is_clear) dw_tcp_begin_to_fill(stripe);
}

/* Zeros that are sent in place of the rest of a body if the peer acknowledges the message before
 * this record is complete. From then on the memory of the message may be reused, but the record
 * must have the length that its header says. If TLS has already taken some bytes of the body, it
 * accepts that the write is repeated with other bytes. */
static const unsigned char nothing[16384];

void dw_tcp_write(dw_tcp_sending *sending, dw_tcp_stripe *stripe)
{
    bool is_apart = stripe->out.header[0] >= DW_TCP_STATE;
    stripe->out.is_blocked = false;
    while (stripe->out.is_writing && !stripe->out.is_blocked && !stripe->out.is_broken) {
        size_t header_left = stripe->out.header_len - stripe->out.header_done;
        size_t body_left = stripe->out.body_len - stripe->out.body_done;
        if (!stripe->out.body && body_left > sizeof nothing) body_left = sizeof nothing;
        const unsigned char *body =
            stripe->out.body ? stripe->out.body + stripe->out.body_done : nothing;
        struct iovec parts[2] = {{stripe->out.header + stripe->out.header_done, header_left},
                                 /* iovec has no const; writev only reads */
                                 {(void *)(uintptr_t)body, body_left}};
        bool is_behind = header_left == 0;
        int n_parts = 2 - is_behind - (body_left == 0);
        dw_tcp_mark_full(stripe, header_left + body_left);
        ptrdiff_t n = dw_stream_write(&stripe->stream, parts + is_behind, n_parts);
        if (n <= 0) {
            stripe->out.is_blocked = n == DW_STREAM_WAIT;
            stripe->out.is_broken = n != DW_STREAM_WAIT;
            /* the last bytes from the peer can still be read */
            if (stripe->out.is_broken) dw_tcp_reading_again(sending->reading);
            break;
        }
        size_t of_header = (size_t)n < header_left ? (size_t)n : header_left;
        stripe->out.header_done += of_header;
        stripe->out.body_done += (size_t)n - of_header;
        dw_tcp_wire_sent(sending->receiving->wire, (size_t)n, is_apart);
        if (!is_apart) dw_tcp_mark_written(stripe, (size_t)n);
        stripe->out.is_writing = stripe->out.header_done < stripe->out.header_len ||
                                 stripe->out.body_done < stripe->out.body_len;
    }
    dw_tcp_watch_stripe(sending->connections->poller, stripe, false);
}

/* ---- Which stripe ---------------------------------------------------------------------------- */

static bool is_free(const dw_tcp_stripe *stripe)
{
    return stripe->is_open && !stripe->out.is_writing && !stripe->out.is_broken;
}

/* Searches all stripes, beginning with number `first`. NULL: none is free. */
static dw_tcp_stripe *find_free(const dw_tcp_sending *sending, unsigned first)
{
    for (unsigned i = 0; i < sending->connections->n; i++) {
        dw_tcp_stripe *stripe =
            &sending->connections->stripes[(first + i) % sending->connections->n];
        if (is_free(stripe) && !stripe->out.is_late) return stripe;
    }
    return NULL;
}

static bool is_near(const dw_tcp_sending *sending)
{
    return sending->receiving->window == DW_TCP_NEAR_WINDOW_BYTES;
}

/* Whether a message of this length uses the first stripe, as long as that is not lost or late.
 * Short messages do, so that the receiver knows where to look. So do all that are not longer than
 * the window, if the round trip is short and the option stripes was not given: one connection then
 * usually fills the wire, and on other stripes these messages would only arrive out of order and
 * delay those before them. An all-reduce of 64 MiB by four ranks takes 3 % less time. */
static bool uses_first(const dw_tcp_sending *sending, size_t len)
{
    return len <= DW_TCP_AHEAD_BYTES ||
           (is_near(sending) && !sending->receiving->settings->options.uses_all &&
            len <= sending->receiving->window);
}

/* Whether a message that uses the first stripe waits for it although another stripe is free. */
static bool must_wait(const dw_tcp_sending *sending)
{
    const dw_tcp_stripe *first = &sending->connections->stripes[0];
    return is_near(sending) && first->is_open && first->out.is_writing && !first->out.is_late &&
           !first->out.is_broken;
}

static dw_tcp_stripe *next_in_turn(dw_tcp_sending *sending)
{
    dw_tcp_stripe *stripe = find_free(sending, sending->next_stripe);
    if (stripe) sending->next_stripe = stripe->index + 1;
    return stripe;
}

/* The stripe for the next chunk of a message of this length; NULL: none now. */
static dw_tcp_stripe *choose(dw_tcp_sending *sending, size_t len)
{
    if (!uses_first(sending, len)) return next_in_turn(sending);
    return must_wait(sending) ? NULL : find_free(sending, 0);
}

bool dw_tcp_can_ack(const dw_tcp_sending *sending)
{
    return find_free(sending, 0) != NULL;
}

/* The next chunk that was not given to a stripe. */
static dw_tcp_kept *find_chunk(dw_tcp_sending *sending)
{
    for (; sending->cursor < sending->next_message; sending->cursor++, sending->cursor_chunk = 0) {
        dw_tcp_kept *kept = kept_of(sending, sending->cursor);
        while (sending->cursor_chunk < kept->chunks && kept->on[sending->cursor_chunk])
            sending->cursor_chunk++;
        if (sending->cursor_chunk < kept->chunks) return kept;
    }
    return NULL;
}

/* Whether the peer allows the chunk at the cursor, which is of that message. */
static bool may_send(const dw_tcp_sending *sending, const dw_tcp_kept *kept)
{
    return kept->position + (uint64_t)sending->cursor_chunk * kept->chunk_len < sending->peer_limit;
}

/* Sends ASK and ECHO records, which belong to one stripe, on that stripe. */
static void ask_and_answer(dw_tcp_sending *sending)
{
    for (unsigned i = 0; i < sending->connections->n; i++) {
        dw_tcp_stripe *stripe = &sending->connections->stripes[i];
        if (!(stripe->out.must_ask || stripe->out.must_answer) || !is_free(stripe)) continue;
        begin_record(sending, stripe, stripe->out.must_answer ? DW_TCP_ECHO : DW_TCP_ASK, 0, 0);
        if (stripe->out.must_answer)
            stripe->out.must_answer = false;
        else
            stripe->out.must_ask = false;
        dw_tcp_write(sending, stripe);
    }
}

void dw_tcp_take_probe(dw_tcp_stripe *stripe, int kind)
{
    if (kind == DW_TCP_ASK) stripe->out.must_answer = true;
    if (kind != DW_TCP_ECHO) return;
    stripe->out.is_late = false;
    stripe->out.asked_ns = 0;
}

void dw_tcp_send(dw_tcp_sending *sending)
{
    if (sending->connections->n_open == 0 || sending->receiving->failure->status != DW_OK) return;
    ask_and_answer(sending);
    dw_tcp_kept *kept;
    while ((kept = find_chunk(sending)) != NULL) {
        if (!may_send(sending, kept)) break;
        dw_tcp_stripe *stripe = choose(sending, kept->len);
        if (!stripe) break;
        begin_chunk(sending, stripe, kept, sending->cursor, sending->cursor_chunk);
        dw_tcp_write(sending, stripe);
    }
    if (sending->receiving->ack.due_ns == 0 ||
        (sending->receiving->ack.due_ns > 1 && dw_now_ns() < sending->receiving->ack.due_ns))
        return;
    dw_tcp_stripe *stripe = find_free(sending, 0);
    if (!stripe) return; /* the next record that is sent carries it */
    begin_record(sending, stripe, DW_TCP_STATE, 0, 0);
    dw_tcp_write(sending, stripe);
}

void dw_tcp_send_leave(dw_tcp_sending *sending)
{
    for (unsigned i = 0; i < sending->connections->n; i++) {
        if (!is_free(&sending->connections->stripes[i])) continue;
        begin_record(sending, &sending->connections->stripes[i], DW_TCP_LEAVE, 0, 0);
        dw_tcp_write(sending, &sending->connections->stripes[i]);
    }
}

/* ---- Acknowledged, lost, stuck --------------------------------------------------------------- */

void dw_tcp_acknowledge(dw_tcp_sending *sending, uint64_t whole, uint64_t limit)
{
    if (whole > sending->next_message) {
        dw_tcp_fail(sending->receiving->failure, DW_ERR_PROTOCOL,
                    "%s acknowledged messages that were never sent",
                    sending->receiving->failure->peer);
        return;
    }
    if (limit > sending->peer_limit) {
        sending->peer_limit = limit;
        /* More than what is sent and a window is no sign of anything. */
        bool has_advanced = limit <= sending->next_position + DW_TCP_WINDOW_BYTES;
        /* It has taken something, but not enough yet for more to be sent. */
        const dw_tcp_kept *next = find_chunk(sending);
        dw_tcp_progress_note(sending->progress, next && !may_send(sending, next), has_advanced);
    }
    if (whole <= sending->acked) return;
    dw_tcp_progress_note(sending->progress, true, true);
    for (; sending->acked < whole; sending->acked++) {
        dw_tcp_kept *kept = kept_of(sending, sending->acked);
        if (kept->copy) dw_tcp_give_room_back(sending->receiving, kept->copy);
        kept->copy = NULL;
    }
    if (sending->cursor < whole) {
        sending->cursor = whole;
        sending->cursor_chunk = 0;
    }
    for (unsigned i = 0; i < sending->connections->n; i++) {
        dw_tcp_stripe *stripe = &sending->connections->stripes[i];
        if (stripe->out.is_writing && stripe->out.body && stripe->out.body_message < whole)
            stripe->out.body = NULL;
    }
}

void dw_tcp_requeue(dw_tcp_sending *sending, unsigned index)
{
    uint8_t bit = (uint8_t)(1u << index);
    for (uint64_t number = sending->acked; number < sending->next_message; number++) {
        dw_tcp_kept *kept = kept_of(sending, number);
        for (uint32_t chunk = 0; chunk < kept->chunks; chunk++) {
            if (!(kept->on[chunk] & bit)) continue;
            kept->on[chunk] &= (uint8_t)~bit;
            if (kept->on[chunk]) continue; /* it was sent on another stripe as well */
            sending->resent_bytes += chunk_bytes(kept, chunk);
            if (number > sending->cursor ||
                (number == sending->cursor && chunk >= sending->cursor_chunk))
                continue;
            sending->cursor = number;
            sending->cursor_chunk = chunk;
        }
    }
}

void dw_tcp_forget_writing(dw_tcp_stripe *stripe)
{
    stripe->out = (dw_tcp_record_out){.is_writing = false};
}

/* Returns the stripes that are stuck, as a bit set. If the peer has acknowledged nothing for
 * patience_ns, an ASK is sent on every stripe. Those on which no ECHO arrives, and on which the
 * kernel delivers nothing, are stuck. */
static uint8_t find_stuck(dw_tcp_sending *sending, int64_t now, int64_t patience_ns)
{
    uint8_t stuck = 0;
    if (sending->acked != sending->seen_acked || sending->peer_limit != sending->seen_limit)
        sending->seen_ns = now;
    sending->seen_acked = sending->acked;
    sending->seen_limit = sending->peer_limit;
    for (unsigned i = 0; i < sending->connections->n; i++) {
        dw_tcp_stripe *stripe = &sending->connections->stripes[i];
        if (!stripe->is_open || now - sending->seen_ns < patience_ns) continue;
        if (stripe->out.asked_ns == 0) {
            stripe->out.asked_ns = now;
            stripe->out.must_ask = true;
        } else if (now - stripe->out.asked_ns >= patience_ns &&
                   now - stripe->progress.moved_ns >= patience_ns) {
            stuck |= (uint8_t)(1u << i);
        }
    }
    return stuck;
}

/* Sends once more, on other stripes, those chunks of a message that were only sent on stuck
 * stripes. Returns false if no stripe is free for them. */
static bool send_again(dw_tcp_sending *sending, uint64_t number, uint8_t stuck)
{
    dw_tcp_kept *kept = kept_of(sending, number);
    for (uint32_t chunk = 0; chunk < kept->chunks; chunk++) {
        if (kept->on[chunk] & (uint8_t)~stuck) continue;
        dw_tcp_stripe *stripe = next_in_turn(sending);
        if (!stripe) return false;
        sending->resent_bytes += chunk_bytes(kept, chunk);
        begin_chunk(sending, stripe, kept, number, chunk);
        dw_tcp_write(sending, stripe);
    }
    return true;
}

/* All messages that wait for stuck stripes are sent again at once: if only the oldest one were, the
 * next would have to wait for as long again. */
void dw_tcp_resend_stuck(dw_tcp_sending *sending, int64_t now, int64_t patience_ns)
{
    uint8_t stuck = find_stuck(sending, now, patience_ns);
    for (unsigned i = 0; i < sending->connections->n; i++) {
        if (stuck >> i & 1) sending->connections->stripes[i].out.is_late = true;
    }
    if (!stuck) return;
    /* Some chunks of the message at the cursor were not sent at all yet. */
    for (uint64_t number = sending->acked; number < sending->cursor; number++)
        if (!send_again(sending, number, stuck)) return;
}
