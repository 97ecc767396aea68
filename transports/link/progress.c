/* SPDX-License-Identifier: Apache-2.0
 * progress.c - the work of a link's thread, or of a caller that owns the I/O: it sends and
 * receives messages, runs handlers and checks timeouts. */
#include "link/link.h"

#include <stdio.h>
#include <string.h>

/* So many messages or bytes are moved in one direction before the other direction gets its turn. */
enum { BATCH = 64, BATCH_BYTES = 1 << 20 };

/* The operating system's counters are read at most this often, because reading them is a system
 * call. */
static const int64_t kernel_age_ns = 10 * DW_NS_PER_MS;

/* Ends the link. A backend that has failed must not be called again, not even to send a goodbye. */
static void fail(dw_link *link, dw_status status, const dw_why *why)
{
    pthread_mutex_lock(&link->lock);
    link->broken = true;
    dw_link_fail(link, status, why->text[0] ? why->text : dw_status_string(status));
    pthread_mutex_unlock(&link->lock);
}

/* ---- One message on its way ------------------------------------------------------------------ */

dw_status dw_link_start_send(dw_link *link, dw_buffer *buffer)
{
    unsigned char *wire = dw_buffer_wire(buffer);
    dw_put32(wire, buffer->tag);
    dw_put32(wire + 4, buffer->kind);
    link->sending = buffer;
    link->send_moved_ns = link->kept_moved_ns = dw_now_ns();
    memset(link->send_request, 0, link->transport.request_bytes);
    return link->transport.send(link->endpoint, link->send_request, wire,
                                DW_LINK_HEADER_BYTES + buffer->len);
}

static dw_status begin_recv(dw_link *link)
{
    memset(link->recv_request, 0, link->transport.request_bytes);
    return link->transport.recv(link->endpoint, link->recv_request, dw_buffer_wire(link->receiving),
                                DW_LINK_HEADER_BYTES + link->receiving->cap);
}

dw_status dw_link_start_recv(dw_link *link, size_t room_bytes)
{
    pthread_mutex_lock(&link->lock);
    if (link->receiving) dw_buffer_drop(&link->pool, link->receiving);
    link->receiving = dw_buffer_take(&link->pool, room_bytes);
    pthread_mutex_unlock(&link->lock);
    return link->receiving ? begin_recv(link) : DW_ERR_NO_MEMORY;
}

/* ---- Sending --------------------------------------------------------------------------------- */

/* Releases the messages whose bytes the backend does not need any more. The lock is held. */
static void settle(dw_link *link, uint64_t still_kept)
{
    if (link->kept <= still_kept) return;
    while (link->kept > still_kept) {
        dw_buffer *buffer = link->kept_head;
        link->kept_head = buffer->next;
        if (!link->kept_head) link->kept_tail = NULL;
        link->kept--;
        if (buffer->kind == DW_KIND_DATA)
            link->queued_bytes -= (uint64_t)buffer->len + DW_BUFFER_PREFIX_BYTES;
        dw_buffer_drop(&link->pool, buffer);
    }
    pthread_cond_broadcast(&link->drained);
}

/* Moves the message that was sent to the list of kept messages, where it stays until the backend
 * has no need of its bytes. The lock is held. */
static void keep(dw_link *link, const dw_transport_state *state)
{
    dw_buffer *sent = link->sending;
    link->sending = NULL;
    if (sent->kind != DW_KIND_HELLO) dw_link_has_left(link, sent);
    sent->next = NULL;
    if (link->kept_tail)
        link->kept_tail->next = sent;
    else
        link->kept_head = sent;
    link->kept_tail = sent;
    link->kept++;
    if (sent->kind == DW_KIND_BYE) {
        link->bye_sent = true;
    } else if (sent->kind == DW_KIND_DATA) {
        link->counters.messages_sent++;
        link->counters.bytes_sent = state->wire_sent;
    }
}

void dw_link_keep_sent(dw_link *link)
{
    dw_transport_state state = DW_NO_STATE;
    link->transport.poll(link->endpoint, 0, &state);
    pthread_mutex_lock(&link->lock);
    keep(link, &state);
    settle(link, state.kept_sends);
    pthread_mutex_unlock(&link->lock);
}

/* Keeps the message that was just sent, if there is one, and takes the next one from the queue. */
static dw_buffer *next_to_send(dw_link *link, bool one_has_left)
{
    dw_transport_state state = DW_NO_STATE;
    if (one_has_left) link->transport.poll(link->endpoint, 0, &state);
    pthread_mutex_lock(&link->lock);
    if (one_has_left) {
        keep(link, &state);
        settle(link, state.kept_sends);
    }
    dw_buffer *buffer = link->queue_head;
    if (buffer) {
        link->queue_head = buffer->next;
        if (!link->queue_head) link->queue_tail = NULL;
    }
    pthread_mutex_unlock(&link->lock);
    return buffer;
}

