/* SPDX-License-Identifier: Apache-2.0
 * tcp_receive.c - reads the bytes of a stripe and finds the records in them. */
#include <string.h>

#include "base/bytes.h"
#include "common/report.h"
#include "tcp/tcp_end.h"

/* The limit of reads in one call, so that other stripes, and sending, get their turn. */
enum { READS_PER_TURN = 8 };

/* Takes a record header out of the bytes that were read ahead. false: it is incomplete. */
static bool take_header(dw_tcp_end *end, dw_tcp_stripe *stripe)
{
    if (stripe->ahead_n < 1) return false;
    const unsigned char *header = stripe->ahead + stripe->ahead_at;
    size_t header_len = header[0] == DW_TCP_CHUNK ? DW_TCP_CHUNK_RECORD_BYTES : DW_TCP_RECORD_BYTES;
    if (header[0] < DW_TCP_MESSAGE || header[0] > DW_TCP_LEAVE) {
        dw_tcp_fail(end, DW_ERR_PROTOCOL, "%s sent bytes that are not a record of deltawire",
                    end->peer);
        return false;
    }
    if (stripe->ahead_n < header_len) return false;
    stripe->ahead_at += header_len;
    stripe->ahead_n -= header_len;
    dw_tcp_acknowledge(end, dw_get64(header + 16), dw_get64(header + 24));
    stripe->len = dw_get32(header + 4);
    stripe->message = dw_get64(header + 8);
    stripe->is_chunk = header[0] == DW_TCP_CHUNK;
    stripe->offset = stripe->is_chunk ? (size_t)dw_get64(header + 32) : 0;
    stripe->total = stripe->is_chunk ? dw_get64(header + 40) : stripe->len;
    if (header[0] == DW_TCP_MESSAGE || header[0] == DW_TCP_CHUNK) {
        dw_tcp_begin_chunk(end, stripe);
    } else {
        end->received_apart += header_len;
        end->peer_left |= header[0] == DW_TCP_LEAVE;
        dw_tcp_take_probe(stripe, header[0]);
    }
    return true;
}

static void take_ahead(dw_tcp_stripe *stripe)
{
    size_t left = stripe->len - stripe->done, n = stripe->ahead_n < left ? stripe->ahead_n : left;
    if (stripe->room) memcpy(stripe->room + stripe->done, stripe->ahead + stripe->ahead_at, n);
    stripe->ahead_at += n;
    stripe->ahead_n -= n;
    stripe->done += n;
}

/* Processes the bytes that were read ahead. Ends when more must be read, or when it is not decided
 * yet where the next bytes go. */
static void sort_ahead(dw_tcp_end *end, dw_tcp_stripe *stripe)
{
    while (end->status == DW_OK && !stripe->is_undecided) {
        if (!stripe->is_reading) {
            if (!take_header(end, stripe)) return;
            continue;
        }
        if (stripe->room && stripe->message == end->awaited) end->moved_awaited = true;
        take_ahead(stripe);
        if (stripe->done < stripe->len) return;
        dw_tcp_finish_chunk(end, stripe);
    }
}

/* Reads once from the stream. Bytes of long chunks are read straight to where they belong. Returns
 * what dw_stream_read returns. */
static ptrdiff_t read_once(dw_tcp_end *end, dw_tcp_stripe *stripe, bool *is_short)
{
    size_t left = stripe->is_reading ? stripe->len - stripe->done : 0;
    if (stripe->room && stripe->is_reading && stripe->ahead_n == 0 && left >= DW_TCP_AHEAD_BYTES) {
        ptrdiff_t n = dw_stream_read(&stripe->stream, stripe->room + stripe->done, left);
        if (n > 0) {
            stripe->done += (size_t)n;
            /* A call on TLS ends after some records, so that it returned less than was asked for
             * does not mean that the socket is empty. */
            *is_short = (size_t)n < left && !stripe->stream.cover;
            if (stripe->message == end->awaited) end->moved_awaited = true;
            if (stripe->done == stripe->len) dw_tcp_finish_chunk(end, stripe);
        }
        return n;
    }
    /* The bytes that are left are a part of a header. Move them to the front. */
    if (stripe->ahead_n > 0)
        memmove(stripe->ahead, stripe->ahead + stripe->ahead_at, stripe->ahead_n);
    stripe->ahead_at = 0;
    size_t cap = DW_TCP_AHEAD_BYTES - stripe->ahead_n;
    ptrdiff_t n = dw_stream_read(&stripe->stream, stripe->ahead + stripe->ahead_n, cap);
    if (n > 0) stripe->ahead_n += (size_t)n;
    *is_short = n < (ptrdiff_t)cap;
    return n;
}

void dw_tcp_read(dw_tcp_end *end, dw_tcp_stripe *stripe)
{
    bool is_short = false;
    for (int reads = 0; reads < READS_PER_TURN && stripe->is_open && end->status == DW_OK;
         reads++) {
        sort_ahead(end, stripe);
        if (stripe->is_undecided || end->status != DW_OK) return;
        if (dw_tcp_has_next(end)) return;
        if (is_short && !stripe->is_broken && !dw_stream_has_more(&stripe->stream)) return;
        ptrdiff_t n = read_once(end, stripe, &is_short);
        if (n == DW_STREAM_WAIT && !stripe->is_broken) {
            /* Not over TLS: epoll does not report bytes that TLS has buffered for other stripes,
             * so the next receive looks for them. */
            if (!stripe->stream.cover) end->has_looked = true;
            return;
        }
        if (n <= 0) {
            dw_tcp_lose_stripe(end, stripe, n == DW_STREAM_ENDED ? 0 : stripe->stream.error);
            return;
        }
        end->has_looked = is_short;
        end->last_read = (unsigned)(stripe - end->stripes);
    }
    if (stripe->is_open) sort_ahead(end, stripe);
    end->must_read_again |= stripe->is_open && dw_stream_has_more(&stripe->stream);
}

/* Called at the end of a turn. If nothing of the awaited message arrived in this turn, records of
 * later messages go into a stash; they would block their stripe otherwise. */
void dw_tcp_decide(dw_tcp_end *end)
{
    const dw_tcp_incoming *a = dw_tcp_incoming_of(end, end->awaited);
    if (end->posted && a->is_known && a->total > end->posted->len)
        return; /* the link will post a longer buffer */
    for (unsigned i = 0; i < end->n_stripes && end->status == DW_OK; i++) {
        dw_tcp_stripe *stripe = &end->stripes[i];
        bool is_awaited = stripe->message == end->awaited;
        if (!stripe->is_open || !stripe->is_undecided || (end->moved_awaited && !is_awaited))
            continue;
        dw_tcp_find_room(end, stripe, true);
        if (end->status == DW_OK) dw_tcp_read(end, stripe);
    }
}
