/* SPDX-License-Identifier: Apache-2.0
 * timeouts.c - checks by the backend's counters whether what is under way makes progress. It is an
 * error if a send, its acknowledgement, or the rest of a message that has begun to arrive makes
 * none for too long. Between messages a peer may be silent for any time. */
#include "base/sentence.h"
#include "link/endpoint.h"

/* The operating system's counters are read at most this often, because reading them is a system
 * call. */
static const int64_t kernel_age_ns = 10 * DW_NS_PER_MS;

/* How many nanoseconds are left until a lack of progress becomes an error; INT64_MAX: nothing of
 * this kind is under way. */
typedef struct time_left {
    int64_t send; /* the message that is being sent */
    int64_t kept; /* messages that the peer has not acknowledged */
    int64_t recv; /* the rest of a message that has begun to arrive */
    int64_t full; /* a receive that waits while unread messages fill the memory */
} time_left;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t latest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

void dw_timeouts_begin(dw_timeouts *timeouts, int64_t now_ns)
{
    dw_link_backend *backend = timeouts->backend;
    dw_backend_poll(backend, false, now_ns);
    dw_backend_count(backend, &backend->state, false);
    timeouts->sent_bytes = backend->state.wire_sent;
    timeouts->received_bytes = backend->state.wire_received;
    timeouts->next_ns = backend->wake_ns;
}

/* Notes what has moved since the last check. asks: the operating system was asked, too. Returns
 * whether anything has, or was released. */
static bool note_progress(dw_timeouts *timeouts, bool asks, int64_t now)
{
    const dw_transport_state *state = &timeouts->backend->state;
    const dw_link_counters *counters = &timeouts->backend->counters;
    bool sent = state->wire_sent != timeouts->sent_bytes,
         received = state->wire_received != timeouts->received_bytes;
    /* No lock is needed: only the I/O owner changes `kept`. */
    timeouts->has_released = state->kept_sends < timeouts->sender->queue->kept;
    /* A change of the kernel's counters counts as progress of the kept messages: the peer is alive,
     * although it may not have acknowledged a whole message yet. */
    bool stirs = asks && (state->kernel_sent != counters->kernel_bytes_sent ||
                          state->kernel_received != counters->kernel_bytes_received);
    if (sent) timeouts->sent_ns = now;
    if (sent || timeouts->has_released || stirs) timeouts->kept_ns = now;
    if (received) timeouts->received_ns = now;
    if (asks) {
        /* While the peer's kernel has not acknowledged all bytes, the counters change although we
         * send nothing, so they are read again. */
        timeouts->kernel_asked_ns = now;
        timeouts->kernel_stale = state->kernel_sent != 0 && state->kernel_sent < state->wire_sent;
    } else if (sent || received) {
        timeouts->kernel_stale = true;
    }
    timeouts->sent_bytes = state->wire_sent;
    timeouts->received_bytes = state->wire_received;
    return sent || received || timeouts->has_released;
}

/* If unread messages fill the memory, half the timeout applies. The peer does not know why its
 * sends are blocked, so we must report the reason before its own timeout ends the link. */
static time_left measure(const dw_timeouts *timeouts, int64_t now)
{
    const dw_sender *sender = timeouts->sender;
    const dw_receiver *receiver = timeouts->receiver;
    const dw_transport_state *state = &timeouts->backend->state;
    int64_t limit = (int64_t)receiver->settings->peer_timeout_ms * DW_NS_PER_MS;
    bool owes = receiver->receiving && state->wire_received != receiver->whole_bytes;
    time_left left = {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX};
    if (sender->sending) left.send = latest(timeouts->sent_ns, sender->started_ns) + limit - now;
    if (state->kept_sends > 0)
        left.kept = latest(timeouts->kept_ns, sender->started_ns) + limit - now;
    if (owes) left.recv = timeouts->received_ns + limit - now;
    if (receiver->full_looked_ns != 0)
        left.full = receiver->full_looked_ns + limit / 2 - receiver->full_ns - now;
    return left;
}

/* The lock is held. */
static dw_status explain(const dw_receiver *receiver, const time_left *left, dw_why *why)
{
    const dw_link_settings *settings = receiver->settings;
    const dw_inboxes *inboxes = receiver->inboxes;
    if (left->send <= 0)
        return dw_say(why, DW_ERR_TIMEOUT,
                      "%s took no bytes for %u ms while a message was waiting to be sent",
                      settings->peer, settings->peer_timeout_ms);
    if (left->kept <= 0)
        return dw_say(why, DW_ERR_TIMEOUT,
                      "%s took none of the messages on their way to it for %u ms; is its process "
                      "stopped, or does its program not receive?",
                      settings->peer, settings->peer_timeout_ms);
    if (left->recv <= 0)
        return dw_say(why, DW_ERR_TIMEOUT, "%s stopped in the middle of a message for %u ms",
                      settings->peer, settings->peer_timeout_ms);
    if (left->full <= 0 && receiver->full_taken == inboxes->taken)
        return dw_say(why, DW_ERR_LIMIT,
                      "messages from %s that were not received fill %llu bytes of memory, so the "
                      "message that a receive waits for cannot arrive; receive the messages of all "
                      "tags that it sends, or raise max_queued_bytes (%llu)",
                      settings->peer, (unsigned long long)inboxes->bytes,
                      (unsigned long long)settings->max_queued_bytes);
    return DW_OK;
}

dw_status dw_timeouts_check(dw_timeouts *timeouts, int64_t now, dw_why *why)
{
    dw_link_backend *backend = timeouts->backend;
    dw_status status = DW_OK;
    bool asks = timeouts->kernel_stale && now - timeouts->kernel_asked_ns >= kernel_age_ns;
    timeouts->has_released = false;
    dw_backend_poll(backend, asks, now);
    timeouts->next_ns = backend->wake_ns;
    if (backend->is_broken) return DW_OK;
    bool has_moved = note_progress(timeouts, asks, now);
    time_left left = measure(timeouts, now);
    int64_t until = least(least(left.send, left.full), least(left.kept, left.recv));
    if (until <= 0 || asks || has_moved) {
        pthread_mutex_lock(timeouts->sender->lock);
        dw_send_queue_release(timeouts->sender->queue, backend->state.kept_sends);
        dw_backend_count(backend, &backend->state, asks);
        if (timeouts->failure->status != DW_OK)
            until = INT64_MAX; /* the link has failed already; the goodbye has its own deadline */
        else
            status = explain(timeouts->receiver, &left, why);
        pthread_mutex_unlock(timeouts->sender->lock);
    }
    int64_t until_kernel =
        timeouts->kernel_stale ? timeouts->kernel_asked_ns + kernel_age_ns - now : INT64_MAX;
    until = least(until, until_kernel);
    timeouts->next_ns = least(timeouts->next_ns, until > INT64_MAX - now ? INT64_MAX : now + until);
    return status;
}
