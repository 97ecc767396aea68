/* SPDX-License-Identifier: Apache-2.0
 * tcp_end.h - one end of a link over TCP: its state, and the rules by which its bytes travel.
 *
 * An end is a session: up to eight connections, the *stripes*, which come and go while messages
 * stay in order. Every connection begins with a hello each way; then records, each a header and the
 * bytes it announces:
 *
 * wide table:
 * | offset | bytes | hello                                                                             |
 * | 0      | 6     | "DWTCP\n"                                                                         |
 * | 6      | 1     | framing version; these 8 bytes stay where they are in every version to come       |
 * | 7      | 1     | 'L' or 'C': who waits and who dials                                               |
 * | 8      | 16    | session; zeros from a dialler that has none yet: the listener makes one           |
 * | 24     | 1     | stripe                                                                            |
 * | 25     | 1     | stripes: the dialler's wish, and what the listener makes of it                    |
 * | 26     | 1     | answer: 0 from a dialler; DW_TCP_WELCOME ... from a listener                      |
 * | 27     | 5     | 0                                                                                 |
 * | 32     | 8     | whole, as in a record                                                             |
 * | 40     | 8     | limit, as in a record                                                             |
 *
 * wide table:
 * | offset | bytes | record                                                                            |
 * | 0      | 1     | kind                                                                              |
 * | 1      | 3     | 0                                                                                 |
 * | 4      | 4     | bytes that follow the header                                                      |
 * | 8      | 8     | number of the message, from 0                                                     |
 * | 16     | 8     | whole: so many messages, from the first on, have come whole to whoever sends this |
 * | 24     | 8     | limit: so many bytes of messages, from the first on, may come                     |
 * | 32     | 8     | offset in the message; CHUNK only, as is the next                                 |
 * | 40     | 8     | length of the message                                                             |
 *
 * - A message of up to DW_TCP_CHUNK_BYTES goes in one record (MESSAGE), a longer one in chunks
 * (CHUNK), whose length follows from the message's, in order, each on whatever stripe can take it.
 * - The sender keeps a message's bytes until the peer has it whole. What went by a stripe that is
 * lost goes again by another; a receiver drops what it has already.
 * - STATE says only whole and limit. ASK wants an ECHO by the same stripe. LEAVE is the last record
 * of an end that closes.
 * - A receiver never has to stop reading: nobody sends past its limit. So acknowledgements always
 * get through.
 *
 * | file            | its part                                                          |
 * | tcp.c           | the backend's table                                               |
 * | tcp_open.c      | opening, closing, the end's memory                                |
 * | tcp_session.c   | what is due: a turn, the clock                                    |
 * | tcp_guests.c    | whoever knocks at a listener                                      |
 * | tcp_dials.c     | connections that a dialler makes                                  |
 * | tcp_receive.c   | bytes of a stripe to records                                      |
 * | tcp_stripes.c   | stripes come and go                                               |
 * | tcp_peer.c      | who the other end is, and whether it is gone                      |
 * | tcp_meeting.c   | one connection until both hellos are through                      |
 * | tcp_send.c      | messages to records, by stripes; what is kept                     |
 * | tcp_arriving.c  | parts of messages to messages                                     |
 * | tcp_poller.c    | what is watched                                                   |
 * | tcp_address.c   | addresses and options of a URI; sockets                           |
 * | tcp_kernel.c    | what the kernel tells of a connection                             |
 *
 * Everything is called by whoever has the link's wheel, one thread at a time, and but for opening
 * nothing waits. */
#ifndef DW_TCP_END_H
#define DW_TCP_END_H

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "common/stream.h"
#include "deltawire/transport.h"
#include "tls/tls.h"

enum {
    DW_TCP_VERSION = 2,
    DW_TCP_PREAMBLE_BYTES = 8,
    DW_TCP_HELLO_BYTES = 48, /* the preamble is its beginning */
    DW_TCP_SESSION_BYTES = 16,
    DW_TCP_RECORD_BYTES = 32,
    DW_TCP_CHUNK_RECORD_BYTES = 48
};

