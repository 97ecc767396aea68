/* SPDX-License-Identifier: Apache-2.0
 * io_owner.c - who calls the backend: the link's thread, or a caller that would otherwise only wait
 * for the thread. The thread that may call it is the I/O owner.
 *
 * The thread of the link keeps bytes moving while the program computes. But a message that goes
 * through the thread costs two context switches at each end, which take several times as long as
 * the message itself. So a caller that waits in dw_link_recv takes over the I/O and waits on the
 * backend itself, and a caller that sends a short message passes it to the backend itself. The
 * thread then stands by. It takes the I/O back a moment after the last caller has given it back,
 * or at once if there is something left to do. */
#include <errno.h>
#include <poll.h>

#include "link/link.h"

/* How long the I/O stays free for the next call: longer than a program that exchanges messages
 * takes from one call to the next, but much shorter than any timeout. Each time it is over the
 * thread wakes up, in vain if the program has called again. So it is twice as long after each time
 * that was in vain, up to the longest, until the thread takes over the I/O. Whatever the backend or
 * a timeout wants has to wait so long after the last call; while the program calls, the calls do
 * it.
 */
static const int64_t standby_ns = DW_NS_PER_MS, longest_standby_ns = 8 * DW_NS_PER_MS;

/* ---- Sleeping -------------------------------------------------------------------------------- */

bool dw_link_sleep(dw_link *link, int64_t until_ns)
{
    /* Read here, because a caller that takes over the I/O changes them. */
    struct pollfd wait[2] = {{.events = POLLIN},
                             {.fd = link->state.wait_fd, .events = (short)link->state.wait_events}};
    if (link->next_check_ns < until_ns) until_ns = link->next_check_ns;

    pthread_mutex_lock(&link->lock);
    bool by_thread = link->io_owner == DW_IO_THREAD;
    /* A handler may have become due after the thread last ran those that were. */
    bool has_changed = link->has_changed || (by_thread && link->handlers_due);
    /* Other waits are for the peer's acknowledgement, which may come late. */
    bool asks = !by_thread && link->waiters > 0 && wait[1].fd >= 0;
    link->has_changed = false;
    link->sleeping = !has_changed;
    if (by_thread && !has_changed) {
        link->io_owner = DW_IO_ASLEEP;
        link->thread_polls = true;
        link->thread_wakes_ns = until_ns;
    }
    pthread_mutex_unlock(&link->lock);
    if (has_changed) return true;

    const struct dw_wakeup_fd *wakeup = by_thread ? &link->thread_wakeup : &link->caller_wakeup;
    wait[0].fd = wakeup->read;
    int64_t left_ns = until_ns == INT64_MAX ? INT64_MAX : until_ns - dw_now_ns();
    dw_link_poll(asks ? &link->spin : NULL, wait, wait[1].fd >= 0 ? 2 : 1,
                 left_ns > 0 ? left_ns : 0);

    pthread_mutex_lock(&link->lock);
    if (by_thread) link->thread_polls = false;
    bool ours = !by_thread || link->io_owner == DW_IO_ASLEEP;
    if (ours) {
        link->sleeping = false;
        if (by_thread) link->io_owner = DW_IO_THREAD;
    }
    pthread_mutex_unlock(&link->lock);
    if (wait[0].revents) dw_wakeup_clear(wakeup);
    return ours;
}

/* ---- Callers --------------------------------------------------------------------------------- */

bool dw_link_may_take_io(const dw_link *link)
{
    return (link->io_owner == DW_IO_ASLEEP || link->io_owner == DW_IO_FREE) &&
           link->status == DW_OK && !link->closing && !link->broken;
}

void dw_link_take_io(dw_link *link)
{
    link->io_owner = DW_IO_CALLER;
    link->sleeping = false;
    link->thread_needed = false; /* the caller does the work, or sets this again when it leaves */
}

/* The thread is woken if it is needed earlier than it would wake up by itself. */
void dw_link_release_io(dw_link *link)
{
    bool busy = link->sending || link->queue_head || link->has_changed || link->receiving_paused ||
                link->broken || link->closing || link->status != DW_OK;
    if (link->thread_polls) {
        link->io_owner = DW_IO_ASLEEP;
        link->sleeping = true;
        if (busy || link->next_check_ns < link->thread_wakes_ns) dw_link_wake(link);
    } else {
        link->io_owner = DW_IO_FREE;
        if (busy)
            dw_link_wake(link);
        else if (link->thread_wakes_ns == INT64_MAX)
            pthread_cond_signal(&link->standby); /* it then waits for the end of its standby */
    }
}

