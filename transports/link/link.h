/* SPDX-License-Identifier: Apache-2.0
 * link.h - what the files of a link share: its state, and which thread may use which part of it.
 * The I/O owner is who may call the backend: normally the link's own thread, but a caller
 * that would otherwise only wait for the thread may take over (io_owner.c).
 *
 * | file       | owns                                                                     |
 * | open.c     | options, choice of the backend by URI, handshake, close                  |
 * | calls.c    | the public calls: sending, receiving, waiting, counting                  |
 * | io_owner.c    | who calls the backend: the link's thread, or a caller that waits anyway  |
 * | wait_set.c   | a caller that waits on several links                                     |
 * | adaptive_spin.c  | a caller asks for a moment before it sleeps, where that is of use        |
 * | progress.c | sending, receiving, handlers, timeouts                                   |
 * | teardown.c | the end: the backend is closed, all memory is freed                      |
 * | inbox.c    | arrived messages by tag, handlers                                        |
 * | send_queue.c    | messages that wait to be sent                                            |
 * | wakeup.c   | how threads learn that something has changed                             |
 */
#ifndef DW_LINK_H
#define DW_LINK_H

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "base/uncancelled.h"
#include "common/buffer.h"
#include "common/message.h"
#include "common/opening.h"
#include "common/owner.h"
#include "common/report.h"
#include "deltawire/transport.h"
#include "link/for_groups.h"

/* Version of the link protocol: every message that a backend carries is a header (common/message.h)
 * and a payload. */
enum { DW_LINK_VERSION = 1 };

/* A receive starts with this much room. If a message is longer, the backend reports its length
 * first (DW_ERR_NO_ROOM), and the receive starts again with enough room. */
enum { DW_LINK_ROOM_BYTES = 4096 };

typedef struct dw_inbox {
    struct dw_inbox *next; /* the next in the same bucket, or on the list of unused ones */
    struct dw_inbox *next_due;
    uint32_t tag;
    uint32_t waiters; /* threads in dw_link_recv */
    bool is_due;      /* in the list `due`: it has a handler and messages for it */
    dw_buffer *head, *tail;
    dw_link_handler handle;
    void *handle_context;
} dw_inbox;

/* The I/O owner, who may call the backend. FREE: nobody; a caller has just given
 * it back. THREAD: the link's thread. ASLEEP: the link's thread, but it sleeps in poll, and a
 * caller may take over the I/O. CALLER: a thread of the program, inside a call of the link. */
typedef enum dw_io_owner { DW_IO_FREE, DW_IO_THREAD, DW_IO_ASLEEP, DW_IO_CALLER } dw_io_owner;

/* Whether a caller that waits asks for a moment before it sleeps (adaptive_spin.c). vain: the share
 * of the last waits in which asking was of no use, in units of 1 / 65536. slept: how many waits
 * have not asked while that was too much. */
typedef struct dw_adaptive_spin {
    uint32_t vain, slept;
} dw_adaptive_spin;

/* The table of inboxes has at least 2^DW_INBOX_LEAST_BITS buckets. At most DW_INBOX_UNUSED_MOST
 * unused inboxes are kept for new tags. */
enum { DW_INBOX_LEAST_BITS = 6, DW_INBOX_UNUSED_MOST = 64 };

typedef struct dw_inboxes {
    const dw_allocator *allocator;
    dw_inbox *few[1 << DW_INBOX_LEAST_BITS];
    dw_inbox **many; /* 2^bits buckets; NULL: `few` is used */
    uint32_t bits, n, n_unused;
    /* Random numbers of the hash: a peer that does not know it cannot choose tags that all share
     * one bucket */
    uint64_t key[2];
    dw_inbox *unused;
    dw_inbox *due, *last_due; /* a queue: handlers are called in this order */
    dw_inbox *claimed; /* not in it, because a caller in dw_link_wait_any calls its handler */
    uint64_t bytes;    /* memory of the messages that arrived and were not received yet */
    uint64_t taken;    /* messages taken out so far */
} dw_inboxes;

/* While a caller waits for a message that has not come, arrived messages may take more memory than
 * max_queued_bytes: half as much again, but at least this many bytes more. */
enum { DW_LINK_BEYOND_BYTES = 32 << 20 };

struct dw_link {
    /* Fixed after open. */
    dw_owner owner;
    dw_allocator allocator;
    dw_transport transport;
    bool listens; /* its role, which is the other one at the peer */
    uint32_t peer_timeout_ms, close_timeout_ms;
    /* Of the backend; 0 unless it may lose, double, reorder or damage messages */
    uint32_t retry_ms;
    uint64_t max_message_bytes; /* the smaller limit of the two ends */
    uint64_t own_max_message_bytes;
    uint64_t max_queued_bytes;
    uint64_t max_arrived_bytes; /* above this nothing is read, even while a caller waits */
    char peer[96];
    uint64_t session;   /* from the TLS exporter, equal at both ends; 0: no TLS */
    char peer_name[64]; /* the name authenticated by TLS */
    /* Pipes by which the thread, or a caller that owns the I/O, is woken from poll. Each reads its
     * own pipe only, so that neither consumes a wake-up that was meant for the other. */
    struct dw_wakeup_fd {
        int read, write;
    } thread_wakeup, caller_wakeup;
    pthread_t thread;

