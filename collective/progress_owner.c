/* SPDX-License-Identifier: Apache-2.0
 * progress_owner.c - who takes the group's steps: the group's thread, or a caller that waits.
 *
 * The thread works while the program computes. But an operation that goes through the thread costs
 * two context switches, and a short one takes hardly longer than these. So a caller that would only
 * wait for the thread takes the steps itself, and the thread stands by. When the caller leaves, the
 * thread is woken only if there is something to do before it would wake up by itself. For short
 * buffers such a caller also does the work of the links' threads, so that none of these is woken
 * either. */
#include <fenv.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "group.h"

void dw_progress_owner_open(dw_ownership *ownership)
{
    ownership->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    /* With these attributes none of them can fail on Linux. */
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&ownership->work, &monotonic);
    pthread_cond_init(&ownership->caller_work, &monotonic);
    pthread_cond_init(&ownership->finished, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

void dw_progress_owner_close(dw_ownership *ownership)
{
    pthread_cond_destroy(&ownership->finished);
    pthread_cond_destroy(&ownership->caller_work);
    pthread_cond_destroy(&ownership->work);
    if (ownership->bell >= 0) close(ownership->bell);
}

void dw_progress_unlock_and_wake(dw_group *group)
{
    pthread_cond_t *bell =
        group->owner.is_owned_by_caller ? &group->owner.caller_work : &group->owner.work;
    /* A handler that the caller calls itself need not wake it. */
    if (group->owner.caller_serves && !pthread_equal(pthread_self(), group->owner.caller)) {
        group->owner.caller_serves = false;
        eventfd_write(group->owner.bell, 1);
    }
    pthread_mutex_unlock(&group->lock);
    pthread_cond_signal(bell); /* without the lock, which the woken thread needs at once */
}

/* Takes a step, which releases the lock in between. Returns how many ns after *stepped_ns the next
 * step is due at the latest. */
static int64_t take_step(dw_group *group, int64_t *stepped_ns)
{
    group->owner.is_stepping = true;
    int64_t sleep_ns = dw_progress_step(group, stepped_ns);
    group->owner.is_stepping = false;
    if (group->owner.exclusive_waiters > 0) pthread_cond_broadcast(&group->owner.finished);
    return sleep_ns;
}

static bool has_work(const dw_group *group)
{
    bool knows_closing = group->progress.has_closed;
    return group->inbox.list.head || group->started.first || group->inbox.is_damaged ||
           group->is_closing != knows_closing || group->owner.exclusive_waiters > 0;
}

static void sleep_until_work(dw_group *group, pthread_cond_t *bell, int64_t until_ns)
{
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000),
                             .tv_nsec = (long)(until_ns % 1000000000)};
    while (!has_work(group)) {
        if (pthread_cond_timedwait(bell, &group->lock, &until) != 0) return;
        if (group->owner.is_owned_by_caller && bell == &group->owner.work)
            return; /* the caller hears what happens */
    }
}

/* ---- The thread ------------------------------------------------------------------------------ */

void *dw_progress_run_thread(void *context)
{
    dw_group *group = context;
    /* A thread inherits the rounding mode, and whether tiny numbers become zero, from the thread
     * that created it. Sums must not depend on that. */
    fesetenv(FE_DFL_ENV);
    pthread_mutex_lock(&group->lock);
    for (;;) {
        group->owner.thread_wakes_ns = INT64_MAX;
        while (group->owner.exclusive_waiters > 0 || group->owner.is_exclusive ||
               group->owner.is_owned_by_caller)
            pthread_cond_wait(&group->owner.work, &group->lock);
        int64_t now_ns, sleep_ns = take_step(group, &now_ns);
        if (dw_progress_may_end(group, now_ns)) break;
        if (sleep_ns <= 0 || group->owner.exclusive_waiters > 0) continue;
        group->owner.thread_wakes_ns = now_ns + sleep_ns;
        sleep_until_work(group, &group->owner.work, group->owner.thread_wakes_ns);
    }
    pthread_mutex_unlock(&group->lock);
    return NULL;
}

/* ---- Callers that wait ----------------------------------------------------------------------- */

bool dw_progress_may_own(const dw_group *group)
{
    return !group->owner.is_stepping && !group->owner.is_owned_by_caller &&
           !group->owner.is_exclusive && group->owner.exclusive_waiters == 0;
}

