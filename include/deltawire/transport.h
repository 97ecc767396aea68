/* SPDX-License-Identifier: Apache-2.0
 * transport.h - links between two ranks, channels (an encoder and a decoder on a link), and the
 * interface of transports, by which programs can add their own. */
#ifndef DELTAWIRE_TRANSPORT_H
#define DELTAWIRE_TRANSPORT_H

#include "deltawire/cuda.h"
#include "deltawire/deltawire.h"
#include "deltawire/tls.h"
#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------
 * Structs that begin with struct_size, in this header, tls.h and nccl.h. Whoever creates one sets
 * struct_size to its size and all other fields that are not needed to zero: `dw_link_options
 * options = {.struct_size = sizeof options};`. Zero means the default. Fields keep their places in
 * all later versions, and new ones are appended, never put into padding. So programs, backends and
 * the library work together even if they were compiled with headers of different versions:
 *
 * - A shorter struct, from older code, is read as if zeros followed.
 *
 * - A longer one, from newer code, is accepted if all bytes behind the fields known here are zero.
 *   Otherwise the call returns ARGUMENT with a sentence, because it asks for something that this
 *   version cannot do. dw_transport_open is an exception: it only informs a backend, so unknown
 *   fields are ignored.
 *
 * - Structs for results (dw_link_counters, dw_transport_traits, dw_transport_state) are not written
 *   past the struct_size that their owner set. Additional fields of a longer one are set to zero in
 *   dw_link_counters, and left unchanged in traits and state.
 *
 * A struct_size below 8 or above 4096 is an error: ARGUMENT. Flags in these structs are int, 0 or
 * 1, whose size is the same in every language. */

/* ---------------------------------------------------------------------------------------------
 * Link: a connection of two ranks by a transport. Messages arrive complete, once, and in order per
 * tag; otherwise the link fails, and from then on every call returns the same error. Each link has
 * a thread that moves the bytes, so sending continues while the caller computes.
 *
 * Threads: any thread may call, and pthread_cancel ends it only after the call. After fork() links
 * and channels are the parent's: in the child every call returns ARGUMENT, dw_link_close does
 * nothing, and descriptors stay open until exec or exit. The program may exit with links open. */
typedef struct dw_link dw_link;
typedef struct dw_transport dw_transport;

typedef enum dw_link_role { DW_LINK_LISTEN = 1, DW_LINK_CONNECT = 2 } dw_link_role;

/* An object of the program that a backend needs: {"mpi", a dw_mpi}, {"nccl", a dw_nccl}. Each
 * backend of a URI gets the one for its own scheme, or NULL. */
typedef struct dw_transport_context {
    const char *scheme;
    void *context;
} dw_transport_context;

/* Options of dw_link_open. Zero means the default.
 *
 * | name              | unit  | meaning                                            | default |
 * | role              |       | which end waits and which one connects             | connect |
 * | open_timeout_ms   | ms    | limit for both ends to connect and agree           | 60000   |
 * | peer_timeout_ms   | ms    | limit for a send, or a peer that owes bytes, that  | 60000   |
 * |                   |       | makes no progress                                  |         |
 * | close_timeout_ms  | ms    | limit for dw_link_close to send what is queued     | 5000    |
 * | max_message_bytes | bytes | a longer message is an error at either end         | 1 GiB   |
 * | max_queued_bytes  | bytes | if more were queued, dw_link_send returns PENDING; | 1 GiB   |
 * |                   |       | if more have arrived and were not received, the    |         |
 * |                   |       | link stops reading until dw_link_recv waits        |         |
 * | transports        |       | backends beside the built-in ones; the list ends   | none    |
 * |                   |       | with NULL                                          |         |
 * | contexts          |       | for backends that need one, each with its scheme;  | none    |
 * |                   |       | the list ends with {NULL, NULL}                    |         |
 * | on_listening      |       | called with the bound address, before waiting for  | none    |
 * |                   |       | the peer                                           |         |
 * | tls               |       | keys or certificates, see tls.h                    | none    |
 * | insecure_plaintext|       | 1: allow addresses other than loopback without     | 0       |
 * |                   |       | tls, so that others on the network can read,       |         |
 * |                   |       | change and inject messages. 0: tcp refuses that    |         |
 * | allocator         |       | for all memory of the link, its backends and its   | malloc, |
 * |                   |       | channels; called by any thread, also by several at | free    |
 * |                   |       | the same time, until the link is closed (of loop:  |         |
 * |                   |       | until both ends are closed)                        |         |
 */
