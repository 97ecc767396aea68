/* SPDX-License-Identifier: Apache-2.0
 * transport.h - links between two ranks, channels (a codec pair) on a link, and the table with
 * which anybody adds a backend. */
#ifndef DELTAWIRE_TRANSPORT_H
#define DELTAWIRE_TRANSPORT_H

#include "deltawire/cuda.h"
#include "deltawire/deltawire.h"
#include "deltawire/tls.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------------------------------------
 * Structs that begin with struct_size, here and in tls.h and nccl.h. Whoever makes one sets it to
 * sizeof the struct and to zero what he does not name: `dw_link_options options = {.struct_size =
 * sizeof options};`. Zero means default. The fields that there are keep their places in all
 * versions to come; new ones come behind the end, never into padding. So programs, backends and the
 * library work together although they were compiled against headers of different age:
 *
 * - A shorter struct, from somebody older, is taken as if zeros followed.
 * - A longer one, from somebody newer, is taken if all that lies behind the fields known here is
 *   zero. Else the call is refused with ARGUMENT and a sentence, since what it asks for cannot be
 *   done here. What only tells a backend something (dw_transport_open) is taken in any case.
 * - Where a struct is filled in (dw_link_counters, dw_transport_caps), nothing is written past the
 *   struct_size that its owner gave. What a longer one has more is zero in counters, and stays in
 *   caps as it was.
 *
 * A size of less than its own 8 bytes, or of more than 4096, is a mistake: ARGUMENT. Flags in
 * these structs are int, 0 or 1: their size is the same in every language. */

/* ---------------------------------------------------------------------------------------------
 * Link: two ranks, one transport. Messages arrive whole, once, in order per tag, or the link fails:
 * from then on every call gives the same error. A thread of the link's own moves the bytes, so
 * sends go on while the caller computes. Every function may be called from any thread. After fork()
 * links and channels are the parent's alone: in the child every call answers ARGUMENT, closing does
 * nothing, and descriptors stay open until exec or exit. */
typedef struct dw_link dw_link;
typedef struct dw_transport dw_transport;

typedef enum dw_link_role { DW_LINK_LISTEN = 1, DW_LINK_CONNECT = 2 } dw_link_role;

/* Zero means default.
 *
 * | name              | unit  | meaning                                            | default |
 * | role              |       | who waits and who dials                            | connect |
 * | open_timeout_ms   | ms    | until both ends have met and agreed                | 60000   |
 * | peer_timeout_ms   | ms    | a send, or a peer that owes bytes, without progress| 60000   |
 * | close_timeout_ms  | ms    | dw_link_close: to get rid of what is queued        | 5000    |
 * | max_message_bytes | bytes | a longer message is an error at either end         | 1 GiB   |
 * | max_queued_bytes  | bytes | dw_link_send answers DW_PENDING past this; so much | 1 GiB   |
 * |                   |       | arrived and not taken: nothing more is read        |         |
 * | transports        |       | NULL-terminated: backends beside those built in    | none    |
 * | transport_context |       | for a backend that asks for one: mpi a dw_mpi *    | none    |
 * | on_listening      |       | told the address bound, before waiting for the peer| none    |
 * | tls               |       | keys or certificates, see tls.h                    | none    |
 * | insecure_plaintext|       | 1: past loopback without tls: whoever is on the way| 0       |
 * |                   |       | can read, change and join. 0: tcp refuses that     |         |
 */
typedef struct dw_link_options {
    size_t struct_size;
    dw_link_role role;
    uint32_t open_timeout_ms, peer_timeout_ms, close_timeout_ms;
    uint64_t max_message_bytes, max_queued_bytes;
    const dw_transport *const *transports;
    void (*on_listening)(void *context, const char *uri);
    void *listening_context;
    const volatile int *cancelled; /* may be NULL: open gives up when it becomes non-zero */
    void *transport_context;
    const dw_tls_options *tls;
    int insecure_plaintext;
} dw_link_options;

