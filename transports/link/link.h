/* SPDX-License-Identifier: Apache-2.0
 * link.h - a link: its parts, and which thread may use which of them.
 *
 * Each struct has one file that writes it; open.c makes them, and connects them by pointers. A file
 * calls those further down, and no others:
 *
 * | file            | what it is for                                                            |
 * | open.c          | options, opening and closing                                              |
 * | calls.c         | the public calls: sending, receiving, waiting, counting                   |
 * | wait_set.c      | a caller that waits on several links                                      |
 * | drive.c         | takes progress steps: the link's thread, or a caller that waits anyway    |
 * | teardown.c      | the end: the backend is closed, all memory is freed                       |
 * | progress.c      | the progress step, which ends the link where something has failed         |
 * | handshake.c     | each end sends a hello, and reads that of the other                       |
 * | uri.c           | choice of the backend by URI                                              |
 * | timeouts.c      | whether what is under way makes progress                                  |
 * | receiver.c      | messages from the backend                                                 |
 * | sender.c        | messages to the backend                                                   |
 * | backend.c       | the backend's end of the link: what it waits for, and counts              |
 * | handlers.c      | calls of the program's handlers                                           |
 * | inbox.c         | arrived messages by tag                                                   |
 * | send_queue.c    | messages that wait to be sent, and those that the backend still needs     |
 * | io_owner.c      | who may call the backend, and how that thread sleeps and is woken         |
 * | adaptive_spin.c | a caller polls for a moment before it sleeps, where that is of use        |
 * | wakeup.c        | a pipe by which a thread is woken                                         |
 * | lifetime.c      | calls that are running, and the end                                       |
 * | failure.c       | why the link has ended                                                    |
 *
 * Threads. `lock` protects what callers and the I/O owner share. The rest of what moves messages is
 * the I/O owner's alone. Only the public calls, the progress step and who takes it use the whole
 * link. Parts return errors; the step, or a call, ends the link with them. */
#ifndef DW_LINK_H
#define DW_LINK_H

#include "base/bytes.h"
#include "base/fork_guard.h"
#include "base/mem.h"
#include "base/uncancelled.h"
#include "common/report.h"
#include "link/endpoint.h"
#include "link/for_groups.h"

/* Version of the link protocol: every message that a backend carries is a header (common/message.h)
 * and a payload. */
enum { DW_LINK_VERSION = 1 };

/* While a caller waits for a message that has not come, arrived messages may take more memory than
 * max_queued_bytes: half as much again, but at least this many bytes more. */
enum { DW_LINK_BEYOND_BYTES = 32 << 20 };

/* lifetime.c, under lock. */
typedef struct dw_link_lifetime {
    pthread_cond_t idle; /* no call is running */
    uint32_t calls;      /* running calls that may release the lock before they end */
    bool is_closing;
    bool is_abandoned; /* closed by a handler: the thread frees the link when it ends */
    int64_t goodbye_deadline_ns;
} dw_link_lifetime;

/* calls.c, under lock: how long callers have waited. */
typedef struct dw_link_waits {
    uint64_t recv_ns, send_ns;
} dw_link_waits;

struct dw_link {
    dw_fork_guard fork_guard;  /* fixed after open, as well as: */
    dw_link_settings settings; /* max_message_bytes by the handshake */
    pthread_t thread;

    dw_link_backend backend; /* the I/O owner's, as well as: */
    dw_sender sender;
    dw_receiver receiver;
    dw_timeouts timeouts;

    pthread_mutex_t lock; /* for all that follows */
    dw_link_io io;
    dw_buffer_pool pool;
    dw_send_queue queue;
    dw_inboxes inboxes;
    dw_handlers handlers;
    dw_link_lifetime lifetime;
    dw_link_failure failure;
    dw_link_waits waits;
};

/* lifetime.c; the caller holds the lock. wait_idle: until no call is running. */
void dw_lifetime_begin_call(dw_link_lifetime *lifetime);
void dw_lifetime_end_call(dw_link_lifetime *lifetime);
void dw_lifetime_close(dw_link_lifetime *lifetime, bool is_abandoned, int64_t deadline_ns);
void dw_lifetime_end_by_peer(dw_link_lifetime *lifetime, int64_t deadline_ns);
void dw_lifetime_wait_idle(dw_link_lifetime *lifetime, pthread_mutex_t *lock);

/* uri.c. find: for dw_transport_open.find; find_context: the link's dw_link_options. */
const dw_transport *dw_uri_find(void *find_context, const char *uri, dw_transport_open *how);
dw_status dw_uri_check_contexts(const dw_link_options *options, dw_why *why);
dw_status dw_uri_explain_unknown(const dw_transport *const *transports, const char *uri,
                                 dw_why *why);

/* handshake.c. Sends a hello and waits for the hello of the peer. */
dw_status dw_link_handshake(dw_link *link, const dw_transport_open *how, int64_t deadline_ns,
                            uint64_t *peer_max_message_bytes);

/* calls.c, for channels. send_begin_always: like dw_link_send_begin, but for answers, which must
 * not wait: the queue may grow to twice its limit and one message more. Beyond that the link fails.
 * abort: ends the link with an error. */
dw_status dw_link_send_begin_always(dw_link *link, uint32_t tag, size_t cap, void **room);
void dw_link_abort(dw_link *link, dw_status status, const char *sentence);

/* progress.c; to be called by the I/O owner. send_queued, step: send, and send and receive; return
 * how many messages moved. exchange_goodbyes: returns whether to go on; *until_ns is lowered to the
 * deadline of the goodbye. */
int dw_link_send_queued(dw_link *link);
int dw_link_step(dw_link *link);
void dw_link_check_timeouts(dw_link *link, int64_t now_ns);
bool dw_link_exchange_goodbyes(dw_link *link, int64_t *until_ns);
/* By the thread only, with or without the I/O: calls the handlers of all messages that wait. */
void dw_link_run_handlers(dw_link *link);
/* The caller of these holds the lock. run_handler: calls one. fail: ends the link with an error;
 * only the first one is kept. */
void dw_link_run_handler(dw_link *link, dw_handler_run *run, dw_inbox *inbox);
void dw_link_fail(dw_link *link, dw_status status, const char *sentence);

/* drive.c. run: the link's thread. */
void *dw_link_run(void *link);
/* The caller of these holds the lock. has_ended: or is about to. may_take_io: whether the caller
 * may take over the I/O. is_idle: the last step found nothing, and nothing waits to be sent.
 * release_io: gives the I/O back. drive: takes over the I/O and takes progress steps until
 * has_ended (called under the lock) returns true, the link ends, or the deadline has passed.
 * send_now: sends what is queued without waking the thread. drive and send_now release the lock in
 * between. */
bool dw_link_has_ended(const dw_link *link);
bool dw_link_may_take_io(const dw_link *link);
bool dw_link_is_idle(const dw_link *link);
void dw_link_release_io(dw_link *link);
void dw_link_drive(dw_link *link, bool (*has_ended)(const dw_link *link, uint64_t what),
                   uint64_t what, int64_t deadline_ns);
void dw_link_send_now(dw_link *link);

/* teardown.c. close_endpoint: closes the backend's end, if it is open. tear_down: waits for calls
 * of other threads and frees the link; its thread has ended, or is about to end and does not use it
 * any more. free: the same for a link that has no thread yet. */
void dw_link_close_endpoint(dw_link *link);
void dw_link_free(dw_link *link);
void dw_link_tear_down(dw_link *link);

#endif
