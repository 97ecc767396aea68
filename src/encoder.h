/* SPDX-License-Identifier: Apache-2.0
 * encoder.h - what the files of the encoder share. */
#ifndef DW_ENCODER_H
#define DW_ENCODER_H

#include <stdio.h>

#include "frame.h"
#include "predict.h"
#include "work.h"

/* One sample on its way into a frame. */
typedef struct dw_outgoing {
    dw_entry_info entry;
    dw_held *held;
    bool added; /* the key is new: gone again if the call fails */
    const dw_copy *base;
    dw_copy fresh;
    dw_encode_job job; /* quantized kinds */
} dw_outgoing;

struct dw_encoder {
    dw_config config;
    dw_allocator allocator;
    dw_engine engine;
    dw_predictor predictor;
    uint64_t incarnation, sequence, calls;
    dw_outgoing *plans;
    uint64_t plans_cap;
    dw_work work;
    dw_counters counters;
    dw_why why;
};

static inline dw_status dw_encoder_fail(dw_encoder *encoder, dw_status status, const char *sentence)
{
    snprintf(encoder->why.text, sizeof encoder->why.text, "%s", sentence ? sentence : dw_status_string(status));
    return status;
}

/* A new name, under which nothing is held yet: for the decoder every key begins anew, and what it held of the old name goes. */
void dw_encoder_begin_life(dw_encoder *encoder);

#endif
