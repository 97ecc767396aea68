/* SPDX-License-Identifier: Apache-2.0
 * calls.c - the public calls of a link: queue a message, take one, wait. */
#include "link/link.h"

#include <stdio.h>
#include <string.h>

/* What a message counts against max_queued_bytes. An empty message needs memory, too. */
static uint64_t cost(size_t len)
{
    return (uint64_t)len + DW_BUFFER_PREFIX_BYTES;
}

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
    link->callers++;
}

static void end_call(dw_link *link)
{
    if (--link->callers == 0 && link->closing) pthread_cond_broadcast(&link->handled);
    pthread_mutex_unlock(&link->lock);
}

/* After fork(), the child must not use a link of its parent. A thread that exists only in the
 * parent may hold the lock, and bytes that the child wrote would reach the parent's peer. */
static bool is_usable(const dw_link *link)
{
    return link && dw_owner_is_us(&link->owner);
}

/* A caller passes a message to the backend itself only up to this length, which fits at once into
 * the socket buffers of any system. Longer messages are left to the thread. */
enum { PUSH_NOW_BYTES = 16384 };

static void enqueue(dw_link *link, dw_buffer *buffer)
{
    dw_link_append(link, buffer);
    if (link->unsent == 1 && buffer->kind == DW_KIND_DATA && buffer->len <= PUSH_NOW_BYTES &&
        dw_link_may_take_io(link)) {
        dw_link_send_now(link);
    } else {
        dw_link_wake(link);
    }
}

void dw_link_cancel(dw_link *link)
{
    DW_UNCANCELLED;
    if (!is_usable(link)) return;
    pthread_mutex_lock(&link->lock);
    char sentence[160];
    snprintf(sentence, sizeof sentence, "the link to %s was cancelled here", link->peer);
    dw_link_fail(link, DW_ERR_CANCELLED, sentence);
    link->status = DW_ERR_CANCELLED; /* replaces an earlier error; its sentence stays */
    pthread_mutex_unlock(&link->lock);
}

/* The caller takes over the I/O and does the thread's work while it waits. receives: 1 if it waits
 * for a message; then the link goes on reading even if messages of other tags have filled
 * max_queued_bytes. */
static void drive(dw_link *link, bool (*has_ended)(const dw_link *link, uint64_t what),
                  uint64_t what, int64_t deadline_ns, uint32_t receives)
{
    link->waiters += receives;
    dw_link_drive(link, has_ended, what, deadline_ns);
    link->waiters -= receives;
    if (link->waiters > 0) dw_link_wake(link); /* other callers still wait */
}

/* ---- Sending --------------------------------------------------------------------------------- */

static bool has_room(const dw_link *link, uint64_t cap)
{
    /* An empty queue takes any message. Otherwise a message longer than the limit could never be
     * sent. */
    return link->queued_bytes == 0 ||
           link->queued_bytes + cost((size_t)cap) <= link->max_queued_bytes;
}

/* Answers are queued even when the queue is full. A peer that keeps sending requests and reads no
 * answers must not fill our memory, so there is a limit here, too. The lock is held. */
static void bound_answers(dw_link *link)
{
    char sentence[256];
    uint64_t queued = link->queued_bytes, most = link->max_queued_bytes;
    if (queued <= most || queued - most <= most + link->max_message_bytes) return;
    snprintf(sentence, sizeof sentence,
             "%s keeps sending requests but does not read the answers: %llu bytes are queued for "
             "it; raise max_queued_bytes if it is only slow",
             link->peer, (unsigned long long)queued);
    dw_link_fail(link, DW_ERR_PROTOCOL, sentence);
}

