/* SPDX-License-Identifier: Apache-2.0
 * messages.h - the messages of a link that wait: to be sent, to be acknowledged, to be received, or
 * to be handled. All of it is used under the lock of the link. */
#ifndef DW_LINK_MESSAGES_H
#define DW_LINK_MESSAGES_H

#include <pthread.h>
#include <stdbool.h>

#include "common/buffer.h"
#include "deltawire/transport.h"

/* ---- Sending --------------------------------------------------------------------------------- */

typedef enum dw_goodbye { DW_GOODBYE_NONE, DW_GOODBYE_QUEUED, DW_GOODBYE_SENT } dw_goodbye;

typedef struct dw_send_queue {
    dw_buffer_pool *pool;
    uint64_t max_bytes;
    pthread_cond_t drained; /* there is room in the queue, or the link ended */
    dw_buffer *head, *tail;
    /* Messages that were sent, but whose bytes the backend still needs; oldest first. */
    dw_buffer *kept_head, *kept_tail;
    uint64_t kept;          /* how many; only the I/O owner changes it */
    uint64_t bytes;         /* of messages reserved, queued, in flight and kept */
    uint64_t unsent;        /* messages queued and in flight ... */
    uint64_t unsent_bytes;  /* ... and their payload */
    int64_t unsent_ns;      /* when `unsent` last changed */
    dw_goodbye goodbye;     /* our own */
    uint64_t messages_sent; /* for dw_link_counters, as well as: */
    uint64_t queue_ns;
} dw_send_queue;

/* has_room: whether a message of cap bytes may be reserved. exceeds_answers: whether there is more
 * than answers may take, each of at most max_message_bytes. reserve: a buffer for a message; NULL:
 * no memory. unreserve: it is not sent. commit: it waits to be sent from now on, with len bytes. */
bool dw_send_queue_has_room(const dw_send_queue *queue, size_t cap);
bool dw_send_queue_exceeds_answers(const dw_send_queue *queue, uint64_t max_message_bytes);
dw_buffer *dw_send_queue_reserve(dw_send_queue *queue, uint32_t tag, size_t cap);
void dw_send_queue_unreserve(dw_send_queue *queue, dw_buffer *buffer);
void dw_send_queue_commit(dw_send_queue *queue, dw_buffer *buffer, size_t len);
/* next: removes the oldest message that waits to be sent; NULL: there is none. keep: it was sent,
 * and the backend may still need its bytes. release: the backend needs those of still_kept
 * messages. lose_kept: the backend may read them for ever. is_drained: nothing waits, is in flight
 * or kept.
 */
dw_buffer *dw_send_queue_next(dw_send_queue *queue);
void dw_send_queue_keep(dw_send_queue *queue, dw_buffer *sent);
void dw_send_queue_release(dw_send_queue *queue, uint64_t still_kept);
void dw_send_queue_lose_kept(dw_send_queue *queue);
bool dw_send_queue_is_drained(const dw_send_queue *queue);
/* drop: what waits is not sent any more. say_goodbye: queues the last message; false: no memory. */
void dw_send_queue_drop(dw_send_queue *queue);
bool dw_send_queue_say_goodbye(dw_send_queue *queue);

/* ---- Receiving ------------------------------------------------------------------------------- */

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

/* The table of inboxes has at least 2^DW_INBOX_LEAST_BITS buckets. At most DW_INBOX_UNUSED_MOST
 * unused inboxes are kept for new tags. */
enum { DW_INBOX_LEAST_BITS = 6, DW_INBOX_UNUSED_MOST = 64 };

typedef struct dw_inboxes {
    const dw_allocator *allocator;
    pthread_cond_t arrived; /* a message arrived, or the link ended */
    dw_inbox *few[1 << DW_INBOX_LEAST_BITS];
    dw_inbox **many; /* 2^bits buckets; NULL: `few` is used */
    uint32_t bits, n, n_unused;
    /* Random numbers of the hash: a peer that does not know it cannot choose tags that all share
     * one bucket */
    uint64_t key[2];
    dw_inbox *unused;
    dw_inbox *due, *last_due; /* a queue: handlers are called in this order */
    dw_inbox *claimed; /* not in it, because a caller in dw_link_wait_any calls its handler */
    uint32_t waiters;  /* threads in dw_link_recv that have found no message */
    bool is_closed;    /* the link is closing: what arrives is dropped */
    uint64_t bytes;    /* memory of the messages that arrived and were not received yet */
    uint64_t taken;    /* messages taken out so far */
    uint64_t messages_received; /* for dw_link_counters */
} dw_inboxes;

/* set_handler: NULL removes the handler. next_due: removes the inbox whose handler is to be called
 * next from the list and returns it; NULL: there is none. dw_inbox_take puts it on the list again
 * if messages remain. */
void dw_inbox_begin(dw_inboxes *inboxes);
dw_inbox *dw_inbox_find(const dw_inboxes *inboxes, uint32_t tag);
dw_inbox *dw_inbox_get(dw_inboxes *inboxes, uint32_t tag); /* NULL: no memory */
void dw_inbox_put(dw_inboxes *inboxes, dw_inbox *inbox, dw_buffer *buffer);
dw_buffer *dw_inbox_take(dw_inboxes *inboxes, dw_inbox *inbox);
void dw_inbox_set_handler(dw_inboxes *inboxes, dw_inbox *inbox, dw_link_handler handle,
                          void *context);
dw_inbox *dw_inbox_next_due(dw_inboxes *inboxes);
/* arrive: a message has arrived, which the caller then puts into this inbox; NULL: there is no
 * memory, or messages are dropped. close: from now on they are. begin_wait, end_wait: of a caller,
 * for this inbox; NULL: it does not wait for `arrived`. */
dw_inbox *dw_inbox_arrive(dw_inboxes *inboxes, uint32_t tag);
void dw_inbox_close(dw_inboxes *inboxes);
void dw_inbox_begin_wait(dw_inboxes *inboxes, dw_inbox *inbox);
void dw_inbox_end_wait(dw_inboxes *inboxes, dw_inbox *inbox);
/* claim: this inbox becomes `claimed`. unclaim: none is; returns whether there are messages for its
 * handler. */
void dw_inbox_claim(dw_inboxes *inboxes, dw_inbox *inbox);
bool dw_inbox_unclaim(dw_inboxes *inboxes);
void dw_inbox_tidy(dw_inboxes *inboxes, dw_inbox *inbox); /* removes it if nothing needs it */
/* Frees the inboxes, but not the messages, which belong to the pool. */
void dw_inbox_empty(dw_inboxes *inboxes);

/* ---- Handlers -------------------------------------------------------------------------------- */

typedef struct dw_handler_run {
    bool is_running;
    uint32_t tag;
    pthread_t thread;
} dw_handler_run;

typedef struct dw_handlers {
    pthread_mutex_t *lock; /* the link's */
    dw_inboxes *inboxes;
    dw_buffer_pool *pool;
    pthread_cond_t handled; /* a handler returned */
    dw_handler_run by_thread, by_caller;
} dw_handlers;

/* run: passes a message of the inbox to its handler, and releases the lock meanwhile.
 * run_elsewhere: whether another thread is in a handler of this tag. */
void dw_handlers_run(dw_handlers *handlers, dw_handler_run *run, dw_inbox *inbox);
bool dw_handlers_run_elsewhere(const dw_handlers *handlers, uint32_t tag);

#endif
