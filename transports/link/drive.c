/* SPDX-License-Identifier: Apache-2.0
 * drive.c - takes progress steps: the link's thread, or a caller that would otherwise only wait for
 * it. Which of them does is decided in io_owner.c. */
#include "link/link.h"

bool dw_link_has_ended(const dw_link *link)
{
    return link->failure.status != DW_OK || link->lifetime.is_closing || link->backend.is_broken;
}

/* Sleeps until something may have happened or a check is due, but no longer than until_ns. Returns
 * false if a caller has taken over. */
static bool sleep_until(dw_link *link, int64_t until_ns, bool spins)
{
    if (link->timeouts.next_ns < until_ns) until_ns = link->timeouts.next_ns;
    return dw_io_sleep(&link->io, dw_backend_wait(&link->backend), until_ns, spins);
}

/* ---- Callers --------------------------------------------------------------------------------- */

bool dw_link_may_take_io(const dw_link *link)
{
    return dw_io_may_take(&link->io) && !dw_link_has_ended(link);
}

bool dw_link_is_idle(const dw_link *link)
{
    return link->receiver.found_nothing && !link->sender.sending && !link->queue.head;
}

void dw_link_release_io(dw_link *link)
{
    bool is_busy = link->sender.sending || link->queue.head || link->receiver.is_paused ||
                   dw_link_has_ended(link);
    dw_io_release(&link->io, is_busy, link->timeouts.next_ns);
}

void dw_link_send_now(dw_link *link)
{
    dw_io_take(&link->io);
    pthread_mutex_unlock(&link->lock);
    dw_link_send_queued(link);
    dw_link_check_timeouts(link, dw_now_ns());
    pthread_mutex_lock(&link->lock);
    dw_link_release_io(link);
}

void dw_link_drive(dw_link *link, bool (*has_ended)(const dw_link *link, uint64_t what),
                   uint64_t what, int64_t deadline_ns)
{
    dw_io_take(&link->io);
    while (!has_ended(link, what) && !dw_link_has_ended(link)) {
        /* If the last test has just found nothing, the loop sleeps at once, without another test
         * that would find nothing. */
        bool is_idle = dw_link_is_idle(link);
        /* Other waits are for the peer's acknowledgement, which may come late. */
        bool spins = link->inboxes.waiters > 0;
        pthread_mutex_unlock(&link->lock);
        int moved = is_idle ? 0 : dw_link_step(link);
        int64_t now_ns = dw_now_ns();
        bool is_late = now_ns >= deadline_ns;
        dw_link_check_timeouts(link, now_ns);
        if (moved == 0 && !link->timeouts.has_released && !link->backend.is_broken && !is_late) {
            sleep_until(link, deadline_ns, spins);
            dw_receiver_expect(&link->receiver);
        }
        pthread_mutex_lock(&link->lock);
        if (is_late) break;
    }
    dw_io_leave(&link->io, dw_now_ns());
    dw_link_release_io(link);
}

/* ---- The thread ------------------------------------------------------------------------------ */

/* One round of the thread's work. Returns whether to go on. *ours becomes false if a caller has
 * taken over. */
static bool work(dw_link *link, bool *ours)
{
    int moved = link->backend.is_broken ? 0 : dw_link_step(link);
    dw_link_run_handlers(link);
    if (link->backend.is_broken) return false;
    dw_link_check_timeouts(link, dw_now_ns());
    int64_t until_ns = INT64_MAX;
    if (!dw_link_exchange_goodbyes(link, &until_ns)) return false;
    if (moved == 0) *ours = sleep_until(link, until_ns, false);
    return true;
}

void *dw_link_run(void *context)
{
    dw_link *link = context;
    bool ours = false;
    do {
        while (!ours) {
            ours = dw_io_stand_by(&link->io);
            if (!ours) dw_link_run_handlers(link);
        }
    } while (work(link, &ours));
    dw_link_run_handlers(link);
    /* Close the connection now, so that the peer learns it at once, even if the program calls
     * dw_link_close much later. */
    dw_link_close_endpoint(link);
    pthread_mutex_lock(&link->lock);
    if (link->failure.status == DW_OK) {
        /* Only dw_link_close leads here. No new call may begin after it, but a call that is running
         * at the same time must end. */
        dw_link_fail(link, DW_ERR_CANCELLED, "the link was closed here");
    }
    bool is_abandoned = link->lifetime.is_abandoned;
    pthread_mutex_unlock(&link->lock);
    if (is_abandoned) dw_link_tear_down(link);
    return NULL;
}
