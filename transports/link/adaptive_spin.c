/* SPDX-License-Identifier: Apache-2.0
 * adaptive_spin.c - spinning: a caller that waits for a message asks the kernel again and again for
 * up to 100 us whether something has arrived, and sleeps only then. To wake a thread that sleeps
 * takes longer than a short message takes over a fast network: 4 to 8 us for the sender, and as
 * much again until the other thread runs.
 *
 * Between two questions the caller yields the processor to other threads. But spinning is in vain
 * where messages take longer. And it can do harm where other programs want all processors: it uses
 * up time that the scheduler would give to this process, or to its peer, a moment later. So each
 * link measures how often spinning was in vain, and its callers sleep at once if that is often. */
#include <sched.h>
#include <time.h>

#include "base/clock.h"
#include "link/io_owner.h"

/* For how long a caller asks. With half of it, ranks that had once begun to sleep stayed asleep:
 * their messages took so long that asking was not of use. */
static const int64_t spin_ns = 100000;

/* `vain` of an adaptive spin is the share of recent waits that polled in vain, from 0 to
 * DW_SPIN_ALL: an exponential moving average, in which a new wait counts for 1 / DW_SPIN_MEMORY.
 * While it is above DW_SPIN_MOST, callers sleep at once. Only each DW_SPIN_PROBE-th wait still
 * polls, to find out whether this has changed; if something arrives then, the next wait polls, too.
 */
enum { DW_SPIN_ALL = 1 << 16, DW_SPIN_MOST = DW_SPIN_ALL / 4, DW_SPIN_MEMORY = 16 };
enum { DW_SPIN_PROBE = 64 };

bool dw_adaptive_spin_pays(dw_adaptive_spin *spin)
{
    return spin->vain <= DW_SPIN_MOST || ++spin->slept % DW_SPIN_PROBE == 0;
}

void dw_adaptive_spin_learn(dw_adaptive_spin *spin, bool is_useful)
{
    if (!is_useful)
        spin->vain += (DW_SPIN_ALL - spin->vain) / DW_SPIN_MEMORY;
    else if (spin->vain > DW_SPIN_MOST)
        spin->vain = DW_SPIN_MOST;
    else
        spin->vain -= spin->vain / DW_SPIN_MEMORY;
}

/* AT_ONCE: something was there before; that does not say whether it pays to ask more than once. */
typedef enum answer { NOT_READY, AT_ONCE, READY } answer;

static answer ask(struct pollfd *waits, size_t n, int64_t end_ns)
{
    if (poll(waits, n, 0) > 0) return AT_ONCE;
    do {
        sched_yield();
        if (poll(waits, n, 0) > 0) return READY;
    } while (dw_now_ns() < end_ns);
    return NOT_READY;
}

void dw_adaptive_spin_poll(dw_adaptive_spin *spin, struct pollfd *waits, size_t n,
                           int64_t at_most_ns)
{
    /* Shorter waits are for a timer, which a caller that spins would not see any earlier. */
    if (spin && at_most_ns >= spin_ns && dw_adaptive_spin_pays(spin)) {
        int64_t begun_ns = dw_now_ns();
        answer found = ask(waits, n, begun_ns + spin_ns);
        if (found != AT_ONCE) dw_adaptive_spin_learn(spin, found == READY);
        if (found != NOT_READY) return;
        /* A yield may have taken much longer than that. */
        if (at_most_ns != INT64_MAX) at_most_ns -= dw_now_ns() - begun_ns;
        if (at_most_ns < 0) at_most_ns = 0;
    }
    struct timespec time = {.tv_sec = (time_t)(at_most_ns / 1000000000),
                            .tv_nsec = (long)(at_most_ns % 1000000000)};
    ppoll(waits, n, at_most_ns == INT64_MAX ? NULL : &time, NULL);
}
