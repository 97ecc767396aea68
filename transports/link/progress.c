/* SPDX-License-Identifier: Apache-2.0
 * progress.c - the progress step of a link, taken by the I/O owner: it sends and receives messages,
 * runs handlers, checks timeouts, and ends the link where one of these has failed. */
#include "link/link.h"

#include <stdio.h>

void dw_link_fail(dw_link *link, dw_status status, const char *sentence)
{
    dw_link_failure_set(&link->failure, status, sentence, dw_send_queue_is_drained(&link->queue));
    pthread_cond_broadcast(&link->inboxes.arrived);
    pthread_cond_broadcast(&link->queue.drained);
    dw_io_wake(&link->io);
}

/* A backend that has failed must not be called again, not even to send a goodbye. */
static void fail(dw_link *link, dw_status status, const dw_why *why)
{
    pthread_mutex_lock(&link->lock);
    dw_backend_break(&link->backend);
    dw_link_fail(link, status, why->text[0] ? why->text : dw_status_string(status));
    pthread_mutex_unlock(&link->lock);
}

/* ---- Both directions ------------------------------------------------------------------------- */

int dw_link_send_queued(dw_link *link)
{
    dw_why why = {.text = "", .offset = -1};
    dw_status status;
    int moved = dw_sender_push(&link->sender, &why, &status);
    if (status != DW_OK) fail(link, status, &why);
    return moved;
}

/* The goodbye is the peer's last message. All that it sent before has arrived, and it reads nothing
 * any more. */
static dw_status take_goodbye(dw_link *link, dw_why *why)
{
    char sentence[160];
    dw_status sent = dw_sender_test(&link->sender, why);
    if (sent != DW_OK && sent != DW_PENDING) return sent;
    dw_transport_state state = dw_backend_state(&link->backend);
    snprintf(sentence, sizeof sentence, "%s closed the link", link->settings.peer);
    pthread_mutex_lock(&link->lock);
    /* What came before the goodbye was received. */
    dw_send_queue_release(&link->queue, state.kept_sends);
    if (!link->lifetime.is_closing) {
        dw_lifetime_end_by_peer(
            &link->lifetime, dw_now_ns() + (int64_t)link->settings.close_timeout_ms * DW_NS_PER_MS);
        dw_link_fail(link, DW_ERR_PEER, sentence);
    }
    pthread_mutex_unlock(&link->lock);
    return DW_OK;
}

static int pull(dw_link *link, dw_why *why, dw_status *status)
{
    bool had_goodbye = link->receiver.has_goodbye;
    int moved = dw_receiver_pull(&link->receiver, why, status);
    if (*status != DW_OK || link->receiver.has_goodbye == had_goodbye) return moved;
    *status = take_goodbye(link, why);
    if (*status == DW_OK) moved += dw_receiver_pull(&link->receiver, why, status);
    return moved;
}

int dw_link_step(dw_link *link)
{
    dw_why why = {.text = "", .offset = -1}, pull_why = {.text = "", .offset = -1};
    dw_status pushed, pulled;
    int moved = dw_sender_push(&link->sender, &why, &pushed), vain = 0;
    /* If sending fails, receive what has arrived: a goodbye may show the reason, and the last
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

void dw_link_check_timeouts(dw_link *link, int64_t now_ns)
{
    dw_why why;
    dw_status status = dw_timeouts_check(&link->timeouts, now_ns, &why);
    if (status == DW_OK) return;
    pthread_mutex_lock(&link->lock);
    dw_link_fail(link, status, why.text);
    pthread_mutex_unlock(&link->lock);
}

/* ---- Handlers -------------------------------------------------------------------------------- */

void dw_link_run_handler(dw_link *link, dw_handler_run *run, dw_inbox *inbox)
{
    if (link->receiver.is_paused) dw_io_wake(&link->io);
    dw_handlers_run(&link->handlers, run, inbox);
}

void dw_link_run_handlers(dw_link *link)
{
    pthread_mutex_lock(&link->lock);
    dw_io_take_handlers(&link->io);
    while (link->failure.status != DW_ERR_CANCELLED && !link->lifetime.is_abandoned) {
        dw_inbox *inbox = dw_inbox_next_due(&link->inboxes);
        if (!inbox) break;
        dw_link_run_handler(link, &link->handlers.by_thread, inbox);
    }
    pthread_mutex_unlock(&link->lock);
}

/* ---- Goodbyes -------------------------------------------------------------------------------- */

/* Each end sends a goodbye and waits for the other's before it closes the connection. So no byte is
 * unread when the connection is closed; otherwise a TCP reset could destroy bytes that the other
 * end has not read yet. */
bool dw_link_exchange_goodbyes(dw_link *link, int64_t *until_ns)
{
    bool go_on = true, has_theirs = link->receiver.has_goodbye;
    dw_send_queue *queue = &link->queue;
    pthread_mutex_lock(&link->lock);
    dw_status status = link->failure.status;
    if (status == DW_ERR_CANCELLED || (status != DW_OK && !has_theirs)) {
        go_on = false;
    } else if (link->lifetime.is_closing || has_theirs) {
        int64_t deadline_ns = link->lifetime.goodbye_deadline_ns;
        /* The peer would not read what is queued. */
        if (has_theirs && queue->goodbye == DW_GOODBYE_NONE) dw_send_queue_drop(queue);
        if (!queue->head && !link->sender.sending && queue->goodbye == DW_GOODBYE_NONE) {
            go_on = dw_send_queue_say_goodbye(queue);
            if (go_on) dw_io_wake(&link->io);
        }
        bool is_late = dw_now_ns() >= deadline_ns;
        /* While the backend keeps the goodbye, it may have to send it again. */
        if (is_late || (queue->goodbye == DW_GOODBYE_SENT && has_theirs && queue->kept == 0))
            go_on = false;
        if (deadline_ns < *until_ns) *until_ns = deadline_ns;
    }
    pthread_mutex_unlock(&link->lock);
    return go_on;
}
