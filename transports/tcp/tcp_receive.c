/* SPDX-License-Identifier: Apache-2.0
 * tcp_receive.c - the bytes of a stripe become records, and these parts of messages. */
#include <string.h>

#include "common/fields.h"
#include "common/report.h"
#include "tcp/tcp_end.h"

/* Calls that read in one go; other stripes, and sending, get their turn after that. */
enum { READS_PER_TURN = 8 };

/* Takes a header off what was read ahead. false: it is not here whole. */
static bool take_header(dw_tcp_end *end, dw_tcp_stripe *stripe)
{
    if (stripe->ahead_n < 1) return false;
    const unsigned char *header = stripe->ahead + stripe->ahead_at;
    size_t header_len = header[0] == DW_TCP_CHUNK ? DW_TCP_CHUNK_RECORD_BYTES : DW_TCP_RECORD_BYTES;
    if (header[0] < DW_TCP_MESSAGE || header[0] > DW_TCP_LEAVE) {
        dw_tcp_fail(end, DW_ERR_PROTOCOL, "%s sent bytes that are no record of deltawire's",
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
        dw_tcp_hear_from(stripe, header[0]);
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

/* What lies ahead becomes messages, or parts of them. Ends where more must be read, or a place be
 * found. */
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

/* One call that reads. Long chunks go straight to their place; -> as dw_stream_read. */
static ptrdiff_t read_once(dw_tcp_end *end, dw_tcp_stripe *stripe, bool *is_short)
{
    size_t left = stripe->is_reading ? stripe->len - stripe->done : 0;
    if (stripe->room && stripe->is_reading && stripe->ahead_n == 0 && left >= DW_TCP_AHEAD_BYTES) {
        ptrdiff_t n = dw_stream_read(&stripe->stream, stripe->room + stripe->done, left);
        if (n > 0) {
            stripe->done += (size_t)n;
            *is_short = false;
            if (stripe->message == end->awaited) end->moved_awaited = true;
            if (stripe->done == stripe->len) dw_tcp_finish_chunk(end, stripe);
        }
        return n;
    }
    /* A part of a header. */
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
        if (n == DW_STREAM_WAIT && !stripe->is_broken) return;
        if (n <= 0) {
            dw_tcp_lose(end, stripe, n == DW_STREAM_ENDED ? 0 : stripe->stream.error);
            return;
        }
        end->has_looked = is_short;
        end->hot = (unsigned)(stripe - end->stripes);
    }
    if (stripe->is_open) sort_ahead(end, stripe);
    end->is_restless |= stripe->is_open && dw_stream_has_more(&stripe->stream);
}

/* Nothing of the awaited message moved in this turn: what came before its time is put away, or it
 * would block its stripe. */
void dw_tcp_decide(dw_tcp_end *end)
{
    const dw_tcp_arriving *a = dw_tcp_arriving_of(end, end->awaited);
    if (end->posted && a->is_known && a->total > end->posted->len)
        return; /* the link is about to give more room */
    for (unsigned i = 0; i < end->n_stripes && end->status == DW_OK; i++) {
        dw_tcp_stripe *stripe = &end->stripes[i];
        bool is_awaited = stripe->message == end->awaited;
        if (!stripe->is_open || !stripe->is_undecided || (end->moved_awaited && !is_awaited))
            continue;
        dw_tcp_find_room(end, stripe, true);
        if (end->status == DW_OK) dw_tcp_read(end, stripe);
    }
}