typedef struct dw_link_options {
    size_t struct_size;
    dw_link_role role;
    uint32_t open_timeout_ms, peer_timeout_ms, close_timeout_ms;
    uint64_t max_message_bytes, max_queued_bytes;
    const dw_transport *const *transports;
    void (*on_listening)(void *context, const char *uri);
    void *listening_context;
    /* May be NULL. dw_link_open gives up when it becomes non-zero. */
    const volatile int *cancelled;
    const dw_transport_context *contexts;
    const dw_tls_options *tls;
    int insecure_plaintext;
    dw_allocator allocator;
} dw_link_options;

/* Opens a link. Blocks until both ends are connected and have agreed on the version. uri:
 * "tcp://127.0.0.1:7000", "tcp://[::1]:0" (0: any free port, see on_listening), "loop://name",
 * "shaped:rate=100mbit,delay=20ms/tcp://host:7000?stripes=4" and others (docs/transports.md). The
 * lookup of a host name is not limited by open_timeout_ms and cannot be cancelled.
 *
 * Errors, each with a sentence in *why and *link NULL: ARGUMENT, CONFIG, ADDRESS, TIMEOUT, PEER,
 * PROTOCOL, VERSION, CANCELLED, NO_MEMORY, UNSUPPORTED, AUTH (an address other than loopback
 * without tls; or see tls.h). */
DW_API dw_status dw_link_open(dw_link **link, const char *uri, const dw_link_options *options,
                              dw_why *why);

/* Sends what is queued, for at most close_timeout_ms, then closes the link and frees its memory,
 * including messages that were not released. Calls waiting in other threads return CANCELLED; no
 * call may follow. In a handler it returns at once: no handler is called any more, and the link is
 * freed later. NULL is allowed. */
DW_API void dw_link_close(dw_link *link);

/* Makes every call on the link, in any thread, return CANCELLED. Only dw_link_close may follow. */
DW_API void dw_link_cancel(dw_link *link);

/* Queues a copy of a message of len bytes and returns. PENDING: the queue is full and nothing was
 * queued; see dw_link_wait_room. Errors: ARGUMENT, LIMIT, NO_MEMORY, those of the failed link. */
DW_API dw_status dw_link_send(dw_link *link, uint32_t tag, const void *data, size_t len);

/* Sends without the copy. dw_link_send_begin returns room for cap bytes to write the message to.
 * dw_link_send_end queues the first len bytes of it (0..cap), or returns the room unsent for len =
 * DW_LINK_DROP. Each begin must be followed by one end. PENDING and errors: as dw_link_send. */
#define DW_LINK_DROP SIZE_MAX
DW_API dw_status dw_link_send_begin(dw_link *link, uint32_t tag, size_t cap, void **room);
DW_API dw_status dw_link_send_end(dw_link *link, void *room, size_t len);

/* Receives the next message with this tag. *data belongs to the link and is valid until
 * dw_link_release. timeout_ms: < 0 waits as long as the link lives, 0 does not wait. PENDING: no
 * message arrived within that time. Errors: ARGUMENT, LIMIT, those of the failed link.
 *
 * While a caller waits here, messages with other tags are read beyond max_queued_bytes: up to half
 * as much again, at least 32 MiB more, and one message. Then the link reads nothing until somebody
 * receives some of them. If nobody does for half of peer_timeout_ms while a caller waits, the link
 * fails with LIMIT, because the message that is awaited stands behind messages that nobody
 * receives. Those can still be received then. What counts is memory: of a message its length,
 * rounded up to a power of two, and about 200 bytes; and the record of each tag. */
