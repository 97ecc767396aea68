/* SPDX-License-Identifier: Apache-2.0
 * group.h - a group: its parts, and which thread may use which of them.
 *
 * Each struct has one file that writes it. A file calls those further down, and no others:
 *
 * | file                | what it is for                                                       |
 * | open.c              | checks of the config, links of URIs, opening and closing             |
 * | calls.c             | the public calls that start operations and wait for them             |
 * | saved.c, reports.c  | export, import and forgetting of what codecs keep; counters          |
 * | inbox.c             | messages as the links' threads hand them over                        |
 * | progress_owner.c    | who takes the steps: the group's thread, or a caller that waits      |
 * | progress.c          | the progress step, which pulls messages and ends what has failed     |
 * | handshake.c         | check that all ranks agree on the config                             |
 * | operation.c, and    | operations: see exchange.h                                           |
 * | what it calls       |                                                                      |
 * | failure_detector.c  | which rank owes something for too long                               |
 * | membership.c        | what ranks tell each other of failures, and of the end               |
 * | slot.c              | slots: their table and buffers                                       |
 * | coders.c            | encoders and decoders                                                |
 * | peer.c              | messages to one rank and from it, in order                           |
 * | retransmission.c    | messages that were lost are sent again, on links that may lose some  |
 * | partition.c         | parts and pieces of a buffer                                         |
 * | received_message.c  | memory for messages                                                  |
 * | message.c           | the header in front of every message                                 |
 * | failure.c           | errors as values                                                     |
 *
 * Threads. The handlers of links only put a message into the inbox. Everything else happens in
 * steps (progress.c), which are taken by one thread at a time, the progress owner: the group's own
 * thread, or a caller that waits (progress_owner.c). So a link's heartbeat never waits for a codec,
 * messages of several links need no lock against each other, and sums are computed in an
 * environment for floating point that the group controls. `lock` protects what callers, handlers
 * and the progress owner share; it is never held while something is encoded, decoded or copied. The
 * rest is the progress owner's alone; a caller that needs it takes exclusive access first
 * (dw_exclusive_begin), for which the progress owner pauses between two steps. */
#ifndef DW_GROUP_H
#define DW_GROUP_H

#include "base/clock.h"
#include "base/mem.h"
#include "base/sized.h"
#include "base/uncancelled.h"
#include "exchange.h"
#include "link/for_groups.h"

/* inbox.c, under lock: messages that the progress owner has not seen yet, and their bytes.
 * is_damaged: nor the `damage` of a peer. */
typedef struct dw_group_inbox {
    dw_received_list list;
    uint64_t bytes;
    bool is_damaged;
} dw_group_inbox;

/* progress_owner.c, under lock. */
typedef struct dw_ownership {
    pthread_cond_t work;        /* for the thread: something happened */
    pthread_cond_t caller_work; /* for a caller that takes the steps: something happened */
    pthread_cond_t finished; /* for other callers: an operation ended, or no step is being taken */
    bool is_stepping;        /* a step is being taken */
    bool is_owned_by_caller; /* steps are taken by a caller that waits, not by the thread */
    pthread_t caller;        /* this caller */
    bool caller_serves; /* it is in dw_link_wait_any: `bell` wakes it, and `caller_work` does not */
    int bell;           /* an eventfd */
    bool is_exclusive;
    uint32_t exclusive_waiters;
    int64_t thread_wakes_ns; /* when the thread wakes up by itself */
} dw_ownership;

/* progress.c, between two steps. */
typedef struct dw_progress {
    int64_t looked_ns;     /* the time at which `look` last ran */
    int64_t pinged_ns;     /* see dw_failure_detector_check */
    bool has_closed;       /* the progress owner has begun to close the group */
    int64_t closing_ns;    /* the time at which it did so */
    dw_received_list left; /* what links still had when they failed */
} dw_progress;

struct dw_group {
    dw_exchange exchange; /* its settings are fixed after open; the rest is the progress owner's */
    dw_progress progress;
    bool owns_links, has_thread; /* fixed after open, as well as: */
    pthread_t thread;

    pthread_mutex_t lock; /* for all that follows */
    dw_ownership owner;
    dw_group_inbox inbox;
    dw_slots slots;
    dw_slot_list started; /* operations that the progress owner has not seen yet */
    bool is_closing;
    dw_failure failure;          /* the exchange's, as far as callers know it */
    dw_why refusal;              /* of the last call that was refused */
    dw_group_counters counters;  /* what callers count */
    dw_group_counters published; /* what the progress owner counted up to its last step */
};

/* calls.c. After fork() the child has neither the group's thread nor its locks. */
bool dw_group_is_ours(const dw_group *group);

/* inbox.c. The handler of the link of a peer. */
void dw_group_inbox_take(void *peer, const void *data, size_t len);

/* progress.c. step: does everything that there is to do, and returns after how many nanoseconds the
 * next step is due if nothing happens; *stepped_ns: the time from which these count. The lock is
 * held before and after. end_failed: if something has failed, ends all operations, and notifies the
 * other ranks. dispatch: handles a message that a peer has sorted. may_end: whether all that was
 * promised to other ranks is done, so that a closing group may end. */
int64_t dw_progress_step(dw_group *group, int64_t *stepped_ns);
void dw_progress_end_failed(dw_group *group);
void dw_progress_dispatch(dw_group *group, dw_received *received);
bool dw_progress_may_end(const dw_group *group, int64_t now_ns);

/* progress_owner.c. open and close: of its struct. The caller of unlock_and_wake, may_own and own
 * holds the lock. run_thread: the group's thread, which takes steps until the group is closed.
 * unlock_and_wake: releases the lock, and wakes who takes the steps. may_own: whether a caller may
 * take the steps now. own: takes them until the operation of the slot has ended, the time is over
 * or somebody wants exclusive access. */
void dw_progress_owner_open(dw_ownership *ownership);
void dw_progress_owner_close(dw_ownership *ownership);
void *dw_progress_run_thread(void *group);
void dw_progress_unlock_and_wake(dw_group *group);
bool dw_progress_may_own(const dw_group *group);
void dw_progress_own(dw_group *group, bool (*has_ended)(const dw_group_slot *),
                     const dw_group_slot *slot, int64_t deadline_ns);
/* Nobody takes steps in between. */
void dw_exclusive_begin(dw_group *group);
void dw_exclusive_end(dw_group *group);

#endif