/* Passes queued messages to the backend; returns how many were sent. */
static int push(dw_link *link, dw_why *why, dw_status *status)
{
    int moved = 0;
    *status = DW_OK;
    if (!link->sending) {
        dw_buffer *buffer = next_to_send(link, false);
        if (!buffer) return 0;
        *status = dw_link_start_send(link, buffer);
    }
    while (*status == DW_OK && link->sending && moved < BATCH) {
        size_t len;
        *status = link->transport.test(link->endpoint, link->send_request, &len, why);
        if (*status != DW_OK) break;
        moved++;
        dw_buffer *buffer = next_to_send(link, true);
        if (buffer) *status = dw_link_start_send(link, buffer);
    }
    if (*status == DW_PENDING) *status = DW_OK;
    return moved;
}

/* ---- Receiving ------------------------------------------------------------------------------- */

/* Measures for how long callers have waited for a message that cannot arrive because unread
 * messages of other tags fill the memory. The lock is held. */
static void count_waiting(dw_link *link, bool is_full)
{
    if (!is_full || link->full_taken != link->inboxes.taken)
        link->full_ns = link->full_looked_ns = 0;
    if (!is_full) return;
    int64_t now = dw_now_ns();
    if (link->full_looked_ns != 0) link->full_ns += now - link->full_looked_ns;
    link->full_looked_ns = link->waiters > 0 ? now : 0;
    link->full_taken = link->inboxes.taken;
}

/* The lock is held. */
static bool may_receive(dw_link *link)
{
    uint64_t bytes = link->closing ? 0 : link->inboxes.bytes;
    bool is_full = bytes > link->max_arrived_bytes;
    link->receiving_paused = is_full || (bytes > link->max_queued_bytes && link->waiters == 0);
    count_waiting(link, is_full && !link->bye_received);
    return !link->receiving_paused && !link->bye_received;
}

/* Starts to receive the next message. DW_PENDING: receiving is paused, or the peer has said
 * goodbye. */
static dw_status await_message(dw_link *link)
{
    pthread_mutex_lock(&link->lock);
    bool may = may_receive(link);
    if (may) link->receiving = dw_buffer_take(&link->pool, DW_LINK_ROOM_BYTES);
    pthread_mutex_unlock(&link->lock);
    if (!may) return DW_PENDING;
    return link->receiving ? begin_recv(link) : DW_ERR_NO_MEMORY;
}

/* The goodbye is the peer's last message. All that it sent before has arrived, and it reads nothing
 * any more. */
static void take_goodbye(dw_link *link, dw_buffer *buffer)
{
    char sentence[160];
    dw_transport_state state = DW_NO_STATE;
    snprintf(sentence, sizeof sentence, "%s closed the link", link->peer);
    link->transport.poll(link->endpoint, 0, &state);
    pthread_mutex_lock(&link->lock);
    dw_buffer_drop(&link->pool, buffer);
    settle(link, state.kept_sends); /* what came before the goodbye was received */
    link->bye_received = true;
    if (!link->closing) {
        link->bye_deadline_ns = dw_now_ns() + (int64_t)link->close_timeout_ms * DW_NS_PER_MS;
        dw_link_fail(link, DW_ERR_PEER, sentence);
    }
    pthread_mutex_unlock(&link->lock);
}

/* A short message in a large buffer is copied to a buffer of its size, so that it does not occupy
 * the large one. The lock is held. */
static dw_buffer *fit(dw_link *link, dw_buffer *buffer)
{
    dw_buffer *own = buffer->len <= DW_BUFFER_SMALL_BYTES && buffer->cap >= DW_LINK_ROOM_BYTES
                         ? dw_buffer_take(&link->pool, buffer->len)
                         : NULL;
    if (!own) return buffer;
    own->tag = buffer->tag;
    own->len = buffer->len;
    memcpy(dw_buffer_payload(own), dw_buffer_payload(buffer), buffer->len);
    dw_buffer_drop(&link->pool, buffer);
    return own;
}