DW_API dw_status dw_link_recv(dw_link *link, uint32_t tag, int timeout_ms, void **data,
                              size_t *len);
/* Returns a received message to the link. */
DW_API void dw_link_release(dw_link *link, void *data);

/* Waits until everything queued was handed to the operating system; with tcp, until the peer's end
 * has received it, even if it has closed since. timeout_ms and PENDING: as dw_link_recv. */
DW_API dw_status dw_link_flush(dw_link *link, int timeout_ms);

/* Waits until a message of cap bytes can be queued. Call it after PENDING: unlike a flush it does
 * not let the wire fall idle. Another thread may be first to use the room. timeout_ms and PENDING:
 * as dw_link_recv. */
DW_API dw_status dw_link_wait_room(dw_link *link, size_t cap, int timeout_ms);

/* Sets a handler that receives the messages of one tag as they arrive, instead of dw_link_recv. It
 * is called in the link's own thread, must return, quickly (no pthread_exit, no longjmp), and may
 * send. data belongs to the link and is valid during the call. handle NULL removes the handler and
 * waits until no call of it is running. */
typedef void (*dw_link_handler)(void *context, const void *data, size_t len);
DW_API dw_status dw_link_handle(dw_link *link, uint32_t tag, dw_link_handler handle, void *context);

typedef struct dw_link_counters {
    size_t struct_size;
    uint64_t messages_sent, messages_received;
    uint64_t bytes_sent, bytes_received; /* on the wire: payload, tags and framing */
    uint64_t queued_bytes;               /* now */
    /* Time that callers waited: in recv; in flush, wait_room and close. */
    uint64_t recv_wait_ns, send_wait_ns;
    /* Bytes that the operating system has had acknowledged, and has received; at most 10 ms old; 0
     * if the backend cannot tell. */
    uint64_t kernel_bytes_sent, kernel_bytes_received;
    /* The sum over all messages of the time from dw_link_send until the backend had all of it. */
    uint64_t queue_ns;
    /* From the operating system, like kernel_*: segments sent again, the round-trip time of the
     * fastest connection. From the backend: bytes sent again, connections made again. */
    uint64_t retransmits, rtt_ns, resent_bytes, reconnects;
    uint64_t retry_ms; /* as in dw_transport_traits; 0: messages arrive complete, once, in order */
    uint64_t unsent_bytes; /* now: the payload of messages of which bytes have not left yet */
} dw_link_counters;
/* Fills *counters; the caller sets counters->struct_size first. Errors: ARGUMENT. */
DW_API dw_status dw_link_count(dw_link *link, dw_link_counters *counters);

/* The peer's name, authenticated by TLS; "" without TLS. Valid while the link exists. */
DW_API const char *dw_link_peer_name(dw_link *link);

/* Why the link failed, in a sentence that names the peer; "" while it works. */
DW_API const char *dw_link_why(dw_link *link);

