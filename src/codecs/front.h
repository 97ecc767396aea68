/* SPDX-License-Identifier: Apache-2.0
 * front.h - what stands in front of a form, run by run of a walk through tiles (codecs/tiles.h):
 * transform=hadamard, with which a form codes blocks of channels rotated; and profiles of channels,
 * with which the form step codes values divided by weights (codecs/weighing.h), in the same places.
 *
 * An encoder rotates x - prev of a run into a buffer, and has the form code the buffer as an x that
 * has no prev. What the form says will be decoded is rotated back and added to prev. So the form
 * needs to know nothing of it, all of it happens in the first-level cache, and nothing is
 * allocated. A decoder does the same with what it decodes.
 *
 *     dw_front front;
 *     const dw_encode_job *coded = dw_front_begin(&front, job);
 *     while (dw_walk_next(&walk)) {
 *         ... one kernel call for dw_front_load(&front, &walk.run), of the job `coded` ...
 *         dw_front_store(&front, &walk.run);
 *         ...
 *     }
 *
 * Where the job's layout has neither, these functions return what they are given, and do nothing.
 *
 * A piece, which shares one scale, can have values in several blocks. If it is poisoned, none of
 * these blocks can be rotated back, so all of them are poisoned.
 *
 * Errors: SHAPE (dw_front_plan). State: none, but in the caller's dw_front. Threads: any, each with
 * one of its own. Source: QuaRot (Ashkboos et al., arXiv:2404.00456), for rotations by Hadamard
 * matrices in front of a quantizer. */
#ifndef DW_FRONT_H
#define DW_FRONT_H

#include "codecs/plan.h"
#include "codecs/tiles.h"

typedef struct dw_front {
    const dw_encode_job *outer;
    dw_encode_job job; /* of the form: what it codes is in `values`, and what arrives in `back` */
    dw_run run;
    _Alignas(64) float values[DW_TILE_ELEMENTS], back[DW_TILE_ELEMENTS];
} dw_front;

/* To be called when a form makes its plan, after it has made the layout. Errors: SHAPE, with a
 * sentence, where blocks of this width do not divide a token. */
dw_status dw_front_plan(dw_plan *made, dw_why *why);

/* Returns the job for which the form's kernels are to be called. */
const dw_encode_job *dw_front_begin(dw_front *front, const dw_encode_job *job);

/* Before the form codes a run: returns the run to code. */
const dw_run *dw_front_load(dw_front *front, const dw_run *run);

/* After the form has coded a run: completes the new prev. */
void dw_front_store(const dw_front *front, const dw_run *run);

/* Some elements of a row, for functions that find scales before they code. */
typedef struct dw_source {
    const void *x, *prev;
    dw_dtype x_dtype, prev_dtype;
    uint64_t n;
} dw_source;

/* Returns elements of a row as the form codes them, from `column` on: all that are left, or, with a
 * rotation, the next of them, which are in `buffer` then. */
dw_source dw_front_source(const dw_encode_job *job, uint64_t row, uint64_t column,
                          float buffer[DW_TILE_ELEMENTS]);

/* Decodes a run of a job whose layout has something in front; `decode` is the form's function
 * for one without. */
void dw_front_decode(const dw_decode_job *job, const dw_run *run, dw_run_decoder *decode);

#endif