static dw_status send_begin(dw_link *link, uint32_t tag, size_t cap, bool always, void **room)
{
    if (!is_usable(link) || !room) return DW_ERR_ARGUMENT;
    if (cap > link->max_message_bytes) return DW_ERR_LIMIT;
    pthread_mutex_lock(&link->lock);
    if (always) bound_answers(link);
    dw_status status = link->status;
    if (status == DW_OK && link->closing) status = DW_ERR_ARGUMENT;
    if (status == DW_OK && !always && !has_room(link, cap)) status = DW_PENDING;
    if (status == DW_OK) {
        dw_buffer *buffer = dw_buffer_take(&link->pool, cap);
        if (!buffer) {
            status = DW_ERR_NO_MEMORY;
        } else {
            buffer->tag = tag;
            buffer->kind = DW_KIND_DATA;
            buffer->len = cap;
            link->queued_bytes += cost(cap);
            *room = dw_buffer_payload(buffer);
        }
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
    dw_status status = link->status;
    link->queued_bytes -= cost(buffer->len);
    if (len == DW_LINK_DROP || status != DW_OK) {
        dw_buffer_drop(&link->pool, buffer);
        pthread_cond_broadcast(&link->drained);
    } else {
        buffer->len = len;
        link->queued_bytes += cost(len);
        enqueue(link, buffer);
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
    return link->unsent == 0 && link->kept == 0;
}

/* Waits until has_ended returns true, the link has failed, or the time is over. */
static dw_status wait_for_sends(dw_link *link,
                                bool (*has_ended)(const dw_link *link, uint64_t what),
                                uint64_t what, int timeout_ms)
{
    int64_t begun = dw_now_ns(), deadline = deadline_of(timeout_ms);
    begin_call(link);
    bool in_time = true;
    while (link->status == DW_OK && !has_ended(link, what) && in_time) {
        if (dw_link_may_take_io(link)) {
            drive(link, has_ended, what, deadline, 0);
            in_time = deadline == INT64_MAX || dw_now_ns() < deadline;
        } else {
            in_time = wait_until(link, &link->drained, deadline);
        }
    }
    dw_status status = link->status;
    if (status == DW_OK && !has_ended(link, what)) status = DW_PENDING;
    link->counters.send_wait_ns += (uint64_t)(dw_now_ns() - begun);
    end_call(link);
    return status;
}

dw_status dw_link_wait_room(dw_link *link, size_t cap, int timeout_ms)
{
    DW_UNCANCELLED;
    if (!is_usable(link)) return DW_ERR_ARGUMENT;
    if (cap > link->max_message_bytes) return DW_ERR_LIMIT;
    return wait_for_sends(link, has_room, cap, timeout_ms);
}

dw_status dw_link_flush(dw_link *link, int timeout_ms)
{
    DW_UNCANCELLED;
    if (!is_usable(link)) return DW_ERR_ARGUMENT;
    dw_status status = wait_for_sends(link, is_drained, 0, timeout_ms);
    /* Whoever has received the last message may leave before this end has noticed it. */
    return status == DW_ERR_PEER && link->has_sent_all ? DW_OK : status;
}

/* ---- Receiving ------------------------------------------------------------------------------- */

/* Sleeps until something arrives. When the limit for arrived messages is reached, the thread goes
 * on reading only while a caller waits for a message that has not come. Otherwise unread messages
 * of one tag could block those of another. */
static dw_status wait_for_message(dw_link *link, uint32_t tag, int64_t deadline_ns, bool *in_time)
{
    dw_inbox *inbox = dw_inbox_get(&link->inboxes, tag);
    if (!inbox) return DW_ERR_NO_MEMORY;
    inbox->waiters++;
    link->waiters++;
    if (link->receiving_paused) dw_link_wake(link);
    int64_t begun = dw_now_ns();
    *in_time = wait_until(link, &link->arrived, deadline_ns);
    link->counters.recv_wait_ns += (uint64_t)(dw_now_ns() - begun);
    link->waiters--;
    inbox->waiters--;
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
        bool may_take = link->status == DW_OK || link->status == DW_ERR_PEER ||
                        link->status == DW_ERR_NO_MEMORY || link->status == DW_ERR_LIMIT;
        if (inbox && inbox->handle) {
            status = DW_ERR_ARGUMENT;
        } else if (inbox && inbox->head && may_take) {
            dw_buffer *buffer = dw_inbox_take(&link->inboxes, inbox);
            *data = dw_buffer_payload(buffer);
            *len = buffer->len;
            if (link->receiving_paused) dw_link_wake(link);
            status = DW_OK;
        } else if (link->status != DW_OK) {
            status = link->status;
        } else if (timeout_ms == 0 || !in_time) {
            break;
        } else if (dw_link_may_take_io(link)) {
            int64_t begun = dw_now_ns();
            drive(link, has_message, tag, deadline, 1);
            link->counters.recv_wait_ns += (uint64_t)(dw_now_ns() - begun);
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

/* Whether another thread is in a handler of this tag. */
static bool is_handled_elsewhere(const dw_link *link, uint32_t tag)
{
    if (link->calling && link->inboxes.claimed->tag == tag)
        return !pthread_equal(pthread_self(), link->caller);
    return link->handling && link->handling_tag == tag &&
           !pthread_equal(pthread_self(), link->thread);
}

dw_status dw_link_handle(dw_link *link, uint32_t tag, dw_link_handler handle, void *context)
{
    DW_UNCANCELLED;
    if (!is_usable(link)) return DW_ERR_ARGUMENT;
    begin_call(link);
    /* A handler can be removed even from a link that has failed. */
    dw_status status = handle ? link->status : DW_OK;
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
        if (inbox->is_due) dw_link_call_handlers(link);
        if (inbox == link->inboxes.claimed) dw_link_wake(link);
    }
    while (!handle && is_handled_elsewhere(link, tag))
        pthread_cond_wait(&link->handled, &link->lock);
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
        now = link->counters;
        now.queued_bytes = link->queued_bytes;
        now.retry_ms = link->retry_ms;
        now.unsent_bytes = link->unsent_bytes;
        pthread_mutex_unlock(&link->lock);
    }
    dw_status given = dw_give_told(counters, &now, sizeof now, "dw_link_counters", NULL);
    return is_usable(link) ? given : DW_ERR_ARGUMENT;
}

const char *dw_link_peer_name(dw_link *link)
{
    return link ? link->peer_name : "";
}

const char *dw_link_why(dw_link *link)
{
    if (!link) return "";
    if (!is_usable(link))
        return "this link belongs to the process that opened it; a forked child must open a link "
               "of its own";
    pthread_mutex_lock(&link->lock);
    const char *text = link->status == DW_OK ? "" : link->why.text;
    pthread_mutex_unlock(&link->lock);
    return text;
}
