/* SPDX-License-Identifier: Apache-2.0
 * group.h - what the files of a group share: its state, and which thread may use which part of it.
 *
 * | file                | owns                                                                 |
 * | open.c              | checks of the config, links of URIs, opening and closing             |
 * | handshake.c         | check that all ranks agree on the config                             |
 * | calls.c             | the public calls that start operations and wait for them             |
 * | reports.c           | counters, sentences, parts                                           |
 * | slot.c              | slots: their table and buffers                                       |
 * | device.c            | buffers on a GPU: copies to and from main memory                     |
 * | coders.c            | encoders and decoders                                                |
 * | saved.c             | export, import and forgetting of what codecs keep                    |
 * | progress.c          | a step of the group's work                                           |
 * | progress_owner.c    | who takes the steps: the group's thread, or a caller that waits      |
 * | operation.c         | what an operation expects and when it is finished                    |
 * | reduce_scatter.c    | hop 1: contributions are encoded, sent, received and added           |
 * | one_shot.c          | an all-reduce in one hop: a contribution goes to all, who add it     |
 * | all_gather.c        | hop 2: results are encoded, sent, received and decoded               |
 * | fan_out.c           | messages with the same body to all other ranks                       |
 * | verifying.c         | each two ranks compare digests of their results                      |
 * | rollback.c          | what an operation that fails gives back: y, and residuals            |
 * | failure.c           | how a group fails, and notifies the other ranks                      |
 * | failure_detector.c  | which rank owes something for too long                               |
 * | peer.c              | a link to a rank: sending, receiving in order                        |
 * | retransmission.c    | messages that were lost are sent again, on links that may lose some  |
 * | received.c          | memory for received messages                                         |
 * | message.c           | the header in front of every message                                 |
 * | sized.c             | structs of callers that were compiled with another version           |
 * | memory.c            | memory from the caller's allocator                                   |
 *
 * Threads. The handlers of links only put a message into the inbox. Everything else happens in
 * steps (progress.c), which are taken by one thread at a time, the progress owner: the group's own
 * thread, or a caller that waits (progress_owner.c). So a link's heartbeat never waits for a codec,
 * messages of several links need no lock against each other, and sums are computed in an
 * environment for floating point that the group controls. `lock` protects what callers, handlers
 * and the progress owner share; it is never held while something is encoded, decoded or copied. The
 * rest is the progress owner's alone; a caller that needs it takes exclusive access first
 * (dw_exclusive_begin), for which the progress owner pauses between two steps.
 */
#ifndef DW_GROUP_H
#define DW_GROUP_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "coders.h"
#include "deltawire/collective.h"
#include "memory.h"
#include "message.h"
#include "received.h"

enum { DW_GROUP_TILE = 2048, DW_GROUP_MOST_RANKS = 256, DW_NS_IN_MS = 1000000 };

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

/* The link to one rank. */
typedef struct dw_peer {
    dw_group *group;
    uint32_t rank;
    dw_link *link; /* NULL: this rank itself */
    bool has_handler;
    uint32_t retry_ms; /* 0: the link loses, doubles, reorders and damages nothing */
    uint64_t nonce;
    bool has_answered;             /* that rank has repeated our nonce */
    uint64_t seal_seed, open_seed; /* of the digests of messages that are sent, and that arrive */

    /* Used by the progress owner alone. */
    uint64_t next_number, expected; /* of numbered messages: sent, and received */
    dw_kept kept[DW_PEER_WINDOW];
    uint64_t acknowledged; /* all numbers below this one are */
    uint64_t kept_bytes;
    dw_received *reorder[DW_PEER_WINDOW]; /* arrived, but an earlier one has not */
    bool owes_ack;
    uint32_t retransmissions; /* since something was last acknowledged */
    int64_t silence_ns;       /* the time at which a message was last acknowledged or repeated */
    /* The time at which something last arrived that a running operation was owed. Since then: the
     * bytes of frames of operations that have not begun here, and when the last of these came. */
    int64_t heard_ns, early_ns;
    uint64_t early_frames;
    int64_t refused_ns;  /* since when there has been no room for a message; 0: there was some */
    uint64_t moved;      /* a sum of counters, which grows when the link moves */
    int64_t moved_ns;    /* the time at which it last grew */
    int64_t notified_ns; /* the time at which that rank was last notified of the group's error */
    uint32_t waits_for;  /* the rank for which that rank says that it waits; UINT32_MAX: none */
    bool knows_failure;  /* that rank has sent an error of the group, so it knows of one */
    bool is_closed;      /* that rank has closed its group */
    bool has_closed;     /* this rank has told it that it closes the group */
    dw_status lost;      /* not DW_OK: the link has failed; what had arrived is in the inbox */
    bool is_lost;        /* dw_peer_settle has reacted to `lost` */

    /* Protected by the group's lock: an error that the handler found. If there is one, the group's
     * is_damaged is true. */
    dw_status damage;
} dw_peer;