/* ---------------------------------------------------------------------------------------------
 * Channel: an encoder and a decoder on a link. Sent tensors go through the encoder, received ones
 * through the decoder. The channel handles replies, and repairs rejected frames by sending the
 * tensor again. Both ends use the same id; the send config of one end is the recv config of the
 * other.
 *
 * | name           | meaning                                                    | default |
 * | id             | 1..0xffff, used once per link. Its tags are id << 8 ...    | -       |
 * | send, recv     | configs; NULL: no tensors in that direction                | NULL    |
 * | open_timeout_ms| limit for the peer to open the same id                     | 60000   |
 * | host           | of encoder and decoder: dw_host (deltawire.h)              | NULL    |
 * | on_frame       | is called with the bytes of every frame that               | none    |
 * |                | dw_channel_send encodes (is_sent: 1) or dw_channel_recv    |         |
 * |                | decodes (0), before they return, by the thread that called |         |
 * |                | them: both may call it at the same time. The bytes are     |         |
 * |                | valid during the call, in which the peer waits for the     |         |
 * |                | frame or its acknowledgement, and which must not use the   |         |
 * |                | channel. With delta, a frame that arrives may be one that  |         |
 * |                | replaces the frame that was sent                           |         |
 * | frame_context  | passed to on_frame                                         | NULL    |
 *
 * One end may use a GPU and the other the CPU, because the bits are the same. An incarnation in a
 * config is not the encoder's, which derives its own from it, the id and the role of the link, so
 * that both ends and all channels differ. Threads: one thread may send while another receives. */
typedef struct dw_channel dw_channel;

typedef struct dw_channel_config {
    size_t struct_size;
    uint32_t id;
    const dw_config *send, *recv;
    uint32_t open_timeout_ms;
    const dw_host *host;
    void (*on_frame)(void *context, int is_sent, const void *frame, size_t len);
    void *frame_context;
} dw_channel_config;

/* Opens a channel, and waits for the peer to do so. Errors: ARGUMENT, CONFIG, MISMATCH (with both
 * configs in *why), TIMEOUT, NO_MEMORY, those of the link and of
 * dw_encoder_create. */
DW_API dw_status dw_channel_open(dw_channel **channel, dw_link *link,
                                 const dw_channel_config *config, dw_why *why);
/* Closes a channel, before its link. Waits until the peer has received what was sent, because it
 * may ask for some of it again, for at most the link's close_timeout_ms; with replies = never it
 * does not wait. NULL is allowed. */
DW_API void dw_channel_close(dw_channel *channel);

/* Encodes x and queues the frame. x and keys may be changed after the call; the frame is sent in
 * the background. Waits only while the link's queue is full. Errors: those of dw_encode and of the
 * link.
 *
 * stream: NULL for tensors in main memory. Where the channel's host has a GPU, x and y must lie
 * where it reaches them, which nothing checks, and the work is enqueued on this CUstream or
 * cudaStream_t (NULL: the default stream), in order with the work that produces x or uses y. Both
 * functions wait until the stream has done it. Frames pass through pinned memory of the channel's;
 * replies use a stream of its own. After an error y is undefined. Errors: also ARGUMENT (the stream
 * is capturing, or there is no GPU), IO (CUDA failed; the channel then stays failed). */
DW_API dw_status dw_channel_send(dw_channel *channel, const dw_key *keys, const dw_tensor *x,
                                 void *stream);

/* Receives the next tensor into y, whose shape must be the sender's. keys: NULL, or room for y->n
 * keys, which are filled in. timeout_ms and PENDING: as dw_link_recv. stream: as dw_channel_send. A
 * rejected frame is requested again automatically. Errors: those of dw_decode and of the link. */
DW_API dw_status dw_channel_recv(dw_channel *channel, int timeout_ms, dw_key *keys,
                                 const dw_tensor *y, void *stream);

/* Drops the state of a key that this end sends; see dw_encoder_forget. The peer is told with the
 * next frame. If it cannot use a frame with the key that is on its way, the channel ends. */
DW_API dw_status dw_channel_forget(dw_channel *channel, dw_key key);

/* Begins to read the state of n keys that will soon be sent or received; see dw_encoder_prefetch.
 * Errors: ARGUMENT. */
DW_API dw_status dw_channel_prefetch(dw_channel *channel, const dw_key *keys, size_t n);

/* Fills in the counters of the channel's encoder and of its decoder, whose struct_size the caller
 * has set; either may be NULL. Zeros where the channel has no such end. Errors: ARGUMENT. */
DW_API dw_status dw_channel_count(dw_channel *channel, dw_counters *sent, dw_counters *received);
/* The last error of the calling thread, or else of the channel, in a sentence; valid until that
 * thread asks again. */
