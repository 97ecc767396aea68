/* SPDX-License-Identifier: Apache-2.0
 * endpoint.h - one end of a connection: the backend, the message that is being sent, the one that
 * is being received, and for how long neither has moved. Only the I/O owner uses it, except where a
 * comment says otherwise; before the link's thread runs, dw_link_open does. */
#ifndef DW_LINK_ENDPOINT_H
#define DW_LINK_ENDPOINT_H

#include "base/clock.h"
#include "base/mem.h"
#include "common/message.h"
#include "common/opening.h"
#include "link/io_owner.h"
#include "link/messages.h"

/* Fixed once the handshake is over; open.c. */
typedef struct dw_link_settings {
    dw_allocator allocator;
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
} dw_link_settings;

/* failure.c, under lock. status: DW_OK while the link lives; set once. has_sent_all: when the link
 * failed, nothing was queued, in flight or kept. */
typedef struct dw_link_failure {
    dw_status status;
    bool has_sent_all;
    dw_why why;
} dw_link_failure;
/* set: only the first failure is kept. cancel: replaces an earlier status; its sentence stays. */
void dw_link_failure_set(dw_link_failure *failure, dw_status status, const char *sentence,
                         bool has_sent_all);
void dw_link_failure_cancel(dw_link_failure *failure);

/* ---- backend.c ------------------------------------------------------------------------------- */

typedef struct dw_link_backend {
    const dw_allocator *allocator;
    dw_transport transport;
    void *endpoint;
    bool is_open;
    bool is_broken; /* it must not be called any more; written under lock */
    /* What it said when it was last asked what it waits for, and when it is to be called at the
     * latest. Valid as long as it is not called. */
    dw_transport_state state;
    int64_t wake_ns;
    dw_link_counters counters; /* under lock: what it has counted */
} dw_link_backend;

/* create: false: no memory. poll: sets `state` and `wake_ns`; if it is broken, it is not asked, and
 * wake_ns is now. state: asks it, for one use. count, break: under lock. close: false: the backend
 * may still use the buffers of requests that have not ended. */
bool dw_backend_create(dw_link_backend *backend, const dw_transport *transport,
                       const dw_allocator *allocator);
dw_status dw_backend_open(dw_link_backend *backend, const dw_transport_open *how);
/* What a call of the backend has returned; IO for what is no dw_status. */
static inline dw_status dw_backend_said(dw_status status)
{
    return status > DW_PENDING ? DW_ERR_IO : status;
}
void dw_backend_poll(dw_link_backend *backend, bool asks_kernel, int64_t now_ns);
dw_transport_state dw_backend_state(const dw_link_backend *backend);
void dw_backend_count(dw_link_backend *backend, const dw_transport_state *state,
                      bool has_asked_kernel);
void dw_backend_break(dw_link_backend *backend);
bool dw_backend_close(dw_link_backend *backend);
void dw_backend_destroy(dw_link_backend *backend);
struct pollfd dw_backend_wait(const dw_link_backend *backend); /* what to wait for */

/* ---- sender.c -------------------------------------------------------------------------------- */

/* So many messages or bytes are moved in one direction before the other direction gets its turn. */
enum { DW_LINK_BATCH = 64, DW_LINK_BATCH_BYTES = 1 << 20 };

typedef struct dw_sender {
    dw_link_backend *backend;
    dw_send_queue *queue;
    pthread_mutex_t *lock; /* the link's, for `queue` */
    void *request;
    dw_buffer *sending;
    int64_t started_ns; /* when it began */
    bool has_failed;    /* starting or testing it: it must not be tested again */
} dw_sender;

/* start: starts to send the buffer. test: whether the send in flight is complete (OK), and then
 * keeps its message; PENDING: it is not, or there is none. keep: it is complete. push: passes
 * queued messages to the backend, and returns how many were sent. lose: under lock: the backend may
 * use the buffer for ever. */
bool dw_sender_create(dw_sender *sender, dw_link_backend *backend, dw_send_queue *queue,
                      pthread_mutex_t *lock); /* false: no memory */
