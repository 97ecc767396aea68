/* SPDX-License-Identifier: Apache-2.0
 * job.h - the job of an engine: to encode or decode one sample.
 *
 * | name     | shape  | unit  | meaning                                            | owner |
 * | x, y     | (T, C) |       | stride elements from one token to the next         | caller|
 * | prev     | (T, C) |       | dense; NULL: there is no base                      | state |
 * | next     | (T, C) |       | dense, never prev itself; NULL: no state           | state |
 * | payload  |        | bytes | the form's: plan->payload_bytes, or, with a stage  | frame,|
 * |          |        |       | behind the form, plan->plain_bytes                 | ticket|
 * | coded    |        | bytes | with a stage: the payload in the frame; else NULL  | frame |
 * | scratch  |        | bytes | with a stage: plan->scratch_bytes                  | ticket|
 * | room     |        | bytes | plan->room_bytes, for the form itself; NULL: none  | ticket|
 * | kept     |        | bytes | plan->kept_bytes: what the form kept of the key at | state |
 * |          |        |       | its last visit; NULL: nothing                      |       |
 * | keeps    |        | bytes | the same for the next visit, to be written; NULL:  | state |
 * |          |        |       | nothing is kept. Both hold 4-byte words            |       |
 * | copies   |        |       | copies that are kept compact                       | state |
 *
 * The tickets of a device have no such memory. They leave payload (of decode jobs: plain) and
 * scratch to the engine where coded is set. They also leave base and made of compact copies to it:
 * prev and next are the copies themselves, and the engine puts base and made in their place. A
 * device also moves the payloads of a frame together. So if one entry of an encoded frame has a
 * stage, coded is set in all of its jobs; it is then the place that the payload has if no payload
 * in front of it becomes shorter.
 *
 * The same structs are copied to a device. Device code does not read the members that point to host
 * memory, plan and kernels. */
#ifndef DW_JOB_H
#define DW_JOB_H

#include "arithmetic/layout.h"
#include "arithmetic/profile.h"
#include "arithmetic/step.h"
#include "deltawire/deltawire.h"

struct dw_plan;
struct dw_kernels;

typedef struct dw_sums {
    double x_square, delta_square, error_square;
    double row_error, bulk_error, row_error_largest; /* dw_counters */
    uint64_t pieces, direct, zero, poisoned, escaped, overflowed, rows;
} dw_sums;

static inline void dw_sums_add(dw_sums *to, const dw_sums *sums)
{
    to->x_square += sums->x_square;
    to->delta_square += sums->delta_square;
    to->error_square += sums->error_square;
    to->pieces += sums->pieces;
    to->direct += sums->direct;
    to->zero += sums->zero;
    to->poisoned += sums->poisoned;
    to->escaped += sums->escaped;
    to->overflowed += sums->overflowed;
    to->rows += sums->rows;
    to->row_error += sums->row_error;
    to->bulk_error += sums->bulk_error;
    if (sums->row_error_largest > to->row_error_largest)
        to->row_error_largest = sums->row_error_largest;
}

/* The result of one chunk. Sums for digests may be added in any order; sums of squares are added in
 * the order of the chunks, so that they do not depend on threads. */
typedef struct dw_chunk_result {
    dw_sums sums;
    uint64_t payload_sum, state_sum;
    dw_squares squares; /* of a form that measures (codecs/form.h) */
    /* With a stage behind the form. Encode: the size that the payload has become; 0: as planned.
     * Decode: what is wrong with the payload, or NULL. */
    uint64_t payload_bytes;
    const char *bad;
} dw_chunk_result;

/* Which stretches of prev the state digest covers: those whose number t satisfies t mod every =
 * phase. every 0: none. */
typedef struct dw_audit {
    uint32_t every, phase;
} dw_audit;

/* Copies that are kept compact (common/compact.h): before a job, `held` is expanded to base, and
 * after it, made is stored in `fresh`. y is made of made, so it does not have the error of `fresh`.
 * held, fresh NULL: there is none. bits 0: copies are not compact. */
