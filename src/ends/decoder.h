/* SPDX-License-Identifier: Apache-2.0
 * decoder.h - what the files of the decoder share. */
#ifndef DW_DECODER_H
#define DW_DECODER_H

#include <stdio.h>

#include "engine.h"
#include "frame.h"
#include "predict.h"
#include "work.h"

/* Incarnations that were replaced: a late frame of theirs must not bring old state back. */
enum { DW_RETIRED = 16 };

/* One entry of a frame that arrives. */
typedef struct dw_incoming {
    dw_entry_info entry;
    dw_held *held;
    bool added;    /* the key is new: gone again if the frame is rejected */
    bool gives_up; /* what is held is rotten: gone if the frame is rejected */
    dw_copy fresh;
    dw_decode_job job; /* quantized kinds */
} dw_incoming;

struct dw_decoder {
    dw_config config;
    dw_allocator allocator;
    dw_engine engine;
    const dw_remote *remote; /* the engine, where it is none of this processor: then only
                                decoder_calls.c computes */
    dw_predictor predictor;
    uint64_t incarnation, retired[DW_RETIRED], n_retired;
    uint64_t calls;
    struct dw_decode_ticket *tickets, *spare_tickets; /* in their users' hands; to be taken */
    dw_incoming *plans;
    uint64_t plans_cap;
    dw_work work;
    dw_counters counters;
    dw_why why;
};

/* A frame on its way in; planned entries are [0, n_planned). */
typedef struct dw_arrival {
    dw_decoder *decoder;
    const uint8_t *frame; /* header and tables are read here */
    const uint8_t *body;  /* the engine reads payloads here: at the same offsets */
    uint64_t len;
    dw_frame_info info;
    const dw_tensor *y;
    dw_incoming *plans;
    uint32_t n_planned;
    uint64_t growth; /* of what its keys take of the quota */
} dw_arrival;

static inline dw_status dw_decoder_fail(dw_decoder *decoder, dw_status status, const char *sentence)
{
    snprintf(decoder->why.text, sizeof decoder->why.text, "%s",
             sentence ? sentence : dw_status_string(status));
    return status;
}

/* decoder_plan.c, in this order; on an error give_up. agrees: with the config and y. plan: finds
 * the keys, in *plans of *cap. job: of entry i, of a quantized kind. admit: in step, within the
 * quota, and with slots for the next prev. */
dw_status dw_arrival_agrees(dw_arrival *a);
dw_status dw_arrival_plan(dw_arrival *a, dw_incoming **plans, uint64_t *cap);
dw_decode_job dw_arrival_job(const dw_arrival *a, const dw_incoming *p, uint32_t i);
dw_status dw_arrival_admit(dw_arrival *a);
void dw_arrival_give_up(dw_arrival *a);

/* What is held of a key that the frame tells to forget, NULL where the telling is too old for it.
 */
dw_held *dw_arrival_to_forget(const dw_arrival *a, uint32_t i);

/* decoder.c: the new copies become what is held. Cannot fail. */
void dw_arrival_commit(dw_arrival *a);

/* decoder_calls.c: gives up all tickets. */
void dw_decoder_end_tickets(dw_decoder *decoder);

/* Was the incarnation replaced by a later one? */
bool dw_decoder_is_retired(const dw_decoder *decoder, uint64_t incarnation);

/* Does the frame want a reply, and change what is held? */
bool dw_decoder_asks_for_reply(const dw_arrival *a);

/* What is held of the frame's keys; its length. rejected: re-hash before naming. */
size_t dw_decoder_write_reply(dw_arrival *a, bool rejected, uint8_t *reply);

#endif