static dw_status deliver(dw_link *link, size_t len, dw_why *why)
{
    dw_buffer *buffer = link->receiving;
    dw_transport_state state = DW_NO_STATE;
    link->transport.poll(link->endpoint, 0, &state);
    link->recv_whole_bytes = state.wire_received;
    const unsigned char *wire = dw_buffer_wire(buffer);
    uint32_t kind = len < DW_LINK_HEADER_BYTES ? 0 : dw_get32(wire + 4);
    if (kind != DW_KIND_DATA && kind != DW_KIND_BYE) {
        return dw_say(why, DW_ERR_PROTOCOL,
                      "%s sent a message of %zu bytes that does not follow the link protocol",
                      link->peer, len);
    }
    if (kind == DW_KIND_BYE) {
        dw_status sent = link->sending
                             ? link->transport.test(link->endpoint, link->send_request, &len, why)
                             : DW_PENDING;
        if (sent == DW_OK) dw_link_keep_sent(link);
        if (sent != DW_OK && sent != DW_PENDING) return sent;
        link->receiving = NULL;
        take_goodbye(link, buffer);
        return DW_OK;
    }
    link->receiving = NULL;
    buffer->tag = dw_get32(wire);
    buffer->len = len - DW_LINK_HEADER_BYTES;
    dw_status status = DW_OK;
    pthread_mutex_lock(&link->lock);
    dw_inbox *inbox = link->closing ? NULL : dw_inbox_get(&link->inboxes, buffer->tag);
    link->counters.messages_received++;
    if (state.wire_received > link->counters.bytes_received)
        link->counters.bytes_received = state.wire_received;
    if (inbox) {
        dw_inbox_put(&link->inboxes, inbox, fit(link, buffer));
        if (inbox->is_due) dw_link_call_handlers(link);
        if (inbox->waiters > 0) pthread_cond_broadcast(&link->arrived);
    } else {
        if (!link->closing) status = DW_ERR_NO_MEMORY;
        dw_buffer_drop(&link->pool, buffer);
    }
    pthread_mutex_unlock(&link->lock);
    return status;
}

/* Receives what has arrived; returns the number of messages. */
static int pull(dw_link *link, dw_why *why, dw_status *status)
{
    int moved = 0;
    size_t bytes = 0;
    link->found_nothing = false;
    *status = DW_OK;
    while (*status == DW_OK && moved < BATCH && bytes < BATCH_BYTES) {
        if (!link->receiving) {
            dw_status begun = await_message(link);
            if (begun != DW_OK) {
                bool may_turn = begun == DW_PENDING && link->transport.turn;
                *status = may_turn              ? link->transport.turn(link->endpoint, why)
                          : begun == DW_PENDING ? DW_OK
                                                : begun;
                return moved;
            }
        }
        size_t len = 0;
        *status = link->transport.test(link->endpoint, link->recv_request, &len, why);
        bool has_come = *status == DW_OK || *status == DW_ERR_NO_ROOM;
        if (has_come && len > link->own_max_message_bytes + DW_LINK_HEADER_BYTES) {
            /* Checked even if the message fits into the buffer. */
            *status = dw_say(why, DW_ERR_PROTOCOL,
                             "%s announced a message of %zu bytes; at most %llu are allowed",
                             link->peer, len, (unsigned long long)link->own_max_message_bytes);
        } else if (*status == DW_ERR_NO_ROOM) {
            *status = dw_link_start_recv(link, len - DW_LINK_HEADER_BYTES);
        } else if (*status == DW_OK) {
            moved++;
            bytes += len;
            *status = deliver(link, len, why);
        }
    }
    link->found_nothing = *status == DW_PENDING;
    if (*status == DW_PENDING) *status = DW_OK;
    return moved;
}

/* Passes arrived messages to their handlers. The lock is released meanwhile, because a handler may
 * call the link. */
void dw_link_run_handlers(dw_link *link)
{
    pthread_mutex_lock(&link->lock);
    link->handlers_due = false;
    while (link->status != DW_ERR_CANCELLED && !link->is_abandoned) {
        dw_inbox *inbox = dw_inbox_next_due(&link->inboxes);
        if (!inbox) break;
        dw_link_handler handle = inbox->handle;
        void *context = inbox->handle_context;
        dw_buffer *buffer = dw_inbox_take(&link->inboxes, inbox);
        link->handling = true;
        link->handling_tag = inbox->tag;
        if (link->receiving_paused) dw_link_wake(link);
        pthread_mutex_unlock(&link->lock);
        handle(context, dw_buffer_payload(buffer), buffer->len);
        pthread_mutex_lock(&link->lock);
        link->handling = false;
        dw_buffer_drop(&link->pool, buffer);
        pthread_cond_broadcast(&link->handled);
    }
    pthread_mutex_unlock(&link->lock);
}

/* ---- The clock ------------------------------------------------------------------------------- */

/* How many nanoseconds are left until a lack of progress becomes an error; INT64_MAX: nothing of
 * this kind is under way. */
