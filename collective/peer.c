/* SPDX-License-Identifier: Apache-2.0
 * peer.c - a link to a rank: messages are sent with numbers and digests, and are passed on in the
 * order of their numbers. */
#include "peer.h"

#include <string.h>

#include "base/clock.h"

static uint32_t tag_of(const dw_peer *peer, uint32_t which)
{
    return peer->settings->id << 8 | which;
}

/* ---- Receiving ------------------------------------------------------------------------------- */

/* Passes a numbered message on. */
static void deliver(dw_peer *peer, dw_received *received, dw_received_list *ready)
{
    peer->expected++;
    if (received->head.kind == DW_MESSAGE_DATA) {
        dw_received_append(ready, received);
        return;
    }
    peer->is_closed = true;
    dw_received_give(peer->pool, received);
}

static void sort_numbered(dw_peer *peer, dw_received *received, dw_received_list *ready)
{
    uint64_t number = received->head.number;
    peer->owes_ack = peer->retry_ms > 0;
    if (number == peer->expected) {
        deliver(peer, received, ready);
        dw_received **at;
        while (*(at = &peer->reorder[peer->expected % DW_PEER_WINDOW])) {
            received = *at;
            *at = NULL;
            deliver(peer, received, ready);
        }
        return;
    }
    dw_received **at = &peer->reorder[number % DW_PEER_WINDOW];
    bool fits = number > peer->expected && number - peer->expected < DW_PEER_WINDOW;
    if (peer->retry_ms > 0 && fits && !*at) {
        *at = received;
        return;
    }
    dw_received_give(peer->pool, received); /* a duplicate, or too far ahead to be kept */
    if (peer->retry_ms == 0)
        dw_failure_set(peer->failure, DW_ERR_PROTOCOL, peer->rank,
                       "rank %u sent message %llu where %llu was due; does something else use the "
                       "tags of group %u?",
                       peer->rank, (unsigned long long)number, (unsigned long long)peer->expected,
                       peer->settings->id);
}

/* A message that has no valid digest: damaged, from an earlier group, or a hello, which has no
 * session. */
static void sort_strange(dw_peer *peer, dw_received *received, dw_received_list *ready)
{
    bool is_hello =
        dw_message_read(received->bytes, received->len, 0, true, &received->head) &&
        (received->head.kind == DW_MESSAGE_HELLO || received->head.kind == DW_MESSAGE_REFUSE);
    if (is_hello) {
        dw_received_append(ready, received);
        return;
    }
    if (peer->retry_ms > 0)
        peer->owes_ack = true; /* so that the sender learns what is missing */
    else
        dw_failure_set(peer->failure, DW_ERR_CORRUPT, peer->rank,
                       "a message from rank %u arrived damaged, over a link that does not repair "
                       "this",
                       peer->rank);
    dw_received_give(peer->pool, received);
}

void dw_peer_sort(dw_peer *peer, dw_received *received, dw_received_list *ready)
{
    dw_message *head = &received->head;
    if (!dw_message_read(received->bytes, received->len, peer->session.open_seed,
                         peer->retry_ms > 0, head)) {
        sort_strange(peer, received, ready);
        return;
    }
    peer->count->received_bytes += received->len;
    switch (head->kind) {
    case DW_MESSAGE_DATA:
    case DW_MESSAGE_CLOSE: sort_numbered(peer, received, ready); return;
    case DW_MESSAGE_ACK: dw_retransmission_acknowledge(peer, head); break;
    case DW_MESSAGE_PING: peer->waits_for = head->rank; break;
    case DW_MESSAGE_ABORT: dw_received_append(ready, received); return;
    default:
        dw_failure_set(peer->failure, DW_ERR_PROTOCOL, peer->rank,
                       "rank %u sent a message of an unknown kind; run the same release on all "
                       "ranks",
                       peer->rank);
    }
    dw_received_give(peer->pool, received);
}

/* ---- Sending --------------------------------------------------------------------------------- */

static bool has_room(const dw_peer *peer)
{
    if (peer->retry_ms > 0 && !dw_retransmission_has_window(peer)) return false;
    dw_link_counters counters = {.struct_size = sizeof counters};
    dw_link_count(peer->link, &counters);
    return counters.unsent_bytes < DW_PEER_UNSENT_BYTES;
}

