/* SPDX-License-Identifier: Apache-2.0
 * tcp_stripes.c - a connection becomes a stripe, and a stripe is lost. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/report.h"
#include "tcp/tcp_end.h"

/* Both hellos are complete, and the connection becomes a stripe. If a stripe with this index is
 * still open, the other end has given it up already. */
void dw_tcp_open_stripe(dw_tcp_end *end, dw_tcp_handshake *handshake, unsigned index,
                        uint64_t whole, uint64_t limit)
{
    dw_tcp_stripe *stripe = &end->stripes[index];
    if (stripe->is_open) dw_tcp_lose_stripe(end, stripe, ECONNRESET);
    bool is_first = end->session.is_opening;
    bool is_new = end->connections.n_open == 0 && !stripe->was_open;
    dw_tcp_session_open(&end->session, &handshake->stream, is_new);
    stripe->stream = dw_tcp_handshake_take(handshake);
    stripe->is_open = true;
    stripe->is_silent = false;
    dw_tcp_kernel kernel = dw_tcp_ask_kernel(stripe->stream.fd);
    dw_tcp_progress_open(&end->progress, &stripe->progress, &kernel);
    end->connections.reconnects += (uint64_t)stripe->was_open;
    if (stripe->was_open) dw_tcp_stripe_returned(end);
    stripe->was_open = true;
    dw_tcp_wire_sent(&end->wire, DW_TCP_HELLO_BYTES, !is_first);
    dw_tcp_wire_received(&end->wire, DW_TCP_HELLO_BYTES, !is_first);
    end->connections.n_open++;
    end->connections.lost_ns = 0;
    end->connections.cut_bytes = 0;
    dw_tcp_reading_look(&end->reading, false);
    dw_tcp_reading_again(&end->reading); /* bytes after its hello may have been read already */
    if (kernel.rtt_us >= DW_TCP_NEAR_US) dw_tcp_widen_window(end);
    dw_tcp_acknowledge(end, whole, limit);
    dw_tcp_watch_new_stripe(end, stripe);
}

void dw_tcp_reset_at_close(const dw_tcp_stripe *stripe)
{
    const struct linger none = {.l_onoff = 1, .l_linger = 0};
    setsockopt(stripe->stream.fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
}

void dw_tcp_lose_stripe(dw_tcp_end *end, dw_tcp_stripe *stripe, int error)
{
    unsigned index = (unsigned)(stripe - end->stripes);
    if (!stripe->is_open) return;
    dw_tcp_kernel last = dw_tcp_ask_kernel(stripe->stream.fd);
    end->connections.gone.sent += last.sent;
    end->connections.gone.received += last.received;
    end->connections.gone.retransmits += last.retransmits;
    end->connections.cut_bytes +=
        stripe->ahead.n + (stripe->in.is_reading ? stripe->in.done + DW_TCP_RECORD_BYTES : 0);
    dw_tcp_note_partial(end);
    dw_tcp_forget_reading(end, stripe);
    dw_tcp_ahead_forget(&stripe->ahead);
    dw_tcp_allow_duplicates(end);
    memcpy(end->connections.lost_text, stripe->stream.text, sizeof end->connections.lost_text);
    dw_tcp_discount_loss(end, stripe);
    if (!dw_tcp_is_closed_by_peer(error)) dw_tcp_reset_at_close(stripe);
    dw_stream_close(&stripe->stream);
    dw_tcp_forget_writing(stripe);
    stripe->is_open = false;
    stripe->is_silent = !dw_tcp_is_closed_by_peer(error);
    dw_tcp_redial_after_loss(&stripe->redial, dw_now_ns());
    end->connections.n_open--;
    dw_tcp_ack_now(&end->ack); /* the last whole and limit that were sent may be lost */
    dw_tcp_requeue(end, index);
    if (end->connections.n_open > 0) return;
    end->connections.lost_ns = dw_now_ns();
    end->connections.lost_error = error;
}

void dw_tcp_blame_peer(dw_tcp_end *end)
{
    if (!dw_tcp_is_closed_by_peer(end->connections.lost_error))
        end->connections.lost_error = ECONNRESET;
}

void dw_tcp_shorten_segments(dw_tcp_end *end, uint32_t segment)
{
    dw_tcp_ask_segment(end, segment);
    for (unsigned i = 0; i < end->session.n_stripes; i++) {
        dw_tcp_stripe *stripe = &end->stripes[i];
        if (!stripe->is_open || stripe->progress.segment <= segment) continue;
        if (!dw_tcp_carries_full(stripe)) dw_tcp_lose_stripe(end, stripe, ETIMEDOUT);
    }
}