/* uri: "tcp://127.0.0.1:7000", "tcp://[::1]:0" (0: any port, see on_listening), "loop://name",
 * "shaped:rate=100mbit,delay=20ms/tcp://host:7000?stripes=4" and more (docs/transports.md). Blocks
 * until both ends have agreed on the version; looking up a name (not a numeric address) takes as
 * long as the system likes: neither open_timeout_ms nor cancelled ends that. Errors: ARGUMENT,
 * CONFIG, ADDRESS, TIMEOUT, PEER, PROTOCOL, VERSION, CANCELLED, NO_MEMORY, UNSUPPORTED, AUTH (no
 * tls and no loopback address; or see tls.h), each with a sentence in *why. */
DW_API dw_status dw_link_open(dw_link **link, const char *uri, const dw_link_options *options,
                              dw_why *why);

/* Sends what is queued (at most close_timeout_ms), then closes. Messages not released go with it.
 * Calls that wait in other threads end (DW_ERR_CANCELLED) and none may follow. In a handler: it
 * returns at once, no handler is called any more, and the link goes by itself. NULL is fine. */
DW_API void dw_link_close(dw_link *link);

/* Makes every call on the link, in any thread, return DW_ERR_CANCELLED. Only dw_link_close may
 * follow. */
DW_API void dw_link_cancel(dw_link *link);

/* Queues a copy of the message and returns. DW_PENDING: the queue is full, nothing was taken. */
DW_API dw_status dw_link_send(dw_link *link, uint32_t tag, const void *data, size_t len);

/* The same without the copy: room for cap bytes to write into, then the message's true length
 * (0..cap). Each begin is followed by one end; len = DW_LINK_DROP gives the room back unsent. */
#define DW_LINK_DROP SIZE_MAX
DW_API dw_status dw_link_send_begin(dw_link *link, uint32_t tag, size_t cap, void **room);
DW_API dw_status dw_link_send_end(dw_link *link, void *room, size_t len);

/* The next message with this tag: *data stays the link's, valid until dw_link_release. timeout_ms:
 * < 0 waits as long as the link lives, 0 looks once; DW_PENDING: nothing within that time. */
DW_API dw_status dw_link_recv(dw_link *link, uint32_t tag, int timeout_ms, void **data,
                              size_t *len);
DW_API void dw_link_release(dw_link *link, void *data);

/* Waits until everything queued is in the hands of the operating system; over tcp, until the peer's
 * end has it. */
DW_API dw_status dw_link_flush(dw_link *link, int timeout_ms);

/* Waits until a message of cap bytes would be taken: what to do after DW_PENDING, for the wire does
 * not fall idle meanwhile as it does where a flush waits for the end. Of two threads that hear it
 * the other may be the first to send. */
DW_API dw_status dw_link_wait_room(dw_link *link, size_t cap, int timeout_ms);

/* A handler takes the messages of one tag as they arrive, on the link's own thread, instead of
 * dw_link_recv. It must be quick and may send. handle = NULL takes it away and waits until no call
 * of it is running. The data is the link's and valid during the call. */
typedef void (*dw_link_handler)(void *context, const void *data, size_t len);
DW_API dw_status dw_link_handle(dw_link *link, uint32_t tag, dw_link_handler handle, void *context);

typedef struct dw_link_counters {
    size_t struct_size;
    uint64_t messages_sent, messages_received;
    uint64_t bytes_sent, bytes_received; /* on the wire: payload, tags and framing */
    uint64_t queued_bytes;               /* now */
    /* Callers blocked in recv; in flush, wait_room and close. */
    uint64_t recv_wait_ns, send_wait_ns;
    /* Acknowledged to and received by the operating system, at most 10 ms old; 0 where the backend
     * cannot tell. */
    uint64_t kernel_bytes_sent, kernel_bytes_received;
    uint64_t queue_ns; /* summed over messages: from dw_link_send until the backend had it all */
    /* As kernel_*: segments sent again, the fastest connection's round trip; what the backend
     * itself sent again, connections that came back. */
    uint64_t retransmits, rtt_ns, resent_bytes, reconnects;
} dw_link_counters;
/* Fills in *counters, whose struct_size is set. ARGUMENT: it is not, or link is NULL. */
DW_API dw_status dw_link_count(dw_link *link, dw_link_counters *counters);

