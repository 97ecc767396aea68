/* SPDX-License-Identifier: Apache-2.0
 * decoder.h - structs and functions shared by the files of the decoder.
 *
 * A frame passes the steps of docs/format.md, 2, in that order, whatever the engine: read (steps 1
 * to 5), plan and admit (6 and 7), submit (the engine verifies and reconstructs), verify (8 and 9),
 * commit (10, cannot fail).
 *
 * | file              | its one thing                                                        |
 * | decoder.c         | the object: create, destroy, query, export                           |
 * | decoder_read.c    | a frame's header, parameters and tables, against config and tensor   |
 * | decoder_plan.c    | a frame's entries against what is held of their keys                 |
 * | decoder_ticket.c  | a frame in flight: reserved, submitted, dropped                      |
 * | decoder_commit.c  | the engine's results: verified and committed                         |
 * | decoder_calls.c   | the public calls that take frames                                    |
 * | decoder_replies.c | the reply to a frame                                                 |
 * | end.c             | what encoder and decoder have in common                              | */
#ifndef DW_DECODER_H
#define DW_DECODER_H

#include <stdio.h>

#include "base/sized.h"
#include "codecs/options.h"
#include "codecs/plan.h"
#include "deltawire/cuda.h"
#include "ends/end.h"
#include "ends/inspect.h"
#include "engine/engine.h"
#include "state/predict.h"
#include "wire/frame.h"
#include "wire/reply.h"

/* How many replaced incarnations are remembered. A late frame of one of them must not bring old
 * state back. */
enum { DW_RETIRED = 16 };

/* One entry of a frame that is being received. */
typedef struct dw_incoming {
    dw_entry entry;
    dw_held *held;
    bool added;      /* the key is new: it is removed if the frame is rejected */
    bool drops_copy; /* the held copy is damaged: it is dropped if the frame is rejected */
    dw_copy fresh;
    dw_decode_job job;
} dw_incoming;

/* decoder_calls.c: what the caller asked for, and where its frame lies. */
typedef struct dw_decode_request {
    const uint8_t *frame; /* header, parameters and tables are read from here */
    const uint8_t *body;  /* the engine reads payloads from here, at the same offsets */
    uint64_t len;         /* bytes that have arrived */
    dw_tensor y;
    bool adds;
    float factor;
    bool bypasses_caches, only_checks;
} dw_decode_request;

/* Arrays for the engine, which are kept from frame to frame. head: of frames of a device, a private
 * copy, which nobody else can change. work: of stages behind forms, plain payloads and scratch
 * memory. */
typedef struct dw_decode_memory {
    uint8_t *head;
    const dw_decode_job **jobs;
    dw_chunk_result *results;
    uint8_t *work;
    uint64_t head_cap, jobs_cap, results_cap, work_cap;
} dw_decode_memory;

/* A frame that is being received, or in flight: a decode ticket. */
struct dw_decode_ticket {
    dw_decode_ticket *next;
    dw_decoder *decoder;
    dw_decode_request asked;
    dw_header header;
    bool tables_intact;  /* the keys can be read */
    uint64_t parameters; /* the digest H of the parameter block */
    dw_dtype prev;       /* how prev is kept, as the frame's parameters say; 0: it is not, or they
                            cannot be read */
    const dw_plans *plans;
    dw_plans own; /* a copy for engines that are still working when other frames are planned */
    dw_incoming *in;
    uint64_t in_cap;    /* kept from frame to frame */
    uint32_t n_planned; /* entries [0, n_planned) are planned */
    uint64_t growth;    /* bytes by which its keys will increase their share of the quota */
    dw_decode_memory memory;
    dw_flight flight;
    uint64_t number;   /* position in the order of the calls */
    dw_status refusal; /* not 0: the frame was refused before it was submitted */
    dw_why why;
};

struct dw_decoder {
    dw_end end;
    uint64_t retired[DW_RETIRED], n_retired;
    uint64_t calls;
    /* tickets: returned to the caller, not yet ended. spare_tickets: the free list. */
    dw_decode_ticket *tickets, *spare_tickets;
};

static inline dw_status dw_decoder_fail(dw_decoder *decoder, dw_status status, const char *sentence)
{
    return dw_end_fail(&decoder->end, status, sentence);
}

/* decoder_read.c. dw_incoming_open: steps 1 to 3, for a frame whose first head_len bytes can be
 * read. dw_incoming_agrees: steps 4 and 5. */
dw_status dw_incoming_open(dw_decode_ticket *t, uint64_t head_len);
dw_status dw_incoming_agrees(dw_decode_ticket *t);
/* decoder_plan.c, to be called in this order; on an error call dw_incoming_drop. plan: step 6,
 * finds the keys. admit: step 7; also checks the quota and takes slots for the new copies. job:
 * makes the job of entry i. */
dw_status dw_incoming_plan(dw_decode_ticket *t);
dw_status dw_incoming_admit(dw_decode_ticket *t);
dw_decode_job dw_incoming_job(const dw_decode_ticket *t, uint32_t i);
void dw_incoming_drop(dw_decode_ticket *t);

/* The record of the i-th key that the frame announces as forgotten; NULL where nothing is held of
 * it, or where the held copy is newer than the frame. */
dw_held *dw_incoming_to_forget(const dw_decode_ticket *t, uint32_t i);

/* decoder_ticket.c; see encoder.h. Errors of the frame become t->refusal; other errors are
 * returned. */
dw_decode_ticket *dw_decode_ticket_take(dw_decoder *decoder);
void dw_decode_ticket_give(dw_decode_ticket *t);
dw_status dw_decode_ticket_reserve(dw_decode_ticket *t, uint64_t head_len);
void dw_decode_ticket_close(dw_decode_ticket *t);
dw_status dw_decode_ticket_submit(dw_decode_ticket **tickets, size_t count, void *stream);
void dw_decoder_end_tickets(dw_decoder *decoder);

/* decoder_commit.c. dw_incoming_verify: steps 8 and 9. dw_incoming_commit: step 10. */
dw_status dw_incoming_verify(dw_decode_ticket *t);
void dw_incoming_commit(dw_decode_ticket *t);

/* decoder_replies.c. is_retired: was the incarnation replaced by a later one? asks_for_reply: does
 * the frame want a reply, and does it carry keys or forgotten keys? write_reply: writes what is
 * held of the frame's keys and returns the length; rejected: verify copies before naming them. */
bool dw_decoder_is_retired(const dw_decoder *decoder, uint64_t incarnation);
bool dw_decoder_asks_for_reply(const dw_decode_ticket *t);
size_t dw_decoder_write_reply(dw_decode_ticket *t, bool rejected, uint8_t *reply);

#endif
