/* SPDX-License-Identifier: Apache-2.0
 * tolerance.h - the bound of error=abs: steps that keep to it, and whether an entry can. */
#ifndef DW_TOLERANCE_H
#define DW_TOLERANCE_H

#include "codecs/plan.h"

/* How an entry with a bound for the error of every value is rounded. */
typedef struct dw_bound {
    double most;      /* the bound */
    dw_dtype x, prev; /* of x, and of y unless that is wider; prev 0: no state */
    bool is_stochastic;
} dw_bound;

/* The largest step with which y is never further from x than the bound; 0 where there is none, NaN
 * where what is coded is not finite. */
uint16_t dw_tolerance_step(const dw_squares *squares, const dw_bound *bound);

/* Whether an entry of this use keeps every value of y, in x's dtype or f32, as close to x as the
 * config demands: always, if it demands nothing or x is not finite. Codes cannot if a change is too
 * many steps large, and floats cannot if prev's dtype is too coarse. x: one sample; base: dense, in
 * the dtype prev, or NULL; has_state: a new prev is made. *largest: the largest magnitude in x.
 * Threads: any. */
bool dw_tolerance_fits(const dw_plans *plans, dw_use use, const struct dw_kernels *kernels,
                       const void *x, int64_t stride, const void *base, bool has_state,
                       float *largest);

#endif