dw_status dw_peer_begin(dw_peer *peer, size_t body_cap, unsigned char **body)
{
    if (peer->is_closed) {
        dw_failure_set(peer->failure, DW_ERR_PEER, peer->rank,
                       "rank %u closed its group before an operation had finished", peer->rank);
        return DW_ERR_PEER;
    }
    peer->is_blocked = true;
    if (peer->lost != DW_OK) return DW_PENDING;
    void *room;
    dw_status status = DW_PENDING;
    if (has_room(peer))
        status = dw_link_send_begin(peer->link, tag_of(peer, DW_PEER_MESSAGES),
                                    DW_MESSAGE_BYTES + body_cap, &room);
    if (status == DW_OK) {
        *body = (unsigned char *)room + DW_MESSAGE_BYTES;
        peer->is_blocked = false;
        peer->refused_ns = 0;
    } else if (status == DW_PENDING && peer->refused_ns == 0) {
        peer->refused_ns = dw_now_ns();
    }
    if (status == DW_OK || status == DW_PENDING) return status;
    if (status == DW_ERR_LIMIT || status == DW_ERR_NO_MEMORY) {
        dw_failure_set(peer->failure, status, peer->settings->rank,
                       status == DW_ERR_LIMIT
                           ? "a message to rank %u is longer than max_message_bytes of its link; "
                             "raise that, or make pieces shorter"
                           : "no memory for a message to rank %u",
                       peer->rank);
        return status;
    }
    return DW_PENDING; /* the link has failed, which the next probe finds */
}

dw_status dw_peer_end(dw_peer *peer, unsigned char *body, dw_message *head, size_t body_len)
{
    unsigned char *message = body - DW_MESSAGE_BYTES;
    size_t len = DW_MESSAGE_BYTES + body_len;
    head->number = peer->next_number;
    head->body_len = body_len;
    dw_message_finalize(message, head, peer->session.seal_seed, peer->retry_ms > 0);
    if (peer->retry_ms > 0 && dw_retransmission_keep(peer, head->number, message, len) != DW_OK) {
        dw_peer_drop(peer, body);
        dw_failure_set(peer->failure, DW_ERR_NO_MEMORY, peer->settings->rank,
                       "no memory for the copy of a message to rank %u", peer->rank);
        return DW_ERR_NO_MEMORY;
    }
    peer->next_number++;
    peer->count->sent_bytes += len;
    /* An error is found by the next probe. */
    dw_link_send_end(peer->link, message, len);
    return DW_OK;
}

void dw_peer_drop(dw_peer *peer, unsigned char *body)
{
    dw_link_send_end(peer->link, body - DW_MESSAGE_BYTES, DW_LINK_DROP);
}

dw_status dw_peer_notify(dw_peer *peer, dw_message *head, const void *body, size_t body_len)
{
    void *room;
    if (peer->lost != DW_OK) return peer->lost;
    dw_status status = dw_link_send_begin(peer->link, tag_of(peer, DW_PEER_MESSAGES),
                                          DW_MESSAGE_BYTES + body_len, &room);
    if (status != DW_OK) return status;
    if (body_len > 0) memcpy((unsigned char *)room + DW_MESSAGE_BYTES, body, body_len);
    head->body_len = body_len;
    bool has_session = head->kind != DW_MESSAGE_HELLO && head->kind != DW_MESSAGE_REFUSE;
    dw_message_finalize(room, head, has_session ? peer->session.seal_seed : 0,
                        !has_session || peer->retry_ms > 0);
    peer->count->sent_bytes += DW_MESSAGE_BYTES + body_len;
    return dw_link_send_end(peer->link, room, DW_MESSAGE_BYTES + body_len);
}

void dw_peer_acknowledge(dw_peer *peer)
{
    if (!peer->owes_ack) return;
    dw_message ack = {.kind = DW_MESSAGE_ACK, .number = peer->expected};
    for (unsigned bit = 0; bit + 1 < DW_PEER_WINDOW; bit++) {
        if (peer->reorder[(peer->expected + 1 + bit) % DW_PEER_WINDOW])
            ack.slot |= UINT64_C(1) << bit;
    }
    if (dw_peer_notify(peer, &ack, NULL, 0) == DW_OK) peer->owes_ack = false;
}

/* ---- The end of a link ----------------------------------------------------------------------- */

void dw_peer_probe(dw_peer *peer, dw_received_list *left)
{
    if (!peer->link || peer->lost != DW_OK) return;
    void *data;
    size_t len;
    dw_status status = dw_link_recv(peer->link, tag_of(peer, DW_PEER_PROBE), 0, &data, &len);
    if (status == DW_OK) dw_link_release(peer->link, data); /* nobody sends this: ignored */
    if (status == DW_OK || status == DW_PENDING) return;
    peer->lost = status;
    uint32_t tag = tag_of(peer, DW_PEER_MESSAGES);
    dw_link_handle(peer->link, tag, NULL, NULL);
    peer->has_handler = false;
    while (dw_link_recv(peer->link, tag, 0, &data, &len) == DW_OK) {
        dw_received *received = dw_received_hold(peer->pool, peer->link, data, len);
        if (received) {
            received->from = peer->rank;
            dw_received_append(left, received);
        } else {
            dw_failure_set(peer->failure, DW_ERR_NO_MEMORY, peer->settings->rank,
                           "no memory for a message from rank %u", peer->rank);
        }
        dw_link_release(peer->link, data);
    }
}

void dw_peer_free(dw_peer *peer)
{
    for (unsigned i = 0; i < DW_PEER_WINDOW; i++) {
        dw_received_give(peer->pool, peer->reorder[i]);
        peer->reorder[i] = NULL;
    }
    dw_retransmission_let_go(peer);
}
