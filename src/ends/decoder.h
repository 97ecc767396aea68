/* SPDX-License-Identifier: Apache-2.0
 * decoder.h - what the files of the decoder share.
 *
 * A frame goes through the steps of docs/format.md, 2, in that order, for every engine the same:
 * read (steps 1 to 5), plan and admit (6 and 7), submit (the engine digests and reconstructs),
 * judge (8 and 9), commit (10, cannot fail).
 *
 * | file              | its one thing                                                         |
 * | decoder.c         | the object: made, ended, asked                                        |
 * | decoder_read.c    | a frame's header, parameters and tables, against config and tensor    |
 * | decoder_plan.c    | what a frame wants of what is held                                    |
 * | decoder_ticket.c  | a frame on its way: booked, submitted, given up                       |
 * | decoder_commit.c  | what the engine found: judged, and taken                              |
 * | decoder_calls.c   | the public calls that take frames                                     |
 * | decoder_replies.c | the answer                                                            |
 * | end.c             | what both ends have in common                                         |
 */
#ifndef DW_DECODER_H
#define DW_DECODER_H

#include <stdio.h>

#include "base/sized.h"
#include "codecs/options.h"
#include "codecs/plan.h"
#include "deltawire/cuda.h"
#include "ends/end.h"
#include "ends/reading.h"
#include "engine/engine.h"
#include "state/predict.h"
#include "wire/frame.h"
#include "wire/reply.h"

/* So many incarnations that were replaced are remembered: a late frame of one of them must not
 * bring old state back. */
enum { DW_RETIRED = 16 };

/* One entry of a frame that arrives. */
typedef struct dw_incoming {
    dw_entry entry;
    dw_held *held;
    bool added;    /* the key is new: gone again if the frame is rejected */
    bool gives_up; /* the copy held is damaged: dropped if the frame is rejected */
    dw_copy fresh;
    dw_decode_job job;
} dw_incoming;

/* A frame on its way in: a decode ticket. Arrays are kept from frame to frame. */
struct dw_decode_ticket {
    dw_decode_ticket *next;
    dw_decoder *decoder;
    const uint8_t *frame; /* header, parameters and tables are read here */
    const uint8_t *body;  /* the engine reads payloads here, at the same offsets */
    uint64_t len;         /* of all that came */
    dw_header header;
    bool tables_intact;  /* the keys can be read */
    uint64_t parameters; /* H of the parameter block */
    dw_dtype prev;       /* by the frame's parameters; 0: none, or they cannot be read */
    const dw_plans *plans;
    dw_plans own; /* a copy, for engines that still work when other frames are planned */
    dw_tensor y;
    bool adds;
    float factor;
    dw_incoming *in;
    uint32_t n_planned; /* planned entries are [0, n_planned) */
    uint64_t growth;    /* bytes that its keys will take of the quota beyond what they take now */
    uint8_t *head;      /* frames of a device: a copy that nobody else can write to */
    const dw_decode_job **jobs;
    dw_chunk_result *results;
    uint64_t head_cap, in_cap, jobs_cap, results_cap;
    dw_launch *launch;
    uint32_t first;    /* of the launch's jobs, the first of this frame */
    uint64_t number;   /* in the order of the calls */
    bool captured;     /* by a stream: the ticket stays when its frame is finished */
    bool flying;       /* submitted, and neither finished nor cancelled */
    dw_status refusal; /* not 0: the frame was refused before it was submitted */
    dw_why why;
};

struct dw_decoder {
    dw_end end;
    uint64_t retired[DW_RETIRED], n_retired;
    uint64_t calls;
    /* Returned to the caller, unfinished; to be reused. */
    dw_decode_ticket *tickets, *spare_tickets;
};

static inline dw_status dw_decoder_fail(dw_decoder *decoder, dw_status status, const char *sentence)
{
    return dw_end_fail(&decoder->end, status, sentence);
}

/* decoder_read.c. open: steps 1 to 3, of which the first head_len bytes are at hand. agrees: steps
 * 4 and 5. */
dw_status dw_arrival_open(dw_decode_ticket *t, uint64_t head_len);
dw_status dw_arrival_agrees(dw_decode_ticket *t);
/* decoder_plan.c, in this order; on an error give_up. plan: step 6, finds the keys. admit: step 7,
 * and within the quota, with slots for the next prev. job: of entry i. */
dw_status dw_arrival_plan(dw_decode_ticket *t);
dw_status dw_arrival_admit(dw_decode_ticket *t);
dw_decode_job dw_arrival_job(const dw_decode_ticket *t, uint32_t i);
void dw_arrival_give_up(dw_decode_ticket *t);

/* What is held of the i-th key that the frame announces as forgotten; NULL where nothing is, or
 * where it is newer than the frame. */
dw_held *dw_arrival_to_forget(const dw_decode_ticket *t, uint32_t i);

/* decoder_ticket.c; see encoder.h. What is wrong with the frame becomes t->refusal; other errors
 * are the call's. */
dw_decode_ticket *dw_decode_ticket_take(dw_decoder *decoder);
void dw_decode_ticket_give(dw_decode_ticket *t);
dw_status dw_decode_ticket_book(dw_decode_ticket *t, uint64_t head_len);
void dw_decode_ticket_land(dw_decode_ticket *t);
dw_status dw_decode_ticket_submit(dw_decode_ticket **tickets, size_t count, void *stream);
void dw_decoder_end_tickets(dw_decoder *decoder);

/* decoder_commit.c. judge: steps 8 and 9. commit: step 10. */
dw_status dw_arrival_judge(dw_decode_ticket *t);
void dw_arrival_commit(dw_decode_ticket *t);

/* decoder_replies.c. Was the incarnation replaced by a later one? Does the frame want a reply, and
 * change what is held? What is held of the frame's keys, and its length; rejected: re-hash before
 * naming. */
bool dw_decoder_is_retired(const dw_decoder *decoder, uint64_t incarnation);
bool dw_decoder_asks_for_reply(const dw_decode_ticket *t);
size_t dw_decoder_write_reply(dw_decode_ticket *t, bool rejected, uint8_t *reply);

#endif
