/* SPDX-License-Identifier: Apache-2.0
 * calls.c - the public calls of a link: queue a message, take one, wait. */
#include "link/link.h"

#include <stdio.h>
#include <string.h>

static int64_t deadline_of(int timeout_ms)
{
    return timeout_ms < 0 ? INT64_MAX : dw_now_ns() + (int64_t)timeout_ms * DW_NS_PER_MS;
}

/* Waits with the lock held; returns false once the deadline has passed. */
static bool wait_until(dw_link *link, pthread_cond_t *what, int64_t deadline_ns)
{
    if (deadline_ns == INT64_MAX) {
        pthread_cond_wait(what, &link->lock);
        return true;
    }
    if (dw_now_ns() >= deadline_ns) return false;
    struct timespec at = {.tv_sec = (time_t)(deadline_ns / 1000000000),
                          .tv_nsec = (long)(deadline_ns % 1000000000)};
    pthread_cond_timedwait(what, &link->lock, &at);
    return true;
}

/* Every call that may release the lock before it ends runs between begin_call and end_call. If the
 * link is closed in the meantime, dw_link_close waits until all such calls have ended. */
static void begin_call(dw_link *link)
{
    pthread_mutex_lock(&link->lock);
    dw_lifetime_begin_call(&link->lifetime);
}

static void end_call(dw_link *link)
{
    dw_lifetime_end_call(&link->lifetime);
    pthread_mutex_unlock(&link->lock);
}

/* After fork(), the child must not use a link of its parent. A thread that exists only in the
 * parent may hold the lock, and bytes that the child wrote would reach the parent's peer. */
static bool is_usable(const dw_link *link)
{
    return link && dw_fork_guard_is_ours(&link->fork_guard);
}

/* A caller passes a message to the backend itself only up to this length, which fits at once into
 * the socket buffers of any system. Longer messages are left to the thread. */
enum { SEND_NOW_BYTES = 16384 };

void dw_link_cancel(dw_link *link)
{
    DW_UNCANCELLED;
    if (!is_usable(link)) return;
    char sentence[160];
    snprintf(sentence, sizeof sentence, "the link to %s was cancelled here", link->settings.peer);
    pthread_mutex_lock(&link->lock);
    dw_link_fail(link, DW_ERR_CANCELLED, sentence);
    dw_link_failure_cancel(&link->failure);
    pthread_mutex_unlock(&link->lock);
}

void dw_link_abort(dw_link *link, dw_status status, const char *sentence)
{
    pthread_mutex_lock(&link->lock);
    dw_link_fail(link, status, sentence);
    pthread_mutex_unlock(&link->lock);
}

/* The caller takes over the I/O and does the thread's work while it waits. receives: it waits for a
 * message; then the link goes on reading even if messages of other tags have filled
 * max_queued_bytes. */
static void drive(dw_link *link, bool (*has_ended)(const dw_link *link, uint64_t what),
                  uint64_t what, int64_t deadline_ns, bool receives)
{
    if (receives) dw_inbox_begin_wait(&link->inboxes, NULL);
    dw_link_drive(link, has_ended, what, deadline_ns);
    if (receives) dw_inbox_end_wait(&link->inboxes, NULL);
    if (link->inboxes.waiters > 0) dw_io_wake(&link->io); /* other callers still wait */
}

/* ---- Sending --------------------------------------------------------------------------------- */

static bool has_room(const dw_link *link, uint64_t cap)
{
    return dw_send_queue_has_room(&link->queue, (size_t)cap);
}

/* Answers are queued even when the queue is full. A peer that keeps sending requests and reads no
 * answers must not fill our memory, so there is a limit here, too. The lock is held. */
static void bound_answers(dw_link *link)
{
    char sentence[256];
    if (!dw_send_queue_exceeds_answers(&link->queue, link->settings.max_message_bytes)) return;
    snprintf(sentence, sizeof sentence,
             "%s keeps sending requests but does not read the answers: %llu bytes are queued for "
             "it; raise max_queued_bytes if it is only slow",
             link->settings.peer, (unsigned long long)link->queue.bytes);
    dw_link_fail(link, DW_ERR_PROTOCOL, sentence);
}