/* What a slot is used for. IDLE: nothing; its memory may be used by the next caller of start.
 * STARTING: a caller prepares an operation. RUNNING: the progress owner has it. DONE and FAILED:
 * the caller has not collected the result yet. */
typedef enum dw_slot_state {
    DW_SLOT_IDLE,
    DW_SLOT_STARTING,
    DW_SLOT_RUNNING,
    DW_SLOT_DONE,
    DW_SLOT_FAILED
} dw_slot_state;

/* Where a frame is encoded to: cap bytes at `at`, of which it takes len. peer: the one in whose
 * message they are; NULL: they are elsewhere. */
struct dw_frame_room {
    unsigned char *at;
    size_t cap, len;
    dw_peer *peer;
};

/* The most bytes that a frame of t rows of c values has under a config. */
typedef struct dw_group_bound {
    const dw_config *config; /* NULL: the entry is not used */
    dw_dtype dtype;
    uint32_t t, c;
    size_t bytes;
} dw_group_bound;

/* Both hops, with pieces of the usual length and a shorter last one, of a few buffers. */
enum { DW_GROUP_BOUNDS = 16 };

/* An operation in progress; used by the progress owner alone, except by the caller that starts it.
 */
typedef struct dw_operation_state {
    dw_group_job job;
    bool is_large;         /* see dw_group_thresholds */
    uint64_t begin, count; /* the own part */
    uint32_t own_pieces;
    int64_t start_ns;
    /* Hop 1. left_to_contribute: pieces that this rank has not sent; in a BROADCAST its
     * confirmation. step: rank (own rank + 1 + step) % ranks gets the next one, if its link has
     * room. left_to_add: own pieces whose sum is not complete; at the root of a BROADCAST:
     * confirmations that have not arrived. */
    uint64_t left_to_contribute;
    bool may_wait; /* contributions of others are short */
    uint32_t step;
    uint32_t left_to_add;
    /* How many pieces have left the queue `due`, and have been put into it. Number i is at
     * due[i % own_pieces]. */
    uint32_t due_first, due_end;
    /* Hop 2. Own pieces that are ready to be sent: ready[ready_first .. ready_end). left_to_take:
     * pieces of all ranks that are not decoded. left_to_share: own pieces that are not encoded.
     * lands_in_y: results are decoded into y, not into `result`. is_safe: all results have arrived,
     * and nothing can go wrong any more; may_be_safe: it pays to find that out (all_gather.c). */
    bool lands_in_y, may_be_safe, is_safe;
    uint32_t ready_first, ready_end;
    uint64_t left_to_take, left_to_share;
    uint64_t n_arrived;
    dw_received_list arrived; /* n_arrived results that wait to be decoded */
    /* Messages with the same body to all other ranks (fan_out.c): how many this rank has made, and
     * how many copies of them have not been sent. */
    uint32_t made_for_all;
    uint64_t left_to_send;
    /* With `verify` (verifying.c): what this rank tells all others, and how many it has not told,
     * or not heard the like from. salt 0: not drawn yet. */
    uint64_t salt, digest;
    uint32_t digests_to_send, digests_to_check;
    /* With error feedback: messages with the frames that this rank has made, oldest first. */
    dw_received_list made;
} dw_operation_state;

/* What happened to the result of a piece: y has changed there; another rank has sent it. */
enum { DW_PIECE_OVERWRITTEN = 1, DW_PIECE_ARRIVED = 2 };

/* What another rank tells of its result, and whether it was told of ours. */
typedef struct dw_peer_digest {
    uint64_t salt, digest;
    bool has_come, is_checked, is_sent;
} dw_peer_digest;

