/* SPDX-License-Identifier: Apache-2.0
 * encoder.h - structs and functions shared by the files of the encoder.
 *
 * A frame goes through four steps, whatever the engine: reserve (everything that can fail: keys,
 * slots, offsets), submit (the engine computes), finalize (digests are written into the tables),
 * commit (cannot fail).
 *
 * | file              | its one thing                                                        |
 * | encoder.c         | the object: create, destroy, query, export; forgets keys             |
 * | encoder_plan.c    | what a frame will carry, and where: all that can fail                |
 * | encoder_ticket.c  | a frame in flight: reserved, submitted, dropped                      |
 * | encoder_commit.c  | a frame that is done: finalized and committed                        |
 * | encoder_calls.c   | the public calls that make frames                                    |
 * | encoder_replies.c | what an encoder learns from replies                                  |
 * | encoder_residual.c| residuals of frames that were not delivered: given back, or undone   |
 * | rate.c            | finds the step with which frames have the rate that the config gives |
 * | end.c             | what encoder and decoder have in common                              | */
#ifndef DW_ENCODER_H
#define DW_ENCODER_H

#include <stdio.h>

#include "base/sized.h"
#include "codecs/options.h"
#include "codecs/plan.h"
#include "deltawire/cuda.h"
#include "ends/end.h"
#include "ends/rate.h"
#include "state/predict.h"
#include "wire/frame.h"

/* One sample of a frame that is being made. */
typedef struct dw_outgoing {
    dw_entry entry;
    dw_held *held;
    bool added;      /* the key is new: it is removed if the call fails */
    bool lacks_room; /* the quota has none for its copy */
    const dw_copy *base;
    dw_copy fresh;
    dw_encode_job job;
    /* A reply that arrived while the frame was in flight, applied when it ends; is_deferred: there
     * is one. */
    dw_reply_entry deferred;
    bool is_deferred, deferred_accepted;
    bool revived; /* the key was on the list of forgotten keys */
} dw_outgoing;

/* A forgotten key that a frame announces. before: the sequence of the frame that announced the key
 * earlier, or 0. It is restored in the key if this frame is dropped. */
typedef struct dw_announcement {
    dw_key key;
    uint64_t before;
} dw_announcement;

/* encoder_calls.c: what the caller asked for. */
typedef struct dw_encode_request {
    dw_tensor x; /* data NULL: prev itself is sent */
    bool has_x, is_stateless;
    uint64_t places;         /* as in dw_encode_options */
    bool bypasses_caches;    /* as well */
    uint64_t room;           /* bytes that the frame may take */
    uint32_t most_forgotten; /* number of forgotten keys that it may announce */
    uint8_t *frame;
} dw_encode_request;

/* Arrays for the engine, which are kept from frame to frame. */
typedef struct dw_encode_memory {
    const dw_encode_job **jobs;
    /* Jobs that compute what the decoder will make of the frame, where the caller asked for it. */
    dw_decode_job *again;
    const dw_decode_job **again_jobs;
    dw_chunk_result *results;
    uint8_t *draft; /* of a head that the device completes */
    dw_head *heads; /* of all frames of a launch; only used in the first ticket of a launch */
    uint8_t *work;  /* of stages behind forms: plain payloads and scratch memory */
    uint64_t jobs_cap, again_cap, again_jobs_cap, results_cap, draft_cap, heads_cap, work_cap;
} dw_encode_memory;

/* A frame that is being made, or in flight: an encode ticket. */
struct dw_encode_ticket {
    dw_encode_ticket *next;
    dw_encoder *encoder;
    dw_encode_request asked;
    const dw_key *keys; /* read while the frame is reserved; NULL: none are needed */
    const dw_plans *plans;
    dw_plans own; /* a copy for engines that are still working when other frames are planned */
    dw_header header;
    bool is_whole;    /* the device completes the head within the frame */
    dw_outgoing *out; /* n entries */
    dw_announcement *announced;
    uint64_t out_cap, announced_cap; /* both are kept from frame to frame */
    uint64_t growth; /* bytes by which its keys will increase their share of the quota */
    dw_sums sums;
    dw_encode_memory memory;
    dw_flight flight;
};

struct dw_encoder {
    dw_end end;
    uint64_t sequence, calls;
    dw_rate rate;
    bool is_whole; /* applies to later frames: see dw_encoder_whole_frames */
    /* tickets: returned to the caller, not yet ended. spare_tickets: the free list. */
    dw_encode_ticket *tickets, *spare_tickets;
};

