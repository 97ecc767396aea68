/* SPDX-License-Identifier: Apache-2.0
 * wait_set.c - a caller waits on several links at once: it takes over their I/O, and calls the
 * handlers of one tag itself. Otherwise each message would wake the thread of its link, which then
 * wakes the caller. */
#include <poll.h>

#include "link/link.h"

/* A link whose I/O the caller owns. */
typedef struct member {
    dw_link *link;
    bool is_idle; /* the last look found nothing, and nothing has happened since */
} member;

typedef struct wait_set {
    uint32_t tag;
    int wake_fd;
    size_t n;
    member links[DW_WAIT_SET_MOST];
} wait_set;

/* ---- Taking over the I/O and giving it back
 * ------------------------------------------------------ */

/* Takes over the I/O, if it may be had. Links that another thread drives are left to it. */
static void claim(wait_set *all, dw_link *link)
{
    pthread_mutex_lock(&link->lock);
    dw_inbox *inbox = dw_inbox_find(&link->inboxes, all->tag);
    const dw_handler_run *run = &link->handlers.by_thread;
    bool is_handling = run->is_running && run->tag == all->tag;
    bool may = inbox && inbox->handle && !is_handling && dw_link_may_take_io(link);
    bool is_idle = false;
    if (may) {
        dw_lifetime_begin_call(&link->lifetime);
        dw_io_take(&link->io);
        dw_inbox_claim(&link->inboxes, inbox);
        is_idle = dw_link_is_idle(link) && !inbox->head;
    }
    pthread_mutex_unlock(&link->lock);
    if (may) all->links[all->n++] = (member){.link = link, .is_idle = is_idle};
}

static void give_back(dw_link *link, int64_t now_ns)
{
    pthread_mutex_lock(&link->lock);
    if (dw_inbox_unclaim(&link->inboxes)) dw_io_call_handlers(&link->io);
    dw_io_leave(&link->io, now_ns);
    dw_link_release_io(link);
    /* Other callers wait for messages of other tags. */
    if (link->inboxes.waiters > 0) dw_io_wake(&link->io);
    dw_lifetime_end_call(&link->lifetime);
    pthread_mutex_unlock(&link->lock);
}

/* ---- Working --------------------------------------------------------------------------------- */

/* Passes the messages of the tag to their handler. Returns whether there was one, or whether the
 * link has ended. */
static bool hand_over(dw_link *link)
{
    bool has_called = false;
    pthread_mutex_lock(&link->lock);
    dw_inbox *inbox = link->inboxes.claimed;
    while (inbox->handle && inbox->head && link->failure.status != DW_ERR_CANCELLED) {
        dw_link_run_handler(link, &link->handlers.by_caller, inbox);
        has_called = true;
    }
    bool has_ended = dw_link_has_ended(link);
    pthread_mutex_unlock(&link->lock);
    return has_called || has_ended;
}

/* Moves what can be moved; now_ns: the time at which all links were last looked at. Returns whether
 * there is something that the caller waits for. */
static bool work(wait_set *all, int64_t now_ns)
{
    bool has_come = false;
    for (size_t i = 0; i < all->n; i++) {
        member *one = &all->links[i];
        dw_link *link = one->link;
        if (one->is_idle) continue;
        one->is_idle = dw_link_step(link) == 0;
        dw_link_check_timeouts(link, now_ns);
        has_come |= hand_over(link);
    }
    return has_come;
}

/* ---- Sleeping -------------------------------------------------------------------------------- */

/* What to wait for. Returns until when; 0: not at all. */
static int64_t prepare(wait_set *all, struct pollfd *waits, int64_t until_ns)
{
    waits[0] = (struct pollfd){.fd = all->wake_fd, .events = POLLIN};
    for (size_t i = 0; i < all->n; i++) {
        member *one = &all->links[i];
        dw_link *link = one->link;
        one->is_idle &= dw_io_announce_sleep(&link->io);
        int64_t due_ns = one->is_idle ? link->timeouts.next_ns : 0;
        if (due_ns < until_ns) until_ns = due_ns;
        waits[1 + 2 * i] = (struct pollfd){.fd = link->io.caller_wakeup.read, .events = POLLIN};
        waits[2 + 2 * i] = dw_backend_wait(&link->backend);
    }
    return until_ns;
}

/* Whose experience says whether to ask before the sleep. NULL: never, because a backend without a
 * descriptor is only found ready by its own functions. */
static dw_adaptive_spin *spin_of(wait_set *all, const struct pollfd *waits)
{
    for (size_t i = 0; i < all->n; i++)
        if (waits[2 + 2 * i].fd < 0) return NULL;
    return all->n > 0 ? &all->links[0].link->io.spin : NULL;
}

/* Sleeps until something may have happened; *now_ns becomes the time at which it was found. Returns
 * whether wake_fd is readable. */
static bool sleep_until(wait_set *all, int64_t *now_ns, int64_t deadline_ns)
{
    struct pollfd waits[1 + 2 * DW_WAIT_SET_MOST];
    int64_t until_ns = prepare(all, waits, deadline_ns);
    int64_t left_ns = until_ns > *now_ns ? until_ns - *now_ns : 0;
    if (until_ns == INT64_MAX) left_ns = INT64_MAX;
    dw_adaptive_spin_poll(spin_of(all, waits), waits, 1 + 2 * all->n, left_ns);
    *now_ns = dw_now_ns();
    for (size_t i = 0; i < all->n; i++) {
        member *one = &all->links[i];
        bool is_woken = waits[1 + 2 * i].revents, is_ready = waits[2 + 2 * i].revents;
        dw_io_end_sleep(&one->link->io, is_woken);
        one->is_idle &= !is_woken && !is_ready && *now_ns < one->link->timeouts.next_ns;
        if (!one->is_idle) dw_receiver_expect(&one->link->receiver);
    }
    return waits[0].revents;
}

dw_status dw_link_wait_any(dw_link *const *links, size_t n, uint32_t tag, int wake_fd,
                           int64_t timeout_ns)
{
    DW_UNCANCELLED;
    if ((!links && n > 0) || n > DW_WAIT_SET_MOST) return DW_ERR_ARGUMENT;
    int64_t now_ns = dw_now_ns();
    int64_t deadline_ns =
        timeout_ns < 0 || timeout_ns > INT64_MAX - now_ns ? INT64_MAX : now_ns + timeout_ns;
    wait_set all;
    all.tag = tag;
    all.wake_fd = wake_fd;
    all.n = 0;
    for (size_t i = 0; i < n; i++)
        if (links[i] && dw_fork_guard_is_ours(&links[i]->fork_guard)) claim(&all, links[i]);
    bool has_come, is_late;
    do {
        is_late = now_ns >= deadline_ns;
        has_come = sleep_until(&all, &now_ns, deadline_ns);
        has_come |= work(&all, now_ns);
        now_ns = dw_now_ns();
    } while (!has_come && !is_late);
    for (size_t i = 0; i < all.n; i++) give_back(all.links[i].link, now_ns);
    return has_come ? DW_OK : DW_PENDING;
}