/* A caller serves the links itself if there are at most so many ranks, and if no buffer in progress
 * is longer than so many floats. More links take longer to look at than a thread takes to wake up.
 * And long messages are better read by the links' threads while the caller encodes and decodes. */
enum { SERVED_RANKS = 16, SERVED_FLOATS = 16384 };

static bool serves_links(const dw_group *group)
{
    bool is_short = group->exchange.settings.ranks <= SERVED_RANKS;
    for (const dw_group_slot *slot = group->exchange.running.first; slot && is_short;
         slot = slot->next_running)
        is_short = slot->now.job.n <= SERVED_FLOATS;
    return is_short;
}

/* Waits for messages on all links, which the caller serves, or for the group's bell. */
static void serve(const dw_group *group, int64_t until_ns)
{
    dw_link *links[SERVED_RANKS];
    size_t n = 0;
    int64_t left_ns = until_ns - dw_now_ns();
    for (uint32_t r = 0; r < group->exchange.settings.ranks; r++)
        if (group->exchange.peers[r].link && group->exchange.peers[r].lost == DW_OK)
            links[n++] = group->exchange.peers[r].link;
    dw_link_wait_any(links, n, group->exchange.settings.id << 8 | DW_PEER_MESSAGES,
                     group->owner.bell, left_ns > 0 ? left_ns : 0);
}

/* Sleeps until there is work. The lock is held before and after. */
static void sleep_as_owner(dw_group *group, int64_t until_ns)
{
    if (!serves_links(group)) {
        sleep_until_work(group, &group->owner.caller_work, until_ns);
        return;
    }
    if (has_work(group)) return;
    group->owner.caller_serves = true;
    pthread_mutex_unlock(&group->lock);
    serve(group, until_ns);
    pthread_mutex_lock(&group->lock);
    eventfd_t rings;
    if (!group->owner.caller_serves) eventfd_read(group->owner.bell, &rings);
    group->owner.caller_serves = false;
}

void dw_progress_own(dw_group *group, bool (*has_ended)(const dw_group_slot *),
                     const dw_group_slot *slot, int64_t deadline_ns)
{
    int64_t sleep_ns = 0, now_ns = dw_now_ns();
    fenv_t own;
    fegetenv(&own);
    fesetenv(FE_DFL_ENV); /* as the thread does */
    group->owner.is_owned_by_caller = true;
    group->owner.caller = pthread_self();
    /* A last step after the end finds out how long there is nothing to do. */
    while ((!has_ended(slot) || (sleep_ns == 0 && !group->exchange.running.first)) &&
           group->owner.exclusive_waiters == 0 && !group->owner.is_exclusive) {
        sleep_ns = take_step(group, &now_ns);
        if (now_ns >= deadline_ns) break;
        if (has_ended(slot) || sleep_ns == 0 || group->owner.exclusive_waiters > 0) continue;
        int64_t wakes_ns = now_ns + sleep_ns;
        sleep_as_owner(group, wakes_ns < deadline_ns ? wakes_ns : deadline_ns);
    }
    group->owner.is_owned_by_caller = false;
    bool is_left = group->exchange.running.first || group->started.first || group->inbox.list.head;
    if (is_left || now_ns + sleep_ns < group->owner.thread_wakes_ns)
        pthread_cond_signal(&group->owner.work);
    fesetenv(&own);
}

/* ---- Callers that change what steps use ------------------------------------------------------ */

void dw_exclusive_begin(dw_group *group)
{
    pthread_mutex_lock(&group->lock);
    group->owner.exclusive_waiters++;
    if (group->owner.is_owned_by_caller) {
        dw_progress_unlock_and_wake(group);
        pthread_mutex_lock(&group->lock);
    }
    while (group->owner.is_stepping || group->owner.is_exclusive)
        pthread_cond_wait(&group->owner.finished, &group->lock);
    group->owner.exclusive_waiters--;
    group->owner.is_exclusive = true;
    pthread_mutex_unlock(&group->lock);
}

void dw_exclusive_end(dw_group *group)
{
    pthread_mutex_lock(&group->lock);
    group->owner.is_exclusive = false;
    pthread_cond_broadcast(&group->owner.finished);
    pthread_cond_signal(&group->owner.work);
    pthread_mutex_unlock(&group->lock);
}
