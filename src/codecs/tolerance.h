/* SPDX-License-Identifier: Apache-2.0
 * tolerance.h - the option error=abs, a bound for the error |x - y| of every value: finds steps
 * that keep to the bound, and tells whether an entry can keep to it. */
#ifndef DW_TOLERANCE_H
#define DW_TOLERANCE_H

#include "codecs/plan.h"

/* A bound, and the roundings that an entry goes through, on which the step for it depends. */
typedef struct dw_bound {
    double most;        /* the largest error that is allowed */
    dw_dtype x;         /* the dtype of x; y has the same dtype, or f32 */
    dw_dtype prev;      /* the dtype of prev; 0: the entry has no state */
    bool is_stochastic; /* values are rounded stochastically to whole steps */
} dw_bound;

/* Returns the largest step, as a bf16, with which no value of y is further from x than the bound.
 * squares: what was measured of the piece; only its largest magnitudes matter. Returns 0 where even
 * the smallest step is too large, and NaN where what is coded is not finite. */
uint16_t dw_tolerance_step(const dw_squares *squares, const dw_bound *bound);

/* Returns whether an entry of this use can keep every value of y within the config's bound. The
 * answer is yes if the config has no bound, or if x is not finite. It is no for codes if a change
 * is too many steps large, and for floats if prev's dtype is too coarse.
 *
 * x: one sample. stride: elements from one row of x to the next. base: what the change starts from,
 * dense and in prev's dtype; NULL: x itself is coded. has_state: the entry makes a new prev.
 * *largest: becomes the largest magnitude in x, unless the config has no bound. Threads: any. */
bool dw_tolerance_fits(const dw_plans *plans, dw_use use, const struct dw_kernels *kernels,
                       const void *x, int64_t stride, const void *base, bool has_state,
                       float *largest);

#endif
