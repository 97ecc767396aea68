/* SPDX-License-Identifier: Apache-2.0
 * tcp_end.h - one end of a link over TCP: its parts. tcp_wire.h has the format of its bytes.
 *
 * A *handshake* is a connection whose hellos are not complete yet. On the listener's side it is a
 * *pending accept*, on the dialler's side a *connection attempt*. A *stash* is a buffer for
 * received bytes that the link cannot take yet.
 *
 * Each struct has one file that writes it, but for its first values (tcp_open.c, which also
 * connects the parts by pointers). A file calls those further down, and no others:
 *
 * | file             | its part                                                                 |
 * | tcp.c            | the backend's table of functions                                         |
 * | tcp_open.c       | opening and closing; the end's memory                                    |
 * | tcp_session.c    | one turn of the event loop; timers                                       |
 * | tcp_accepts.c    | connections that a listener accepts                                      |
 * | tcp_connects.c   | connections that a dialler makes                                         |
 * | tcp_receive.c    | finds records in the bytes of a stripe                                   |
 * | tcp_stripes.c    | a stripe begins, is lost, and is dialled again                           |
 * | tcp_send.c       | cuts messages into records; keeps them until acknowledged                |
 * | tcp_poller.c     | registers sockets with epoll                                             |
 * | tcp_handshake.c  | one connection until both hellos are complete                            |
 * | tcp_reassembly.c | puts messages together from records                                      |
 * | tcp_peer.c       | who the other end is, and whether it is gone                             |
 * | tcp_progress.c   | whether the peer takes what is sent                                      |
 * | tcp_reading.c    | bytes that were read ahead; whether something is left to read            |
 * | tcp_ack.c        | when the peer must hear what has arrived                                 |
 * | tcp_address.c    | addresses and options of a URI; sockets                                  |
 * | tcp_guard.c      | which addresses may be used without TLS                                  |
 * | tcp_kernel.c     | the kernel's counters of a connection                                    |
 * | tcp_end.c        | the first failure; bytes on the wire; the length of chunks               |
 *
 * Only the backend's functions (tcp.c, tcp_open.c) and a turn (tcp_session.c) use the whole end.
 * Parts note the first error in dw_tcp_failure, and the backend's functions return it.
 *
 * The I/O owner of the link calls these functions, so only one thread does so at a time. None of
 * them waits, except while opening. */
#ifndef DW_TCP_END_H
#define DW_TCP_END_H

#include <stdbool.h>
#include <sys/socket.h>

#include "common/stream.h"
#include "deltawire/transport.h"
#include "tcp/tcp_address.h"
#include "tcp/tcp_wire.h"
#include "tls/tls.h"

enum {
    DW_TCP_STRIPES = 4, /* the default of the option stripes= */
    DW_TCP_STRIPES_MOST = 8,
    /* Long enough that a record's header costs next to nothing, short enough that little data waits
     * on a stripe that has become slow. */
    DW_TCP_CHUNK_BYTES = 1 << 20,
    DW_TCP_CHUNKS_MOST = 256, /* per message; a message that would need more gets longer chunks */
    /* How many bytes a receiver allows beyond what its link has taken. 4 MiB suffice for 16 Gbit/s
     * at a round trip of 2 ms; where the round trip is longer, 16 MiB suffice for 1 Gbit/s at 130
     * ms. More would only wait in the kernel, and leave the processor's caches before it is
     * read. */
    DW_TCP_NEAR_WINDOW_BYTES = 4 << 20,
    DW_TCP_WINDOW_BYTES = 16 << 20,
    DW_TCP_NEAR_US = 2000,
    DW_TCP_KEPT_MOST = 512, /* messages that were sent and are not acknowledged */
    /* The receiver may hold DW_TCP_KEPT_MOST messages that it has acknowledged and its link has not
     * taken, and as many again that are not acknowledged yet. */
    DW_TCP_INCOMING_MOST = 2 * DW_TCP_KEPT_MOST,
    /* The size of one read where no long chunk is expected. It holds headers and short messages,
     * often several. */
    DW_TCP_AHEAD_BYTES = 16384,
    DW_TCP_PENDING_ACCEPTS = DW_TLS_UNPROVEN_PEERS, /* accepted connections whose hello is not
                                                       complete */
    DW_TCP_HANDSHAKE_MS = 10000,                    /* the time limit for both hellos */
    DW_TCP_TICK_MS = 100 /* how often the progress of the stripes is checked */
};

