/* SPDX-License-Identifier: Apache-2.0
 * sender.c - passes queued messages to the backend, one at a time. */
#include <string.h>

#include "base/bytes.h"
#include "link/endpoint.h"

bool dw_sender_create(dw_sender *sender, dw_link_backend *backend, dw_send_queue *queue,
                      pthread_mutex_t *lock)
{
    *sender = (dw_sender){.backend = backend, .queue = queue, .lock = lock};
    sender->request =
        dw_mem_allocate_zeroed(backend->allocator, 1, backend->transport.request_bytes);
    return sender->request != NULL;
}

dw_status dw_sender_start(dw_sender *sender, dw_buffer *buffer)
{
    const dw_transport *transport = &sender->backend->transport;
    unsigned char *wire = dw_buffer_wire(buffer);
    dw_put32(wire, buffer->tag);
    dw_put32(wire + 4, buffer->kind);
    sender->sending = buffer;
    sender->started_ns = dw_now_ns();
    memset(sender->request, 0, transport->request_bytes);
    dw_status status = dw_backend_said(transport->send(sender->backend->endpoint, sender->request,
                                                       wire, DW_LINK_HEADER_BYTES + buffer->len));
    sender->has_failed = status < 0;
    return status;
}

/* Keeps the message that was just sent. The lock is held. */
static void keep(dw_sender *sender, const dw_transport_state *state)
{
    dw_buffer *sent = sender->sending;
    sender->sending = NULL;
    if (sent->kind == DW_KIND_DATA) dw_backend_count(sender->backend, state, false);
    dw_send_queue_keep(sender->queue, sent);
    dw_send_queue_release(sender->queue, state->kept_sends);
}

void dw_sender_keep(dw_sender *sender)
{
    dw_transport_state state = dw_backend_state(sender->backend);
    pthread_mutex_lock(sender->lock);
    keep(sender, &state);
    pthread_mutex_unlock(sender->lock);
}

static dw_status test(dw_sender *sender, dw_why *why)
{
    size_t len;
    dw_status status = dw_backend_said(
        sender->backend->transport.test(sender->backend->endpoint, sender->request, &len, why));
    sender->has_failed = status < 0;
    return status;
}

dw_status dw_sender_test(dw_sender *sender, dw_why *why)
{
    if (!sender->sending || sender->has_failed) return DW_PENDING;
    dw_status status = test(sender, why);
    if (status == DW_OK) dw_sender_keep(sender);
    return status;
}

/* Keeps the message that was just sent, if there is one, and takes the next one from the queue. */
static dw_buffer *next_to_send(dw_sender *sender)
{
    dw_transport_state state;
    bool one_has_left = sender->sending != NULL;
    if (one_has_left) state = dw_backend_state(sender->backend);
    pthread_mutex_lock(sender->lock);
    if (one_has_left) keep(sender, &state);
    dw_buffer *buffer = dw_send_queue_next(sender->queue);
    pthread_mutex_unlock(sender->lock);
    return buffer;
}

int dw_sender_push(dw_sender *sender, dw_why *why, dw_status *status)
{
    int moved = 0;
    *status = DW_OK;
    if (!sender->sending) {
        dw_buffer *buffer = next_to_send(sender);
        if (!buffer) return 0;
        *status = dw_sender_start(sender, buffer);
    }
    while (*status == DW_OK && sender->sending && moved < DW_LINK_BATCH) {
        *status = test(sender, why);
        if (*status != DW_OK) break;
        moved++;
        dw_buffer *buffer = next_to_send(sender);
        if (buffer) *status = dw_sender_start(sender, buffer);
    }
    if (*status == DW_PENDING) *status = DW_OK;
    return moved;
}

void dw_sender_lose(dw_sender *sender)
{
    if (sender->sending) dw_buffer_lose(sender->queue->pool, sender->sending);
    sender->sending = NULL;
}

void dw_sender_destroy(dw_sender *sender)
{
    dw_mem_release(sender->backend->allocator, sender->request,
                   sender->backend->transport.request_bytes);
}