DW_API const char *dw_channel_why(dw_channel *channel);

/* ---------------------------------------------------------------------------------------------
 * Backend: the implementation of a transport, as a table of a scheme, two sizes and functions.
 * Queues, threads, timeouts and URIs belong to the link; a backend only moves messages between two
 * ends. Threads: all calls for an endpoint come from one thread at a time. Only open and close may
 * block. docs/transports.md shows how to write one.
 *
 * At most one send and one recv are in flight per endpoint. Each is continued by calls of test
 * until test returns something other than PENDING. Its buffer stays valid until then (that of a
 * send until poll reports that it is no longer kept) or until close. Bytes move in test and turn
 * alone; describe and poll only report. */
typedef struct dw_transport_open {
    size_t struct_size;
    const char *address; /* what follows "scheme://" or "scheme:" in the URI */
    dw_link_role role;
    uint32_t timeout_ms;
    /* For a backend whose operating system can detect a lost peer by itself. */
    uint32_t peer_timeout_ms;
    const volatile int *cancelled;                        /* never NULL */
    void (*on_listening)(void *context, const char *uri); /* never NULL */
    void *listening_context;
    /* For a backend that wraps another one: finds the other by its URI, and sets in *how, a copy of
     * this struct, the other's address and context. NULL: there is none. */
    const dw_transport *(*find)(void *find_context, const char *uri, struct dw_transport_open *how);
    void *find_context;
    void *context; /* the entry of the link's contexts for this scheme; NULL: none */
    const dw_tls_options *tls;
    /* From the link's options. A backend without TLS may ignore it; describe says what it does. */
    int insecure_plaintext;
    dw_why *why;              /* never NULL; set a sentence for every error */
    uint64_t longest_message; /* limit of the link, including its header; 0: none */
    /* 1: the link keeps buffers of sends as long as kept_sends in dw_transport_state says. 0: the
     * backend copies what it still needs after OK. */
    int heeds_kept_sends;
    dw_allocator allocator; /* for all memory of the endpoint; its functions are never NULL */
} dw_transport_open;

/* What an endpoint is. The link asks once, after open, because it never changes. Flags are 0 or 1.
 *
 * | name                | meaning                                                              |
 * | peer                | the other end's name in error messages                               |
 * | longest_message     | bytes of the longest message that it can carry; 0: no limit          |
 * | framing_bytes       | bytes that each message adds on the wire                             |
 * | loses, doubles,     | 1: messages may be lost, arrive twice, in another order, or damaged  |
 * | reorders, damages   | (a wire made for tests). All 0: they arrive complete, once, in order |
 * | retry_ms            | with any of these four: channels request again what has not arrived  |
 * |                     | within this time                                                     |
 * | takes_device_memory | send and recv accept addresses of GPU memory as well                 |
 * | is_secure           | all bytes are protected by TLS; only then the next two are set       |
 * | peer_name           | the other end's name, authenticated by TLS                           |
 * | session             | random; known to both ends and nobody else                           |
 */
typedef struct dw_transport_traits {
    size_t struct_size; /* set by the caller, who sets all other fields to zero */
    char peer[96];
    uint64_t longest_message;
    uint32_t framing_bytes, retry_ms;
    int loses, doubles, reorders, damages;
    int takes_device_memory;
    int is_secure;
    char peer_name[64];
    unsigned char session[32];
} dw_transport_traits;

