/* SPDX-License-Identifier: Apache-2.0
 * driver.c - who takes the group's turns: the group's thread, or a caller that waits.
 *
 * The thread works while the program computes. But an operation that goes through the thread costs
 * two context switches, and a short one takes hardly longer than these. So a caller that would only
 * wait for the thread takes the turns itself, and the thread stands by. When the caller leaves, the
 * thread is woken only if there is something to do before it would wake up by itself. For short
 * buffers such a caller also does the work of the links' threads, so that none of these is woken
 * either. */
#include <fenv.h>
#include <sys/eventfd.h>

#include "group.h"

void dw_group_unlock_and_wake(dw_group *group)
{
    pthread_cond_t *bell = group->is_driven ? &group->driven : &group->work;
    /* A handler that the driver calls itself need not wake it. */
    if (group->driver_serves && !pthread_equal(pthread_self(), group->driver)) {
        group->driver_serves = false;
        eventfd_write(group->bell, 1);
    }
    pthread_mutex_unlock(&group->lock);
    pthread_cond_signal(bell); /* without the lock, which the woken thread needs at once */
}

/* Takes a turn, and returns how long there is nothing to do then, from *turned_ns on. The lock is
 * held before and after. */
static int64_t take_turn(dw_group *group, int64_t *turned_ns)
{
    group->is_working = true;
    int64_t sleep_ns = dw_group_turn(group, turned_ns);
    group->is_working = false;
    if (group->visitors > 0) pthread_cond_broadcast(&group->finished);
    return sleep_ns;
}

static bool has_work(const dw_group *group)
{
    bool knows_closing = group->has_closed;
    return group->inbox.head || group->started || group->is_damaged ||
           group->is_closing != knows_closing || group->visitors > 0;
}

static void sleep_until_work(dw_group *group, pthread_cond_t *bell, int64_t until_ns)
{
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000),
                             .tv_nsec = (long)(until_ns % 1000000000)};
    while (!has_work(group)) {
        if (pthread_cond_timedwait(bell, &group->lock, &until) != 0) return;
        if (group->is_driven && bell == &group->work) return; /* the caller hears what happens */
    }
}

/* ---- The thread ------------------------------------------------------------------------------ */

void *dw_group_run_worker(void *context)
{
    dw_group *group = context;
    /* A thread inherits the rounding mode, and whether tiny numbers become zero, from the thread
     * that created it. Sums must not depend on that. */
    fesetenv(FE_DFL_ENV);
    pthread_mutex_lock(&group->lock);
    for (;;) {
        group->thread_wakes_ns = INT64_MAX;
        while (group->visitors > 0 || group->is_visited || group->is_driven)
            pthread_cond_wait(&group->work, &group->lock);
        int64_t now_ns, sleep_ns = take_turn(group, &now_ns);
        if (dw_group_may_end(group, now_ns)) break;
        if (sleep_ns <= 0 || group->visitors > 0) continue;
        group->thread_wakes_ns = now_ns + sleep_ns;
        sleep_until_work(group, &group->work, group->thread_wakes_ns);
    }
    pthread_mutex_unlock(&group->lock);
    return NULL;
}

/* ---- Callers that wait ----------------------------------------------------------------------- */

bool dw_group_may_drive(const dw_group *group)
{
    return !group->is_working && !group->is_driven && !group->is_visited && group->visitors == 0;
}

/* A caller serves the links itself if there are at most so many ranks, and if no buffer in progress
 * is longer than so many floats. More links take longer to look at than a thread takes to wake up.
 * And long messages are better read by the links' threads while the caller encodes and decodes. */
enum { SERVED_RANKS = 16, SERVED_FLOATS = 16384 };

static bool serves_links(const dw_group *group)
{
    bool is_short = group->ranks <= SERVED_RANKS;
    for (const dw_group_slot *slot = group->running; slot && is_short; slot = slot->next_running)
        is_short = slot->now.job.n <= SERVED_FLOATS;
    return is_short;
}

/* Waits for messages on all links, which the caller serves, or for the group's bell. */
static void serve(const dw_group *group, int64_t until_ns)
{
    dw_link *links[SERVED_RANKS];
    size_t n = 0;
    int64_t left_ns = until_ns - dw_group_now_ns();
    for (uint32_t r = 0; r < group->ranks; r++)
        if (group->lanes[r].link && group->lanes[r].lost == DW_OK)
            links[n++] = group->lanes[r].link;
    dw_link_attend(links, n, group->id << 8 | DW_LANE_MESSAGES, group->bell,
                   left_ns > 0 ? left_ns : 0);
}

/* Sleeps until there is work. The lock is held before and after. */
static void sleep_as_driver(dw_group *group, int64_t until_ns)
{
    if (!serves_links(group)) {
        sleep_until_work(group, &group->driven, until_ns);
        return;
    }
    if (has_work(group)) return;
    group->driver_serves = true;
    pthread_mutex_unlock(&group->lock);
    serve(group, until_ns);
    pthread_mutex_lock(&group->lock);
    eventfd_t rings;
    if (!group->driver_serves) eventfd_read(group->bell, &rings);
    group->driver_serves = false;
}

void dw_group_drive(dw_group *group, bool (*has_ended)(const dw_group_slot *),
                    const dw_group_slot *slot, int64_t deadline_ns)
{
    int64_t sleep_ns = 0, now_ns = dw_group_now_ns();
    fenv_t own;
    fegetenv(&own);
    fesetenv(FE_DFL_ENV); /* as the thread does */
    group->is_driven = true;
    group->driver = pthread_self();
    /* A last turn after the end finds out how long there is nothing to do. */
    while ((!has_ended(slot) || (sleep_ns == 0 && !group->running)) && group->visitors == 0 &&
           !group->is_visited) {
        sleep_ns = take_turn(group, &now_ns);
        if (now_ns >= deadline_ns) break;
        if (has_ended(slot) || sleep_ns == 0 || group->visitors > 0) continue;
        int64_t wakes_ns = now_ns + sleep_ns;
        sleep_as_driver(group, wakes_ns < deadline_ns ? wakes_ns : deadline_ns);
    }
    group->is_driven = false;
    bool is_left = group->running || group->started || group->inbox.head;
    if (is_left || now_ns + sleep_ns < group->thread_wakes_ns) pthread_cond_signal(&group->work);
    fesetenv(&own);
}

/* ---- Callers that change what turns use ------------------------------------------------------ */

void dw_group_visit(dw_group *group)
{
    pthread_mutex_lock(&group->lock);
    group->visitors++;
    if (group->is_driven) {
        dw_group_unlock_and_wake(group);
        pthread_mutex_lock(&group->lock);
    }
    while (group->is_working || group->is_visited)
        pthread_cond_wait(&group->finished, &group->lock);
    group->visitors--;
    group->is_visited = true;
    pthread_mutex_unlock(&group->lock);
}

void dw_group_leave(dw_group *group)
{
    pthread_mutex_lock(&group->lock);
    group->is_visited = false;
    pthread_cond_broadcast(&group->finished);
    pthread_cond_signal(&group->work);
    pthread_mutex_unlock(&group->lock);
}