/* That it has proven to have; "" without TLS. */
DW_API const char *dw_link_peer_name(dw_link *link);

/* Why the link failed, in a sentence that names the peer; "" while it lives. */
DW_API const char *dw_link_why(dw_link *link);

/* ---------------------------------------------------------------------------------------------
 * Channel: a codec pair on a link: what is sent goes through an encoder, what is received through a
 * decoder; replies are given and taken by themselves, rejected frames are sent anew. Both ends name
 * the same id; one end's send config is the other's recv config.
 *
 * | name           | meaning                                                    | default |
 * | id             | 1..0xffff, used once on a link; has the tags id << 8 ...   | -       |
 * | send, recv     | configs; NULL: nothing goes that way                       | NULL    |
 * | open_timeout_ms| until the peer's end has opened the same id                | 60000   |
 * | cuda           | the device that x, y and prev lie on; NULL: main memory    | NULL    |
 * | place          | where prev lies there (cuda.h)                             | device  |
 *
 * The two ends need not be alike: the bits are the same. Threads: one thread may send while another
 * receives. */
typedef struct dw_channel dw_channel;

typedef struct dw_channel_config {
    size_t struct_size;
    uint32_t id;
    const dw_config *send, *recv;
    uint32_t open_timeout_ms;
    dw_cuda *cuda;
    dw_cuda_place place;
} dw_channel_config;

/* Errors: ARGUMENT, CONFIG, MISMATCH (with both configs in *why), TIMEOUT, NO_MEMORY, the link's;
 * with cuda those of dw_encoder_create_cuda. */
DW_API dw_status dw_channel_open(dw_channel **channel, dw_link *link,
                                 const dw_channel_config *config, dw_why *why);
/* Before dw_link_close. Waits until the peer has received what was sent, for it may ask for some of
 * it anew; at most the link's close_timeout_ms, and never with replies = never. NULL is fine. */
DW_API void dw_channel_close(dw_channel *channel);

/* Encodes x and queues the frame; x and keys are the caller's again on return, the sending goes on
 * behind. Waits only while the link's queue is full. */
DW_API dw_status dw_channel_send(dw_channel *channel, const dw_key *keys, const dw_tensor *x);

/* The next tensor: y's shape must be the sender's; keys (y->n) is filled in, or NULL. timeout_ms as
 * in dw_link_recv. A frame that was rejected is asked for again without the caller's help. */
DW_API dw_status dw_channel_recv(dw_channel *channel, int timeout_ms, dw_key *keys,
                                 const dw_tensor *y);

/* The same where x and y lie on the channel's device: work that is enqueued on a stream (CUstream,
 * cudaStream_t; NULL: the default one), in order with what makes x and what reads y. Frames go
 * through pinned memory of the channel's. Both wait until the stream has come so far, so that x and
 * y are the caller's again on return; answers to the peer go by a stream of the channel's own. On
 * an error y is undefined. Also ARGUMENT: the stream is capturing; IO: CUDA failed, which then
 * stays. Without a device UNSUPPORTED, as are the two above with one. */
DW_API dw_status dw_channel_send_cuda(dw_channel *channel, const dw_key *keys, const dw_tensor *x,
                                      void *stream);
DW_API dw_status dw_channel_recv_cuda(dw_channel *channel, int timeout_ms, dw_key *keys,
                                      const dw_tensor *y, void *stream);

/* Tells the peer, with the next frame, to forget a key of what we send. */
DW_API dw_status dw_channel_forget(dw_channel *channel, dw_key key);

DW_API dw_counters dw_channel_sent(dw_channel *channel);
DW_API dw_counters dw_channel_received(dw_channel *channel);
DW_API const char *dw_channel_why(dw_channel *channel); /* the last error, in a sentence */

/* ---------------------------------------------------------------------------------------------
 * Backend: a scheme, two sizes, six functions and perhaps a seventh. A link owns queues, threads,
 * timeouts and URIs; a backend moves messages between two ends and nothing else. All calls come
 * from one thread at a time; only open and close may block. docs/transports.md shows one being
 * written.
 *
 * At most one send and one recv are in flight per endpoint; each is driven by test until it answers
 * DW_OK or an error. Buffers stay valid until then (of a send: until caps says that it is not kept
 * any more) or until close. */
