/* SPDX-License-Identifier: Apache-2.0
 * tcp_receive.c - reads the bytes of a stripe and finds the records in them. */
#include <string.h>

#include "base/bytes.h"
#include "common/report.h"
#include "tcp/tcp_end.h"

/* The limit of reads in one call, so that other stripes, and sending, get their turn. */
enum { READS_PER_TURN = 8 };

/* Takes a record header out of the bytes that were read ahead. false: it is incomplete. */
static bool take_header(dw_tcp_sending *sending, dw_tcp_stripe *stripe)
{
    dw_tcp_receiving *receiving = sending->receiving;
    if (stripe->ahead.n < 1) return false;
    const unsigned char *header = stripe->ahead.bytes + stripe->ahead.at;
    size_t header_len = header[0] == DW_TCP_CHUNK ? DW_TCP_CHUNK_RECORD_BYTES : DW_TCP_RECORD_BYTES;
    if (header[0] < DW_TCP_MESSAGE || header[0] > DW_TCP_LEAVE) {
        dw_tcp_fail(receiving->failure, DW_ERR_PROTOCOL,
                    "%s sent bytes that are not a record of deltawire", receiving->failure->peer);
        return false;
    }
    if (stripe->ahead.n < header_len) return false;
    header = dw_tcp_ahead_take(&stripe->ahead, header_len);
    dw_tcp_acknowledge(sending, dw_get64(header + 16), dw_get64(header + 24));
    if (header[0] == DW_TCP_MESSAGE || header[0] == DW_TCP_CHUNK) {
        dw_tcp_record_in record = {.is_chunk = header[0] == DW_TCP_CHUNK,
                                   .len = dw_get32(header + 4),
                                   .message = dw_get64(header + 8)};
        record.offset = record.is_chunk ? (size_t)dw_get64(header + 32) : 0;
        record.total = record.is_chunk ? dw_get64(header + 40) : record.len;
        dw_tcp_begin_chunk(receiving, stripe, &record);
    } else {
        dw_tcp_wire_received(receiving->wire, header_len, true);
        if (header[0] == DW_TCP_LEAVE) dw_tcp_peer_leaves(receiving->connections);
        dw_tcp_take_probe(stripe, header[0]);
    }
    return true;
}

static void finish_chunk(dw_tcp_sending *sending, dw_tcp_stripe *stripe)
{
    dw_tcp_redial_worked(&stripe->redial);
    dw_tcp_finish_chunk(sending->receiving, stripe);
}

static void take_ahead(dw_tcp_stripe *stripe)
{
    size_t left = stripe->in.len - stripe->in.done;
    size_t n = stripe->ahead.n < left ? stripe->ahead.n : left;
    const unsigned char *bytes = dw_tcp_ahead_take(&stripe->ahead, n);
    if (stripe->in.room) memcpy(stripe->in.room + stripe->in.done, bytes, n);
    dw_tcp_advance_record(stripe, n);
}

/* Processes the bytes that were read ahead. Ends when more must be read, or when it is not decided
 * yet where the next bytes go. */
static void sort_ahead(dw_tcp_sending *sending, dw_tcp_stripe *stripe)
{
    while (sending->receiving->failure->status == DW_OK && !stripe->in.is_undecided) {
        if (!stripe->in.is_reading) {
            if (!take_header(sending, stripe)) return;
            continue;
        }
        if (stripe->in.room && stripe->in.message == sending->receiving->awaited)
            dw_tcp_reading_moved(sending->reading);
        take_ahead(stripe);
        if (stripe->in.done < stripe->in.len) return;
        finish_chunk(sending, stripe);
    }
}

/* Reads once from the stream. Bytes of long chunks are read straight to where they belong. Returns
 * what dw_stream_read returns. */
static ptrdiff_t read_once(dw_tcp_sending *sending, dw_tcp_stripe *stripe, bool *is_short)
{
    size_t left = stripe->in.is_reading ? stripe->in.len - stripe->in.done : 0;
    if (stripe->in.room && stripe->in.is_reading && stripe->ahead.n == 0 &&
        left >= DW_TCP_AHEAD_BYTES) {
        ptrdiff_t n = dw_stream_read(&stripe->stream, stripe->in.room + stripe->in.done, left);
        if (n > 0) {
            dw_tcp_advance_record(stripe, (size_t)n);
            /* A call on TLS ends after some records, so that it returned less than was asked for
             * does not mean that the socket is empty. */
            *is_short = (size_t)n < left && !stripe->stream.cover;
            if (stripe->in.message == sending->receiving->awaited)
                dw_tcp_reading_moved(sending->reading);
            if (stripe->in.done == stripe->in.len) finish_chunk(sending, stripe);
        }
        return n;
    }
    size_t cap;
    unsigned char *room = dw_tcp_ahead_room(&stripe->ahead, &cap);
    ptrdiff_t n = dw_stream_read(&stripe->stream, room, cap);
    if (n > 0) dw_tcp_ahead_filled(&stripe->ahead, (size_t)n);
    *is_short = n < (ptrdiff_t)cap;
    return n;
}

void dw_tcp_read(dw_tcp_sending *sending, dw_tcp_stripe *stripe)
{
    const dw_tcp_receiving *receiving = sending->receiving;
    bool is_short = false;
    for (int reads = 0;
         reads < READS_PER_TURN && stripe->is_open && receiving->failure->status == DW_OK;
         reads++) {
        sort_ahead(sending, stripe);
        if (stripe->in.is_undecided || receiving->failure->status != DW_OK) return;
        if (dw_tcp_has_next(receiving)) return;
        if (is_short && !stripe->out.is_broken && !dw_stream_has_more(&stripe->stream)) return;
        ptrdiff_t n = read_once(sending, stripe, &is_short);
        if (n == DW_STREAM_WAIT && !stripe->out.is_broken) {
            /* Not over TLS: epoll does not report bytes that TLS has buffered for other stripes,
             * so the next receive looks for them. */
            if (!stripe->stream.cover) dw_tcp_reading_look(sending->reading, true);
            return;
        }
        if (n <= 0) {
            dw_tcp_lose_stripe(sending, stripe, n == DW_STREAM_ENDED ? 0 : stripe->stream.error);
            return;
        }
        dw_tcp_reading_read(sending->reading, stripe->index, is_short);
    }
    if (stripe->is_open) sort_ahead(sending, stripe);
    if (stripe->is_open && dw_stream_has_more(&stripe->stream))
        dw_tcp_reading_again(sending->reading);
}

/* Called at the end of a turn. If nothing of the awaited message arrived in this turn, records of
 * later messages go into a stash; they would block their stripe otherwise. */
void dw_tcp_decide(dw_tcp_sending *sending)
{
    dw_tcp_receiving *receiving = sending->receiving;
    const dw_tcp_incoming *a = dw_tcp_incoming_of(receiving, receiving->awaited);
    if (receiving->posted && a->is_known && a->total > receiving->posted->len)
        return; /* the link will post a longer buffer */
    for (unsigned i = 0; i < sending->connections->n && receiving->failure->status == DW_OK; i++) {
        dw_tcp_stripe *stripe = &sending->connections->stripes[i];
        bool is_awaited = stripe->in.message == receiving->awaited;
        if (!stripe->is_open || !stripe->in.is_undecided ||
            (sending->reading->moved_awaited && !is_awaited))
            continue;
        dw_tcp_find_room(receiving, stripe, true);
        if (receiving->failure->status == DW_OK) dw_tcp_read(sending, stripe);
    }
}