/* The longest message. */
#define DW_TCP_MOST_BYTES (UINT64_C(1) << 40)

/* The kinds of sockets in the poller. An event carries the kind and the index of the socket. */
enum { DW_TCP_ON_LISTENER = 0, DW_TCP_ON_ACCEPT = 1, DW_TCP_ON_CONNECT = 2, DW_TCP_ON_STRIPE = 3 };

/* ---- One connection until both hellos are complete ------------------------------------------- */

typedef enum dw_tcp_phase {
    DW_TCP_IDLE, /* no connection */
    DW_TCP_CONNECTING,
    DW_TCP_IN_TLS, /* the TLS handshake, where there is one, precedes the hellos */
    DW_TCP_READING_HELLO,
    DW_TCP_WRITING_HELLO
} dw_tcp_phase;

typedef struct dw_tcp_handshake {
    dw_stream stream;
    dw_tcp_phase phase;
    bool dials;
    uint32_t events;  /* the events that epoll watches for */
    int64_t until_ns; /* the deadline */
    size_t n_read, n_written;
    unsigned char their_hello[DW_TCP_HELLO_BYTES], own_hello[DW_TCP_HELLO_BYTES];
} dw_tcp_handshake;

/* The kernel's counters of a connection; 0 where it has none. */
typedef struct dw_tcp_kernel {
    uint64_t sent, received, retransmits;
    uint32_t rtt_us;
    uint32_t segment; /* the payload of a full segment to the peer */
    uint32_t in_vain; /* how often in a row the oldest segment was sent again in vain */
    int queued;       /* bytes that the peer's kernel has not acknowledged */
} dw_tcp_kernel;

/* ---- Stripes --------------------------------------------------------------------------------- */

/* Received bytes of a chunk that cannot go into the link's buffer yet. Also a copy of a message
 * that is kept until it is acknowledged. */
typedef struct dw_tcp_stash {
    struct dw_tcp_stash *next;
    size_t cap, offset, len;
    unsigned char data[];
} dw_tcp_stash;

/* tcp_send.c: the record that is being written. */
typedef struct dw_tcp_record_out {
    bool is_writing;
    bool is_blocked; /* the socket's buffer is full; wait for EPOLLOUT */
    /* Writing failed. The bytes that can still be read are read before the stripe is given up. */
    bool is_broken;
    /* Its chunks were sent again on another stripe. It gets no more data until an ECHO has
     * arrived. */
    bool is_late;
    bool must_ask, must_answer;
    int64_t asked_ns; /* when an ECHO was requested; 0: none is due */
    unsigned char header[DW_TCP_CHUNK_RECORD_BYTES];
    size_t header_len, header_done;
    /* NULL: the peer has the message already, so zeros are sent in its place */
    const unsigned char *body;
    size_t body_len, body_done;
    uint64_t body_message;
} dw_tcp_record_out;

/* tcp_reassembly.c: the record that is being read. */
typedef struct dw_tcp_record_in {
    bool is_reading;
    bool is_undecided; /* it is not decided where its bytes go; they wait in the socket */
    bool is_chunk;
    uint64_t message;
    uint64_t total;
    size_t offset, len, done;
    unsigned char *room; /* where its bytes go; NULL: they are dropped */
    dw_tcp_stash *stash;
} dw_tcp_record_in;

/* tcp_reading.c: bytes that were read and belong to no record yet. */
typedef struct dw_tcp_ahead {
    size_t at, n;
    unsigned char bytes[DW_TCP_AHEAD_BYTES];
} dw_tcp_ahead;

/* tcp_progress.c */
typedef struct dw_tcp_stripe_progress {
    bool is_clear;      /* at the last check the peer's kernel had acknowledged everything */
    uint64_t delivered; /* bytes acknowledged at the last check */
    int64_t moved_ns;   /* when `delivered` last changed, or data was sent after a pause */
    uint32_t segment;   /* the payload of a full segment when the connection began */
    uint64_t full_at;   /* `delivered` as soon as a full segment has passed; 0: none was written */
    /* What it contributes to dw_tcp_progress.gained. written: bytes of records that carry messages.
     * since_*: values when the peer last said that it has more than before. */
    uint64_t written, since_written, since_delivered, gained;
    bool was_discounted; /* it was lost since then */
} dw_tcp_stripe_progress;

