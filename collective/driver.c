/* SPDX-License-Identifier: Apache-2.0
 * driver.c - who takes the group's turns: the group's thread, or a caller that waits.
 *
 * The thread works while the program computes. But an operation that goes through the thread costs
 * two context switches, and a short one takes hardly longer than these. So a caller that would only
 * wait for the thread takes the turns itself, and the thread stands by. When the caller leaves, the
 * thread is woken only if there is something to do before it would wake up by itself. */
#include <fenv.h>

#include "group.h"

pthread_cond_t *dw_group_bell(dw_group *group)
{
    return group->is_driven ? &group->driven : &group->work;
}

/* Takes a turn, and returns how long there is nothing to do then. The lock is held before and
 * after. */
static int64_t take_turn(dw_group *group)
{
    group->is_working = true;
    pthread_mutex_unlock(&group->lock);
    int64_t sleep_ns = dw_group_turn(group);
    pthread_mutex_lock(&group->lock);
    group->is_working = false;
    if (group->visitors > 0) pthread_cond_broadcast(&group->finished);
    return sleep_ns;
}

static void sleep_until_work(dw_group *group, pthread_cond_t *bell, int64_t until_ns)
{
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000),
                             .tv_nsec = (long)(until_ns % 1000000000)};
    bool knows_closing = group->has_closed;
    while (!group->inbox.head && !group->started && group->is_closing == knows_closing) {
        if (pthread_cond_timedwait(bell, &group->lock, &until) != 0) return;
        if (group->visitors > 0) return;
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
        int64_t sleep_ns = take_turn(group);
        if (dw_group_may_end(group, dw_group_now_ns())) break;
        if (sleep_ns <= 0 || group->visitors > 0) continue;
        group->thread_wakes_ns = dw_group_now_ns() + sleep_ns;
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

void dw_group_drive(dw_group *group, bool (*has_ended)(const dw_group_slot *),
                    const dw_group_slot *slot, int64_t deadline_ns)
{
    int64_t sleep_ns = 0, now_ns = dw_group_now_ns();
    fenv_t own;
    fegetenv(&own);
    fesetenv(FE_DFL_ENV); /* as the thread does */
    group->is_driven = true;
    /* A last turn after the end finds out how long there is nothing to do. */
    while ((!has_ended(slot) || (sleep_ns == 0 && !group->running)) && group->visitors == 0 &&
           !group->is_visited) {
        sleep_ns = take_turn(group);
        now_ns = dw_group_now_ns();
        if (now_ns >= deadline_ns) break;
        if (has_ended(slot) || sleep_ns == 0 || group->visitors > 0) continue;
        int64_t wakes_ns = now_ns + sleep_ns;
        sleep_until_work(group, &group->driven, wakes_ns < deadline_ns ? wakes_ns : deadline_ns);
    }
    group->is_driven = false;
    bool has_work = group->running || group->started || group->inbox.head;
    if (has_work || now_ns + sleep_ns < group->thread_wakes_ns) pthread_cond_signal(&group->work);
    fesetenv(&own);
}

/* ---- Callers that change what turns use ------------------------------------------------------ */

void dw_group_visit(dw_group *group)
{
    pthread_mutex_lock(&group->lock);
    group->visitors++;
    if (group->is_driven) pthread_cond_signal(&group->driven);
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