    /* Used by dw_link_open, and after that only by the I/O owner. */
    void *endpoint, *send_request, *recv_request;
    bool endpoint_open;
    dw_buffer *sending, *receiving;
    int64_t send_moved_ns, recv_moved_ns; /* when bytes last moved */
    /* When there was last a sign that the peer is going to acknowledge what was sent */
    int64_t kept_moved_ns;
    uint64_t send_moved_bytes, recv_moved_bytes, recv_whole_bytes;
    bool broken;        /* the backend must not be called any more */
    bool found_nothing; /* a receive is in flight, and its last test found nothing */
    /* What the backend said when it was last asked what it waits for, and the time at which the
     * link is to be looked at again at the latest: the earliest of the backend's and the timeouts'.
     * Valid as long as the backend is not called. */
    dw_transport_state state;
    int64_t next_check_ns;
    /* The last dw_link_check_timeouts released messages that the backend had kept. A caller may
     * wait for that. */
    bool has_settled;
    dw_adaptive_spin spin;
    /* For the timeout of callers that wait while nothing is received, because unread messages take
     * more than max_arrived_bytes. full_ns: how long such callers have waited since a message was
     * last taken out, measured until full_looked_ns. full_looked_ns: the time of that measurement;
     * 0: no caller waited then. full_taken: dw_inboxes.taken at that time. */
    int64_t full_ns, full_looked_ns;
    uint64_t full_taken;

    /* Under lock. */
    pthread_mutex_t lock;
    pthread_cond_t arrived; /* a message arrived, or the link ended */
    pthread_cond_t drained; /* there is room in the queue, or the link ended */
    pthread_cond_t handled; /* a handler returned */
    dw_buffer_pool pool;
    dw_buffer *queue_head, *queue_tail;
    /* Messages that were sent, but whose bytes the backend still needs; oldest first. */
    dw_buffer *kept_head, *kept_tail;
    uint64_t kept;         /* how many */
    uint64_t queued_bytes; /* of messages reserved, queued, in flight and kept */
    uint64_t unsent;       /* messages queued and in flight ... */
    uint64_t unsent_bytes; /* ... and their payload */
    int64_t unsent_ns;     /* when `unsent` last changed */
    dw_inboxes inboxes;
    uint32_t waiters; /* threads in dw_link_recv that have found no message */
    bool receiving_paused;
    dw_io_owner io_owner;
    pthread_cond_t standby; /* the thread waits for it while it does not own the I/O */
    bool thread_polls; /* the thread is in poll, even if a caller has taken over the I/O since ...
                        */
    int64_t thread_wakes_ns; /* ... and returns from poll at this time at the latest */
    int64_t left_ns;         /* when a caller last ended its wait for a message */
    bool thread_needed;      /* the thread must take over the I/O at once */
    bool handlers_due;       /* a message for a handler has arrived */
    bool has_changed;        /* something changed since the I/O owner last looked */
    bool sleeping;           /* the I/O owner is, or is about to be, in poll */
    bool handling;           /* a handler runs ... */
    uint32_t handling_tag;   /* ... for this tag */
    bool calling;            /* a caller in dw_link_wait_any, `caller`, runs the handler */
    pthread_t caller;
    uint32_t callers;  /* running calls that may release the lock before they end */
    bool is_abandoned; /* closed by a handler: the thread frees the link when it ends */
    bool closing, bye_received, bye_queued, bye_sent;
    int64_t bye_deadline_ns;
    dw_status status;  /* DW_OK while the link lives; set once */
    bool has_sent_all; /* when the link failed, nothing was queued, in flight or kept */
    dw_why why;
    int64_t kernel_asked_ns; /* when the operating system's counters were last read ... */
    bool kernel_stale;       /* ... and whether bytes have moved since */
    dw_link_counters counters;
};

/* wakeup.c; for all but signal and clear the caller holds the lock. wake: the I/O owner
 * looks at the link again. fail: ends the link with an error; only the first sentence is kept.
 * signal: wakes who polls the file descriptor. clear: takes the wake-up back. call_handlers: the
 * thread runs the handlers soon, even while a caller owns the I/O. */
void dw_link_fail(dw_link *link, dw_status status, const char *sentence);
void dw_link_wake(dw_link *link);
void dw_wakeup_signal(const struct dw_wakeup_fd *wakeup);
void dw_wakeup_clear(const struct dw_wakeup_fd *wakeup);
void dw_link_call_handlers(dw_link *link);

/* send_queue.c; the caller holds the lock. append: the message waits to be sent from now on.
 * has_left: a message that was appended has been sent, or dropped, and does not wait any more. */
void dw_link_append(dw_link *link, dw_buffer *buffer);
void dw_link_has_left(dw_link *link, const dw_buffer *buffer);