struct dw_group_slot {
    struct dw_group_slot *next;         /* in the table */
    struct dw_group_slot *made_before;  /* in the list of all slots; never changes */
    struct dw_group_slot *next_running; /* in the list of operations */
    uint64_t number;
    uint64_t visit; /* the number of earlier operations of the slot, the same on all ranks */

    /* Under lock. */
    dw_slot_state state;
    bool has_waiter;

    dw_coders coders; /* of codecs that keep state; changed with exclusive access alone */
    bool is_begun;    /* the progress owner's: it has the operation */
    dw_operation_state now;
    /* One block of memory, of `bytes`, with these arrays. is_pinned: it belongs to the GPU's
     * driver, because a buffer of this slot was on a GPU. */
    void *memory;
    size_t bytes;
    bool is_pinned;
    unsigned char *staged; /* a copy of x, of staged_bytes, if x is on a GPU */
    size_t staged_bytes;
    float *sums; /* of the own part, in binary32; kept to the end with feedback */
    /* Of all parts, in the dtype of the job: if results are decoded into y, what y held before,
     * else the result, until it is copied to y. */
    unsigned char *result;
    uint32_t *ready;         /* (own pieces) */
    uint32_t *added;         /* (own pieces): how many ranks were added */
    uint32_t *due;           /* (own pieces): a queue of pieces that have a contribution to add */
    dw_received **waiting;   /* (own pieces, ranks): contributions whose turn has not come */
    unsigned char *taken;    /* (all pieces): a set of DW_PIECE_... */
    uint32_t *owes_part;     /* (ranks): contributions that have not arrived */
    uint32_t *owes_result;   /* (ranks): results that have not arrived, and their digest */
    uint32_t *contributed;   /* (ranks): pieces that this rank has sent to a rank */
    uint64_t *first_piece;   /* (ranks): where `taken` begins for each part */
    uint32_t *sent;          /* (ranks): messages with the same body that a rank was sent */
    dw_peer_digest *digests; /* (ranks), with `verify` */
    dw_received **kept;      /* (own pieces): messages that some rank was not sent yet; else NULL */
    /* The progress owner's: messages of operations that have not begun here; and whether it was
     * such a message that made the slot, so that it is counted in early_bytes until an operation
     * begins.
     */
    dw_received_list early;
    bool is_early;
};

/* What a slot costs: its struct, and up to three pointers to it while the table grows. */
enum { DW_SLOT_BYTES = (sizeof(dw_group_slot) + 63) / 64 * 64 + 3 * sizeof(void *) };

/* held_from: messages of so many bytes or more stay in memory of their link; shorter ones are
 * copied, because that takes less time than to lock the link twice. large_from: operations of so
 * many floats or more use more memory than the caches hold. ratio: frames are short if the floats
 * in them have at least so many times their bytes; longer ones take as much memory traffic as what
 * they are decoded to, so it does not pay to let them wait. Groups copy the global one when they
 * are opened; only tests change it. */
typedef struct dw_group_thresholds {
    size_t held_from;
    uint64_t large_from;
    uint32_t ratio;
} dw_group_thresholds;

extern dw_group_thresholds dw_group_all_thresholds;

struct dw_group {
    /* Fixed after open. */
    pid_t owner;
    dw_allocator allocator;
    uint32_t id, rank, ranks, open_timeout_ms, timeout_ms;
    uint32_t hops; /* of an all-reduce */
    bool verifies;
    uint32_t piece; /* the given length of pieces in floats; 0: chosen, within these limits */
    uint32_t shortest_piece, longest_piece;
    dw_group_thresholds thresholds;
    uint64_t max_early_bytes, nonce;
    uint64_t places;                      /* what places are drawn from; the same on all ranks */
    dw_config codec, result, rounding[2]; /* rounding: sums to f16 and to bf16 */
    bool keeps_state[2];                  /* whether codec and result keep anything of a key */
    dw_encoder *round[2];                 /* of the two configs `rounding`; they keep nothing */
    dw_decoder *rounded[2];
    dw_coders coders; /* of codecs that keep nothing, for all slots */
    dw_peer *peers;   /* (ranks) */
    bool owns_links, has_thread;
    int64_t open_by_ns; /* the time until which the group opens */
    pthread_t thread;
    int bell;      /* an eventfd, by which a caller that takes the steps is woken */
    void *scratch; /* the progress owner's: room for one frame that this rank makes for itself */
    size_t scratch_bytes;