/* tcp_stripes.c; dialler: when to try again. */
typedef struct dw_tcp_redial {
    int64_t at_ns, backoff_ns;
} dw_tcp_redial;

/* tcp_stripes.c writes it, but for the parts whose structs name another file. */
typedef struct dw_tcp_stripe {
    dw_stream stream;
    unsigned index;
    bool is_open, was_open;
    bool is_silent;  /* it was lost without an end of stream or reset from the other side */
    uint32_t events; /* tcp_poller.c: those that epoll watches for */
    dw_tcp_record_out out;
    dw_tcp_record_in in;
    dw_tcp_ahead ahead;
    dw_tcp_stripe_progress progress;
    dw_tcp_redial redial;
} dw_tcp_stripe;

/* ---- Messages -------------------------------------------------------------------------------- */

typedef struct dw_tcp_kept {
    const unsigned char *data;
    dw_tcp_stash *copy; /* NULL: the link keeps the data, and no copy is needed */
    size_t len, chunk_len;
    uint64_t position; /* sum of the lengths of all messages before it */
    uint32_t chunks;
    uint8_t on[DW_TCP_CHUNKS_MOST]; /* for each chunk, a bit set of the stripes it was sent on */
} dw_tcp_kept;

typedef struct dw_tcp_incoming {
    bool is_known; /* its length is known */
    uint64_t total, got;
    uint64_t wire;                         /* bytes received for it, with headers */
    uint64_t has[DW_TCP_CHUNKS_MOST / 64]; /* a bit set of complete chunks */
    dw_tcp_stash *stash;
} dw_tcp_incoming;

/* ---- The end --------------------------------------------------------------------------------- */

typedef struct dw_tcp_request {
    bool sends, is_kept;
    const unsigned char *data;
    unsigned char *room;
    size_t len;      /* bytes to send; room to receive into */
    uint64_t number; /* the message number of a send that is kept */
} dw_tcp_request;

/* tcp_open.c; fixed after open. */
typedef struct dw_tcp_settings {
    dw_allocator allocator;
    dw_link_role role;
    dw_tcp_options options;
    uint32_t peer_timeout_ms;
    uint64_t longest; /* the longest message that this end accepts */
    bool copies;      /* whether messages are copied until they are acknowledged */
} dw_tcp_settings;

/* tcp_end.c. status: not DW_OK: the end has failed. peer: how sentences name the other
 * end. */
typedef struct dw_tcp_failure {
    dw_status status;
    dw_why why;
    const char *peer;
} dw_tcp_failure;

/* tcp_peer.c: who the other end is. The name that was authenticated on the first stripe holds for
 * all stripes. */
typedef struct dw_tcp_session {
    dw_tls_context *tls; /* NULL: no TLS; tcp_open.c */
    char peer[96];
    char peer_name[DW_TLS_NAME_BYTES];
    unsigned char tls_session[DW_TLS_SESSION_BYTES];
    unsigned char id[DW_TCP_SESSION_BYTES];
    bool has_id, is_opening;
} dw_tcp_session;

/* tcp_stripes.c: which stripes are open, and how the last one was lost. */
typedef struct dw_tcp_connections {
    int poller;             /* the epoll descriptor for all sockets; fixed after open */
    dw_tcp_stripe *stripes; /* fixed after open: as many as the option stripes= says */
    unsigned n, n_open;     /* n: the stripes of the session; 0: it has no peer yet */
    bool peer_left;         /* the peer's LEAVE has arrived */
    int64_t lost_ns;        /* when the last open stripe was lost; 0: a stripe is open */
    int lost_error;         /* the errno of that loss; 0: the peer ended the stream */
    size_t cut_bytes;       /* bytes of records that were incomplete then */
    char lost_text[160];    /* what TLS said about it; "": nothing */
    dw_tcp_kernel gone;     /* the kernel's counters of connections that were closed */
    uint64_t reconnects;
} dw_tcp_connections;

/* tcp_end.c: bytes on the wire. sent, received: the first hello, and records that carry messages,
 * or messages that the link has taken. _apart: other bytes, for example acknowledgements and
 * duplicates; they are added when the next send is complete, or the link takes the next message. */