void dw_link_send_now(dw_link *link)
{
    dw_link_take_io(link);
    pthread_mutex_unlock(&link->lock);
    dw_link_send_queued(link);
    dw_link_check_timeouts(link, dw_now_ns());
    pthread_mutex_lock(&link->lock);
    dw_link_release_io(link);
}

void dw_link_drive(dw_link *link, bool (*has_ended)(const dw_link *link, uint64_t what),
                   uint64_t what, int64_t deadline_ns)
{
    dw_link_take_io(link);
    while (!has_ended(link, what) && link->status == DW_OK && !link->closing && !link->broken) {
        /* If the last test has just found nothing, the loop sleeps at once, without another test
         * that would find nothing. */
        bool is_idle = link->found_nothing && !link->sending && !link->queue_head;
        pthread_mutex_unlock(&link->lock);
        int moved = is_idle ? 0 : dw_link_step(link);
        link->has_settled = false;
        int64_t now_ns = dw_now_ns();
        bool is_late = now_ns >= deadline_ns;
        dw_link_check_timeouts(link, now_ns);
        if (moved == 0 && !link->has_settled && !link->broken && !is_late) {
            dw_link_sleep(link, deadline_ns);
            link->found_nothing = false;
        }
        pthread_mutex_lock(&link->lock);
        if (is_late) break;
    }
    /* Calls that only send do not set this: they must not keep the thread from receiving. */
    link->left_ns = dw_now_ns();
    dw_link_release_io(link);
}

/* ---- The thread ------------------------------------------------------------------------------ */

/* Waits until the thread owns the I/O, and runs handlers meanwhile. */
static void stand_by(dw_link *link)
{
    int64_t retry_ns = standby_ns;
    pthread_mutex_lock(&link->lock);
    for (;;) {
        if (link->handlers_due) {
            pthread_mutex_unlock(&link->lock);
            dw_link_run_handlers(link);
            pthread_mutex_lock(&link->lock);
            continue;
        }
        int64_t free_ns = link->left_ns + retry_ns;
        bool is_over = dw_now_ns() >= free_ns;
        if (link->io_owner == DW_IO_FREE && (link->thread_needed || is_over)) break;
        if (is_over) {
            /* A caller has owned the I/O for long. It signals `standby` when it gives the I/O
             * back. */
            link->thread_wakes_ns = INT64_MAX;
            pthread_cond_wait(&link->standby, &link->lock);
        } else {
            struct timespec at = {.tv_sec = (time_t)(free_ns / 1000000000),
                                  .tv_nsec = (long)(free_ns % 1000000000)};
            /* The thread wakes up by itself at free_ns, and then checks again. So a caller that
             * gives the I/O back before does not have to signal `standby`, which would cost time
             * in every call. */
            link->thread_wakes_ns = free_ns;
            int error = pthread_cond_timedwait(&link->standby, &link->lock, &at);
            bool is_vain = error == ETIMEDOUT && link->left_ns + retry_ns > free_ns;
            if (is_vain && retry_ns < longest_standby_ns) retry_ns *= 2;
        }
    }
    link->io_owner = DW_IO_THREAD;
    link->thread_needed = false;
    pthread_mutex_unlock(&link->lock);
}

/* One round of the thread's work. Returns whether to go on. *ours becomes false if a caller has
 * taken over the I/O. */
static bool turn(dw_link *link, bool *ours)
{
    int moved = link->broken ? 0 : dw_link_step(link);
    dw_link_run_handlers(link);
    if (link->broken) return false;
    dw_link_check_timeouts(link, dw_now_ns());
    int64_t until_ns = INT64_MAX;
    if (!dw_link_exchange_goodbyes(link, &until_ns)) return false;
    if (moved == 0) *ours = dw_link_sleep(link, until_ns);
    return true;
}

void *dw_link_run(void *context)
{
    dw_link *link = context;
    bool ours = false;
    do {
        if (!ours) stand_by(link);
        ours = true;
    } while (turn(link, &ours));
    dw_link_run_handlers(link);
    /* Close the connection now, so that the peer learns it at once, even if the program calls
     * dw_link_close much later. */
    dw_link_close_endpoint(link);
    pthread_mutex_lock(&link->lock);
    if (link->status == DW_OK) {
        /* Only dw_link_close leads here. No new call may begin after it, but a call that is running
         * at the same time must end. */
        dw_link_fail(link, DW_ERR_CANCELLED, "the link was closed here");
    }
    bool is_abandoned = link->is_abandoned;
    pthread_mutex_unlock(&link->lock);
    if (is_abandoned) dw_link_tear_down(link);
    return NULL;
}