dw_status dw_sender_start(dw_sender *sender, dw_buffer *buffer);
dw_status dw_sender_test(dw_sender *sender, dw_why *why);
void dw_sender_keep(dw_sender *sender);
int dw_sender_push(dw_sender *sender, dw_why *why, dw_status *status);
void dw_sender_lose(dw_sender *sender);
void dw_sender_destroy(dw_sender *sender);

/* ---- receiver.c ------------------------------------------------------------------------------ */

/* A receive starts with this much room. If a message is longer, the backend reports its length
 * first (DW_ERR_BUFFER_TOO_SMALL), and the receive starts again with enough room. */
enum { DW_LINK_ROOM_BYTES = 4096 };

typedef struct dw_receiver {
    dw_link_backend *backend;
    const dw_link_settings *settings;
    dw_inboxes *inboxes;
    dw_buffer_pool *pool;
    dw_link_io *io; /* which runs the handlers */
    void *request;
    dw_buffer *receiving;
    uint64_t whole_bytes; /* what had arrived when the last message was complete */
    bool found_nothing;   /* a receive is in flight, and its last test found nothing */
    bool has_goodbye;     /* the peer has said goodbye, and sends nothing any more */
    bool is_paused;       /* under lock */
    /* For the timeout of callers that wait while nothing is received, because unread messages take
     * more than max_arrived_bytes. full_ns: how long such callers have waited since a message was
     * last taken out, measured until full_looked_ns. full_looked_ns: the time of that measurement;
     * 0: no caller waited then. full_taken: dw_inboxes.taken at that time. */
    int64_t full_ns, full_looked_ns;
    uint64_t full_taken;
} dw_receiver;

/* create: fills in the request of a receiver whose pointers are set; false: no memory. start: takes
 * a buffer of room_bytes and starts to receive into it. test: whether the receive has ended, with
 * the length of its message. drop: the message in hand is of no use. begin: messages from now on
 * count. pull: receives what has arrived, up to a goodbye, and returns the number of messages.
 * expect: bytes may have come since the last test found nothing, so the next pull tests again.
 * lose: under lock: the backend may use the buffer of the receive for ever. */
bool dw_receiver_create(dw_receiver *receiver);
dw_status dw_receiver_start(dw_receiver *receiver, size_t room_bytes);
dw_status dw_receiver_test(dw_receiver *receiver, size_t *len, dw_why *why);
void dw_receiver_drop(dw_receiver *receiver);
void dw_receiver_begin(dw_receiver *receiver);
int dw_receiver_pull(dw_receiver *receiver, dw_why *why, dw_status *status);
void dw_receiver_expect(dw_receiver *receiver);
void dw_receiver_lose(dw_receiver *receiver);
void dw_receiver_destroy(dw_receiver *receiver);

/* ---- timeouts.c ------------------------------------------------------------------------------ */

typedef struct dw_timeouts {
    dw_link_backend *backend;
    dw_sender *sender;
    dw_receiver *receiver;
    const dw_link_failure *failure;
    /* When bytes last moved, and when there was last a sign that the peer is going to acknowledge
     * what was sent. */
    int64_t sent_ns, received_ns, kept_ns;
    uint64_t sent_bytes, received_bytes;
    int64_t kernel_asked_ns; /* when the operating system's counters were last read ... */
    bool kernel_stale;       /* ... and whether bytes have moved since */
    /* The last check released messages that the backend had kept. A caller may wait for that. */
    bool has_released;
    /* When the link is to be looked at again at the latest: the earliest of the backend's and the
     * timeouts'. */
    int64_t next_ns;
} dw_timeouts;

/* begin: bytes count from now on. check: asks the backend what it waits for, releases what it does
 * not need any more, and returns an error with a sentence if something has made no progress for too
 * long. It is called after each step, before the I/O is given back. */
void dw_timeouts_begin(dw_timeouts *timeouts, int64_t now_ns);
dw_status dw_timeouts_check(dw_timeouts *timeouts, int64_t now_ns, dw_why *why);

#endif
