/* SPDX-License-Identifier: Apache-2.0
 * unthreaded.c - replaces the thread of a link, and all waiting. */
#include "unthreaded.h"

#include <errno.h>
#include <poll.h>

#include "clock.h"
#include "fuzz.h"

typedef void *(*routine)(void *context);

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, routine run,
                          void *context);
int __real_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, routine run,
                          void *context);
int __wrap_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock);
int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *lock,
                                  const struct timespec *until);
int __wrap_ppoll(struct pollfd *watched, nfds_t n, const struct timespec *timeout,
                 const sigset_t *mask);

enum { WAITS_MOST = 300000 };

static dw_link *waits_for_turns; /* the link whose thread is replaced, or NULL */
static int waits;

void unthreaded_start(void)
{
    waits_for_turns = NULL;
    waits = 0;
    fuzz_clock_start();
}

/* One round of the thread as in drive.c, without the sleep. */
void unthreaded_turn(void)
{
    dw_link *link = waits_for_turns;
    if (!link || link->backend.is_broken) return;
    const dw_io_owner before = link->io.owner;
    if (before == DW_IO_CALLER) return;
    link->io.owner = DW_IO_THREAD;
    dw_link_step(link);
    dw_link_run_handlers(link);
    dw_link_check_timeouts(link, dw_now_ns());
    link->io.owner = before;
}

/* Other threads are real: the fuzzer has one of its own. */
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, routine run,
                          void *context)
{
    if (run != dw_link_run) return __real_pthread_create(thread, attributes, run, context);
    waits_for_turns = context;
    return 0;
}

int __wrap_pthread_join(pthread_t thread, void **result)
{
    dw_link *link = waits_for_turns;
    if (!link) return __real_pthread_join(thread, result);
    waits_for_turns = NULL;
    dw_link_run(link);
    return 0;
}

/* Replaces a wait without end. It must be ended by something within about a day of the clock. */
int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock)
{
    (void)condition;
    REQUIRE(++waits < WAITS_MOST);
    pthread_mutex_unlock(lock);
    fuzz_clock_move((int64_t)300 * DW_NS_PER_MS);
    unthreaded_turn();
    pthread_mutex_lock(lock);
    return 0;
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *lock,
                                  const struct timespec *until)
{
    (void)condition;
    REQUIRE(++waits < WAITS_MOST);
    pthread_mutex_unlock(lock);
    unthreaded_turn();
    pthread_mutex_lock(lock);
    int64_t left = (int64_t)until->tv_sec * 1000000000 + until->tv_nsec - dw_now_ns();
    if (left > 0) fuzz_clock_move(left);
    return ETIMEDOUT;
}

int __wrap_ppoll(struct pollfd *watched, nfds_t n, const struct timespec *timeout,
                 const sigset_t *mask)
{
    (void)mask;
    REQUIRE(++waits < WAITS_MOST);
    int ready = poll(watched, n, 0);
    if (ready == 0)
        fuzz_clock_move(timeout ? (int64_t)timeout->tv_sec * 1000000000 + timeout->tv_nsec
                                : (int64_t)3600000 * DW_NS_PER_MS);
    return ready;
}
