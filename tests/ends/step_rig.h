/* SPDX-License-Identifier: Apache-2.0
 * step_rig.h - what the tests of the form step share: the keys of their samples, a sample's way
 * through encoder and decoder, the step that a frame contains, and sums over errors. */
#ifndef DW_TEST_STEP_RIG_H
#define DW_TEST_STEP_RIG_H

#include "support/tool.h"

enum { N = 2 };
static const dw_key keys[N] = {{7, 0}, {9, 1}};

/* Encodes x in the first frame of a new encoder, and decodes the frame to y, which has room for as
 * many floats as x has elements. */
static inline void pass(const char *config, const dw_tensor *x, float *y)
{
    test_pair pair;
    dw_tensor ty = *x;
    ty.data = y;
    test_pair_open(&pair, config, x->n, x->t, x->c, x->dtype);
    test_pair_encode(&pair, keys, x);
    assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
    test_pair_close(&pair);
}

/* Returns the step in the frame of the pair. The frame's first entry must be in steps, with one
 * step for the whole sample (group=sample). */
static inline double step_in(const test_pair *pair)
{
    dw_entry_info entry;
    assert_int_equal(dw_frame_entries(pair->frame, pair->len, 0, 1, &entry), DW_OK);
    const uint8_t *at = pair->frame + entry.payload_offset;
    uint32_t bits = (uint32_t)at[0] << 16 | (uint32_t)at[1] << 24;
    float step;
    memcpy(&step, &bits, sizeof step);
    return step;
}

/* Sums over the errors e = (y - x) / step of n values: of e, e * e, e * x, and x * x. */
typedef struct errors {
    double e, e2, ex, x2, n;
} errors;

/* Computes these sums. step: the unit in which errors are counted; 1: that of x. */
static inline errors errors_of(const float *x, const float *y, double step, long n)
{
    errors s = {.n = (double)n};
    for (long i = 0; i < n; i++) {
        double e = ((double)y[i] - x[i]) / step;
        s.e += e, s.e2 += e * e, s.ex += e * x[i], s.x2 += (double)x[i] * x[i];
    }
    return s;
}

#endif
