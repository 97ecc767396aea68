/* SPDX-License-Identifier: Apache-2.0
 * link.h - what the files of a link share: its state, and who may touch which part of it.
 *
 * | file       | owns                                                                     |
 * | open.c     | options, URI to backend, the greeting of the two ends                    |
 * | calls.c    | the public calls: sending, receiving, waiting, counting                  |
 * | wheel.c    | who calls the backend: the thread, or a caller that waits anyway         |
 * | progress.c | moving bytes, handlers, the clock                                        |
 * | takedown.c | the end: the backend is closed, everything goes                          |
 * | inbox.c    | arrived messages by tag, handlers                                        |
 * | queue.c    | messages that wait to leave                                              |
 * | notice.c   | how threads learn that something has changed                             |
 */
#ifndef DW_LINK_H
#define DW_LINK_H

#include <pthread.h>
#include <stdbool.h>

#include "common/buffer.h"
#include "common/fields.h"
#include "common/memory.h"
#include "common/message.h"
#include "common/owner.h"
#include "common/report.h"
#include "common/sized.h"
#include "deltawire/transport.h"

/* Link protocol. Every message of a backend is one header (common/message.h) and a payload. */
enum { DW_LINK_VERSION = 1 };

/* Messages up to this size arrive without a second look; longer ones announce their length
 * first. */
enum { DW_LINK_ROOM_BYTES = 4096 };

typedef struct dw_inbox {
    struct dw_inbox *next; /* same bucket, or unused ones */
    struct dw_inbox *next_due;
    uint32_t tag;
    uint32_t waiters; /* threads in dw_link_recv */
    bool is_due;      /* has a handler and messages for it */
    dw_buffer *head, *tail;
    dw_link_handler handle;
    void *handle_context;
} dw_inbox;

/* Whose the wheel is: whoever has it calls the backend, and nobody else. ASLEEP: the thread's,
 * which waits in poll, and a caller may take it. FREE: a caller has left it a moment ago. */
typedef enum dw_wheel { DW_WHEEL_FREE, DW_WHEEL_THREAD, DW_WHEEL_ASLEEP, DW_WHEEL_CALLER } dw_wheel;

/* The table of inboxes is never smaller than that; nor are more kept for the next tags. */
enum { DW_INBOX_LEAST_BITS = 6, DW_INBOX_UNUSED_MOST = 64 };

typedef struct dw_inboxes {
    const dw_allocator *allocator;
    dw_inbox *few[1 << DW_INBOX_LEAST_BITS];
    dw_inbox **many; /* 2^bits buckets; NULL: few are enough */
    uint32_t bits, n, n_unused;
    uint64_t key[2]; /* of the hash: a peer that does not know it cannot fill one bucket */
    dw_inbox *unused;
    dw_inbox *due, *last_due; /* in the order in which their handlers are called */
    uint64_t bytes;           /* of memory, for what has arrived and was not taken */
    uint64_t taken;           /* messages so far */
} dw_inboxes;

/* Arrived messages take at most so much memory beyond max_queued_bytes while somebody waits for
 * another one: half as much again, but at least this. */
enum { DW_LINK_BEYOND_BYTES = 32 << 20 };

struct dw_link {
    /* Fixed after open. */
    dw_owner owner;
    dw_allocator allocator;
    dw_transport transport;
    uint32_t peer_timeout_ms, close_timeout_ms;
    uint32_t retry_ms; /* the backend's: 0 unless it may lose, double, reorder or damage messages */
    uint64_t max_message_bytes; /* the smaller of both ends' */
    uint64_t own_max_message_bytes;
    uint64_t max_queued_bytes;
    uint64_t max_arrived_bytes; /* past this nothing is read, whoever waits */
    char peer[96];
    uint64_t session;   /* of TLS, told by its exporter; 0: without TLS */
    char peer_name[64]; /* that it has proven to have */
    /* Pipes that wake from poll: the thread, and a caller that has the wheel. Each empties its own,
     * so that neither can swallow what was to wake the other. */
    struct dw_bell {
        int read, write;
    } thread_bell, caller_bell;
    pthread_t thread;

    /* The opener's, then those of whoever has the wheel. */
    void *endpoint, *send_request, *recv_request;
    bool endpoint_open;
    dw_buffer *sending, *receiving;
    int64_t send_moved_ns, recv_moved_ns; /* when bytes last moved */
    int64_t kept_moved_ns; /* when there was last a sign that what was sent will be acknowledged */
    uint64_t send_moved_bytes, recv_moved_bytes, recv_whole_bytes;
    bool broken; /* the backend must not be called any more */
    bool is_dry; /* a recv is in flight, and its last test found nothing */
    /* The last look at the clock let go of messages: somebody may wait for that. */
    bool has_settled;
    /* What has arrived fills its room: for how long somebody has waited in vain since a message was
     * taken (so many were then), not counting what has passed since the last look; 0: nobody waited
     * at that. */
    int64_t full_ns, full_looked_ns;
    uint64_t full_taken;

