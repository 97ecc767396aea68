/* SPDX-License-Identifier: Apache-2.0
 * step_scale.h - how an encoder finds the step of the form `step`: a multiple of the root mean
 * square of what is coded (docs/format.md, 5). */
#ifndef DW_STEP_SCALE_H
#define DW_STEP_SCALE_H

#include <math.h>

#include "arithmetic/half.h"
#include "arithmetic/quant.h"

/* The squares of n elements, and the largest magnitude among them, as the bits of a binary32. */
typedef struct dw_squares {
    double sum;
    uint64_t n;
    uint32_t largest;
} dw_squares;

DW_INLINE void dw_squares_add(dw_squares *to, const dw_squares *more)
{
    to->sum += more->sum;
    to->n += more->n;
    if (more->largest > to->largest) to->largest = more->largest;
}

/* factor: the step as a multiple of the root mean square, in thousandths. The step is poisoned if a
 * value is NaN or infinite, and 0 if it would be below 2^-96. */
DW_INLINE uint16_t dw_step_scale(const dw_squares *squares, uint32_t factor)
{
    if (squares->largest >= DW_F32_INFINITY) return DW_BF16_NAN;
    double step = sqrt(squares->sum / (double)squares->n) * ((double)factor / 1000);
    if (step < 0x1p-96) return 0;
    if (step > 0x1.fep127) return 0x7f7f;
    return dw_bf16_finite((float)step);
}

#endif