typedef struct dw_transport_open {
    size_t struct_size;
    const char *address; /* what follows "scheme://" or "scheme:" in the URI */
    dw_link_role role;
    uint32_t timeout_ms;
    /* For a backend whose system can watch for a vanished peer by itself. */
    uint32_t peer_timeout_ms;
    const volatile int *cancelled;                        /* never NULL */
    void (*on_listening)(void *context, const char *uri); /* never NULL */
    void *listening_context;
    /* For a backend that stands in front of another: finds the other by its URI. address is what to
     * put into the other's dw_transport_open. */
    const dw_transport *(*find)(void *context, const char *uri, const char **address);
    void *find_context;
    void *context; /* the options' transport_context */
    const dw_tls_options *tls;
    int insecure_plaintext; /* the options'; a backend that cannot do it may leave it: caps tell */
    dw_why *why;            /* never NULL: a sentence for any error */
    uint64_t longest_message; /* that the link takes, its header included; 0: any */
    int heeds_kept_sends;     /* the caller does; else a backend copies what it needs after DW_OK */
} dw_transport_open;

typedef struct dw_transport_caps {
    size_t struct_size; /* set by the caller, as all that follows was set to a default */
    int wait_fd; /* test is worth calling when poll() reports one of wait_events on it; -1: none */
    int wait_events; /* POLLIN, POLLOUT: only for what is in flight, so that an idle link sleeps */
    int64_t wake_ns; /* test is worth calling after so long in any case; -1: never by itself */
    /* Bytes so far, framing included; the first grows while a send goes on, the second stands still
     * between messages: timeouts look at both. */
    uint64_t wire_sent, wire_received;
    uint32_t framing_bytes; /* what each message adds on the wire */
    int asks_kernel; /* set by the caller: kernel_* are wanted too, which may cost a system call */
    /* What the operating system counted on this connection; 0: unknown. */
    uint64_t kernel_sent, kernel_received;
    char peer[96]; /* names the other end in error messages */
    /* TLS stands over every byte; set by the caller: the next two are then wanted, too. */
    int is_secure, asks_session;
    char peer_name[64];        /* that it has proven to have */
    unsigned char session[32]; /* random; known to both ends, and to nobody else */
    /* 0: messages arrive whole, once, in order. Else they may not (a wire made to test that):
     * channels then ask anew for what has not come within this time. */
    uint32_t retry_ms;
    /* So many of the sends answered DW_OK, the last ones, have data that the backend still
     * needs. */
    uint64_t kept_sends;
    /* The first two asked for as kernel_* are. */
    uint64_t retransmits, rtt_ns, resent_bytes, reconnects;
} dw_transport_caps;

struct dw_transport {
    size_t struct_size;
    const char *scheme;
    size_t endpoint_bytes; /* room for one end, zeroed, aligned as malloc does */
    size_t request_bytes;  /* room for one send or recv in flight, zeroed */
    dw_status (*open)(void *endpoint, const dw_transport_open *how);
    /* DW_PENDING: something may still touch the data or the room of a request in flight; the link
     * then never uses that memory again. */
    dw_status (*close)(void *endpoint);
    dw_status (*send)(void *endpoint, void *request, const void *data, size_t len);
    dw_status (*recv)(void *endpoint, void *request, void *room, size_t cap);
    /* DW_OK: done, *len is the message's length. DW_PENDING: not yet. DW_ERR_NO_ROOM (recv only):
     * the next message has *len bytes, more than cap; it is kept, post a larger recv. Else: the
     * link is dead. */
    dw_status (*test)(void *endpoint, void *request, size_t *len, dw_why *why);
    void (*caps)(void *endpoint, dw_transport_caps *caps);
    /* NULL, or: what is due while no recv is in flight, in place of its test. */
    dw_status (*turn)(void *endpoint, dw_why *why);
};

#ifdef __cplusplus
}
#endif
#endif