typedef struct dw_tcp_wire {
    uint64_t sent, sent_apart;
    uint64_t received, received_apart;
} dw_tcp_wire;

/* tcp_ack.c: what was last acknowledged to the peer. */
typedef struct dw_tcp_ack {
    uint64_t sent_whole, sent_limit;
    uint64_t unreported; /* bytes received since */
    /* when whole and limit must be sent at the latest; 1: at once; 0: the peer knows them */
    int64_t due_ns;
} dw_tcp_ack;

/* tcp_reading.c */
typedef struct dw_tcp_reading {
    /* A stripe was read since a receive last returned DW_PENDING, and the last such read returned
     * less than it asked for, or nothing. */
    bool has_looked;
    unsigned last_read;   /* the stripe that was read last */
    bool moved_awaited;   /* bytes of the awaited message were read in this turn */
    bool must_read_again; /* something is left to read that epoll does not report */
} dw_tcp_reading;

/* tcp_progress.c. since_ns: when there was progress, or nothing was on its way. gained: the most
 * bytes of messages that the peer's kernel had acknowledged since the peer last said that it has
 * more than before. Since the last check: has_advanced: the peer has said that it has more than
 * before; has_taken: it has acknowledged a message, or allowed bytes for which this end was
 * waiting. */
typedef struct dw_tcp_progress {
    int64_t since_ns;
    uint64_t gained;
    bool has_taken, has_advanced;
    /* Where short messages pass and full segments do not. segment: the limit of the segments of new
     * connections; 0: none. */
    uint32_t segment;
    enum { DW_TCP_NO_HOLE, DW_TCP_HOLE_SUSPECTED, DW_TCP_HOLE_FOUND } hole;
} dw_tcp_progress;

/* tcp_reassembly.c */
typedef struct dw_tcp_receiving {
    const dw_tcp_settings *settings;
    dw_tcp_failure *failure;
    dw_tcp_connections *connections;
    dw_tcp_wire *wire;
    dw_tcp_ack ack;            /* written by tcp_ack.c */
    dw_tcp_incoming *incoming; /* a ring of DW_TCP_INCOMING_MOST, indexed by message number */
    /* Message numbers. awaited: the one that the link gets next. whole: the first that is not
     * complete. */
    uint64_t awaited, whole;
    uint64_t taken;       /* bytes of messages that the link has taken */
    uint64_t window;      /* how many bytes the peer may send beyond `taken` */
    uint64_t ahead_bytes; /* on the wire, of messages that the link has not taken */
    dw_tcp_request *posted;
    bool is_direct; /* the awaited message is read straight into the link's buffer */
    dw_tcp_stash *unused;
    uint64_t stash_bytes, unused_bytes;
    /* For the timeout of a message that has begun to arrive. Bytes that come again after a
     * connection was lost are no progress, except after the first loss since the last new chunk:
     * the peer may not know that they are here. partial: the most bytes of incomplete records since
     * that chunk. again: how many repeated bytes still count. has_returned: a connection was made
     * again since that chunk, so the next loss is not the first. */
    uint64_t partial, again;
    bool has_returned;
} dw_tcp_receiving;

/* tcp_send.c. Functions that read, open or lose a stripe are given it, too, because it leads to all
 * parts that records belong to. */
typedef struct dw_tcp_sending {
    dw_tcp_connections *connections;
    dw_tcp_receiving *receiving; /* records tell the peer what has arrived */
    dw_tcp_progress *progress;
    dw_tcp_reading *reading;
    dw_tcp_kept *kept;               /* a ring of DW_TCP_KEPT_MOST, indexed by message number */
    uint64_t seen_acked, seen_limit; /* acked and peer_limit at the last check */
    int64_t seen_ns;                 /* when one of them last changed */
    /* Message numbers. next_message: of the next send. acked: the first that the peer has not
     * acknowledged. answered: the first whose send was not yet reported done to the link. */
    uint64_t next_message, acked, answered;
    uint64_t cursor;       /* the first message that may have chunks to send */
    uint32_t cursor_chunk; /* and the first chunk of it that may be unsent */
    uint64_t next_position, peer_limit;
    const dw_tcp_request *request; /* the link's send in progress */
    unsigned next_stripe;          /* where the next search for a free stripe begins */
    uint64_t resent_bytes;
} dw_tcp_sending;