/* calls.c, for channels. Like dw_link_send_begin, but for answers, which must not wait: the queue
 * may grow to twice its limit and one message more. Beyond that the link fails. */
dw_status dw_link_send_begin_always(dw_link *link, uint32_t tag, size_t cap, void **room);

/* inbox.c; the caller holds the lock. set_handler: NULL removes the handler. next_due: removes the
 * inbox whose handler is to be called next from the list and returns it; NULL: there is none.
 * dw_inbox_take puts it on the list again if messages remain.
 */
void dw_inbox_begin(dw_inboxes *inboxes);
dw_inbox *dw_inbox_find(const dw_inboxes *inboxes, uint32_t tag);
dw_inbox *dw_inbox_get(dw_inboxes *inboxes, uint32_t tag); /* NULL: no memory */
void dw_inbox_put(dw_inboxes *inboxes, dw_inbox *inbox, dw_buffer *buffer);
dw_buffer *dw_inbox_take(dw_inboxes *inboxes, dw_inbox *inbox);
void dw_inbox_set_handler(dw_inboxes *inboxes, dw_inbox *inbox, dw_link_handler handle,
                          void *context);
dw_inbox *dw_inbox_next_due(dw_inboxes *inboxes);
/* claim: this inbox becomes `claimed`. unclaim: none is; returns whether there are messages for its
 * handler. */
void dw_inbox_claim(dw_inboxes *inboxes, dw_inbox *inbox);
bool dw_inbox_unclaim(dw_inboxes *inboxes);
void dw_inbox_tidy(dw_inboxes *inboxes, dw_inbox *inbox); /* removes it if nothing needs it */
/* Frees the inboxes, but not the messages, which belong to the pool. */
void dw_inbox_empty(dw_inboxes *inboxes);

/* teardown.c. close_endpoint: closes the endpoint, if it is open. tear_down: waits for calls of
 * other threads and frees the link; its thread has ended, or is about to end and does not use it
 * any more. free: the same for a link that has no thread yet. */
void dw_wakeup_close(const struct dw_wakeup_fd *wakeup); /* one that was never made is all zeros */
void dw_link_close_endpoint(dw_link *link);
void dw_link_free(dw_link *link);
void dw_link_tear_down(dw_link *link);

/* io_owner.c */
void *dw_link_run(void *link);
/* The caller of these holds the lock. may_take_io: whether the caller may take over the I/O.
 * take_io, release_io: the caller takes over the I/O, and gives it back. drive: takes over the I/O
 * and does the work of the link's thread until has_ended (called under the lock) returns true, the
 * link ends, or the deadline has passed. push_now: sends what is queued without waking the thread.
 * drive and push_now release the lock in between. */
bool dw_link_may_take_io(const dw_link *link);
void dw_link_take_io(dw_link *link);
void dw_link_release_io(dw_link *link);
void dw_link_drive(dw_link *link, bool (*has_ended)(const dw_link *link, uint64_t what),
                   uint64_t what, int64_t deadline_ns);
void dw_link_send_now(dw_link *link);

/* adaptive_spin.c. pays: whether the next wait asks before it sleeps. learn: whether that was of
 * use. poll: waits for descriptors like poll; spin NULL: sleeps at once. */
bool dw_adaptive_spin_pays(dw_adaptive_spin *spin);
void dw_adaptive_spin_learn(dw_adaptive_spin *spin, bool is_useful);
void dw_link_poll(dw_adaptive_spin *spin, struct pollfd *waits, size_t n, int64_t at_most_ns);

/* progress.c; to be called by the I/O owner. */
int dw_link_send_queued(dw_link *link); /* returns how many messages were sent */
int dw_link_step(dw_link *link);        /* sends and receives; returns how many messages moved */
/* poll_backend: sets `state` and `next_check_ns` by what the backend says now. check_timeouts: the
 * same, and checks the timeouts; it is called after each pass, before the I/O is given back. If the
 * link is broken, nobody is asked, and a look is due at once. */
void dw_link_poll_backend(dw_link *link, bool asks_kernel, int64_t now_ns);
void dw_link_check_timeouts(dw_link *link, int64_t now_ns);
/* The goodbye; returns whether to go on. *until_ns is lowered to its deadline. */
bool dw_link_exchange_goodbyes(dw_link *link, int64_t *until_ns);
void dw_link_run_handlers(dw_link *link); /* called by the thread only, with or without the I/O */
/* start_send: starts to send the buffer. start_recv: takes a buffer of room_bytes and starts to
 * receive into it. */
dw_status dw_link_start_send(dw_link *link, dw_buffer *buffer);
void dw_link_keep_sent(dw_link *link); /* the send in flight is complete */
dw_status dw_link_start_recv(dw_link *link, size_t room_bytes);
/* Sleeps until something may have happened or a look is due, but no longer than until_ns. Returns
 * false if a caller has taken over the I/O. */
bool dw_link_sleep(dw_link *link, int64_t until_ns);

#endif