enum { DW_TCP_WELCOME = 1, DW_TCP_UNKNOWN = 2, DW_TCP_TAKEN = 3 }; /* answers in a hello */
enum {
    DW_TCP_MESSAGE = 1,
    DW_TCP_CHUNK = 2,
    DW_TCP_STATE = 3,
    DW_TCP_ASK = 4,
    DW_TCP_ECHO = 5,
    DW_TCP_LEAVE = 6
};

enum {
    DW_TCP_STRIPES = 4, /* unless the URI says otherwise */
    DW_TCP_STRIPES_MOST = 8,
    /* Long enough that a record's header costs nothing, short enough that a slow stripe does not
       hold much. */
    DW_TCP_CHUNK_BYTES = 1 << 20,
    DW_TCP_CHUNKS_MOST = 256, /* of one message: a longer one has longer chunks */
    /* What a receiver lets come beyond what its link has: 16 Gbit/s for 2 ms, and where the way is
     * longer 1 Gbit/s for 130 ms. More than the way needs would only wait in the kernel, and leave
     * the processor's caches before it is read. */
    DW_TCP_NEAR_WINDOW_BYTES = 4 << 20,
    DW_TCP_WINDOW_BYTES = 16 << 20,
    DW_TCP_NEAR_US = 2000,
    DW_TCP_KEPT_MOST = 512, /* messages sent and not acknowledged */
    /* And not taken, beside as many that are acknowledged. */
    DW_TCP_ARRIVING_MOST = 2 * DW_TCP_KEPT_MOST,
    /* Read at once where little is asked for: headers, short messages, often several. */
    DW_TCP_AHEAD_BYTES = 16384,
    DW_TCP_GUESTS = DW_TLS_UNPROVEN_PEERS, /* connections that have not said yet what they are */
    DW_TCP_CONGESTION_BYTES = 16,
    DW_TCP_MEETING_MS = 10000, /* until both hellos must be through */
    DW_TCP_TICK_MS = 100       /* how often the clock looks at the stripes */
};

/* The longest message that both ends can number the chunks of. */
#define DW_TCP_MOST_BYTES (UINT64_C(1) << 40)

/* What the poller tells an event by, with the index of the one that it is about. */
enum { DW_TCP_ON_LISTENER = 0, DW_TCP_ON_GUEST = 1, DW_TCP_ON_DIAL = 2, DW_TCP_ON_STRIPE = 3 };

/* ---- One connection until both hellos are through -------------------------------------------- */

typedef enum dw_tcp_phase {
    DW_TCP_NOBODY, /* no connection */
    DW_TCP_CONNECTING,
    DW_TCP_SHAKING, /* what stands before our own first byte: the handshake of a cover */
    DW_TCP_HEARING,
    DW_TCP_SAYING
} dw_tcp_phase;

typedef struct dw_tcp_meeting {
    dw_stream stream;
    dw_tcp_phase phase;
    bool dials;
    uint32_t events;  /* what epoll is asked for */
    int64_t until_ns; /* then it is over */
    size_t heard, said;
    unsigned char hears[DW_TCP_HELLO_BYTES], says[DW_TCP_HELLO_BYTES];
} dw_tcp_meeting;

/* What the kernel counted on a connection, 0 where it does not tell. */
typedef struct dw_tcp_kernel {
    uint64_t sent, received, retransmits;
    uint32_t rtt_us;
    int queued; /* bytes that the peer's kernel has not acknowledged */
} dw_tcp_kernel;

/* ---- Stripes --------------------------------------------------------------------------------- */

/* A chunk that came before its message is asked for. */
typedef struct dw_tcp_stash {
    struct dw_tcp_stash *next;
    size_t cap, offset, len;
    unsigned char data[];
} dw_tcp_stash;

