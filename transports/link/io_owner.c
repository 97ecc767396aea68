/* SPDX-License-Identifier: Apache-2.0
 * io_owner.c - who may call the backend: the link's thread, or a caller that waits; and how that
 * thread sleeps and is woken.
 *
 * The thread of the link keeps bytes moving while the program computes. But a message that goes
 * through the thread costs two context switches at each end, which take several times as long as
 * the message itself. So a caller that waits in dw_link_recv takes over the I/O and waits on the
 * backend itself, and a caller that sends a short message passes it to the backend itself. The
 * thread then stands by. It takes the I/O back a moment after the last caller has given it back,
 * or at once if there is something left to do. */
#include "link/io_owner.h"

#include <errno.h>
#include <time.h>

#include "base/clock.h"

/* How long the I/O stays free for the next call: longer than a program that exchanges messages
 * takes from one call to the next, but much shorter than any timeout. Each time it is over the
 * thread wakes up, in vain if the program has called again. So it is twice as long after each time
 * that was in vain, up to the longest, until the thread takes over the I/O. Whatever the backend or
 * a timeout wants has to wait so long after the last call; while the program calls, the calls do
 * it. */
static const int64_t standby_ns = DW_NS_PER_MS, longest_standby_ns = 8 * DW_NS_PER_MS;

void dw_io_wake(dw_link_io *io)
{
    io->has_changed = true;
    if (io->owner == DW_IO_FREE) {
        io->thread_needed = true;
        pthread_cond_signal(&io->standby);
        return;
    }
    if (!io->sleeping) return;
    io->sleeping = false;
    dw_wakeup_signal(io->owner == DW_IO_ASLEEP ? &io->thread_wakeup : &io->caller_wakeup);
}

void dw_io_call_handlers(dw_link_io *io)
{
    io->handlers_due = true;
    if (io->thread_polls)
        dw_wakeup_signal(&io->thread_wakeup);
    else
        pthread_cond_signal(&io->standby);
}

void dw_io_take_handlers(dw_link_io *io)
{
    io->handlers_due = false;
}

/* ---- Callers --------------------------------------------------------------------------------- */

bool dw_io_may_take(const dw_link_io *io)
{
    return io->owner == DW_IO_ASLEEP || io->owner == DW_IO_FREE;
}

void dw_io_take(dw_link_io *io)
{
    io->owner = DW_IO_CALLER;
    io->sleeping = false;
    io->thread_needed = false; /* the caller does the work, or sets this again when it leaves */
}

/* The thread is woken if it is needed earlier than it would wake up by itself. */
void dw_io_release(dw_link_io *io, bool is_busy, int64_t next_ns)
{
    is_busy |= io->has_changed;
    if (io->thread_polls) {
        io->owner = DW_IO_ASLEEP;
        io->sleeping = true;
        if (is_busy || next_ns < io->thread_wakes_ns) dw_io_wake(io);
    } else {
        io->owner = DW_IO_FREE;
        if (is_busy)
            dw_io_wake(io);
        else if (io->thread_wakes_ns == INT64_MAX)
            pthread_cond_signal(&io->standby); /* it then waits for the end of its standby */
    }
}

void dw_io_leave(dw_link_io *io, int64_t now_ns)
{
    io->left_ns = now_ns;
}

/* ---- Sleeping -------------------------------------------------------------------------------- */

bool dw_io_announce_sleep(dw_link_io *io)
{
    pthread_mutex_lock(io->lock);
    bool may_sleep = !io->has_changed;
    io->has_changed = false;
    io->sleeping = may_sleep;
    pthread_mutex_unlock(io->lock);
    return may_sleep;
}

void dw_io_end_sleep(dw_link_io *io, bool is_woken)
{
    pthread_mutex_lock(io->lock);
    io->sleeping = false;
    pthread_mutex_unlock(io->lock);
    if (is_woken) dw_wakeup_clear(&io->caller_wakeup);
}

bool dw_io_sleep(dw_link_io *io, struct pollfd backend, int64_t until_ns, bool spins)
{
    pthread_mutex_lock(io->lock);
    bool by_thread = io->owner == DW_IO_THREAD;
    /* A handler may have become due after the thread last ran those that were. */
    bool has_changed = io->has_changed || (by_thread && io->handlers_due);
    io->has_changed = false;
    io->sleeping = !has_changed;
    if (by_thread && !has_changed) {
        io->owner = DW_IO_ASLEEP;
        io->thread_polls = true;
        io->thread_wakes_ns = until_ns;
    }
    pthread_mutex_unlock(io->lock);
    if (has_changed) return true;

    const dw_wakeup_fd *wakeup = by_thread ? &io->thread_wakeup : &io->caller_wakeup;
    struct pollfd wait[2] = {{.fd = wakeup->read, .events = POLLIN}, backend};
    int64_t left_ns = until_ns == INT64_MAX ? INT64_MAX : until_ns - dw_now_ns();
    dw_adaptive_spin_poll(spins && backend.fd >= 0 ? &io->spin : NULL, wait,
                          backend.fd >= 0 ? 2 : 1, left_ns > 0 ? left_ns : 0);

    pthread_mutex_lock(io->lock);
    if (by_thread) io->thread_polls = false;
    bool ours = !by_thread || io->owner == DW_IO_ASLEEP;
    if (ours) {
        io->sleeping = false;
        if (by_thread) io->owner = DW_IO_THREAD;
    }
    pthread_mutex_unlock(io->lock);
    if (wait[0].revents) dw_wakeup_clear(wakeup);
    return ours;
}

/* Waits for the end of the standby, or for a signal. */
static void wait_standby(dw_link_io *io, int64_t free_ns, bool is_over)
{
    if (is_over) {
        /* A caller has owned the I/O for long. It signals `standby` when it gives the I/O back. */
        io->thread_wakes_ns = INT64_MAX;
        pthread_cond_wait(&io->standby, io->lock);
        return;
    }
    struct timespec at = {.tv_sec = (time_t)(free_ns / 1000000000),
                          .tv_nsec = (long)(free_ns % 1000000000)};
    /* The thread wakes up by itself at free_ns, and then checks again. So a caller that gives the
     * I/O back before does not have to signal `standby`, which would cost time in every call. */
    io->thread_wakes_ns = free_ns;
    int error = pthread_cond_timedwait(&io->standby, io->lock, &at);
    bool is_vain = error == ETIMEDOUT && io->left_ns + io->patience_ns > free_ns;
    if (is_vain && io->patience_ns < longest_standby_ns) io->patience_ns *= 2;
}

bool dw_io_stand_by(dw_link_io *io)
{
    if (io->patience_ns == 0) io->patience_ns = standby_ns;
    pthread_mutex_lock(io->lock);
    bool owns = false, is_due = io->handlers_due;
    while (!is_due && !owns) {
        int64_t free_ns = io->left_ns + io->patience_ns;
        bool is_over = dw_now_ns() >= free_ns;
        owns = io->owner == DW_IO_FREE && (io->thread_needed || is_over);
        if (!owns) wait_standby(io, free_ns, is_over);
        is_due = io->handlers_due && !owns;
    }
    if (owns) {
        io->owner = DW_IO_THREAD;
        io->thread_needed = false;
        io->patience_ns = 0;
    }
    pthread_mutex_unlock(io->lock);
    return owns;
}
