/* SPDX-License-Identifier: Apache-2.0
 * job.h - one sample between tensor, payload and prev: what an engine is asked to do.
 *
 * | name     | shape  | unit  | meaning                                            | owner |
 * | x, y     | (T, C) |       | stride elements from one token to the next         | caller|
 * | prev     | (T, C) |       | dense; NULL: there is no base                      | state |
 * | next     | (T, C) |       | dense, never prev itself; NULL: no state           | state |
 * | payload  |        | bytes | plan->payload_bytes                                | frame |
 *
 * The same structs travel to a device, which reads no member that points to memory of the host:
 * plan and kernels. */
#ifndef DW_JOB_H
#define DW_JOB_H

#include "arithmetic/layout.h"
#include "deltawire/deltawire.h"

struct dw_plan;
struct dw_kernels;

typedef struct dw_sums {
    double x_square, delta_square, error_square;
    uint64_t pieces, direct, zero, poisoned;
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
}

/* What a chunk adds to what is known of its sample. The digests' sums have no order; those of
 * squares are joined chunk by chunk. */
typedef struct dw_chunk_result {
    dw_sums sums;
    uint64_t payload_sum, state_sum;
} dw_chunk_result;

/* Which stretches of prev the state digest goes over: numbers t with t mod every = phase. every 0:
 * none. */
typedef struct dw_audit {
    uint32_t every, phase;
} dw_audit;

/* How an encoder finds scales and codes: its freedom, which the format does not know of. */
typedef struct dw_rule {
    dw_scale scale;
    int is_stochastic;
    uint64_t dither_key; /* of this sample's visit */
} dw_rule;

typedef struct dw_encode_job {
    dw_layout layout; /* the plan's, for a device */
    dw_rule rule;
    const void *x;
    dw_dtype x_dtype;
    int64_t stride;
    const void *prev;
    void *next;
    dw_dtype prev_dtype;
    uint8_t *payload;
    dw_audit audit;      /* of next */
    uint64_t draws_key;  /* of the generator that both ends share, for this visit */
    bool is_exact;       /* floats: IEEE conversion, NaN and infinities pass */
    dw_dtype wire_dtype; /* floats: the dtype that values travel in; of other forms 0 */
    const struct dw_plan *plan;
    const struct dw_kernels *kernels;
} dw_encode_job;

typedef struct dw_decode_job {
    dw_layout layout;
    const uint8_t *payload;
    const void *prev;
    /* With state: only this is written; y comes from emit, after the digest was checked. */
    void *next;
    dw_dtype prev_dtype;
    void *y;
    dw_dtype y_dtype;
    int64_t stride;
    dw_audit audit; /* of next */
    uint64_t draws_key;
    bool is_exact;
    dw_dtype wire_dtype;
    bool adds; /* y += factor * value, where else y = value */
    float factor;
    uint64_t payload_bytes, payload_digest; /* as the frame says */
    const struct dw_plan *plan;
    const struct dw_kernels *kernels;
} dw_decode_job;

#endif