    /* Under lock. */
    pthread_mutex_t lock;
    pthread_cond_t work;        /* for the thread: something happened */
    pthread_cond_t caller_work; /* for a caller that takes the steps: something happened */
    pthread_cond_t finished; /* for other callers: an operation ended, or no step is being taken */
    dw_group_slot *newest;   /* the list of all slots */
    dw_group_slot **slots;   /* a hash table of 2^slot_bits lists; NULL: there are none */
    uint32_t slot_bits;
    uint64_t slot_key[2];
    dw_group_slot *started, *last_started; /* operations that the progress owner has not seen yet */
    dw_received_list inbox;
    uint64_t inbox_bytes;
    bool is_damaged; /* the progress owner has not seen the `damage` of a peer yet */
    dw_received_pool pool;
    dw_cuda *cuda;    /* the GPU of all jobs that have one; set once, together with `stream` */
    void *stream;     /* of the group's own */
    bool is_stepping; /* a step is being taken */
    bool is_owned_by_caller; /* steps are taken by a caller that waits, not by the thread */
    pthread_t owner_thread;  /* this caller */
    bool owner_serves; /* it is in dw_link_attend, so that `bell` wakes it and `caller_work` does
                          not */
    bool is_exclusive, is_closing;
    uint32_t exclusive_waiters;
    int64_t thread_wakes_ns; /* when the thread wakes up by itself */
    dw_status status;        /* DW_OK while the group works; set once */
    int failed_rank;
    dw_why why;
    dw_why refusal;             /* of the last call that was refused */
    dw_group_counters counters; /* what callers count; `published` is what the progress owner counts
                                 */
    dw_group_counters published;

    /* The progress owner's alone. */
    dw_group_slot *running, *last_running; /* operations in progress, oldest first */
    uint64_t early_bytes; /* of messages of operations that have not begun here, and their slots */
    dw_group_counters count; /* copied to `published` after every step */
    dw_group_bound bounds[DW_GROUP_BOUNDS];
    uint32_t next_bound; /* the entry that is replaced next */
    bool is_blocked;     /* a link had no room for a message */
    int64_t looked_ns;   /* the time at which `look` last ran (progress.c) */
    int64_t pinged_ns;   /* the time at which other ranks were last notified for whom this waits */
    bool has_closed;     /* the progress owner has begun to close the group */
    int64_t closing_ns;  /* the time at which it did so */
};

/* Stands first in each public call that locks, waits or allocates: a caller that is cancelled by
 * pthread_cancel ends after the call, at its next cancellation point. */
#define DW_UNCANCELLED                                                                             \
    __attribute__((cleanup(dw_group_restore_cancellation), unused)) const int dw_cancellation =    \
        dw_group_hold_cancellation()

