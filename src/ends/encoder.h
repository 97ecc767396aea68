/* SPDX-License-Identifier: Apache-2.0
 * encoder.h - what the files of the encoder share.
 *
 * A frame goes through four steps, for every engine the same: book (all that can fail: keys, slots,
 * places), submit (the engine computes), seal (digests into the tables), commit (cannot fail).
 *
 * | file              | its one thing                                                         |
 * | encoder.c         | the object: made, ended, asked; forgets keys                          |
 * | encoder_plan.c    | what a frame will carry and where: all that can fail                  |
 * | encoder_ticket.c  | a frame on its way: booked, submitted, given up; room for many        |
 * | encoder_commit.c  | a frame that is done: sealed, and what it says becomes what is held   |
 * | encoder_calls.c   | the public calls that make frames                                     |
 * | encoder_replies.c | what replies teach                                                    |
 * | end.c             | what both ends have in common                                         |
 */
#ifndef DW_ENCODER_H
#define DW_ENCODER_H

#include <stdio.h>

#include "base/sized.h"
#include "codecs/options.h"
#include "codecs/plan.h"
#include "deltawire/cuda.h"
#include "ends/end.h"
#include "state/predict.h"
#include "wire/frame.h"

/* One sample on its way into a frame. */
typedef struct dw_outgoing {
    dw_entry entry;
    dw_held *held;
    bool added; /* the key is new: gone again if the call fails */
    const dw_copy *base;
    dw_copy fresh;
    dw_encode_job job;
    /* A reply that came while the frame was in flight; is_heard: there is one. */
    dw_reply_entry heard;
    bool is_heard, heard_accepted;
    bool revived; /* the key was among the forgotten */
} dw_outgoing;

/* A forgotten key that a frame announces, and the last frame that announced it before; 0: none. */
typedef struct dw_announcement {
    dw_key key;
    uint64_t before;
} dw_announcement;

/* A frame on its way: an encode ticket. Arrays are kept from frame to frame. */
struct dw_encode_ticket {
    dw_encode_ticket *next;
    dw_encoder *encoder;
    const dw_plans *plans;
    dw_plans own; /* a copy, for engines that still work when other frames are planned */
    dw_header header;
    const dw_key *keys; /* while it is booked; NULL: none are needed */
    dw_tensor x;        /* data NULL: prev itself is sent */
    bool has_x, is_stateless;
    bool is_whole;           /* the engine completes the head in the frame */
    uint64_t room;           /* bytes that the frame may take */
    uint32_t most_forgotten; /* keys that it may announce */
    uint8_t *frame;
    dw_outgoing *out; /* n entries */
    dw_announcement *announced;
    const dw_encode_job **jobs;
    /* What the decoder will compute, for whoever asks for the reconstruction. */
    dw_decode_job *again;
    const dw_decode_job **again_jobs;
    dw_chunk_result *results;
    uint8_t *draft; /* of a head that the engine completes */
    dw_head *heads; /* of all frames of a launch; used in its first ticket only */
    uint64_t out_cap, announced_cap, jobs_cap, again_cap, again_jobs_cap, results_cap;
    uint64_t draft_cap, heads_cap;
    uint64_t growth; /* bytes that its keys will take of the quota beyond what they take now */
    dw_sums sums;
    dw_launch *launch;
    uint32_t first; /* of the launch's jobs, the first of this frame */
    bool captured;  /* by a stream: the ticket stays when its frame is finished */
    bool flying;    /* submitted, and neither finished nor cancelled */
};

struct dw_encoder {
    dw_end end;
    uint64_t sequence, calls;
    bool is_whole; /* what later frames are: see dw_encoder_whole_frames */
    /* Returned to the caller, unfinished; to be reused. */
    dw_encode_ticket *tickets, *spare_tickets;
};

static inline dw_status dw_encoder_fail(dw_encoder *encoder, dw_status status, const char *sentence)
{
    return dw_end_fail(&encoder->end, status, sentence);
}

/* encoder.c. Takes a new incarnation, under which the decoder holds nothing: every key starts with
 * x itself again, and the decoder drops what it held of the old incarnation. */
void dw_encoder_begin_life(dw_encoder *encoder);

/* encoder_plan.c, in this order. plan: finds the keys and takes slots for their next prev; fails
 * with everything as it was. plan_sync: the same for frames of prev itself. unplan: gives back what
 * plan took, for samples [0, n). lay_out: gives every payload its place in the frame. job: what the
 * engine is to do for sample i. */
dw_status dw_ticket_plan(dw_encode_ticket *t);
dw_status dw_ticket_plan_sync(dw_encode_ticket *t);
void dw_ticket_unplan(dw_encode_ticket *t, uint32_t n);
dw_status dw_ticket_lay_out(dw_encode_ticket *t);
dw_encode_job dw_ticket_job(const dw_encode_ticket *t, uint32_t i);

/* The next forgotten key at or behind `from` that this frame is to announce: none that a frame
 * carries, and none that was announced lately. */
dw_held *dw_ticket_next_to_announce(const dw_encode_ticket *t, dw_held *from);

/* encoder_ticket.c. take: one of the spare ones, or a new one; NULL: no memory. book: plans a frame
 * and takes its number; an error leaves all as it was. drop: as if it had never been booked. fly:
 * the point of no return before the engine is done. close: it is not in flight any more. */
dw_encode_ticket *dw_ticket_take(dw_encoder *encoder);
void dw_ticket_give(dw_encode_ticket *t);
dw_status dw_ticket_book(dw_encode_ticket *t, const dw_key *keys, bool is_sync);
void dw_ticket_drop(dw_encode_ticket *t);
void dw_ticket_fly(dw_encode_ticket *t);
void dw_ticket_close(dw_encode_ticket *t);
dw_status dw_ticket_submit(dw_encode_ticket **tickets, size_t count, void *stream);
void dw_encoder_end_tickets(dw_encoder *encoder);
/* The i-th key that the frame announces; NULL where it is held again, or was announced again. */
dw_held *dw_ticket_still_announced(const dw_encode_ticket *t, uint32_t i);

/* encoder_commit.c. draft: of a frame that is booked, for an engine that completes it. seal and
 * commit: with the results known. */
uint64_t dw_ticket_head_most(const dw_encode_ticket *t); /* bytes */
dw_head dw_ticket_draft(dw_encode_ticket *t);
void dw_ticket_seal(dw_encode_ticket *t, uint8_t *head);
void dw_ticket_commit(dw_encode_ticket *t);

/* encoder_replies.c. One entry of a reply: which of our copies is it that the decoder holds? */
void dw_encoder_learn(dw_encoder *encoder, const dw_reply_entry *entry, bool accepted);

#endif
