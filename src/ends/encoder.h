/* SPDX-License-Identifier: Apache-2.0
 * encoder.h - what the files of the encoder share. */
#ifndef DW_ENCODER_H
#define DW_ENCODER_H

#include <stdio.h>

#include "engine.h"
#include "frame.h"
#include "params.h"
#include "predict.h"
#include "work.h"

/* One sample on its way into a frame. */
typedef struct dw_outgoing {
    dw_entry_info entry;
    dw_held *held;
    bool added; /* the key is new: gone again if the call fails */
    const dw_copy *base;
    dw_copy fresh;
    dw_encode_job job;    /* quantized kinds */
    dw_reply_entry heard; /* a reply that came while the frame was in flight; is_heard: there is one
                           */
    bool is_heard, heard_accepted, revived; /* revived: the key was among the forgotten */
} dw_outgoing;

struct dw_encoder {
    dw_config config;
    dw_allocator allocator;
    dw_engine engine;
    const dw_remote *remote; /* the engine, where it is none of this processor: then only
                                encoder_calls.c computes */
    dw_predictor predictor;
    uint64_t incarnation, sequence, calls;
    struct dw_encode_ticket *tickets, *spare_tickets; /* in their users' hands; to be taken */
    dw_outgoing *plans;
    uint64_t plans_cap;
    dw_work work;
    dw_counters counters;
    dw_why why;
};

/* A frame in the making. */
typedef struct dw_draft {
    dw_encoder *encoder;
    dw_params params;
    dw_frame_info info;
    const dw_key *keys;
    const dw_tensor *x;
    uint8_t *frame;
    dw_outgoing *plans;
    uint32_t most_forgotten; /* that it may tell of */
    uint64_t growth;         /* of what its keys take of the quota */
    dw_sums sums;
} dw_draft;

static inline dw_status dw_encoder_fail(dw_encoder *encoder, dw_status status, const char *sentence)
{
    snprintf(encoder->why.text, sizeof encoder->why.text, "%s",
             sentence ? sentence : dw_status_string(status));
    return status;
}

/* A new name, under which nothing is held yet: for the decoder every key begins anew, and what it
 * held of the old name goes. */
void dw_encoder_begin_life(dw_encoder *encoder);

/* One entry of a reply: which of our copies is it that the decoder holds? */
void dw_encoder_learn(dw_encoder *encoder, const dw_reply_entry *entry, bool accepted);

/* encoder_plan.c, in this order. plan: finds the keys and takes slots for their next prev, in
 * *plans of *cap; fails with all as it was. unplan: gives back what plan took, for samples [0, n).
 * lay_out: places the payloads in cap bytes. job: sample i's, of a quantized kind. */
void dw_draft_describe(dw_draft *d, uint32_t n, uint32_t t, uint32_t c, dw_dtype x);
dw_status dw_draft_plan(dw_draft *d, dw_outgoing **plans, uint64_t *cap);
void dw_draft_unplan(dw_draft *d, uint32_t n);
dw_status dw_draft_lay_out(dw_draft *d, size_t cap, uint64_t *total);
dw_encode_job dw_draft_job(const dw_draft *d, const dw_outgoing *p, uint32_t i);

/* The next forgotten key at or behind `from` that this frame is to tell of: not one that a frame
 * carries, nor one told lately. */
dw_held *dw_draft_next_to_tell(const dw_draft *d, dw_held *from);

/* encoder.c, with the digests known: writes entry i into the tables, with its chain; makes what the
 * entries say what is held. */
void dw_draft_put_entry(const dw_draft *d, dw_outgoing *p, uint32_t i, uint8_t *tables);
void dw_draft_commit(dw_draft *d, uint64_t total);

/* encoder_calls.c: gives up all tickets; the reply waits for the frame in flight that carries its
 * key. */
void dw_encoder_end_tickets(dw_encoder *encoder);
void dw_encoder_hear(dw_encoder *encoder, const dw_reply_entry *entry, bool accepted);

#endif
