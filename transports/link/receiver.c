/* SPDX-License-Identifier: Apache-2.0
 * receiver.c - takes messages from the backend, and puts them into the inbox of their tag. */
#include <string.h>

#include "base/bytes.h"
#include "base/sentence.h"
#include "link/endpoint.h"

bool dw_receiver_create(dw_receiver *receiver)
{
    receiver->request = dw_mem_allocate_zeroed(receiver->backend->allocator, 1,
                                               receiver->backend->transport.request_bytes);
    return receiver->request != NULL;
}

static dw_status begin_recv(dw_receiver *receiver)
{
    const dw_transport *transport = &receiver->backend->transport;
    memset(receiver->request, 0, transport->request_bytes);
    return dw_backend_said(transport->recv(receiver->backend->endpoint, receiver->request,
                                           dw_buffer_wire(receiver->receiving),
                                           DW_LINK_HEADER_BYTES + receiver->receiving->cap));
}

dw_status dw_receiver_start(dw_receiver *receiver, size_t room_bytes)
{
    pthread_mutex_lock(receiver->io->lock);
    if (receiver->receiving) dw_buffer_drop(receiver->pool, receiver->receiving);
    receiver->receiving = dw_buffer_take(receiver->pool, room_bytes);
    pthread_mutex_unlock(receiver->io->lock);
    return receiver->receiving ? begin_recv(receiver) : DW_ERR_NO_MEMORY;
}

dw_status dw_receiver_test(dw_receiver *receiver, size_t *len, dw_why *why)
{
    const dw_transport *transport = &receiver->backend->transport;
    size_t room = DW_LINK_HEADER_BYTES + receiver->receiving->cap;
    dw_status status =
        dw_backend_said(transport->test(receiver->backend->endpoint, receiver->request, len, why));
    bool has_come = status == DW_OK && *len <= room,
         needs_more = status == DW_ERR_BUFFER_TOO_SMALL && *len > room;
    if (has_come || needs_more || (status != DW_OK && status != DW_ERR_BUFFER_TOO_SMALL))
        return status;
    return dw_say(why, DW_ERR_PROTOCOL, "the backend %s says that %zu bytes %s room for %zu",
                  transport->scheme, *len, status == DW_OK ? "have come to" : "do not fit into",
                  room);
}

void dw_receiver_drop(dw_receiver *receiver)
{
    dw_buffer_drop(receiver->pool, receiver->receiving);
    receiver->receiving = NULL;
}

void dw_receiver_begin(dw_receiver *receiver)
{
    receiver->whole_bytes = receiver->backend->state.wire_received;
}

void dw_receiver_expect(dw_receiver *receiver)
{
    receiver->found_nothing = false;
}

void dw_receiver_lose(dw_receiver *receiver)
{
    if (receiver->receiving) dw_buffer_lose(receiver->pool, receiver->receiving);
    receiver->receiving = NULL;
}

void dw_receiver_destroy(dw_receiver *receiver)
{
    dw_mem_release(receiver->backend->allocator, receiver->request,
                   receiver->backend->transport.request_bytes);
}

/* ---- Whether to receive ---------------------------------------------------------------------- */

/* Measures for how long callers have waited for a message that cannot arrive because unread
 * messages of other tags fill the memory. The lock is held. */
static void count_waiting(dw_receiver *receiver, bool is_full)
{
    const dw_inboxes *inboxes = receiver->inboxes;
    if (!is_full || receiver->full_taken != inboxes->taken)
        receiver->full_ns = receiver->full_looked_ns = 0;
    if (!is_full) return;
    int64_t now = dw_now_ns();
    if (receiver->full_looked_ns != 0) receiver->full_ns += now - receiver->full_looked_ns;
    receiver->full_looked_ns = inboxes->waiters > 0 ? now : 0;
    receiver->full_taken = inboxes->taken;
}

/* The lock is held. */
static bool may_receive(dw_receiver *receiver)
{
    const dw_inboxes *inboxes = receiver->inboxes;
    uint64_t bytes = inboxes->is_closed ? 0 : inboxes->bytes;
    bool is_full = bytes > receiver->settings->max_arrived_bytes;
    receiver->is_paused =
        is_full || (bytes > receiver->settings->max_queued_bytes && inboxes->waiters == 0);
    count_waiting(receiver, is_full && !receiver->has_goodbye);
    return !receiver->is_paused && !receiver->has_goodbye;
}

/* Starts to receive the next message. DW_PENDING: receiving is paused, or the peer has said
 * goodbye. */
static dw_status await_message(dw_receiver *receiver)
{
    pthread_mutex_lock(receiver->io->lock);
    bool may = may_receive(receiver);
    if (may) receiver->receiving = dw_buffer_take(receiver->pool, DW_LINK_ROOM_BYTES);
    pthread_mutex_unlock(receiver->io->lock);
    if (!may) return DW_PENDING;
    return receiver->receiving ? begin_recv(receiver) : DW_ERR_NO_MEMORY;
}

/* ---- Messages -------------------------------------------------------------------------------- */

/* A short message in a large buffer is copied to a buffer of its size, so that it does not occupy
 * the large one. The lock is held. */