/* tcp_accepts.c; listener. */
typedef struct dw_tcp_accepts {
    const dw_tcp_settings *settings;
    dw_tcp_session *session;
    dw_tcp_connections *connections;
    dw_tcp_sending *sending;
    int listener;
    int64_t paused_until_ns; /* after a failed accept, when to watch the socket again; 0: watched */
    dw_tcp_handshake *pending; /* DW_TCP_PENDING_ACCEPTS of them */
    unsigned n_pending;
    unsigned next; /* the oldest one; it is replaced when all places are taken */
    /* How many connections were turned away, and the last of them with the reason.
     * is_reason_known: the reason helps to find a mistake, for example another version or a failed
     * TLS handshake. It is not replaced by a connection that just did not send our hello. */
    unsigned n_rejected;
    bool is_reason_known;
    char last_rejected[300];
} dw_tcp_accepts;

/* tcp_connects.c; dialler. */
typedef struct dw_tcp_connects {
    const dw_tcp_settings *settings;
    dw_tcp_failure *failure;
    dw_tcp_session *session;
    dw_tcp_connections *connections;
    dw_tcp_sending *sending;
    dw_tcp_handshake *attempts;      /* one for each stripe */
    struct sockaddr_storage address; /* the address of the peer */
    socklen_t address_len;
    char trouble[96];          /* why the last attempt failed */
    bool is_handshake_refused; /* at least one TLS handshake has failed */
} dw_tcp_connects;

/* tcp_session.c */
typedef struct dw_tcp_turns {
    unsigned n;
    int64_t tick_ns; /* when the progress of the stripes was last checked */
} dw_tcp_turns;

typedef struct dw_tcp_end {
    dw_tcp_settings settings;
    dw_tcp_failure failure;
    dw_tcp_session session;
    dw_tcp_connections connections;
    dw_tcp_wire wire;
    dw_tcp_reading reading;
    dw_tcp_progress progress;
    dw_tcp_receiving receiving;
    dw_tcp_sending sending;
    dw_tcp_accepts accepts;
    dw_tcp_connects connects;
    dw_tcp_turns turn;
} dw_tcp_end;

/* The entry of a message in the ring of arriving messages. */
static inline dw_tcp_incoming *dw_tcp_incoming_of(const dw_tcp_receiving *receiving,
                                                  uint64_t number)
{
    return &receiving->incoming[number % DW_TCP_INCOMING_MOST];
}

/* tcp_end.c. fail: sets status and why, unless an earlier failure has. chunk_len: the length of the
 * chunks of a message of `total` bytes; both ends compute the same. */
