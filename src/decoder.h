/* SPDX-License-Identifier: Apache-2.0
 * decoder.h - what the files of the decoder share. */
#ifndef DW_DECODER_H
#define DW_DECODER_H

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
    dw_predictor predictor;
    uint64_t incarnation, retired[DW_RETIRED], n_retired;
    uint64_t calls;
    dw_incoming *plans;
    uint64_t plans_cap;
    dw_work work;
    dw_counters counters;
    dw_why why;
};

/* A frame on its way in; planned entries are [0, n_planned). */
typedef struct dw_arrival {
    dw_decoder *decoder;
    const uint8_t *frame;
    uint64_t len;
    dw_frame_info info;
    const dw_tensor *y;
    uint32_t n_planned;
} dw_arrival;

/* Was the incarnation replaced by a later one? */
bool dw_decoder_is_retired(const dw_decoder *decoder, uint64_t incarnation);

/* Does the frame want a reply, and change what is held? */
bool dw_decoder_asks_for_reply(const dw_arrival *a);

/* What is held of the frame's keys; its length. rejected: re-hash before naming. */
size_t dw_decoder_write_reply(dw_arrival *a, bool rejected, uint8_t *reply);

#endif