static inline dw_status dw_encoder_fail(dw_encoder *encoder, dw_status status, const char *sentence)
{
    return dw_end_fail(&encoder->end, status, sentence);
}

/* encoder.c. new_incarnation: takes one of which the decoder holds nothing: the next entry of every
 * key carries x itself, and the decoder drops the copies of the old incarnation. reason: the
 * present one, or the reply to it: with `incarnation=` in the config, the new one is computed from
 * it. */
void dw_encoder_new_incarnation(dw_encoder *encoder, const void *reason, size_t len);

/* encoder_plan.c, to be called in this order. plan: finds the keys and takes slots for their new
 * copies; on an error nothing has changed. plan_sync: the same for frames that carry prev itself.
 * unplan: undoes plan for samples [0, n). lay_out: assigns every payload its place in the frame.
 * job: makes the engine's job for sample i. */
dw_status dw_ticket_plan(dw_encode_ticket *t);
dw_status dw_ticket_plan_sync(dw_encode_ticket *t);
void dw_ticket_unplan(dw_encode_ticket *t, uint32_t n);
dw_status dw_ticket_lay_out(dw_encode_ticket *t);
dw_encode_job dw_ticket_job(const dw_encode_ticket *t, uint32_t i);

/* How the copies that the frame's keys get are kept: those of prev, or residuals. */
static inline dw_dtype dw_ticket_dtype(const dw_encode_ticket *t)
{
    return t->plans->params.keeps_residual ? DW_F32 : t->plans->params.kept;
}

/* The key under which the encoder holds the state of place i of a frame. With feedback=lazy a
 * residual belongs to the place, whatever the sample is. */
static inline dw_key dw_encoder_held_key(const dw_encoder *encoder, dw_key key, uint32_t i)
{
    if (encoder->end.config.feedback == DW_FEEDBACK_LAZY) key.sample = i;
    return key;
}

/* The bytes that the form keeps of a key beside a residual. */
static inline uint64_t dw_ticket_kept_bytes(const dw_encode_ticket *t)
{
    return t->plans->params.keeps_residual ? t->plans->of[DW_USE_WHOLE].kept_bytes : 0;
}

/* Walks the list of forgotten keys from `from` and returns the next key that this frame is to
 * announce: one that no frame carries and that was not announced recently. */
dw_held *dw_ticket_next_to_announce(const dw_encode_ticket *t, dw_held *from);

/* encoder_ticket.c. take: gets a ticket from the free list, or a new one; NULL: no memory. give:
 * returns it to the free list. reserve: plans a frame and takes its sequence number; on an error
 * nothing has changed. drop: undoes reserve. set_in_flight: the point of no return; from then on
 * only finish or cancel end the frame. close: the frame is no longer in flight. */
dw_encode_ticket *dw_ticket_take(dw_encoder *encoder);
void dw_ticket_give(dw_encode_ticket *t);
dw_status dw_ticket_reserve(dw_encode_ticket *t, const dw_key *keys, bool is_sync);
void dw_ticket_drop(dw_encode_ticket *t);
void dw_ticket_set_in_flight(dw_encode_ticket *t);
void dw_ticket_close(dw_encode_ticket *t);
dw_status dw_ticket_submit(dw_encode_ticket **tickets, size_t count, void *stream);
void dw_encoder_end_tickets(dw_encoder *encoder);
/* The i-th key that the frame announces; NULL where the key is in use again, or was announced again
 * by a later frame. */
dw_held *dw_ticket_still_announced(const dw_encode_ticket *t, uint32_t i);

/* encoder_commit.c. draft: the head of a reserved frame without its digests, for an engine that
 * completes it. close_gaps, where payloads may have become shorter, finalize and commit: to be
 * called when the results are known. */
uint64_t dw_ticket_head_most(const dw_encode_ticket *t); /* an upper bound for any head of this
                                                            ticket, in bytes */
dw_head dw_ticket_draft(dw_encode_ticket *t);
void dw_ticket_close_gaps(dw_encode_ticket *t);
void dw_ticket_finalize(dw_encode_ticket *t, uint8_t *head);
void dw_ticket_commit(dw_encode_ticket *t);

/* encoder_calls.c. Whether x can be encoded; sets a sentence where it cannot. */
dw_status dw_encoder_check_tensor(dw_encoder *encoder, const dw_tensor *x);

/* encoder_replies.c. Applies one entry of a reply: which of our copies does the decoder hold? */
void dw_encoder_learn(dw_encoder *encoder, const dw_reply_entry *entry, bool accepted);

#endif