typedef struct dw_tcp_stripe {
    dw_stream stream;
    bool is_open;
    uint32_t events;
    /* The record that is being written. */
    bool is_writing;
    bool is_blocked; /* the socket takes nothing; poll will tell */
    /* Writing failed: what can still be read is read before the stripe is given up. */
    bool is_broken;
    /* What it carried went again by another: it gets nothing more until an ECHO has come. */
    bool is_late;
    bool must_ask, must_answer;
    int64_t asked_ns; /* since when an ECHO is wanted; 0: none is */
    unsigned char header[DW_TCP_CHUNK_RECORD_BYTES];
    size_t header_len, header_done;
    const unsigned char *body; /* NULL: the peer has the message already, and any bytes will do */
    size_t body_len, body_done;
    uint64_t body_message;
    /* The record that is being read. */
    bool is_reading;
    bool is_undecided; /* where its bytes are to go: they wait in the socket meanwhile */
    bool is_chunk;
    uint64_t message;
    uint64_t total;
    size_t offset, len, done;
    unsigned char *room; /* NULL: nobody needs them */
    dw_tcp_stash *stash;
    size_t ahead_at, ahead_n;
    /* The clock's. */
    bool is_clear;      /* when last asked, the peer's kernel had all that was written */
    uint64_t delivered; /* bytes that it had then */
    int64_t moved_ns;   /* when that changed, or began to matter */
    int64_t redial_ns;  /* of a dialler: when to try again */
    int64_t backoff_ns;
    bool was_open;
    bool is_silent; /* it was lost without a word from the other end */
    unsigned char ahead[DW_TCP_AHEAD_BYTES];
} dw_tcp_stripe;

/* ---- Messages -------------------------------------------------------------------------------- */

typedef struct dw_tcp_kept {
    const unsigned char *data;
    dw_tcp_stash *copy; /* NULL: whoever sends it keeps it as well */
    size_t len, chunk_len;
    uint64_t position; /* bytes of all messages before it */
    uint32_t chunks;
    uint8_t on[DW_TCP_CHUNKS_MOST]; /* by chunk: the stripes that carry or carried it */
} dw_tcp_kept;

typedef struct dw_tcp_arriving {
    bool is_known; /* its first bytes have come */
    uint64_t total, got;
    uint64_t wire;                         /* bytes that came for it, headers included */
    uint64_t has[DW_TCP_CHUNKS_MOST / 64]; /* chunks that are here whole */
    dw_tcp_stash *stash;
} dw_tcp_arriving;

/* ---- The end --------------------------------------------------------------------------------- */

typedef struct dw_tcp_options {
    unsigned stripes;
    int64_t grace_ns;
    char congestion[DW_TCP_CONGESTION_BYTES]; /* "": the system's */
} dw_tcp_options;

