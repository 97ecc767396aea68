/* SPDX-License-Identifier: Apache-2.0
 * tcp_stripes.c - a connection becomes a stripe, a stripe is lost, and is dialled again. */
#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "common/report.h"
#include "tcp/tcp_end.h"

static const int64_t first_backoff_ns = (int64_t)50 * DW_NS_PER_MS;

void dw_tcp_stripes_expect(dw_tcp_connections *connections, unsigned n)
{
    connections->n = n;
}

/* Both hellos are complete, and the connection becomes a stripe. If a stripe with this index is
 * still open, the other end has given it up already. */
void dw_tcp_open_stripe(dw_tcp_sending *sending, dw_tcp_session *session,
                        dw_tcp_handshake *handshake)
{
    dw_tcp_connections *connections = sending->connections;
    dw_tcp_receiving *receiving = sending->receiving;
    unsigned index = handshake->own_hello[24];
    dw_tcp_stripe *stripe = &connections->stripes[index];
    dw_tcp_lose_stripe(sending, stripe, ECONNRESET);
    bool is_first = session->is_opening;
    bool is_new = connections->n_open == 0 && !stripe->was_open;
    dw_tcp_session_open(session, &handshake->stream, is_new);
    stripe->stream = dw_tcp_handshake_take(handshake);
    stripe->index = index;
    stripe->is_open = true;
    stripe->is_silent = false;
    dw_tcp_kernel kernel = dw_tcp_ask_kernel(stripe->stream.fd);
    dw_tcp_progress_open(sending->progress, &stripe->progress, &kernel);
    connections->reconnects += (uint64_t)stripe->was_open;
    if (stripe->was_open) dw_tcp_stripe_returned(receiving);
    stripe->was_open = true;
    dw_tcp_wire_sent(receiving->wire, DW_TCP_HELLO_BYTES, !is_first);
    dw_tcp_wire_received(receiving->wire, DW_TCP_HELLO_BYTES, !is_first);
    connections->n_open++;
    connections->lost_ns = 0;
    connections->cut_bytes = 0;
    connections->peer_left = false;
    dw_tcp_reading_look(sending->reading, false);
    dw_tcp_reading_again(sending->reading); /* bytes after its hello may have been read already */
    if (kernel.rtt_us >= DW_TCP_NEAR_US) dw_tcp_widen_window(receiving);
    dw_tcp_acknowledge(sending, dw_get64(handshake->their_hello + 32),
                       dw_get64(handshake->their_hello + 40));
    dw_tcp_watch_stripe(connections->poller, stripe, true);
}

void dw_tcp_reset_at_close(const dw_tcp_stripe *stripe)
{
    const struct linger none = {.l_onoff = 1, .l_linger = 0};
    setsockopt(stripe->stream.fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
}

void dw_tcp_lose_stripe(dw_tcp_sending *sending, dw_tcp_stripe *stripe, int error)
{
    dw_tcp_connections *connections = sending->connections;
    if (!stripe->is_open) return;
    dw_tcp_kernel last = dw_tcp_ask_kernel(stripe->stream.fd);
    connections->gone.sent += last.sent;
    connections->gone.received += last.received;
    connections->gone.retransmits += last.retransmits;
    connections->cut_bytes +=
        stripe->ahead.n + (stripe->in.is_reading ? stripe->in.done + DW_TCP_RECORD_BYTES : 0);
    dw_tcp_note_partial(sending->receiving);
    dw_tcp_forget_reading(sending->receiving, stripe);
    dw_tcp_ahead_forget(&stripe->ahead);
    dw_tcp_allow_duplicates(sending->receiving);
    memcpy(connections->lost_text, stripe->stream.text, sizeof connections->lost_text);
    dw_tcp_discount_loss(sending->progress, stripe);
    if (!dw_tcp_is_closed_by_peer(error)) dw_tcp_reset_at_close(stripe);
    dw_stream_close(&stripe->stream);
    dw_tcp_forget_writing(stripe);
    stripe->is_open = false;
    stripe->is_silent = !dw_tcp_is_closed_by_peer(error);
    stripe->redial.at_ns = dw_now_ns() + stripe->redial.backoff_ns;
    connections->n_open--;
    /* the last whole and limit that were sent may be lost */
    dw_tcp_ack_now(&sending->receiving->ack);
    dw_tcp_requeue(sending, stripe->index);
    if (connections->n_open > 0) return;
    connections->lost_ns = dw_now_ns();
    connections->lost_error = error;
}

void dw_tcp_peer_leaves(dw_tcp_connections *connections)
{
    connections->peer_left = true;
}

void dw_tcp_blame_peer(dw_tcp_connections *connections)
{
    if (!dw_tcp_is_closed_by_peer(connections->lost_error)) connections->lost_error = ECONNRESET;
}

void dw_tcp_shorten_segments(dw_tcp_sending *sending, uint32_t segment)
{
    dw_tcp_ask_segment(sending->progress, segment);
    for (unsigned i = 0; i < sending->connections->n; i++) {
        dw_tcp_stripe *stripe = &sending->connections->stripes[i];
        if (!stripe->is_open || stripe->progress.segment <= segment) continue;
        if (!dw_tcp_carries_full(stripe)) dw_tcp_lose_stripe(sending, stripe, ETIMEDOUT);
    }
}

void dw_tcp_redial_later(dw_tcp_redial *redial, int64_t longest_backoff_ns)
{
    redial->backoff_ns = redial->backoff_ns == 0 ? first_backoff_ns : 2 * redial->backoff_ns;
    if (redial->backoff_ns > longest_backoff_ns) redial->backoff_ns = longest_backoff_ns;
    redial->at_ns = dw_now_ns() + redial->backoff_ns;
}

void dw_tcp_redial_worked(dw_tcp_redial *redial)
{
    redial->backoff_ns = 0;
}