static dw_buffer *fit(dw_receiver *receiver, dw_buffer *buffer)
{
    dw_buffer *own = buffer->len <= DW_BUFFER_SMALL_BYTES && buffer->cap >= DW_LINK_ROOM_BYTES
                         ? dw_buffer_take(receiver->pool, buffer->len)
                         : NULL;
    if (!own) return buffer;
    own->tag = buffer->tag;
    own->len = buffer->len;
    memcpy(dw_buffer_payload(own), dw_buffer_payload(buffer), buffer->len);
    dw_buffer_drop(receiver->pool, buffer);
    return own;
}

/* The lock is held. */
static dw_status put(dw_receiver *receiver, dw_buffer *buffer)
{
    dw_inboxes *inboxes = receiver->inboxes;
    dw_inbox *inbox = dw_inbox_arrive(inboxes, buffer->tag);
    if (inbox) {
        dw_inbox_put(inboxes, inbox, fit(receiver, buffer));
        if (inbox->is_due) dw_io_call_handlers(receiver->io);
        if (inbox->waiters > 0) pthread_cond_broadcast(&inboxes->arrived);
        return DW_OK;
    }
    dw_buffer_drop(receiver->pool, buffer);
    return inboxes->is_closed ? DW_OK : DW_ERR_NO_MEMORY;
}

static dw_status deliver(dw_receiver *receiver, size_t len, dw_why *why)
{
    dw_buffer *buffer = receiver->receiving;
    dw_transport_state state = dw_backend_state(receiver->backend);
    receiver->whole_bytes = state.wire_received;
    const unsigned char *wire = dw_buffer_wire(buffer);
    uint32_t kind = len < DW_LINK_HEADER_BYTES ? 0 : dw_get32(wire + 4);
    if (kind != DW_KIND_DATA && kind != DW_KIND_BYE) {
        return dw_say(why, DW_ERR_PROTOCOL,
                      "%s sent a message of %zu bytes that does not follow the link protocol",
                      receiver->settings->peer, len);
    }
    dw_status status = DW_OK;
    receiver->receiving = NULL;
    receiver->has_goodbye = kind == DW_KIND_BYE;
    pthread_mutex_lock(receiver->io->lock);
    if (kind == DW_KIND_DATA) {
        buffer->tag = dw_get32(wire);
        buffer->len = len - DW_LINK_HEADER_BYTES;
        dw_backend_count(receiver->backend, &state, false);
        status = put(receiver, buffer);
    } else {
        dw_buffer_drop(receiver->pool, buffer);
    }
    pthread_mutex_unlock(receiver->io->lock);
    return status;
}

/* Starts a receive, where none is in flight. DW_PENDING: none may begin, and the backend's own work
 * was done. */
static dw_status ensure_receive(dw_receiver *receiver, dw_why *why)
{
    const dw_transport *transport = &receiver->backend->transport;
    if (receiver->receiving) return DW_OK;
    dw_status status = await_message(receiver);
    if (status != DW_PENDING || !transport->turn) return status;
    status = dw_backend_said(transport->turn(receiver->backend->endpoint, why));
    return status == DW_OK ? DW_PENDING : status;
}

/* Tests the receive in flight. OK: a message of *len bytes was delivered. BUFFER_TOO_SMALL: it
 * needs so many.
 */
static dw_status receive_one(dw_receiver *receiver, size_t *len, dw_why *why)
{
    uint64_t most = receiver->settings->own_max_message_bytes;
    dw_status status = dw_receiver_test(receiver, len, why);
    bool has_come = status == DW_OK || status == DW_ERR_BUFFER_TOO_SMALL;
    if (has_come && *len > most + DW_LINK_HEADER_BYTES) {
        /* Checked even if the message fits into the buffer. */
        return dw_say(why, DW_ERR_PROTOCOL,
                      "%s announced a message of %zu bytes; at most %llu are allowed",
                      receiver->settings->peer, *len, (unsigned long long)most);
    }
    return status == DW_OK ? deliver(receiver, *len, why) : status;
}

int dw_receiver_pull(dw_receiver *receiver, dw_why *why, dw_status *status)
{
    int moved = 0;
    size_t bytes = 0;
    bool had_goodbye = receiver->has_goodbye;
    receiver->found_nothing = false;
    *status = DW_OK;
    while (*status == DW_OK && moved < DW_LINK_BATCH && bytes < DW_LINK_BATCH_BYTES &&
           receiver->has_goodbye == had_goodbye) {
        *status = ensure_receive(receiver, why);
        if (*status != DW_OK) {
            if (*status == DW_PENDING) *status = DW_OK;
            return moved;
        }
        size_t len = 0;
        *status = receive_one(receiver, &len, why);
        if (*status == DW_ERR_BUFFER_TOO_SMALL) {
            *status = dw_receiver_start(receiver, len - DW_LINK_HEADER_BYTES);
        } else if (*status == DW_OK) {
            moved++;
            bytes += len;
        }
    }
    receiver->found_nothing = *status == DW_PENDING;
    if (*status == DW_PENDING) *status = DW_OK;
    return moved;
}