static inline int dw_group_hold_cancellation(void)
{
    int before = PTHREAD_CANCEL_ENABLE;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static inline void dw_group_restore_cancellation(const int *before)
{
    pthread_setcancelstate(*before, NULL);
}

/* After fork() the child has neither the group's thread nor its locks. */
bool dw_group_is_ours(const dw_group *group);

/* A range of a buffer, in floats: a part, or a piece of one. */
typedef struct dw_piece {
    uint64_t begin; /* from the start of the buffer */
    uint64_t count;
} dw_piece;

/* operation.c. part_of: a part of the buffer. In a BROADCAST the whole buffer is one part, which
 * belongs to root. pieces_of: the number of pieces of a part. An empty buffer has one empty piece,
 * of which a message without a frame is sent, so that the ranks compare what they have started.
 * piece_at: one of the pieces. view: `count` floats as a tensor, which has rows of 2048, or one row
 * if count is not a multiple of 2048. */
dw_piece dw_job_part(const dw_group *group, const dw_group_job *job, uint32_t part);
uint32_t dw_job_pieces(const dw_group *group, const dw_group_job *job, uint32_t part);
dw_piece dw_job_piece(const dw_group *group, const dw_group_job *job, uint32_t part,
                      uint32_t piece);
dw_tensor dw_flat_view(const void *data, dw_dtype dtype, uint64_t count);
/* How many floats this rank reads from x, and writes to y. */
uint64_t dw_job_reads(const dw_group *group, const dw_group_job *job);
uint64_t dw_job_writes(const dw_group *group, const dw_group_job *job);
/* adds: whether the operation has hop 1. shares: whether it has hop 2. gathers: whether it is an
 * all-reduce in one hop. Then the whole buffer is one part, which every rank adds for itself.
 * own_part: the part that this rank adds. */
bool dw_job_reduces(const dw_group_job *job);
bool dw_job_gathers(const dw_group *group, const dw_group_job *job);
bool dw_job_is_one_shot(const dw_group *group, const dw_group_job *job);
uint32_t dw_job_own_part(const dw_group *group, const dw_group_job *job);
/* begin: begins an operation that a caller has started. take: handles a message of any operation,
 * which belongs to the function. push: sends one frame if there is one and the queue has room;
 * returns whether it did anything. */
void dw_operation_begin(dw_group *group, dw_group_slot *slot);
void dw_operation_take(dw_group *group, dw_received *received);
bool dw_operation_push(dw_group *group, dw_group_slot *slot);
bool dw_operation_is_finished(const dw_group_slot *slot);
/* end: after it the slot holds no messages, and x and y belong to the caller again. set_done: the
 * caller of this one holds the lock. */
void dw_operation_end(dw_group *group, dw_group_slot *slot);
void dw_operation_set_done(dw_group *group, dw_group_slot *slot);
/* Copies what is not in y yet to y. */
void dw_operation_deliver(dw_group *group, dw_group_slot *slot);
/* The header of a message about this operation. to_self: a message of this rank to itself, which
 * has no number and no digest. NULL: no memory. */
dw_message dw_operation_message(const dw_group_slot *slot, int hop, uint32_t part, uint32_t piece);
dw_received *dw_operation_to_self(dw_group *group, const dw_message *head,
                                  const dw_frame_room *frame);

/* reduce_scatter.c. begin: nothing has been added. contribute: sends the next contribution, and
 * returns whether it did. add: adds contributions that wait, to one piece; returns whether there
 * were any. take: handles a contribution, which belongs to the function. */
void dw_reduce_scatter_begin(dw_group *group, dw_group_slot *slot);
bool dw_reduce_scatter_contribute(dw_group *group, dw_group_slot *slot);
bool dw_reduce_scatter_add(dw_group *group, dw_group_slot *slot);
void dw_reduce_scatter_take(dw_group *group, dw_group_slot *slot, dw_received *received);
/* What is contributed: a piece of the caller's x. */
dw_tensor dw_reduce_scatter_source(const dw_group_slot *slot, dw_piece at);
/* Encodes this rank's contribution to one piece of a part. bound: the most bytes that it takes. */
bool dw_reduce_scatter_encode(dw_group *group, dw_group_slot *slot, uint32_t part, uint32_t piece,
                              dw_frame_room *frame);
size_t dw_reduce_scatter_bound(dw_group *group, const dw_group_slot *slot, dw_piece at);
/* Stores a contribution to a piece, of any rank, until its turn comes; then adds all contributions
 * whose turn has come, or leaves that to dw_reduce_scatter_add. */
void dw_reduce_scatter_put(dw_group *group, dw_group_slot *slot, uint32_t piece,
                           dw_received *received);

/* one_shot.c. Encodes the next piece for all, and takes it itself, or sends one that was kept;
 * returns whether it did either. */
bool dw_one_shot_contribute(dw_group *group, dw_group_slot *slot);

/* all_gather.c. share: encodes one piece for all, and returns whether it did. take:
 * handles a result, which belongs to the function. accept: decodes a result that waits; returns
 * whether there was one. finish: decodes all that wait, in an operation that is safe; returns
 * whether the operation is finished. */
bool dw_all_gather_share(dw_group *group, dw_group_slot *slot);
void dw_all_gather_take(dw_group *group, dw_group_slot *slot, dw_received *received);
bool dw_all_gather_accept(dw_group *group, dw_group_slot *slot);
bool dw_all_gather_finish(dw_group *group, dw_group_slot *slot);
/* What is shared: the sums of a piece, or a piece of the caller's own part. bound: the most bytes
 * that the result of a piece has. */
dw_tensor dw_all_gather_source(const dw_group_slot *slot, dw_piece at);
size_t dw_all_gather_bound(dw_group *group, const dw_group_slot *slot, dw_piece at);

/* verifying.c. is_due: whether an operation compares digests. begin: nothing was told. compare:
 * when all else is done, tells what can be told, and compares what has come; returns whether it did
 * anything. take: handles a digest, which belongs to the function. */
bool dw_verifying_is_due(const dw_group *group, const dw_group_job *job);
void dw_verifying_begin(dw_group *group, dw_group_slot *slot);
bool dw_verifying_compare(dw_group *group, dw_group_slot *slot);
void dw_verifying_take(dw_group *group, dw_group_slot *slot, dw_received *received);

/* rollback.c. y: where a piece lies in y. room: where the result of a piece is decoded to, after
 * what is there was kept; taken: the flags of the piece. restore: y becomes what it was before the
 * operation. */
unsigned char *dw_rollback_y(const dw_group_slot *slot, dw_piece at);
unsigned char *dw_rollback_room(dw_group_slot *slot, unsigned char *taken, dw_piece at);
void dw_rollback_output(const dw_group *group, dw_group_slot *slot);

/* fan_out.c. Messages of an operation to all other ranks, with the same body. begin: finds room
 * for a frame of frame->cap bytes in the links to ranks that have all earlier messages: bodies[r]
 * is for rank r, or NULL, and the frame is in the first of them. Returns false if there is room in
 * none, or a rank is too far behind. end: sends the frame to the ranks that have a body, and keeps
 * it for the others; head: without a number. Returns false if the group has failed. drop: returns
 * the room. send: sends one message that was kept to one rank; returns whether it did. */
bool dw_fan_out_begin(dw_group *group, const dw_group_slot *slot, dw_frame_room *frame,
                      unsigned char *bodies[DW_GROUP_MOST_RANKS]);
bool dw_fan_out_end(dw_group *group, dw_group_slot *slot,
                    unsigned char *bodies[DW_GROUP_MOST_RANKS], const dw_message *head,
                    const dw_frame_room *frame);
void dw_fan_out_drop(dw_group *group, unsigned char *bodies[DW_GROUP_MOST_RANKS]);
bool dw_fan_out_send(dw_group *group, dw_group_slot *slot);

/* rollback.c. keep: with error feedback, keeps a frame that was just made; head: the header of its
 * message. Returns false if the group has failed. end: frees the frames of an operation that has
 * ended; undoes: restores the residuals first, for which x and the sums must still be there. */
bool dw_rollback_keep(dw_group *group, dw_group_slot *slot, const dw_message *head,
                      const dw_frame_room *frame);
void dw_rollback_residuals(dw_group *group, dw_group_slot *slot, bool undoes);

/* open.c. A random number that is not 0. */
uint64_t dw_group_random(void);

/* slot.c. find: NULL if there is none; the caller of this one and of the next two holds the lock.
 * get: makes one. all_rest: whether no slot has an operation in progress. prepare: memory and
 * coders for a job; the slot is STARTING; errors have a sentence. */
dw_group_slot *dw_slot_find(const dw_group *group, uint64_t number);
dw_group_slot *dw_slot_get(dw_group *group, uint64_t number);
dw_group_slot *dw_slot_newest(dw_group *group); /* locks the group */
bool dw_slot_all_rest(const dw_group *group);
dw_status dw_slot_prepare(dw_group *group, dw_group_slot *slot, const dw_group_job *job,
                          dw_why *why);
void dw_slot_empty(dw_group *group, dw_group_slot *slot); /* frees the buffers */
void dw_slot_free_all(dw_group *group);

/* device.c. adopt: this GPU becomes the group's; ARGUMENT if it has another one. fetch: waits for
 * the stream of the job, and copies x to `staged`, which the job has as x then. store: copies so
 * many bytes to y, or the group fails; called by the progress owner. end: frees what adopt made. */
dw_status dw_device_adopt(dw_group *group, dw_cuda *cuda, dw_why *why);
dw_status dw_device_fetch(dw_group_slot *slot, dw_why *why);
void dw_device_store(dw_group *group, const dw_group_slot *slot, const void *from, size_t bytes);
void dw_device_end(dw_group *group);

/* progress.c. Does everything that there is to do, and returns after how many nanoseconds the next
 * step is due if nothing happens; *stepped_ns: the time from which these count. The lock is held
 * before and after. */
int64_t dw_progress_step(dw_group *group, int64_t *stepped_ns);
/* Whether all that was promised to other ranks is done, so that a closing group may end. */
bool dw_progress_may_end(const dw_group *group, int64_t now_ns);
int64_t dw_group_now_ns(void);

/* progress_owner.c. The caller of the second to fourth function holds the lock. run_worker: the
 * group's thread, which takes steps until the group is closed. unlock_and_wake: releases the lock,
 * and wakes who takes the steps. may_own: whether a caller may take the steps now. own: takes them
 * until the operation of the slot has ended, the time is over or somebody wants exclusive access.
 * begin and end: nobody takes steps in between. */
void *dw_progress_run_thread(void *group);
void dw_progress_unlock_and_wake(dw_group *group);
bool dw_progress_may_own(const dw_group *group);
void dw_progress_own(dw_group *group, bool (*has_ended)(const dw_group_slot *),
                     const dw_group_slot *slot, int64_t deadline_ns);
void dw_exclusive_begin(dw_group *group);
void dw_exclusive_end(dw_group *group);

/* failure.c. fail: the group ends with this error, which is about a rank; only the first one
 * counts. The other ranks are told. Called by the progress owner. */
void dw_group_fail(dw_group *group, dw_status status, uint32_t rank, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same, but the other ranks are not told; called when the group is closed. */
void dw_group_end(dw_group *group, dw_status status, uint32_t rank, const char *sentence);
/* Handles the message of another rank that the group has failed. */
void dw_failure_take_abort(dw_group *group, const dw_received *received);
/* Sends the error of the group to a rank. asks: that rank should answer with the error that it
 * knows. */
void dw_failure_notify(dw_group *group, dw_peer *peer, bool asks);
/* On a link that may lose messages: whether a rank may not know of the error yet, and is to
 * be notified again. */
bool dw_failure_must_notify(const dw_group *group, const dw_peer *peer);
dw_status dw_group_say(dw_why *why, dw_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* sized.c. Reads a struct of the caller, which begins with struct_size and may be shorter or longer
 * than ours: transport.h says what that means. */
dw_status dw_group_read_sized(void *own, size_t own_bytes, const void *given, const char *type,
                              dw_why *why);

/* failure_detector.c. Fails the group if a rank has owed something for too long; tells the others
 * for whom this rank waits. silent_since: from when on the silence of a rank counts, for an
 * operation that began at start_ns. */
void dw_failure_detector_check(dw_group *group, int64_t now_ns);
int64_t dw_failure_detector_silent_since(const dw_group *group, const dw_peer *peer,
                                         int64_t start_ns);

/* peer.c. take: the handler of the link. begin: room for a body of at most body_cap bytes; PENDING:
 * not now. end: sends the first body_len bytes, with a number and a digest. drop: returns the room.
 * tell: sends a message without a number, if there is room in the queue. */
void dw_peer_take(void *peer, const void *data, size_t len);
dw_status dw_peer_begin(dw_peer *peer, size_t body_cap, unsigned char **body);
dw_status dw_peer_end(dw_peer *peer, unsigned char *body, dw_message *head, size_t body_len);
void dw_peer_drop(dw_peer *peer, unsigned char *body);
dw_status dw_peer_notify(dw_peer *peer, dw_message *head, const void *body, size_t body_len);
/* Checks a message that arrived, and calls dw_operation_take with it if it belongs to an operation,
 * then with later ones that waited for it, in the order of their numbers. The received belongs to
 * the function. */
void dw_peer_sort(dw_peer *peer, dw_received *received);
/* Looks whether the link has failed. If it has, what had arrived is put into the inbox, and the
 * group fails in the next step, unless that rank had closed its group. */
void dw_peer_probe(dw_peer *peer);
void dw_peer_settle(dw_peer *peer);

/* retransmission.c. Only for peers whose retry_ms is not 0. */
bool dw_peer_has_window(const dw_peer *peer);
dw_status dw_peer_keep(dw_peer *peer, uint64_t number, const void *message, size_t len);
void dw_peer_acknowledge(dw_peer *peer, const dw_message *ack);
void dw_peer_send_ack(dw_peer *peer);
void dw_peer_retransmit(dw_peer *peer, int64_t now_ns);
void dw_peer_free_copies(dw_peer *peer); /* frees all copies */

/* handshake.c. greet: exchanges hellos with all ranks. answer: handles a hello that arrives
 * after the group has opened. */
dw_status dw_handshake_run(dw_group *group, dw_why *why);
void dw_handshake_answer(dw_peer *peer, const dw_received *received);

#endif