    /* Under lock. */
    pthread_mutex_t lock;
    pthread_cond_t arrived; /* a message, or the end */
    pthread_cond_t drained; /* room in the queue, or the end */
    pthread_cond_t handled; /* a handler returned */
    dw_buffer_pool pool;
    dw_buffer *queue_head, *queue_tail;
    /* Sent, but the backend still needs the bytes: oldest first. */
    dw_buffer *kept_head, *kept_tail;
    uint64_t kept;         /* how many */
    uint64_t queued_bytes; /* reserved, queued, in flight and kept */
    uint64_t unsent;       /* messages queued and in flight */
    int64_t unsent_ns;     /* when that last changed */
    dw_inboxes inboxes;
    uint32_t waiters; /* threads in dw_link_recv that found nothing */
    bool receiving_paused;
    dw_wheel wheel;
    pthread_cond_t standby;  /* the thread may be needed */
    bool thread_polls;       /* the thread is in poll, whosever the wheel is now ... */
    int64_t thread_wakes_ns; /* ... until then at most */
    int64_t left_ns;         /* when a caller last ended its wait for a message */
    bool thread_needed;      /* at once */
    bool handlers_due;       /* a message for a handler has come */
    bool kicked;             /* something changed since the wheel's owner last looked */
    bool sleeping;           /* the wheel's owner is, or is about to be, in poll */
    bool handling;           /* a handler runs ... */
    uint32_t handling_tag;   /* ... for this tag */
    uint32_t callers;        /* calls that may let go of the lock before they end */
    bool is_abandoned;       /* closed by a handler: the thread takes the link down when it ends */
    bool closing, bye_received, bye_queued, bye_sent;
    int64_t bye_deadline_ns;
    dw_status status; /* DW_OK while the link lives; set once */
    dw_why why;
    int64_t kernel_asked_ns; /* when the operating system's counters were last taken over ... */
    bool kernel_stale;       /* ... and whether bytes have moved since */
    dw_link_counters counters;
};

/* notice.c; the lock is held by the caller of all but ring. wake: whoever has the wheel looks at
 * the link anew. fail: the link is over; the first sentence stays. call_handlers: the thread runs
 * them soon, whoever has the wheel. */
void dw_link_fail(dw_link *link, dw_status status, const char *sentence);
void dw_link_wake(dw_link *link);
void dw_link_ring(const struct dw_bell *bell); /* needs no lock */
void dw_link_call_handlers(dw_link *link);

/* queue.c; the lock is held by the caller. count_unsent: so many more, or fewer, wait to leave. */
void dw_link_count_unsent(dw_link *link, int more);
void dw_link_append(dw_link *link, dw_buffer *buffer);

/* calls.c. For channels. Room past the limit of the queue, up to as much again and a message:
 * answers that must not wait. */
dw_status dw_link_send_begin_always(dw_link *link, uint32_t tag, size_t cap, void **room);
/* Keeps a message (begun, received or being handled) valid until one more dw_link_release. */
void dw_link_retain(dw_link *link, void *data);

/* inbox.c; the lock is held by the caller. set_handler: NULL takes it away. next_due: the inbox
 * whose handler is to be called next; NULL: none is. It is due again when more is in it after take.
 */
void dw_inbox_begin(dw_inboxes *inboxes);
dw_inbox *dw_inbox_find(const dw_inboxes *inboxes, uint32_t tag);
dw_inbox *dw_inbox_get(dw_inboxes *inboxes, uint32_t tag); /* NULL: no memory */
void dw_inbox_put(dw_inboxes *inboxes, dw_inbox *inbox, dw_buffer *buffer);
dw_buffer *dw_inbox_take(dw_inboxes *inboxes, dw_inbox *inbox);
void dw_inbox_set_handler(dw_inboxes *inboxes, dw_inbox *inbox, dw_link_handler handle,
                          void *context);
dw_inbox *dw_inbox_next_due(dw_inboxes *inboxes);
void dw_inbox_tidy(dw_inboxes *inboxes, dw_inbox *inbox); /* forgets it when nothing needs it */
void dw_inbox_empty(dw_inboxes *inboxes); /* not the messages: those are the pool's */

/* takedown.c. hang_up closes the endpoint, once. take_down is for a link whose thread has ended, or
 * is ending and touches it no more; free for one that has no thread yet. */
void dw_link_close_bell(const struct dw_bell *bell); /* one that was not made is all zeros */
void dw_link_hang_up(dw_link *link);
void dw_link_free(dw_link *link);
void dw_link_take_down(dw_link *link);

/* wheel.c */
void *dw_link_run(void *link);
/* The lock is held by the caller of these. may_drive: the wheel can be had. drive: does what the
 * link's thread would do, until has_ended (which is asked under the lock), the link's end or the
 * deadline. push_now: sends what is queued without waking the thread. Both let go of the lock
 * meanwhile. */
bool dw_link_may_drive(const dw_link *link);
void dw_link_drive(dw_link *link, bool (*has_ended)(const dw_link *link, uint64_t what),
                   uint64_t what, int64_t deadline_ns);
void dw_link_push_now(dw_link *link);

/* progress.c; for whoever has the wheel. */
int dw_link_push(dw_link *link);      /* returns how many messages left */
int dw_link_pass(dw_link *link);      /* sends and receives; returns how many messages moved */
int64_t dw_link_watch(dw_link *link); /* how long until the clock must be looked at again */
bool dw_link_part(dw_link *link, int64_t *left_ns); /* closing; whether to go on */
void dw_link_run_handlers(dw_link *link);           /* needs no wheel; the thread's */
/* Starts the buffer's sending / makes room and starts a receive / sleeps until something may have
 * happened. */
dw_status dw_link_start_send(dw_link *link, dw_buffer *buffer);
void dw_link_keep_sent(dw_link *link); /* the send in flight is done */
dw_status dw_link_start_recv(dw_link *link, size_t room_bytes);
bool dw_link_sleep(dw_link *link, int64_t at_most_ns); /* false: somebody has the wheel now */

#endif