static dw_status send_begin(dw_link *link, uint32_t tag, size_t cap, bool always, void **room)
{
    if (!is_usable(link) || !room) return DW_ERR_ARGUMENT;
    if (cap > link->settings.max_message_bytes) return DW_ERR_LIMIT;
    pthread_mutex_lock(&link->lock);
    if (always) bound_answers(link);
    dw_status status = link->failure.status;
    if (status == DW_OK && link->lifetime.is_closing) status = DW_ERR_ARGUMENT;
    if (status == DW_OK && !always && !has_room(link, cap)) status = DW_PENDING;
    if (status == DW_OK) {
        dw_buffer *buffer = dw_send_queue_reserve(&link->queue, tag, cap);
        if (buffer)
            *room = dw_buffer_payload(buffer);
        else
            status = DW_ERR_NO_MEMORY;
    }
    pthread_mutex_unlock(&link->lock);
    return status;
}

dw_status dw_link_send_begin(dw_link *link, uint32_t tag, size_t cap, void **room)
{
    DW_UNCANCELLED;
    return send_begin(link, tag, cap, false, room);
}

dw_status dw_link_send_begin_always(dw_link *link, uint32_t tag, size_t cap, void **room)
{
    return send_begin(link, tag, cap, true, room);
}

dw_status dw_link_send_end(dw_link *link, void *room, size_t len)
{
    DW_UNCANCELLED;
    if (!is_usable(link) || !room) return DW_ERR_ARGUMENT;
    dw_buffer *buffer = dw_buffer_of(room);
    if (len != DW_LINK_DROP && len > buffer->len) return DW_ERR_ARGUMENT;
    begin_call(link);
    dw_status status = link->failure.status;
    if (len == DW_LINK_DROP || status != DW_OK) {
        dw_send_queue_unreserve(&link->queue, buffer);
    } else {
        dw_send_queue_commit(&link->queue, buffer, len);
        if (link->queue.unsent == 1 && len <= SEND_NOW_BYTES && dw_link_may_take_io(link))
            dw_link_send_now(link);
        else
            dw_io_wake(&link->io);
    }
    end_call(link);
    return len == DW_LINK_DROP ? DW_OK : status;
}

dw_status dw_link_send(dw_link *link, uint32_t tag, const void *data, size_t len)
{
    DW_UNCANCELLED;
    if (!data && len > 0) return DW_ERR_ARGUMENT;
    void *room;
    dw_status status = send_begin(link, tag, len, false, &room);
    if (status != DW_OK) return status;
    if (len > 0) memcpy(room, data, len);
    return dw_link_send_end(link, room, len);
}

static bool is_drained(const dw_link *link, uint64_t unused)
{
    (void)unused;
    return dw_send_queue_is_drained(&link->queue);
}

/* Waits until has_ended returns true, the link has failed, or the time is over. */
static dw_status wait_for_sends(dw_link *link,
                                bool (*has_ended)(const dw_link *link, uint64_t what),
                                uint64_t what, int timeout_ms)
{
    int64_t begun = dw_now_ns(), deadline = deadline_of(timeout_ms);
    begin_call(link);
    bool in_time = true;
    while (link->failure.status == DW_OK && !has_ended(link, what) && in_time) {
        if (dw_link_may_take_io(link)) {
            drive(link, has_ended, what, deadline, false);
            in_time = deadline == INT64_MAX || dw_now_ns() < deadline;
        } else {
            in_time = wait_until(link, &link->queue.drained, deadline);
        }
    }
    dw_status status = link->failure.status;
    if (status == DW_OK && !has_ended(link, what)) status = DW_PENDING;
    link->waits.send_ns += (uint64_t)(dw_now_ns() - begun);
    end_call(link);
    return status;
}