typedef struct patience {
    int64_t send; /* the message that is being sent */
    int64_t kept; /* messages that the peer has not acknowledged */
    int64_t recv; /* the rest of a message that has begun to arrive */
    int64_t full; /* a receive that waits while unread messages fill the memory */
} patience;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The time `left` nanoseconds after now; INT64_MAX: never. */
static int64_t after(int64_t now, int64_t left)
{
    return left > INT64_MAX - now ? INT64_MAX : now + left;
}

static void copy_counters(dw_link *link, const dw_transport_state *state, bool has_asked_kernel)
{
    link->counters.bytes_sent = state->wire_sent;
    if (state->wire_received > link->counters.bytes_received)
        link->counters.bytes_received = state->wire_received;
    link->counters.resent_bytes = state->resent_bytes;
    link->counters.reconnects = state->reconnects;
    if (!has_asked_kernel) return;
    link->counters.kernel_bytes_sent = state->kernel_sent;
    link->counters.kernel_bytes_received = state->kernel_received;
    link->counters.retransmits = state->retransmits;
    link->counters.rtt_ns = state->rtt_ns;
}

/* Ends the link if something has made no progress for too long. The lock is held. */
static void fail_where_it_stands_still(dw_link *link, const patience *left)
{
    char sentence[320] = "";
    dw_status status = DW_ERR_TIMEOUT;
    if (left->send <= 0) {
        snprintf(sentence, sizeof sentence,
                 "%s took no bytes for %u ms while a message was waiting to be sent", link->peer,
                 link->peer_timeout_ms);
    } else if (left->kept <= 0) {
        snprintf(
            sentence, sizeof sentence,
            "%s took none of the messages on their way to it for %u ms; is its process stopped, or "
            "does its program not receive?",
            link->peer, link->peer_timeout_ms);
    } else if (left->recv <= 0) {
        snprintf(sentence, sizeof sentence, "%s stopped in the middle of a message for %u ms",
                 link->peer, link->peer_timeout_ms);
    } else if (left->full <= 0 && link->full_taken == link->inboxes.taken) {
        status = DW_ERR_LIMIT;
        snprintf(
            sentence, sizeof sentence,
            "messages from %s that were not received fill %llu bytes of memory, so the message "
            "that a receive waits for cannot arrive; receive the messages of all tags that "
            "it sends, or raise max_queued_bytes (%llu)",
            link->peer, (unsigned long long)link->inboxes.bytes,
            (unsigned long long)link->max_queued_bytes);
    }
    if (sentence[0]) dw_link_fail(link, status, sentence);
}

void dw_link_poll_backend(dw_link *link, bool asks_kernel, int64_t now)
{
    link->state = DW_NO_STATE;
    link->next_check_ns = now;
    if (link->broken) return;
    link->transport.poll(link->endpoint, asks_kernel, &link->state);
    link->next_check_ns = after(now, link->state.wake_ns < 0 ? INT64_MAX : link->state.wake_ns);
}

/* Checks the timeouts by the counters of the backend: it is an error if a send, its
 * acknowledgement, or the rest of a message that has begun to arrive makes no progress for too
 * long. Between messages a peer may be silent for any time. */