/* What has happened at an endpoint so far, and what it waits for. The link asks often. */
typedef struct dw_transport_state {
    size_t struct_size; /* set by the caller, who sets all other fields to defaults */
    /* A descriptor for poll(). When it reports one of wait_events, test should be called. -1: none.
     */
    int wait_fd;
    /* POLLIN and POLLOUT, only for what is in flight, so that an idle link sleeps. */
    int wait_events;
    /* test should be called after this time in any case; -1: no such time. */
    int64_t wake_ns;
    /* Bytes so far, including framing. Timeouts depend on both: wire_sent must grow while a send
     * makes progress, and wire_received must not grow between messages. */
    uint64_t wire_sent, wire_received;
    /* The backend still needs the data of so many of the last sends for which test returned OK. */
    uint64_t kept_sends;
    uint64_t resent_bytes, reconnects; /* as in dw_link_counters */
    /* The operating system's counts for this connection; 0: unknown. Only if poll asks the
     * kernel. */
    uint64_t kernel_sent, kernel_received, retransmits, rtt_ns;
} dw_transport_state;

/* How the ranks of a run, a process each, find each other by a transport. */
typedef enum dw_transport_ranks {
    DW_RANKS_APART = 0,    /* the transport offers no way; the program must have its own */
    DW_RANKS_ADDRESS = 1,  /* each rank listens at host:port and reports it (on_listening) */
    DW_RANKS_NUMBERED = 2, /* a launcher numbers the ranks, and join returns their numbers */
    DW_RANKS_BEHIND = 3    /* like the inner transport that its URI names */
} dw_transport_ranks;

/* The place of a process among the ranks. struct_size and local_rank are set by the caller. */
typedef struct dw_transport_place {
    size_t struct_size;
    uint32_t local_rank;  /* number among the ranks of this machine, to choose a GPU by */
    uint32_t rank, ranks; /* DW_RANKS_NUMBERED: number of this rank, and of all ranks */
    void *context;        /* for dw_link_options.contexts; valid until leave */
} dw_transport_place;

struct dw_transport {
    size_t struct_size;
    const char *scheme;
    size_t endpoint_bytes; /* size of an endpoint; memory is zeroed and aligned as by malloc */
    size_t request_bytes;  /* size of a request, a send or recv in flight; memory is zeroed */
    dw_status (*open)(void *endpoint, const dw_transport_open *how);
    /* Returns PENDING if something may still access the data or room of a request in flight, or of
     * a kept send; the link then never reuses that memory. */
    dw_status (*close)(void *endpoint);
    dw_status (*send)(void *endpoint, void *request, const void *data, size_t len);
    dw_status (*recv)(void *endpoint, void *request, void *room, size_t cap);
    /* Continues a request. OK: done, and *len is the length of the message. PENDING: not done yet.
     * BUFFER_TOO_SMALL (recv only): the next message has *len bytes, more than cap; the backend
     * keeps it, and the link posts a larger recv. Other errors: the link has failed. */
    dw_status (*test)(void *endpoint, void *request, size_t *len, dw_why *why);
    void (*describe)(const void *endpoint, dw_transport_traits *traits);
    /* Changes nothing. asks_kernel: kernel_sent and the fields behind it are wanted, too, which may
     * cost a system call. */
    void (*poll)(const void *endpoint, int asks_kernel, dw_transport_state *state);
    /* May be NULL. Called instead of test while no recv is in flight, for work that is due then. */
    dw_status (*turn)(void *endpoint, dw_why *why);

    /* The fields below are for programs whose users choose the transport by a URI; links do not
     * need them. join creates the context that open needs and fills in *place; leave destroys it,
     * after all links were closed. With DW_RANKS_NUMBERED all ranks must call join and leave. */
    const char *form;                           /* pattern of its URI: "tcp://HOST:PORT" */
    dw_transport_ranks ranks;                   /* how the ranks find each other */
    int carries_tls;                            /* 1: links over it can use TLS */
    const char *(*behind)(const char *address); /* the inner transport's URI; NULL: there is none */
    dw_status (*join)(dw_transport_place *place, dw_why *why); /* NULL: it needs no context */
    void (*leave)(dw_transport_place *place);
};

/* Returns the transports that are built into libdeltawire-net. The list ends with NULL. */
DW_API const dw_transport *const *dw_link_transports(void);
#ifdef __cplusplus
}
#endif
#endif
