/* SPDX-License-Identifier: Apache-2.0
 * attend.c - a caller waits on several links at once: it takes their wheels, and calls the handlers
 * of one tag itself. Otherwise each message would wake the thread of its link, which then wakes the
 * caller. */
#include <poll.h>

#include "link/link.h"

/* A link whose wheel the caller has. */
typedef struct attended {
    dw_link *link;
    bool is_idle; /* the last look found nothing, and nothing has happened since */
} attended;

typedef struct attendance {
    uint32_t tag;
    int wake_fd;
    size_t n;
    attended links[DW_ATTEND_MOST];
} attendance;

/* ---- Taking wheels and giving them back ------------------------------------------------------ */

/* Takes the wheel, if it may be had. Links that another thread drives are left to it. */
static void claim(attendance *all, dw_link *link)
{
    pthread_mutex_lock(&link->lock);
    dw_inbox *inbox = dw_inbox_find(&link->inboxes, all->tag);
    bool is_handling = link->handling && link->handling_tag == all->tag;
    bool may = inbox && inbox->handle && !is_handling && dw_link_may_drive(link);
    bool is_idle = false;
    if (may) {
        link->callers++;
        dw_link_take_wheel(link);
        dw_inbox_attend(&link->inboxes, inbox);
        link->attendant = pthread_self();
        is_idle = link->is_dry && !link->sending && !link->queue_head && !inbox->head;
    }
    pthread_mutex_unlock(&link->lock);
    if (may) all->links[all->n++] = (attended){.link = link, .is_idle = is_idle};
}

static void give_back(dw_link *link, int64_t now_ns)
{
    pthread_mutex_lock(&link->lock);
    if (dw_inbox_leave(&link->inboxes)) dw_link_call_handlers(link);
    link->left_ns = now_ns;
    dw_link_leave_wheel(link);
    if (link->waiters > 0) dw_link_wake(link); /* other callers wait for messages of other tags */
    if (--link->callers == 0 && link->closing) pthread_cond_broadcast(&link->handled);
    pthread_mutex_unlock(&link->lock);
}

/* ---- Working --------------------------------------------------------------------------------- */

/* Passes the messages of the tag to their handler. Returns whether there was one, or whether the
 * link has ended. */
static bool hand_over(dw_link *link)
{
    bool has_called = false;
    pthread_mutex_lock(&link->lock);
    dw_inbox *inbox = link->inboxes.attended;
    while (inbox->handle && inbox->head && link->status != DW_ERR_CANCELLED) {
        dw_link_handler handle = inbox->handle;
        void *context = inbox->handle_context;
        dw_buffer *buffer = dw_inbox_take(&link->inboxes, inbox);
        link->calling = true;
        if (link->receiving_paused) dw_link_wake(link);
        pthread_mutex_unlock(&link->lock);
        handle(context, dw_buffer_payload(buffer), buffer->len);
        pthread_mutex_lock(&link->lock);
        link->calling = false;
        dw_buffer_drop(&link->pool, buffer);
        pthread_cond_broadcast(&link->handled);
        has_called = true;
    }
    bool has_ended = link->status != DW_OK || link->closing || link->broken;
    pthread_mutex_unlock(&link->lock);
    return has_called || has_ended;
}

/* Moves what can be moved; now_ns: the time at which all links were last looked at. Returns whether
 * there is something that the caller waits for. */
static bool work(attendance *all, int64_t now_ns)
{
    bool has_come = false;
    for (size_t i = 0; i < all->n; i++) {
        attended *one = &all->links[i];
        dw_link *link = one->link;
        if (one->is_idle) continue;
        one->is_idle = dw_link_pass(link) == 0;
        dw_link_watch(link, now_ns);
        has_come |= hand_over(link);
    }
    return has_come;
}

/* ---- Sleeping -------------------------------------------------------------------------------- */

/* Announces that the caller is about to sleep, so that whoever changes the link rings its bell.
 * Returns false if something has changed already. */
static bool lie_down(dw_link *link)
{
    pthread_mutex_lock(&link->lock);
    bool may_sleep = !link->kicked;
    link->kicked = false;
    link->sleeping = may_sleep;
    pthread_mutex_unlock(&link->lock);
    return may_sleep;
}

static void get_up(dw_link *link, bool is_rung)
{
    pthread_mutex_lock(&link->lock);
    link->sleeping = false;
    pthread_mutex_unlock(&link->lock);
    if (is_rung) dw_link_hush(&link->caller_bell);
}

/* What to wait for. Returns until when; 0: not at all. */
static int64_t prepare(attendance *all, struct pollfd *waits, int64_t until_ns)
{
    waits[0] = (struct pollfd){.fd = all->wake_fd, .events = POLLIN};
    for (size_t i = 0; i < all->n; i++) {
        attended *one = &all->links[i];
        dw_link *link = one->link;
        one->is_idle &= lie_down(link);
        int64_t due_ns = one->is_idle ? link->look_ns : 0;
        if (due_ns < until_ns) until_ns = due_ns;
        waits[1 + 2 * i] = (struct pollfd){.fd = link->caller_bell.read, .events = POLLIN};
        waits[2 + 2 * i] =
            (struct pollfd){.fd = link->state.wait_fd, .events = (short)link->state.wait_events};
    }
    return until_ns;
}

/* Whose experience says whether to ask before the sleep. NULL: never, because a backend without a
 * descriptor is only found ready by its own functions. */
static dw_spinner *spinner_of(attendance *all, const struct pollfd *waits)
{
    for (size_t i = 0; i < all->n; i++)
        if (waits[2 + 2 * i].fd < 0) return NULL;
    return all->n > 0 ? &all->links[0].link->spinner : NULL;
}

/* Sleeps until something may have happened; *now_ns becomes the time at which it was found. Returns
 * whether wake_fd is readable. */
static bool sleep_until(attendance *all, int64_t *now_ns, int64_t deadline_ns)
{
    struct pollfd waits[1 + 2 * DW_ATTEND_MOST];
    int64_t until_ns = prepare(all, waits, deadline_ns);
    int64_t left_ns = until_ns > *now_ns ? until_ns - *now_ns : 0;
    if (until_ns == INT64_MAX) left_ns = INT64_MAX;
    dw_link_poll(spinner_of(all, waits), waits, 1 + 2 * all->n, left_ns);
    *now_ns = dw_now_ns();
    for (size_t i = 0; i < all->n; i++) {
        attended *one = &all->links[i];
        bool is_rung = waits[1 + 2 * i].revents, is_ready = waits[2 + 2 * i].revents;
        get_up(one->link, is_rung);
        one->is_idle &= !is_rung && !is_ready && *now_ns < one->link->look_ns;
        if (!one->is_idle) one->link->is_dry = false;
    }
    return waits[0].revents;
}

dw_status dw_link_attend(dw_link *const *links, size_t n, uint32_t tag, int wake_fd,
                         int64_t timeout_ns)
{
    DW_UNCANCELLED;
    if ((!links && n > 0) || n > DW_ATTEND_MOST) return DW_ERR_ARGUMENT;
    int64_t now_ns = dw_now_ns();
    int64_t deadline_ns =
        timeout_ns < 0 || timeout_ns > INT64_MAX - now_ns ? INT64_MAX : now_ns + timeout_ns;
    attendance all;
    all.tag = tag;
    all.wake_fd = wake_fd;
    all.n = 0;
    for (size_t i = 0; i < n; i++)
        if (links[i] && dw_owner_is_us(&links[i]->owner)) claim(&all, links[i]);
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