void dw_link_check_timeouts(dw_link *link, int64_t now)
{
    int64_t limit = (int64_t)link->peer_timeout_ms * DW_NS_PER_MS;
    bool asks = link->kernel_stale && now - link->kernel_asked_ns >= kernel_age_ns;
    dw_link_poll_backend(link, asks, now);
    if (link->broken) return;
    dw_transport_state state = link->state;
    bool sent = state.wire_sent != link->send_moved_bytes,
         received = state.wire_received != link->recv_moved_bytes;
    /* No lock is needed: only the I/O owner changes `kept`. */
    bool settles = state.kept_sends < link->kept;
    link->has_settled = settles;
    /* A change of the kernel's counters counts as progress of the kept messages: the peer is alive,
     * although it may not have acknowledged a whole message yet. */
    bool stirs = asks && (state.kernel_sent != link->counters.kernel_bytes_sent ||
                          state.kernel_received != link->counters.kernel_bytes_received);
    if (sent) link->send_moved_ns = now;
    if (sent || settles || stirs) link->kept_moved_ns = now;
    if (received) link->recv_moved_ns = now;
    if (asks) {
        /* While the peer's kernel has not acknowledged all bytes, the counters change although we
         * send nothing, so they are read again. */
        link->kernel_asked_ns = now;
        link->kernel_stale = state.kernel_sent != 0 && state.kernel_sent < state.wire_sent;
    } else if (sent || received) {
        link->kernel_stale = true;
    }
    link->send_moved_bytes = state.wire_sent;
    link->recv_moved_bytes = state.wire_received;

    bool owes = link->receiving && state.wire_received != link->recv_whole_bytes;
    /* If unread messages fill the memory, half the timeout applies. The peer does not know why its
     * sends are blocked, so we must report the reason before its own timeout ends the link. */
    patience left = {.send = link->sending ? link->send_moved_ns + limit - now : INT64_MAX,
                     .kept = state.kept_sends > 0 ? link->kept_moved_ns + limit - now : INT64_MAX,
                     .recv = owes ? link->recv_moved_ns + limit - now : INT64_MAX,
                     .full = link->full_looked_ns != 0
                                 ? link->full_looked_ns + limit / 2 - link->full_ns - now
                                 : INT64_MAX};
    int64_t until = least(least(left.send, left.full), least(left.kept, left.recv));
    int64_t until_kernel =
        link->kernel_stale ? link->kernel_asked_ns + kernel_age_ns - now : INT64_MAX;
    if (until <= 0 || asks || sent || received || settles) {
        pthread_mutex_lock(&link->lock);
        settle(link, state.kept_sends);
        copy_counters(link, &state, asks);
        if (link->status != DW_OK)
            until = INT64_MAX; /* the link has failed already; the goodbye has its own deadline */
        else
            fail_where_it_stands_still(link, &left);
        pthread_mutex_unlock(&link->lock);
    }
    link->next_check_ns = least(link->next_check_ns, after(now, least(until, until_kernel)));
}

/* ---- Parting --------------------------------------------------------------------------------- */

static void drop_queue(dw_link *link)
{
    while (link->queue_head) {
        dw_buffer *buffer = link->queue_head;
        link->queue_head = buffer->next;
        dw_link_has_left(link, buffer);
        if (buffer->kind == DW_KIND_DATA)
            link->queued_bytes -= (uint64_t)buffer->len + DW_BUFFER_PREFIX_BYTES;
        dw_buffer_drop(&link->pool, buffer);
    }
    link->queue_tail = NULL;
}

/* Each end sends a goodbye and waits for the other's before it closes the connection. So no byte is
 * unread when the connection is closed; otherwise a TCP reset could destroy bytes that the other
 * end has not read yet. */
bool dw_link_exchange_goodbyes(dw_link *link, int64_t *until_ns)
{
    bool go_on = true;
    pthread_mutex_lock(&link->lock);
    if (link->status == DW_ERR_CANCELLED || (link->status != DW_OK && !link->bye_received)) {
        go_on = false;
    } else if (link->closing || link->bye_received) {
        /* The peer would not read what is queued. */
        if (link->bye_received && !link->bye_queued) drop_queue(link);
        if (!link->queue_head && !link->sending && !link->bye_queued) {
            dw_buffer *bye = dw_buffer_take(&link->pool, 0);
            if (bye) {
                bye->kind = DW_KIND_BYE;
                dw_link_append(link, bye);
                dw_link_wake(link);
            } else {
                go_on = false;
            }
            link->bye_queued = true;
        }
        bool is_late = dw_now_ns() >= link->bye_deadline_ns;
        /* While the backend keeps the goodbye, it may have to send it again. */
        if (is_late || (link->bye_sent && link->bye_received && link->kept == 0)) go_on = false;
        *until_ns = least(*until_ns, link->bye_deadline_ns);
    }
    pthread_mutex_unlock(&link->lock);
    return go_on;
}

/* ---- Both directions ------------------------------------------------------------------------- */

int dw_link_send_queued(dw_link *link)
{
    dw_why why = {.text = "", .offset = -1};
    dw_status status;
    int moved = push(link, &why, &status);
    if (status != DW_OK) fail(link, status, &why);
    return moved;
}

int dw_link_step(dw_link *link)
{
    dw_why why = {.text = "", .offset = -1}, pull_why = {.text = "", .offset = -1};
    dw_status pushed, pulled;
    int moved = push(link, &why, &pushed), vain = 0;
    /* If sending fails, receive what has arrived: a goodbye may tell the reason, and the last
     * messages must not be lost. A test may find nothing once without having looked, so the loop
     * ends only after two tries that found nothing. */
    do {
        int taken = pull(link, &pull_why, &pulled);
        moved += taken;
        vain = taken > 0 ? 0 : vain + 1;
    } while (pushed != DW_OK && pulled == DW_OK && vain < 2);
    if (pulled != DW_OK)
        fail(link, pulled, &pull_why);
    else if (pushed != DW_OK)
        fail(link, pushed, &why);
    return moved;
}