void dw_tcp_fail(dw_tcp_failure *failure, dw_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
size_t dw_tcp_chunk_len(uint64_t total);
void dw_tcp_wire_sent(dw_tcp_wire *wire, size_t bytes, bool is_apart);
void dw_tcp_wire_received(dw_tcp_wire *wire, size_t bytes, bool is_apart);
void dw_tcp_wire_send_done(dw_tcp_wire *wire);
void dw_tcp_wire_receive_done(dw_tcp_wire *wire, uint64_t bytes);

/* tcp_ack.c. whole, limit: as in a record. */
void dw_tcp_ack_now(dw_tcp_ack *ack);
void dw_tcp_ack_soon(dw_tcp_ack *ack, size_t bytes, uint64_t whole);
void dw_tcp_ack_sent(dw_tcp_ack *ack, uint64_t whole, uint64_t limit);

/* tcp_reading.c. begin: a turn begins. again: something may be left to read. look: sets has_looked.
 * read: a stripe was read. moved: bytes of the awaited message. ahead: room, for a read of up to
 * cap bytes; filled: it has read n; take: n bytes of them; forget: all. */
void dw_tcp_reading_begin(dw_tcp_reading *reading);
void dw_tcp_reading_again(dw_tcp_reading *reading);
void dw_tcp_reading_look(dw_tcp_reading *reading, bool has_looked);
void dw_tcp_reading_read(dw_tcp_reading *reading, unsigned stripe, bool has_looked);
void dw_tcp_reading_moved(dw_tcp_reading *reading);
unsigned char *dw_tcp_ahead_room(dw_tcp_ahead *ahead, size_t *cap);
void dw_tcp_ahead_filled(dw_tcp_ahead *ahead, size_t n);
const unsigned char *dw_tcp_ahead_take(dw_tcp_ahead *ahead, size_t n);
void dw_tcp_ahead_forget(dw_tcp_ahead *ahead);

/* tcp_open.c */
dw_status dw_tcp_open(dw_tcp_end *end, const dw_transport_open *how);
void dw_tcp_close(dw_tcp_end *end);

/* tcp_handshake.c. step: continues a handshake. DW_PENDING: it must wait for the socket. DW_OK, for
 * a dialler: the listener's hello has arrived, in their_hello. DW_OK, for a listener: the dialler's
 * hello has arrived, in their_hello, and dw_tcp_handshake_answer is to be called next; or the
 * answer was sent. DW_ERR_PROTOCOL: what has arrived is not a hello. DW_ERR_VERSION: the hello has
 * another version, their_hello[6]. DW_ERR_IO: the connection cannot be used; errno says why, 0: the
 * other side hung up. DW_ERR_AUTH, DW_ERR_PEER, DW_ERR_TIMEOUT: TLS failed; stream.text says why.
 * accept, connect: begin one; false: there is no memory. */
bool dw_tcp_handshake_accept(dw_tcp_handshake *handshake, int fd, int64_t until_ns,
                             const dw_tcp_session *session);
bool dw_tcp_handshake_connect(dw_tcp_handshake *handshake, int fd, int64_t until_ns,
                              const dw_tcp_session *session, const dw_tcp_sending *sending,
                              unsigned stripe);
dw_status dw_tcp_handshake_step(dw_tcp_handshake *handshake, const dw_tcp_session *session,
                                const dw_tcp_settings *settings);
void dw_tcp_handshake_answer(dw_tcp_handshake *handshake, const dw_tcp_session *session,
                             const dw_tcp_sending *sending, unsigned stripe, int answer);
void dw_tcp_handshake_end(dw_tcp_handshake *handshake);
dw_stream dw_tcp_handshake_take(dw_tcp_handshake *handshake); /* the connection, out of it */
uint32_t dw_tcp_handshake_events(const dw_tcp_handshake *handshake);

/* tcp_session.c. turn: reads what has arrived, checks the timers and sends what can be sent. It
 * waits at most wait_ms for the sockets; this is 0 except while opening. wakes: in how many ns the
 * next turn is due; -1: only when a socket is ready. */
void dw_tcp_turn(dw_tcp_end *end, int wait_ms);
int64_t dw_tcp_wakes(const dw_tcp_end *end);

/* tcp_poller.c. watch_listener, watch_handshake: false: epoll could not add the socket; errno says
 * why. watch_for_accepts: whether new connections are watched for. */
bool dw_tcp_watch_listener(int poller, int listener);
void dw_tcp_watch_for_accepts(int poller, int listener, bool hears);
void dw_tcp_watch_stripe(int poller, dw_tcp_stripe *stripe, bool is_new);
bool dw_tcp_watch_handshake(int poller, dw_tcp_handshake *handshake, uint32_t kind, uint32_t index);

/* tcp_accepts.c. describe_rejected: "": none was turned away. is_fresh: another dialler may still
 * take the place of the peer. */
void dw_tcp_describe_rejected(const dw_tcp_accepts *accepts, char *text, size_t cap);
void dw_tcp_accept(dw_tcp_accepts *accepts);
void dw_tcp_continue_accept(dw_tcp_accepts *accepts, uint32_t index);
void dw_tcp_drop_accept(dw_tcp_accepts *accepts, dw_tcp_handshake *pending);
void dw_tcp_resume_accepting(dw_tcp_accepts *accepts);
void dw_tcp_stop_listening(dw_tcp_accepts *accepts);
bool dw_tcp_is_fresh(const dw_tcp_accepts *accepts);

/* tcp_connects.c. refused: the other machine has answered, but this session's listener is not
 * there. */
void dw_tcp_start_connect(dw_tcp_connects *connects, unsigned stripe, int64_t now);
void dw_tcp_continue_connect(dw_tcp_connects *connects, uint32_t index);
void dw_tcp_connect_to(dw_tcp_connects *connects, const struct sockaddr *address, socklen_t len);
void dw_tcp_connect_failed(dw_tcp_connects *connects, unsigned index, const char *trouble,
                           bool refused);

/* tcp_stripes.c. expect: the session has n stripes. open_stripe: both hellos are complete, and the
 * connection becomes a stripe. */
void dw_tcp_stripes_expect(dw_tcp_connections *connections, unsigned n);
void dw_tcp_open_stripe(dw_tcp_sending *sending, dw_tcp_session *session,
                        dw_tcp_handshake *handshake);
void dw_tcp_lose_stripe(dw_tcp_sending *sending, dw_tcp_stripe *stripe, int error);
/* When the stripe is closed, its connection is reset, also at the peer: what is still to be sent
 * would keep the end of the stream from getting there. */
void dw_tcp_reset_at_close(const dw_tcp_stripe *stripe);
/* blame_peer: its machine has answered, but the peer is not there. shorten_segments: gives up the
 * connections with longer segments, but for those that have carried a full one. */
void dw_tcp_peer_leaves(dw_tcp_connections *connections);
void dw_tcp_blame_peer(dw_tcp_connections *connections);
void dw_tcp_shorten_segments(dw_tcp_sending *sending, uint32_t segment);
/* redial_later: an attempt has failed. redial_worked: a message has come over the stripe. */
void dw_tcp_redial_later(dw_tcp_redial *redial, int64_t longest_backoff_ns);
void dw_tcp_redial_worked(dw_tcp_redial *redial);

/* tcp_progress.c. check_progress: to be called while the peer has not acknowledged everything;
 * returns the longest round trip of the stripes that carry something, in ns. discount_loss: the
 * stripe is about to be lost. mark_full: so many bytes are about to be written. begin_to_fill: a
 * message is about to be written to a clear stripe. ask_segment: new connections shall have
 * segments of this length at most; returns whether that is news. */
int64_t dw_tcp_check_progress(dw_tcp_progress *progress, const dw_tcp_connections *connections,
                              int64_t now, uint32_t *segment);
void dw_tcp_check_timeout(dw_tcp_failure *failure, const dw_tcp_progress *progress, int64_t now,
                          uint32_t peer_timeout_ms);
void dw_tcp_discount_loss(dw_tcp_progress *progress, dw_tcp_stripe *stripe);
void dw_tcp_mark_full(dw_tcp_stripe *stripe, size_t len);
void dw_tcp_mark_written(dw_tcp_stripe *stripe, size_t len);
void dw_tcp_begin_to_fill(dw_tcp_stripe *stripe);
bool dw_tcp_carries_full(dw_tcp_stripe *stripe);
bool dw_tcp_ask_segment(dw_tcp_progress *progress, uint32_t segment);
/* open: of a new connection. begin: nothing was on its way before. note: of the peer. */
void dw_tcp_progress_open(dw_tcp_progress *progress, dw_tcp_stripe_progress *stripe,
                          const dw_tcp_kernel *kernel);
void dw_tcp_progress_begin(dw_tcp_progress *progress);
void dw_tcp_progress_note(dw_tcp_progress *progress, bool has_taken, bool has_advanced);

/* tcp_peer.c. is_new: the hello names no session. is_peer: under TLS, the same name was
 * authenticated as on the first stripe. is_closed_by_peer: the peer's machine itself ended the
 * connection. other_version, peer_gone: set the failure. */
bool dw_tcp_is_session(const dw_tcp_session *session, const unsigned char *named);
bool dw_tcp_is_new(const unsigned char *named);
bool dw_tcp_is_peer(const dw_tcp_session *session, const dw_stream *stream);
bool dw_tcp_is_closed_by_peer(int error);
void dw_tcp_other_version(dw_tcp_failure *failure, const dw_tcp_handshake *handshake);
void dw_tcp_peer_gone(dw_tcp_failure *failure, const dw_tcp_connections *connections,
                      uint64_t ahead_bytes);
/* The session: create: of a listener. adopt: of a dialler. drop: nobody has it. open: a stripe is
 * open; is_new: for the first time. */
bool dw_tcp_session_create(dw_tcp_session *session);
void dw_tcp_session_adopt(dw_tcp_session *session, const unsigned char *id);
void dw_tcp_session_drop(dw_tcp_session *session);
void dw_tcp_session_open(dw_tcp_session *session, const dw_stream *stream, bool is_new);

/* tcp_send.c */
/* false: too many messages are kept already, or an error */
bool dw_tcp_keep(dw_tcp_sending *sending, dw_tcp_request *request);
/* begin_sending: to a new peer. send_is_done: all records of it were given to stripes. */
void dw_tcp_begin_sending(dw_tcp_sending *sending);
void dw_tcp_post_send(dw_tcp_sending *sending, const dw_tcp_request *request);
bool dw_tcp_send_is_done(dw_tcp_sending *sending, const dw_tcp_request *request);
void dw_tcp_forget_writing(dw_tcp_stripe *stripe);
/* Returns whether the send in progress would advance if the link tested it now. */
bool dw_tcp_can_advance(const dw_tcp_sending *sending);
/* Sends as much as the stripes can take: data, requests, acknowledgements. */
void dw_tcp_send(dw_tcp_sending *sending);
void dw_tcp_write(dw_tcp_sending *sending, dw_tcp_stripe *stripe);
void dw_tcp_acknowledge(dw_tcp_sending *sending, uint64_t whole, uint64_t limit);
/* what was sent on a lost stripe must be sent again */
void dw_tcp_requeue(dw_tcp_sending *sending, unsigned stripe);
void dw_tcp_resend_stuck(dw_tcp_sending *sending, int64_t now, int64_t patience_ns);
/* handles a received ASK or ECHO; ignores other records */
void dw_tcp_take_probe(dw_tcp_stripe *stripe, int kind);
void dw_tcp_send_leave(dw_tcp_sending *sending);
bool dw_tcp_can_ack(const dw_tcp_sending *sending); /* a stripe is free to carry a record */

/* tcp_receive.c. decide: finds room for bytes that wait in a socket until it is known where they
 * go. */
void dw_tcp_read(dw_tcp_sending *sending, dw_tcp_stripe *stripe);
void dw_tcp_decide(dw_tcp_sending *sending);

/* tcp_reassembly.c. Records that carry bytes of messages: begin_chunk is called after the header,
 * find_room chooses where the bytes go (must: it may not put that off), finish_chunk is called
 * after the last byte. whole, limit: as in a record. */
void dw_tcp_begin_chunk(dw_tcp_receiving *receiving, dw_tcp_stripe *stripe,
                        const dw_tcp_record_in *record);
void dw_tcp_advance_record(dw_tcp_stripe *stripe, size_t n); /* n bytes of it were read */
void dw_tcp_find_room(dw_tcp_receiving *receiving, dw_tcp_stripe *stripe, bool must);
void dw_tcp_finish_chunk(dw_tcp_receiving *receiving, dw_tcp_stripe *stripe);
uint64_t dw_tcp_limit(const dw_tcp_receiving *receiving);
uint64_t dw_tcp_whole(const dw_tcp_receiving *receiving);
void dw_tcp_post_receive(dw_tcp_receiving *receiving, dw_tcp_request *request); /* of the link */
dw_status dw_tcp_deliver(dw_tcp_receiving *receiving, size_t *len);
void dw_tcp_forget_reading(dw_tcp_receiving *receiving, dw_tcp_stripe *stripe);
dw_tcp_stash *dw_tcp_take_room(dw_tcp_receiving *receiving, size_t len); /* NULL: no memory */
void dw_tcp_give_room_back(dw_tcp_receiving *receiving, dw_tcp_stash *room);
void dw_tcp_free_room(const dw_tcp_receiving *receiving, dw_tcp_stash *room); /* while the end is
                                                                                 closed */
void dw_tcp_forget_incoming(dw_tcp_receiving *receiving); /* drops all that the link has not taken
                                                           */
bool dw_tcp_has_next(const dw_tcp_receiving *receiving);  /* the awaited message is complete */
/* begun: bytes received so far of messages that the link has not taken; what comes again does not
 * count. note_partial: to be called after each turn and before a stripe is lost; allow_duplicates:
 * then. */
uint64_t dw_tcp_begun(const dw_tcp_receiving *receiving);
void dw_tcp_note_partial(dw_tcp_receiving *receiving);
void dw_tcp_allow_duplicates(dw_tcp_receiving *receiving);
/* stripe_returned: a lost one was connected again. widen_window: the round trip is long. */
void dw_tcp_stripe_returned(dw_tcp_receiving *receiving);
void dw_tcp_widen_window(dw_tcp_receiving *receiving);

/* tcp_kernel.c */
dw_tcp_kernel dw_tcp_ask_kernel(int fd);

#endif
