/* SPDX-License-Identifier: Apache-2.0
 * retransmission.c - on links that may lose, double, reorder or damage messages: copies are kept
 * until they are acknowledged. An acknowledgement says which later messages have arrived, so only
 * what is missing is sent again. */
#include "base/clock.h"
#include "peer.h"

/* Without any acknowledgement the oldest messages are sent again, after twice as long each time, up
 * to 2^RETRANSMIT_DOUBLINGS times retry_ms. */
enum { RETRANSMIT_AT_ONCE = 8, RETRANSMIT_DOUBLINGS = 5 };

static dw_kept *kept_at(dw_peer *peer, uint64_t number)
{
    return &peer->sent.kept[number % DW_PEER_WINDOW];
}

bool dw_retransmission_has_window(const dw_peer *peer)
{
    return peer->next_number - peer->sent.acknowledged < DW_PEER_WINDOW &&
           peer->sent.kept_bytes < DW_PEER_REORDER_BYTES;
}

dw_status dw_retransmission_keep(dw_peer *peer, uint64_t number, const void *message, size_t len)
{
    dw_received *copy = dw_received_copy(peer->pool, message, len);
    if (!copy) return DW_ERR_NO_MEMORY;
    if (peer->sent.acknowledged == number) {
        peer->sent.silence_ns = dw_now_ns();
        peer->sent.count = 0;
    }
    *kept_at(peer, number) = (dw_kept){.copy = copy, .sent_ns = dw_now_ns()};
    peer->sent.kept_bytes += len;
    return DW_OK;
}

/* Returns whether there was a copy. */
static bool let_go(dw_peer *peer, uint64_t number)
{
    dw_kept *kept = kept_at(peer, number);
    if (!kept->copy) return false;
    peer->sent.kept_bytes -= kept->copy->len;
    dw_received_give(peer->pool, kept->copy);
    *kept = (dw_kept){.copy = NULL};
    return true;
}

void dw_retransmission_let_go(dw_peer *peer)
{
    for (unsigned i = 0; i < DW_PEER_WINDOW; i++) let_go(peer, i);
    peer->sent.acknowledged = peer->next_number;
}

bool dw_retransmission_is_complete(const dw_peer *peer)
{
    return peer->retry_ms == 0 || peer->sent.acknowledged == peer->next_number;
}

static void send_again(dw_peer *peer, dw_kept *kept, int64_t now_ns)
{
    kept->sent_ns = now_ns;
    kept->retransmissions++;
    dw_status status = dw_link_send(peer->link, peer->settings->id << 8 | DW_PEER_MESSAGES,
                                    kept->copy->bytes, kept->copy->len);
    if (status != DW_OK) return; /* the queue is full, or the link has failed: later */
    peer->count->repeated++;
    peer->count->sent_bytes += kept->copy->len;
}

void dw_retransmission_acknowledge(dw_peer *peer, const dw_message *ack)
{
    /* Ignores an acknowledgement on a link that needs none, and one of messages never sent. */
    if (peer->retry_ms == 0 || ack->number > peer->next_number) return;
    bool moved = false;
    /* The highest number that has arrived, or ack->number if no later message has. */
    uint64_t later = ack->number;
    for (uint64_t i = peer->sent.acknowledged; i < ack->number; i++) moved |= let_go(peer, i);
    for (unsigned bit = 0; bit < 64 && bit + 1 < DW_PEER_WINDOW; bit++) {
        uint64_t number = ack->number + 1 + bit;
        if (number >= peer->next_number || !(ack->slot >> bit & 1)) continue;
        if (number >= peer->sent.acknowledged) moved |= let_go(peer, number);
        later = number;
    }
    while (peer->sent.acknowledged < peer->next_number &&
           !kept_at(peer, peer->sent.acknowledged)->copy)
        peer->sent.acknowledged++;
    int64_t now_ns = dw_now_ns();
    if (moved) {
        peer->sent.silence_ns = now_ns;
        peer->sent.count = 0;
    }
    /* A later message overtook these, so they are lost, unless they were just sent. */
    for (uint64_t i = peer->sent.acknowledged; i < later; i++) {
        dw_kept *kept = kept_at(peer, i);
        if (kept->copy && now_ns - kept->sent_ns >= (int64_t)peer->retry_ms * DW_NS_PER_MS)
            send_again(peer, kept, now_ns);
    }
}

void dw_retransmission_send(dw_peer *peer, int64_t now_ns)
{
    if (peer->lost != DW_OK || peer->is_closed || dw_retransmission_is_complete(peer)) return;
    /* What still waits in the queue cannot have been acknowledged. */
    if (dw_link_flush(peer->link, 0) == DW_PENDING) {
        peer->sent.silence_ns = now_ns;
        return;
    }
    uint32_t doublings =
        peer->sent.count < RETRANSMIT_DOUBLINGS ? peer->sent.count : RETRANSMIT_DOUBLINGS;
    if (now_ns - peer->sent.silence_ns < ((int64_t)peer->retry_ms * DW_NS_PER_MS) << doublings)
        return;
    peer->sent.silence_ns = now_ns;
    peer->sent.count++;
    int sent = 0;
    for (uint64_t i = peer->sent.acknowledged; i < peer->next_number && sent < RETRANSMIT_AT_ONCE;
         i++) {
        if (!kept_at(peer, i)->copy) continue;
        send_again(peer, kept_at(peer, i), now_ns);
        sent++;
    }
}
