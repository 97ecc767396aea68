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
    if (end->n_open == 0 && !stripe->was_open) dw_tcp_print_peer(handshake->stream.fd, end->peer);
    if (end->tls && end->is_opening) {
        snprintf(end->peer_name, sizeof end->peer_name, "%s", dw_tls_peer_name(&handshake->stream));
        dw_tls_session(&handshake->stream, end->tls_session);
    }
    stripe->stream = handshake->stream;
    stripe->events = 0;
    handshake->phase = DW_TCP_IDLE;
    stripe->is_open = stripe->is_clear = true;
    stripe->is_silent = false;
    stripe->moved_ns = dw_now_ns();
    dw_tcp_kernel kernel = dw_tcp_ask_kernel(stripe->stream.fd);
    stripe->delivered = stripe->since_delivered = kernel.sent;
    stripe->segment = kernel.segment;
    stripe->full_at = 0;
    if (end->hole == DW_TCP_HOLE_SUSPECTED) end->hole = DW_TCP_HOLE_FOUND;
    end->reconnects += (uint64_t)stripe->was_open;
    end->has_returned |= stripe->was_open;
    stripe->was_open = true;
    *(end->is_opening ? &end->sent : &end->sent_apart) += DW_TCP_HELLO_BYTES;
    *(end->is_opening ? &end->received : &end->received_apart) += DW_TCP_HELLO_BYTES;
    end->n_open++;
    end->lost_ns = 0;
    end->cut_bytes = 0;
    end->is_opening = false;
    end->peer_left = false;
    end->has_looked = false;
    end->must_read_again = true; /* bytes after its hello may have been read already */
    if (kernel.rtt_us >= DW_TCP_NEAR_US && end->window < DW_TCP_WINDOW_BYTES) {
        end->window = DW_TCP_WINDOW_BYTES;
        end->ack_due_ns = 1;
    }
    dw_tcp_acknowledge(end, whole, limit);
    dw_tcp_watch_stripe(end, stripe);
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
    end->gone.sent += last.sent;
    end->gone.received += last.received;
    end->gone.retransmits += last.retransmits;
    end->cut_bytes +=
        stripe->ahead_n + (stripe->is_reading ? stripe->done + DW_TCP_RECORD_BYTES : 0);
    dw_tcp_note_partial(end);
    dw_tcp_forget_reading(end, stripe);
    dw_tcp_allow_duplicates(end);
    memcpy(end->lost_text, stripe->stream.text, sizeof end->lost_text);
    dw_tcp_discount_loss(end, stripe);
    if (!dw_tcp_is_closed_by_peer(error)) dw_tcp_reset_at_close(stripe);
    dw_stream_close(&stripe->stream);
    stripe->is_open = stripe->is_writing = stripe->is_blocked = stripe->is_broken =
        stripe->is_late = false;
    stripe->must_ask = stripe->must_answer = false;
    stripe->asked_ns = 0;
    stripe->is_silent = !dw_tcp_is_closed_by_peer(error);
    stripe->redial_ns = dw_now_ns() + stripe->backoff_ns;
    end->n_open--;
    end->ack_due_ns = 1; /* the last whole and limit that were sent may be lost */
    dw_tcp_requeue(end, index);
    if (end->n_open > 0) return;
    end->lost_ns = dw_now_ns();
    end->lost_error = error;
}