dw_status dw_link_wait_room(dw_link *link, size_t cap, int timeout_ms)
{
    DW_UNCANCELLED;
    if (!is_usable(link)) return DW_ERR_ARGUMENT;
    if (cap > link->settings.max_message_bytes) return DW_ERR_LIMIT;
    return wait_for_sends(link, has_room, cap, timeout_ms);
}

dw_status dw_link_flush(dw_link *link, int timeout_ms)
{
    DW_UNCANCELLED;
    if (!is_usable(link)) return DW_ERR_ARGUMENT;
    dw_status status = wait_for_sends(link, is_drained, 0, timeout_ms);
    /* Whoever has received the last message may leave before this end has noticed it. */
    return status == DW_ERR_PEER && link->failure.has_sent_all ? DW_OK : status;
}

/* ---- Receiving ------------------------------------------------------------------------------- */

/* Sleeps until something arrives. When the limit for arrived messages is reached, the thread goes
 * on reading only while a caller waits for a message that has not come. Otherwise unread messages
 * of one tag could block those of another. */
static dw_status wait_for_message(dw_link *link, uint32_t tag, int64_t deadline_ns, bool *in_time)
{
    dw_inbox *inbox = dw_inbox_get(&link->inboxes, tag);
    if (!inbox) return DW_ERR_NO_MEMORY;
    dw_inbox_begin_wait(&link->inboxes, inbox);
    if (link->receiver.is_paused) dw_io_wake(&link->io);
    int64_t begun = dw_now_ns();
    *in_time = wait_until(link, &link->inboxes.arrived, deadline_ns);
    link->waits.recv_ns += (uint64_t)(dw_now_ns() - begun);
    dw_inbox_end_wait(&link->inboxes, inbox);
    return DW_OK;
}

/* Whether to stop waiting: a message is there, or a handler was set, which makes receiving this tag
 * an error. */
static bool has_message(const dw_link *link, uint64_t tag)
{
    const dw_inbox *inbox = dw_inbox_find(&link->inboxes, (uint32_t)tag);
    return inbox && (inbox->head || inbox->handle);
}

dw_status dw_link_recv(dw_link *link, uint32_t tag, int timeout_ms, void **data, size_t *len)
{
    DW_UNCANCELLED;
    if (!is_usable(link) || !data || !len) return DW_ERR_ARGUMENT;
    int64_t deadline = deadline_of(timeout_ms);
    dw_status status = DW_PENDING;
    bool in_time = true;
    begin_call(link);
    while (status == DW_PENDING) {
        dw_inbox *inbox = dw_inbox_find(&link->inboxes, tag);
        /* Messages that arrived before the link failed can still be received if the peer left,
         * memory ran out, or unread messages filled their limit. */
        bool may_take = link->failure.status == DW_OK || link->failure.status == DW_ERR_PEER ||
                        link->failure.status == DW_ERR_NO_MEMORY ||
                        link->failure.status == DW_ERR_LIMIT;
        if (inbox && inbox->handle) {
            status = DW_ERR_ARGUMENT;
        } else if (inbox && inbox->head && may_take) {
            dw_buffer *buffer = dw_inbox_take(&link->inboxes, inbox);
            *data = dw_buffer_payload(buffer);
            *len = buffer->len;
            if (link->receiver.is_paused) dw_io_wake(&link->io);
            status = DW_OK;
        } else if (link->failure.status != DW_OK) {
            status = link->failure.status;
        } else if (timeout_ms == 0 || !in_time) {
            break;
        } else if (dw_link_may_take_io(link)) {
            int64_t begun = dw_now_ns();
            drive(link, has_message, tag, deadline, true);
            link->waits.recv_ns += (uint64_t)(dw_now_ns() - begun);
            in_time = deadline == INT64_MAX || dw_now_ns() < deadline;
        } else {
            dw_status waited = wait_for_message(link, tag, deadline, &in_time);
            if (waited != DW_OK) status = waited;
        }
    }
    dw_inbox *inbox = dw_inbox_find(&link->inboxes, tag);
    if (inbox) dw_inbox_tidy(&link->inboxes, inbox);
    end_call(link);
    return status;
}