typedef struct dw_copies {
    uint32_t bits;
    uint64_t elements;
    const void *held;
    void *base;
    const void *made;
    void *fresh;
} dw_copies;

/* How an encoder finds scales and codes. The format leaves this to the encoder. */
typedef struct dw_rule {
    dw_scale scale;
    int is_stochastic;
    int is_trellis;      /* codes follow a trellis (arithmetic/trellis.h) */
    uint64_t dither_key; /* seeds the dither of this visit of the sample */
} dw_rule;

typedef struct dw_encode_job {
    dw_layout layout; /* a copy of the plan's, for use on a device */
    dw_rule rule;
    float zone; /* form step: values of up to so many steps become 0; 0: no dead zone */
    /* Form step: the step as a multiple of the root mean square of what is coded; or, if `error` is
     * not 0, the largest norm of the error as a part of the norm of x, from which it follows. */
    double step, error;
    const void *x;
    dw_dtype x_dtype;
    int64_t stride;
    const void *prev;
    void *next;
    dw_dtype prev_dtype;
    dw_copies copies;
    uint8_t *payload, *coded, *scratch, *room;
    const void *kept;
    void *keeps;
    uint32_t entry; /* its number in the frame */
    /* prev and next are a residual (codecs/residual.h), which the decoder does not have. */
    bool keeps_residual;
    bool bypasses_caches; /* next is stored past the caches, whatever its size */
    dw_audit audit;       /* of the state digest of next */
    /* Seeds the random numbers that both ends share, for this visit. */
    uint64_t draws_key;
    dw_channels channels; /* of the profile; weights NULL: none */
    bool is_exact;        /* floats: IEEE conversion, in which NaN and infinities are kept */
    dw_dtype wire_dtype;  /* floats: the dtype of the values in the payload; 0 for other forms */
    const struct dw_plan *plan;
    const struct dw_kernels *kernels;
} dw_encode_job;

/* The dtype of 16 bits that x is converted to, on its way into the payload or to prev: of two, the
 * one that overflows first. DW_F32: none, or x has that dtype. x, wire: the dtypes of x and of the
 * floats in the payload, or 0. kept: that of prev where it is made of x, else DW_F32. */
DW_INLINE dw_dtype dw_narrows_to(dw_dtype x, dw_dtype kept, dw_dtype wire)
{
    if (x == DW_F16) return DW_F32; /* bfloat16 holds all that binary16 does */
    if (kept == DW_F16 || wire == DW_F16) return DW_F16;
    return x == DW_F32 && (kept == DW_BF16 || wire == DW_BF16) ? DW_BF16 : DW_F32;
}

/* The dtype of prev if the job makes it of x; DW_F32 if it makes none, or a residual. */
DW_INLINE dw_dtype dw_kept_dtype(const dw_encode_job *job, dw_dtype prev)
{
    return job->next && !job->keeps_residual ? prev : DW_F32;
}

typedef struct dw_decode_job {
    dw_layout layout;
    const uint8_t *payload, *coded;
    uint8_t *plain, *scratch; /* with a stage: payload, to be written; else NULL */
    uint8_t *room;
    const void *prev;
    /* With state, decode writes only this; write_output writes y after the digest was verified. */
    void *next;
    dw_dtype prev_dtype;
    dw_copies copies;
    void *y;
    dw_dtype y_dtype;
    int64_t stride;
    dw_audit audit; /* of the state digest of next */
    uint64_t draws_key;
    dw_channels channels; /* of the profile; weights NULL: none */
    bool is_exact;
    dw_dtype wire_dtype;
    bool adds; /* y += factor * value instead of y = value */
    float factor;
    bool bypasses_caches;                   /* y is stored past the caches */
    uint64_t payload_bytes, payload_digest; /* as the frame says */
    const struct dw_plan *plan;
    const struct dw_kernels *kernels;
} dw_decode_job;

#endif
