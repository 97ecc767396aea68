/* SPDX-License-Identifier: Apache-2.0
 * spinner.c - a caller that waits for a message asks again and again for a moment, and sleeps only
 * then. To wake a thread that sleeps takes longer than a short message takes over a fast network:
 * 4 to 8 us for the sender, and as much again until the other thread runs.
 *
 * Between two questions the caller leaves the processor to other threads. But asking is of no use
 * where messages take long. And it does harm where ranks share processors with programs of other
 * sessions: Linux divides the time between sessions first, and a caller that asks uses up the time
 * of the rank for whose message it waits. So each link learns how often asking was of use, and its
 * callers sleep at once while that is seldom. */
#include <sched.h>

#include "link/link.h"

/* For how long a caller asks. With half of it, ranks that had once begun to sleep stayed asleep:
 * their messages took so long that asking was not of use. */
static const int64_t spin_ns = 100000;

/* The share of waits in which asking was of no use moves by 1 / MEMORY of the distance to its limit
 * with each wait. While it is higher than MOST, only each PROBE-th wait asks, to find out whether
 * this has changed; if that was of use, the next one asks as well. */
enum { DW_SPINNER_ALL = 1 << 16, DW_SPINNER_MOST = DW_SPINNER_ALL / 4, DW_SPINNER_MEMORY = 16 };
enum { DW_SPINNER_PROBE = 64 };

bool dw_spinner_asks(dw_spinner *spinner)
{
    return spinner->vain <= DW_SPINNER_MOST || ++spinner->slept % DW_SPINNER_PROBE == 0;
}

void dw_spinner_learn(dw_spinner *spinner, bool is_useful)
{
    if (!is_useful)
        spinner->vain += (DW_SPINNER_ALL - spinner->vain) / DW_SPINNER_MEMORY;
    else if (spinner->vain > DW_SPINNER_MOST)
        spinner->vain = DW_SPINNER_MOST;
    else
        spinner->vain -= spinner->vain / DW_SPINNER_MEMORY;
}

/* Returns whether one of the descriptors became ready. */
static bool ask(struct pollfd *waits, size_t n, int64_t at_most_ns)
{
    int64_t end_ns = dw_link_now_ns() + at_most_ns;
    do {
        if (poll(waits, n, 0) > 0) return true;
        sched_yield();
    } while (dw_link_now_ns() < end_ns);
    return poll(waits, n, 0) > 0; /* after a yield that took long */
}

void dw_link_poll(dw_spinner *spinner, struct pollfd *waits, size_t n, int64_t at_most_ns)
{
    if (spinner && at_most_ns > 0 && dw_spinner_asks(spinner)) {
        bool is_short = at_most_ns < spin_ns; /* the end of such a wait says nothing */
        bool is_ready = ask(waits, n, is_short ? at_most_ns : spin_ns);
        if (is_ready || !is_short) dw_spinner_learn(spinner, is_ready);
        if (is_ready || is_short) return;
        if (at_most_ns != INT64_MAX) at_most_ns -= spin_ns;
    }
    struct timespec time = {.tv_sec = (time_t)(at_most_ns / 1000000000),
                            .tv_nsec = (long)(at_most_ns % 1000000000)};
    ppoll(waits, n, at_most_ns == INT64_MAX ? NULL : &time, NULL);
}