void dw_link_release(dw_link *link, void *data)
{
    DW_UNCANCELLED;
    if (!is_usable(link) || !data) return;
    pthread_mutex_lock(&link->lock);
    dw_buffer_drop(&link->pool, dw_buffer_of(data));
    pthread_mutex_unlock(&link->lock);
}

void *dw_link_retain(dw_link *link, const void *data)
{
    void *message = (void *)(uintptr_t)data; /* handlers get pointers to const */
    if (!is_usable(link) || !data) return NULL;
    pthread_mutex_lock(&link->lock);
    dw_buffer_of(message)->refs++;
    pthread_mutex_unlock(&link->lock);
    return message;
}

dw_status dw_link_handle(dw_link *link, uint32_t tag, dw_link_handler handle, void *context)
{
    DW_UNCANCELLED;
    if (!is_usable(link)) return DW_ERR_ARGUMENT;
    begin_call(link);
    /* A handler can be removed even from a link that has failed. */
    dw_status status = handle ? link->failure.status : DW_OK;
    dw_inbox *inbox = NULL;
    if (status == DW_OK && handle) {
        inbox = dw_inbox_get(&link->inboxes, tag);
        if (!inbox)
            status = DW_ERR_NO_MEMORY;
        else if (inbox->waiters > 0)
            status = DW_ERR_ARGUMENT;
    } else if (!handle) {
        inbox = dw_inbox_find(&link->inboxes, tag);
    }
    if (status == DW_OK && inbox) {
        dw_inbox_set_handler(&link->inboxes, inbox, handle, context);
        if (inbox->is_due) dw_io_call_handlers(&link->io);
        if (inbox == link->inboxes.claimed) dw_io_wake(&link->io);
    }
    while (!handle && dw_handlers_run_elsewhere(&link->handlers, tag))
        pthread_cond_wait(&link->handlers.handled, &link->lock);
    inbox = dw_inbox_find(&link->inboxes, tag);
    if (inbox) dw_inbox_tidy(&link->inboxes, inbox);
    end_call(link);
    return status;
}

/* ---- Looking --------------------------------------------------------------------------------- */

dw_status dw_link_count(dw_link *link, dw_link_counters *counters)
{
    DW_UNCANCELLED;
    dw_link_counters now = {0};
    if (!counters) return DW_ERR_ARGUMENT;
    if (is_usable(link)) {
        pthread_mutex_lock(&link->lock);
        now = link->backend.counters;
        now.messages_sent = link->queue.messages_sent;
        now.messages_received = link->inboxes.messages_received;
        now.queued_bytes = link->queue.bytes;
        now.recv_wait_ns = link->waits.recv_ns;
        now.send_wait_ns = link->waits.send_ns;
        now.queue_ns = link->queue.queue_ns;
        now.retry_ms = link->settings.retry_ms;
        now.unsent_bytes = link->queue.unsent_bytes;
        pthread_mutex_unlock(&link->lock);
    }
    dw_status given = dw_give_told(counters, &now, sizeof now, "dw_link_counters", NULL);
    return is_usable(link) ? given : DW_ERR_ARGUMENT;
}

const char *dw_link_peer_name(dw_link *link)
{
    return link ? link->settings.peer_name : "";
}

const char *dw_link_why(dw_link *link)
{
    if (!link) return "";
    if (!is_usable(link))
        return "this link belongs to the process that opened it; a forked child must open a link "
               "of its own";
    pthread_mutex_lock(&link->lock);
    const char *text = link->failure.status == DW_OK ? "" : link->failure.why.text;
    pthread_mutex_unlock(&link->lock);
    return text;
}
