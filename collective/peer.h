/* SPDX-License-Identifier: Apache-2.0
 * peer.h - numbered messages with a digest to one other rank and from it: sent again on links that
 * may lose some, and put in order.
 *
 * Whoever has a peer's messages sorted pulls from it what is for others (dw_peer_sort). All fields
 * are the progress owner's alone, but for `damage`. */
#ifndef DW_GROUP_PEER_H
#define DW_GROUP_PEER_H

#include "failure.h"
#include "received_message.h"
#include "settings.h"

/* Tags of a group are id << 8 | one of these. Nothing is ever sent with PROBE: a receive with this
 * tag says whether the link has failed. */
enum { DW_PEER_MESSAGES = 0, DW_PEER_PROBE = 1 };

/* A rank sends nothing more on a link while so many bytes wait there which the backend has not
 * taken yet. The backend has enough of its own to keep the wire busy. To encode more than that too
 * early costs memory, and, where ranks share processors, the time of those that still have an
 * earlier operation to end. */
enum { DW_PEER_UNSENT_BYTES = 1 << 20 };

/* On a link that may lose messages: how many messages, and how many bytes of them, may be without
 * acknowledgement, and how many messages a receiver keeps that arrived before an earlier one. The
 * inbox of a group may hold so many bytes more than max_early_bytes. */
enum { DW_PEER_WINDOW = 64, DW_PEER_REORDER_BYTES = 8 << 20 };

/* A message that was sent and is not acknowledged yet; only on links that may lose messages. */
typedef struct dw_kept {
    dw_received *copy; /* NULL: acknowledged */
    int64_t sent_ns;
    uint32_t retransmissions;
} dw_kept;

/* retransmission.c. */
typedef struct dw_retransmission {
    dw_kept kept[DW_PEER_WINDOW];
    uint64_t acknowledged; /* all numbers below this one are */
    uint64_t kept_bytes;
    uint32_t count;     /* since something was last acknowledged */
    int64_t silence_ns; /* the time at which a message was last acknowledged or sent again */
} dw_retransmission;

/* handshake.c: what two ranks agree on before the first operation. */
typedef struct dw_session {
    uint64_t nonce;                /* of that rank */
    bool has_answered;             /* that rank has repeated our nonce */
    uint64_t seal_seed, open_seed; /* of the digests of messages that are sent, and that arrive */
} dw_session;

/* membership.c: what two ranks tell each other of failures and of the end. */
typedef struct dw_member {
    int64_t notified_ns; /* the time at which that rank was last notified of the group's error */
    bool knows_failure;  /* that rank has sent an error of the group, so it knows of one */
    bool has_closed;     /* this rank has told it that it closes the group */
    bool is_lost;        /* it is known here that the link has failed */
} dw_member;

/* failure_detector.c. heard_ns: the time at which something last arrived that a running operation
 * was owed. Since then: the bytes of frames of operations that have not begun here, and when the
 * last of these came. */
typedef struct dw_vigil {
    int64_t heard_ns, early_ns;
    uint64_t early_frames;
    uint64_t moved;   /* a sum of counters, which grows when the link moves */
    int64_t moved_ns; /* the time at which it last grew */
} dw_vigil;

typedef struct dw_peer {
    /* Fixed after open. */
    const dw_settings *settings;
    dw_received_pool *pool;
    dw_failure *failure;      /* of the group */
    dw_group_counters *count; /* of the group */
    uint32_t rank;
    dw_link *link;     /* NULL: this rank itself */
    uint32_t retry_ms; /* 0: the link loses, doubles, reorders and damages nothing */

    uint64_t next_number, expected;       /* of numbered messages: sent, and received */
    dw_received *reorder[DW_PEER_WINDOW]; /* arrived, but an earlier one has not */
    bool owes_ack;
    bool is_blocked;    /* there was no room for the last message */
    int64_t refused_ns; /* since when there has been no room for a message; 0: there was some */
    uint32_t waits_for; /* the rank for which that rank says that it waits; UINT32_MAX: none */
    bool is_closed;     /* that rank has closed its group */
    bool has_handler;   /* the link has one for messages of the group */
    dw_status lost;     /* not DW_OK: the link has failed */
    dw_retransmission sent;
    dw_session session;
    dw_member member;
    dw_vigil vigil;

    /* inbox.c. damage: an error that the handler found; under the group's lock. */
    dw_group *group;
    dw_status damage;
} dw_peer;

/* Where a frame is encoded to: cap bytes at `at`, of which it takes len. peer: the one in whose
 * message they are; NULL: they are elsewhere. */
typedef struct dw_frame_room {
    unsigned char *at;
    size_t cap, len;
    dw_peer *peer;
} dw_frame_room;

/* begin: room for a body of at most body_cap bytes; PENDING: not now; else the group has failed.
 * end: sends the first body_len bytes, with a number and a digest; not OK: the group has failed.
 * drop: returns the room. notify: sends a message without a number, if there is room in the
 * queue. */
dw_status dw_peer_begin(dw_peer *peer, size_t body_cap, unsigned char **body);
dw_status dw_peer_end(dw_peer *peer, unsigned char *body, dw_message *head, size_t body_len);
void dw_peer_drop(dw_peer *peer, unsigned char *body);
dw_status dw_peer_notify(dw_peer *peer, dw_message *head, const void *body, size_t body_len);

/* Checks a message that arrived, which belongs to the function, and appends to *ready what is for
 * others: messages of operations in the order of their numbers, greetings and errors. What cannot
 * be is an error of the group. */
void dw_peer_sort(dw_peer *peer, dw_received *received, dw_received_list *ready);

/* Looks whether the link has failed. If it has, what had arrived is appended to *left, for it may
 * contain a result, or that rank's goodbye. */
void dw_peer_probe(dw_peer *peer, dw_received_list *left);

/* retransmission.c. Does nothing on links that lose nothing. has_window: whether one more message
 * may be sent. keep: a copy of a message. send: sends again what was lost. let_go: frees all
 * copies. */
bool dw_retransmission_has_window(const dw_peer *peer);
bool dw_retransmission_is_complete(const dw_peer *peer); /* all was acknowledged */
dw_status dw_retransmission_keep(dw_peer *peer, uint64_t number, const void *message, size_t len);
void dw_retransmission_acknowledge(dw_peer *peer, const dw_message *ack);
void dw_retransmission_send(dw_peer *peer, int64_t now_ns);
void dw_retransmission_let_go(dw_peer *peer);

/* peer.c. Acknowledges what has arrived, if the link needs that. */
void dw_peer_acknowledge(dw_peer *peer);
void dw_peer_free(dw_peer *peer); /* frees all messages that it keeps */

#endif
