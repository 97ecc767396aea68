/* SPDX-License-Identifier: Apache-2.0
 * io_owner.h - who may call the backend of a link, and how that thread sleeps and is woken.
 *
 * The I/O owner is normally the link's own thread, but a caller that would otherwise only wait for
 * the thread may take over. */
#ifndef DW_IO_OWNER_H
#define DW_IO_OWNER_H

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* adaptive_spin.c: whether a caller that waits polls for a moment (spins) before it sleeps. vain:
 * the share of recent spins that were in vain, in units of 1 / 65536. slept: how many waits began
 * while that share was too large; only every 64th of these spun. */
typedef struct dw_adaptive_spin {
    uint32_t vain, slept;
} dw_adaptive_spin;

/* pays: whether the next wait polls before it sleeps. learn: whether that was of use. poll: waits
 * for descriptors like poll; spin NULL: sleeps at once. */
bool dw_adaptive_spin_pays(dw_adaptive_spin *spin);
void dw_adaptive_spin_learn(dw_adaptive_spin *spin, bool is_useful);
void dw_adaptive_spin_poll(dw_adaptive_spin *spin, struct pollfd *waits, size_t n,
                           int64_t at_most_ns);

/* wakeup.c: a pipe by which a thread is woken from poll. signal: wakes it. clear: empties the pipe.
 * close: one that was never made is all zeros. */
typedef struct dw_wakeup_fd {
    int read, write;
} dw_wakeup_fd;
bool dw_wakeup_open(dw_wakeup_fd *wakeup);
void dw_wakeup_signal(const dw_wakeup_fd *wakeup);
void dw_wakeup_clear(const dw_wakeup_fd *wakeup);
void dw_wakeup_close(const dw_wakeup_fd *wakeup);

/* FREE: nobody owns the I/O; a caller has just given it back. THREAD: the link's thread does.
 * ASLEEP: the link's thread does, but it sleeps in poll, and a caller may take over. CALLER: a
 * thread of the program does, inside a call of the link. */
typedef enum dw_io_owner { DW_IO_FREE, DW_IO_THREAD, DW_IO_ASLEEP, DW_IO_CALLER } dw_io_owner;

typedef struct dw_link_io {
    /* The thread, and a caller that owns the I/O, each read their own, so that neither consumes a
     * wake-up that was meant for the other. */
    dw_wakeup_fd thread_wakeup, caller_wakeup;
    dw_adaptive_spin spin; /* the I/O owner's */
    int64_t patience_ns;   /* the thread's: see dw_io_stand_by */

    pthread_mutex_t *lock; /* the link's, for all that follows */
    dw_io_owner owner;
    pthread_cond_t standby;  /* the thread waits for it while it does not own the I/O */
    bool thread_polls;       /* the thread is in poll, even if a caller has taken over since ... */
    int64_t thread_wakes_ns; /* ... and returns from poll at this time at the latest */
    int64_t left_ns;         /* when a caller last ended its wait for a message */
    bool thread_needed;      /* the thread must take over at once */
    bool handlers_due;       /* a message for a handler has arrived */
    bool has_changed;        /* something changed since the I/O owner last looked */
    bool sleeping;           /* the I/O owner is, or is about to be, in poll */
} dw_link_io;

/* The caller of these holds the lock. wake: the I/O owner looks at the link again. call_handlers:
 * the thread runs the handlers soon, even while a caller owns the I/O. take_handlers: it is about
 * to. may_take: whether a caller may take over. take: a caller takes over. release: it gives the
 * I/O back; is_busy: there is something left to do now, or at next_ns. leave: a wait for a message
 * has ended; calls that only send do not say so, because they must not keep the thread from
 * receiving. */
void dw_io_wake(dw_link_io *io);
void dw_io_call_handlers(dw_link_io *io);
void dw_io_take_handlers(dw_link_io *io);
bool dw_io_may_take(const dw_link_io *io);
void dw_io_take(dw_link_io *io);
void dw_io_release(dw_link_io *io, bool is_busy, int64_t next_ns);
void dw_io_leave(dw_link_io *io, int64_t now_ns);

/* These take the lock. sleep: until something may have happened, but no longer than until_ns;
 * backend: what to wait for; spins: polls for a moment first. Returns false if a caller has taken
 * over. announce_sleep: a caller is about to sleep, and whoever changes the link wakes it; false:
 * something has changed already. end_sleep: is_woken: by the wake-up fd. */
bool dw_io_sleep(dw_link_io *io, struct pollfd backend, int64_t until_ns, bool spins);
bool dw_io_announce_sleep(dw_link_io *io);
void dw_io_end_sleep(dw_link_io *io, bool is_woken);
/* Of the thread: waits until it owns the I/O (true) or handlers are due (false). */
bool dw_io_stand_by(dw_link_io *io);

#endif