typedef struct dw_tcp_end {
    dw_allocator allocator;
    dw_link_role role;
    dw_tcp_options options;
    uint32_t peer_timeout_ms;
    uint64_t longest; /* message that this end takes */
    bool copies;      /* what is kept */
    char peer[96];
    int poller; /* epoll: all the sockets below */
    bool is_opening;
    dw_status status; /* not DW_OK: broken */
    dw_why why;

    /* TLS. What the first stripe proved counts for all. */
    dw_tls_context *tls; /* NULL: without */
    char peer_name[DW_TLS_NAME_BYTES];
    unsigned char tls_session[DW_TLS_SESSION_BYTES];
    /* Of a listener: how many strangers; the last of them, and why, where one said more than
     * nonsense. */
    unsigned n_turned_away;
    bool is_reason_known;
    char turned_away[300];

    /* Connections. */
    unsigned char session[DW_TCP_SESSION_BYTES];
    bool has_session;
    unsigned n_stripes, n_open;
    dw_tcp_stripe *stripes;
    int listener;
    /* Of a listener that could not accept: not watched until then; 0: it is. */
    int64_t deaf_until_ns;
    unsigned next_guest;             /* the oldest guest's place, where all are taken */
    dw_tcp_meeting *guests;          /* of a listener: DW_TCP_GUESTS */
    dw_tcp_meeting *dials;           /* of a dialler: one for each stripe */
    struct sockaddr_storage address; /* of a dialler: where the peer was found */
    socklen_t address_len;
    char trouble[96];    /* of a dialler: why it did not work the last time */
    int64_t lost_ns;     /* when the last stripe went; 0: there is one */
    int lost_error;      /* errno; 0: the peer's end of the stream */
    size_t cut_bytes;    /* of records that went with it in their middle */
    char lost_text[160]; /* what its cover said; "": nothing */
    bool peer_left;      /* and said so */
    int64_t tick_ns;     /* when the stripes' progress was last looked at */
    unsigned turns;
    unsigned n_guests;
    bool is_handshake_refused; /* of a dialler: once at least */

    /* Sending. */
    dw_tcp_kept *kept;               /* a ring of DW_TCP_KEPT_MOST, by number */
    uint64_t seen_acked, seen_limit; /* by the clock ... */
    int64_t seen_ns;                 /* ... when they last changed */
    /* numbers: of the next send; not kept any more; not in flight at the link's. */
    uint64_t next_message, acked, answered;
    uint64_t cursor;       /* the first message that may have chunks no stripe carries ... */
    uint32_t cursor_chunk; /* ... and the first of these */
    uint64_t next_position, peer_limit;
    const struct dw_tcp_request *sending; /* the link's, until it is answered */
    unsigned next_stripe;                 /* chunks take turns */

    /* Receiving. */
    dw_tcp_arriving *arriving; /* a ring of DW_TCP_ARRIVING_MOST, by number */
    uint64_t awaited, whole; /* numbers: the link gets it next; the first that is not here whole */
    uint64_t taken;          /* bytes of messages that the link has */
    uint64_t window;         /* bytes that may come beyond */
    struct dw_tcp_request *posted;
    bool is_direct;  /* the awaited message is read to where the link wants it */
    bool has_looked; /* the last read found less than it had room for */
    unsigned hot;    /* the stripe that brought something last */
    dw_tcp_stash *unused;
    uint64_t stash_bytes, unused_bytes;
    uint64_t told_whole, told_limit, unsaid; /* bytes that came since */
    int64_t tell_ns;    /* when the peer is to be told at the latest; 0: it knows */
    bool moved_awaited; /* in this turn */
    bool is_restless;   /* a stream has bytes that poll does not see */

    /* Counters. */
    uint64_t sent, sent_apart; /* bytes on the wire: of messages, and others not added yet */
    uint64_t received, received_apart; /* of messages that the link has, and others not added yet */
    uint64_t received_ahead;           /* of messages that it has not */
    uint64_t resent_bytes, reconnects;
    dw_tcp_kernel gone; /* what the kernel counted on connections that are no more */
} dw_tcp_end;

typedef struct dw_tcp_request {
    bool sends, is_kept;
    const unsigned char *data;
    unsigned char *room;
    size_t len;      /* bytes to send; room to receive into */
    uint64_t number; /* of a send, once it is kept */
} dw_tcp_request;

/* Where a message that is on its way lies. */
static inline dw_tcp_arriving *dw_tcp_arriving_of(const dw_tcp_end *end, uint64_t number)
{
    return &end->arriving[number % DW_TCP_ARRIVING_MOST];
}

/* tcp_end.c. fail: the first trouble stays. chunk_len: of a message of that length; both ends
 * compute it, so that a chunk has a number. */
