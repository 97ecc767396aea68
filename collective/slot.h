/* SPDX-License-Identifier: Apache-2.0
 * slot.h - the slots of a group: their table, and the operation in each of them.
 *
 * The group's lock protects the table, and `state` and `has_waiter` of each slot. The rest of a
 * slot belongs to a caller while the slot is STARTING, and otherwise to the progress owner. */
#ifndef DW_GROUP_SLOT_H
#define DW_GROUP_SLOT_H

#include <stdatomic.h>

#include "coders.h"
#include "partition.h"

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

/* The operation of a slot. */
typedef struct dw_operation_state {
    dw_group_job job;
    dw_partition cut;
    bool is_large;         /* see dw_group_thresholds */
    uint64_t begin, count; /* the own part */
    uint32_t own_pieces;
    int64_t start_ns;
} dw_operation_state;

/* reduce_scatter.c and one_shot.c: hop 1. left_to_contribute: pieces that this rank has not sent;
 * in a BROADCAST its confirmation. may_wait: contributions of others are short. step: rank (own
 * rank + 1 + step) % ranks gets the next one, if its link has room. left_to_add: own pieces whose
 * sum is not complete; at the root of a BROADCAST: confirmations that have not arrived. due_first,
 * due_end: how many pieces have left the queue `due`, and have been put into it. Number i is at
 * due[i % own_pieces]. */
typedef struct dw_reduce_scatter {
    uint64_t left_to_contribute;
    bool may_wait;
    uint32_t step, left_to_add, due_first, due_end;
    float *sums;           /* of the own part, in binary32; kept to the end with feedback */
    uint32_t *added;       /* (own pieces): how many ranks were added */
    uint32_t *due;         /* (own pieces): a queue of pieces that have a contribution to add */
    dw_received **waiting; /* (own pieces, ranks): contributions whose turn has not come */
    uint32_t *owes;        /* (ranks): contributions that have not arrived */
    uint32_t *contributed; /* (ranks): pieces that this rank has sent to a rank */
} dw_reduce_scatter;

/* What happened to the result of a piece: y has changed there; another rank has sent it. */
enum { DW_PIECE_OVERWRITTEN = 1, DW_PIECE_ARRIVED = 2 };

/* all_gather.c: hop 2. Own pieces that are ready to be sent: ready[ready_first .. ready_end).
 * left_to_take: pieces of all ranks that are not decoded. left_to_share: own pieces that are not
 * encoded. lands_in_y: results are decoded into y, not into `result`. is_safe: all results have
 * arrived, and nothing can go wrong any more; may_be_safe: it pays to find that out. */
typedef struct dw_all_gather {
    bool lands_in_y, may_be_safe, is_safe;
    uint32_t ready_first, ready_end;
    uint64_t left_to_take, left_to_share;
    uint64_t n_arrived;
    dw_received_list arrived; /* n_arrived results that wait to be decoded */
    /* Of all parts, in the dtype of the job: if results are decoded into y, what y held before,
     * else the result, until it is copied to y. */
    unsigned char *result;
    uint32_t *ready;       /* (own pieces) */
    uint32_t *owes;        /* (ranks): results that have not arrived */
    uint64_t *first_piece; /* (ranks): where `taken` begins for each part */
    unsigned char *taken;  /* (all pieces): a set of DW_PIECE_... */
} dw_all_gather;

/* fan_out.c: how many messages to all other ranks this rank has made, and how many copies of them
 * have not been sent. */
typedef struct dw_fan_out {
    uint32_t made;
    uint64_t left_to_send;
    uint32_t *sent;     /* (ranks): how many a rank was sent */
    dw_received **kept; /* (own pieces): messages that some rank was not sent yet; else NULL */
} dw_fan_out;

/* verifying.c: a digest that another rank has of its result, and whether it was sent ours. */
typedef struct dw_peer_digest {
    uint64_t salt, digest;
    bool has_come, is_checked, is_sent;
} dw_peer_digest;

/* With `verify`: what this rank sends to all others, and how many it has not sent, or not compared
 * with theirs. salt 0: not drawn yet. */
typedef struct dw_verification {
    uint64_t salt, digest;
    uint32_t left_to_send, left_to_check;
    dw_peer_digest *of; /* (ranks) */
} dw_verification;

typedef struct dw_group_slot {
    struct dw_group_slot *next;         /* in the table */
    struct dw_group_slot *made_before;  /* in the list of all slots; never changes */
    struct dw_group_slot *next_running; /* in a list of operations */
    uint64_t number;
    uint64_t visit; /* the number of earlier operations of the slot, the same on all ranks */

    dw_slot_state state;
    bool has_waiter;

    dw_coders coders; /* of codecs that keep state; changed with exclusive access alone */
    bool is_begun;    /* the progress owner has its operation */
    dw_operation_state now;
    dw_reduce_scatter reduce;
    dw_all_gather gather;
    dw_fan_out fan;
    dw_verification verify;
    dw_received_list frames; /* rollback.c, with error feedback: those made here, oldest first */

    /* One block of memory, of `bytes`, with all arrays. pinned: the GPU whose driver it belongs to,
     * because a buffer of this slot was on it. */
    void *memory;
    size_t bytes;
    dw_cuda *pinned;
    unsigned char *staged; /* a copy of x, of staged_bytes, if x is on a GPU */
    size_t staged_bytes;

    /* operation.c: messages of operations that have not begun here; and whether it was such a
     * message that made the slot, so that it is counted in early_bytes until an operation
     * begins. */
    dw_received_list early;
    bool is_early;
} dw_group_slot;

/* What a slot costs: its struct, and up to three pointers to it while the table grows. */
enum { DW_SLOT_BYTES = (sizeof(dw_group_slot) + 63) / 64 * 64 + 3 * sizeof(void *) };

typedef struct dw_slots {
    dw_group_slot *newest; /* the list of all slots */
    dw_group_slot **table; /* a hash table of 2^bits lists; NULL: there are none */
    uint32_t bits;
    uint64_t key[2], count;
    _Atomic uint64_t state_bytes; /* of all slots' memory */
} dw_slots;

/* A list of operations, by next_running, oldest first. */
typedef struct dw_slot_list {
    dw_group_slot *first, *last;
} dw_slot_list;

/* find: NULL if there is none. get: makes one; NULL: no memory. all_rest: whether none has an
 * operation in progress. append, remove: of a list of operations. */
dw_group_slot *dw_slot_find(const dw_slots *slots, uint64_t number);
dw_group_slot *dw_slot_get(dw_slots *slots, const dw_allocator *allocator, uint64_t number);
bool dw_slot_all_rest(const dw_slots *slots);
void dw_slot_append(dw_slot_list *list, dw_group_slot *slot);
void dw_slot_remove(dw_slot_list *list, dw_group_slot *slot);

/* prepare: memory for a job; the slot is STARTING; errors have a sentence. empty: frees memory and
 * coders. */
dw_status dw_slot_prepare(dw_slots *slots, const dw_settings *settings, dw_group_slot *slot,
                          const dw_group_job *job, dw_why *why);
void dw_slot_empty(dw_slots *slots, const dw_coding *coding, dw_group_slot *slot);
void dw_slot_free_all(dw_slots *slots, const dw_coding *coding, dw_received_pool *pool);

/* Whether a rank has not sent the digest of its result. */
static inline bool dw_slot_owes_digest(const dw_group_slot *slot, uint32_t rank)
{
    return slot->verify.left_to_check > 0 && !slot->verify.of[rank].has_come;
}

#endif