void dw_tcp_fail(dw_tcp_end *end, dw_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
size_t dw_tcp_chunk_len(uint64_t total);

/* tcp_open.c */
dw_status dw_tcp_open(dw_tcp_end *end, const dw_transport_open *how);
void dw_tcp_close(dw_tcp_end *end);

/* tcp_address.c. host and port lie in address; offset of what is wrong as in dw_transport_open. */
struct addrinfo;
dw_status dw_tcp_read_options(const dw_transport_open *how, dw_tcp_options *options);
dw_status dw_tcp_resolve(const dw_transport_open *how, struct addrinfo **found);
dw_status dw_tcp_listen(const dw_transport_open *how, const dw_tcp_options *options,
                        const struct addrinfo *addresses, int *listener);
dw_status dw_tcp_check_congestion(const dw_transport_open *how, const dw_tcp_options *options);
/* A socket that connects; -1: errno tells why not. */
int dw_tcp_dial(const struct sockaddr *address, socklen_t len, const dw_tcp_options *options);
int dw_tcp_connected(int fd); /* 0, or why not, as errno */
void dw_tcp_tune(int fd, uint32_t peer_timeout_ms);
void dw_tcp_print_peer(int fd, char text[96]);

/* tcp_meeting.c. step: DW_PENDING: not yet; DW_OK: the hello of the other end lies in hears (a
 * dialler), or is to be answered, or has been (a guest); DW_ERR_IO: the connection is of no use,
 * errno tells why, 0: it hung up; DW_ERR_AUTH, DW_ERR_PEER, DW_ERR_TIMEOUT: TLS failed, the
 * stream's text tells why. Others are errors. as_*: false: no memory. */
bool dw_tcp_meet_as_guest(dw_tcp_meeting *meeting, int fd, int64_t until_ns, const dw_tcp_end *end);
bool dw_tcp_meet_as_dialler(dw_tcp_meeting *meeting, int fd, int64_t until_ns,
                            const dw_tcp_end *end, unsigned stripe);
dw_status dw_tcp_meeting_step(dw_tcp_meeting *meeting, dw_tcp_end *end);
void dw_tcp_answer(dw_tcp_meeting *meeting, const dw_tcp_end *end, unsigned stripe, int answer);
void dw_tcp_meeting_end(dw_tcp_meeting *meeting);
uint32_t dw_tcp_meeting_events(const dw_tcp_meeting *meeting);

/* tcp_session.c. turn: everything that is due; waits only while opening. wakes: ns from now; -1:
 * never by itself. */
void dw_tcp_turn(dw_tcp_end *end, int wait_ms);
int64_t dw_tcp_wakes(const dw_tcp_end *end);

/* tcp_poller.c. watch_meeting: false: a socket that is new to the poller does not fit, errno tells
 * why. hear_listener: whether somebody who knocks is to be heard. */
void dw_tcp_watch_listener(dw_tcp_end *end);
void dw_tcp_hear_listener(const dw_tcp_end *end, bool hears);
void dw_tcp_watch_stripe(dw_tcp_end *end, dw_tcp_stripe *stripe);
bool dw_tcp_watch_meeting(const dw_tcp_end *end, dw_tcp_meeting *meeting, uint32_t kind,
                          uint32_t index);

/* tcp_guests.c */
void dw_tcp_admit(dw_tcp_end *end);
void dw_tcp_hear_guest(dw_tcp_end *end, uint32_t index);
void dw_tcp_dismiss(dw_tcp_end *end, dw_tcp_meeting *guest);
void dw_tcp_listen_again(dw_tcp_end *end);
void dw_tcp_stop_listening(dw_tcp_end *end);

/* tcp_dials.c. refused: nobody listens there, or a listener that knows nothing of this session. */
void dw_tcp_start_dial(dw_tcp_end *end, unsigned stripe, int64_t now);
void dw_tcp_pursue_dial(dw_tcp_end *end, uint32_t index);
void dw_tcp_dial_failed(dw_tcp_end *end, unsigned index, const char *trouble, bool refused);

/* tcp_stripes.c. seat: the connection is met, and whole and limit are what its hello says. */
void dw_tcp_seat(dw_tcp_end *end, dw_tcp_meeting *meeting, unsigned index, uint64_t whole,
                 uint64_t limit);
void dw_tcp_lose(dw_tcp_end *end, dw_tcp_stripe *stripe, int error);

/* tcp_peer.c. is_new: it names no session. is_told: by the peer's machine itself. patience: how
 * long an end without a connection waits for the other, ns. */
bool dw_tcp_is_session(const dw_tcp_end *end, const unsigned char *named);
bool dw_tcp_is_new(const unsigned char *named);
bool dw_tcp_is_peer(const dw_tcp_end *end, const dw_stream *stream);
bool dw_tcp_is_fresh(const dw_tcp_end *end);
bool dw_tcp_is_told(int error);
void dw_tcp_other_version(dw_tcp_end *end, const dw_tcp_meeting *meeting);
/* For the sentence, should the peer never come: perhaps it was this one. */
__attribute__((format(printf, 4, 5))) void dw_tcp_note_stranger(dw_tcp_end *end,
                                                                const dw_stream *stream,
                                                                bool is_reason, const char *format,
                                                                ...);
void dw_tcp_say_strangers(const dw_tcp_end *end, char *text, size_t cap); /* "": there were none */
void dw_tcp_gone(dw_tcp_end *end);
int64_t dw_tcp_patience(const dw_tcp_end *end);

/* tcp_send.c */
bool dw_tcp_keep(dw_tcp_end *end, dw_tcp_request *request); /* false: not now */
bool dw_tcp_sends_on(const dw_tcp_end *end); /* the link's send would get on if it were asked for */
void dw_tcp_give(dw_tcp_end *end); /* what stripes can take; and what the peer is to be told */
void dw_tcp_write(dw_tcp_end *end, dw_tcp_stripe *stripe);
void dw_tcp_acknowledge(dw_tcp_end *end, uint64_t whole, uint64_t limit);
void dw_tcp_take_back(dw_tcp_end *end, unsigned stripe); /* what a lost one carried */
void dw_tcp_overtake(dw_tcp_end *end, int64_t now, int64_t patience_ns);
void dw_tcp_hear_from(dw_tcp_stripe *stripe, int kind); /* an ASK or an ECHO, among others */
void dw_tcp_say_leave(dw_tcp_end *end);
bool dw_tcp_can_tell(const dw_tcp_end *end); /* a stripe is free for it */

/* tcp_receive.c. decide: where bytes go that nobody has asked for yet. */
void dw_tcp_read(dw_tcp_end *end, dw_tcp_stripe *stripe);
void dw_tcp_decide(dw_tcp_end *end);

/* tcp_arriving.c. A record that was announced on a stripe: begun, found room for (must: now), and
 * finished. whole, limit: as in a record. */
void dw_tcp_begin_chunk(dw_tcp_end *end, dw_tcp_stripe *stripe);
void dw_tcp_find_room(dw_tcp_end *end, dw_tcp_stripe *stripe, bool must);
void dw_tcp_finish_chunk(dw_tcp_end *end, dw_tcp_stripe *stripe);
uint64_t dw_tcp_limit(const dw_tcp_end *end);
uint64_t dw_tcp_whole(const dw_tcp_end *end);
void dw_tcp_post(dw_tcp_end *end); /* a request has come */
dw_status dw_tcp_deliver(dw_tcp_end *end, size_t *len);
void dw_tcp_forget_reading(dw_tcp_end *end, dw_tcp_stripe *stripe);
dw_tcp_stash *dw_tcp_take_room(dw_tcp_end *end, size_t len); /* NULL: no memory */
void dw_tcp_give_room_back(dw_tcp_end *end, dw_tcp_stash *room);
void dw_tcp_free_room(const dw_tcp_end *end, dw_tcp_stash *room); /* of an end that closes */
void dw_tcp_forget_arriving(dw_tcp_end *end); /* all that came and the link has not */
bool dw_tcp_has_next(const dw_tcp_end *end);  /* the message that the link waits for is here */
/* Bytes of messages that the link has not, as far as they came. */
uint64_t dw_tcp_begun(const dw_tcp_end *end);

/* tcp_kernel.c */
dw_tcp_kernel dw_tcp_ask_kernel(int fd);

#endif
