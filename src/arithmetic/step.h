/* SPDX-License-Identifier: Apache-2.0
 * step.h - the arithmetic of the form step: whole multiples of a step that many elements share, in
 * code that C and CUDA share.
 *
 * These functions are the steps of docs/format.md, Exactness. Nothing here may be fused or
 * reordered: the bits are part of the format.
 *
 * Subtractive dither: both ends know the same random number z of an element (dw_dither_of). The
 * encoder rounds d / step + z to an integer, and the decoder subtracts z from the integer. So the
 * error is distributed evenly over one step, whatever the signal. Sources: Ziv, On universal
 * quantization, 1985; Zamir and Feder, On universal quantization by randomized uniform/lattice
 * quantizers, 1992. */
#ifndef DW_STEP_H
#define DW_STEP_H

#include <math.h>

#include "arithmetic/half.h"
#include "arithmetic/quant.h"

enum { DW_STEP_LEVELS = 127, DW_STEP_ZERO = 128 }; /* the largest level; the code of level 0 */

/* The factor that deltas are multiplied by: RN(1 / step), and 0 where the step is 0. It would be
 * infinite where the step is 2^-128 or less. Then it is the largest finite number, so that the
 * level of a delta of 0 is 0 for every step. */
DW_INLINE float dw_step_inverse(uint16_t step)
{
    return dw_f32_finite(dw_scale_inverse(step));
}

/* A delta in steps. z: 0 for nearest rounding, else the dither. It may be infinite. It is NaN only
 * where the delta is NaN, or infinite beside a step of 0. */
DW_INLINE float dw_step_scaled(float delta, float inverse, float z)
{
    float scaled = delta * inverse;
    return scaled + z;
}

/* A scaled delta with a dead zone around 0: magnitudes up to `zone` become 0. NaN is none of them.
 */
DW_INLINE float dw_step_zoned(float scaled, float zone)
{
    float magnitude = dw_float_of(dw_bits_of(scaled) & 0x7fffffffu);
    return magnitude <= zone ? 0 : scaled;
}

/* Whether a scaled delta lies outside of the levels: its nearest integer, ties to even, is below
 * -127 or above 127, which is so from 127.5 (0x42ff0000) on. NaN counts, too. */
DW_INLINE int dw_step_is_clamped(float scaled)
{
    return (dw_bits_of(scaled) & 0x7fffffffu) >= 0x42ff0000u;
}

/* The level of a scaled delta. It is clamped first, because a conversion of large numbers to
 * integers is not defined; rounding does not change the ends. NaN gets the highest level. */
DW_INLINE int32_t dw_step_level(float scaled)
{
    float most = (float)DW_STEP_LEVELS, clamped = scaled < most ? scaled : most;
    clamped = clamped > -most ? clamped : -most;
    return (int32_t)dw_rint(clamped);
}

/* The change that a level stands for. z: 0 without dither. Then the product is exact unless it is
 * infinite, as 8 significant bits of a step times at most 8 of a level. With dither, level - z is
 * exact: z is an odd multiple of 2^-17, and levels down to -127 have 7 bits. The exception is level
 * -128, which no encoder writes: its difference is rounded. The product is rounded, too. */
DW_INLINE float dw_step_value(int32_t level, float z, float step)
{
    float amount = (float)level - z;
    return amount * step;
}

/* ---- How an encoder finds a step (docs/format.md, 5) ----------------------------------------- */

/* Makes the result of step_squares independent of the processor: processors differ in the sign and
 * payload of the NaN that they produce. A lane can only be NaN if there was a NaN delta. */
DW_INLINE void dw_step_settle(double *lanes, uint32_t *largest)
{
    if (*largest <= DW_F32_INFINITY) return;
    *largest = DW_F32_INFINITY;
    for (int i = 0; i < DW_NORM_LANES; i++) {
        const uint64_t nan = 0x7ff8000000000000u;
        if (lanes[i] != lanes[i]) memcpy(&lanes[i], &nan, sizeof nan);
    }
}

/* The squares of n elements that are coded, and the largest magnitude among them, as the bits of a
 * binary32. x_sum, x_largest: those of x itself, where the step depends on them. */
typedef struct dw_squares {
    double sum;
    uint64_t n;
    uint32_t largest;
    double x_sum;
    uint32_t x_largest;
} dw_squares;

DW_INLINE void dw_squares_add(dw_squares *to, const dw_squares *more)
{
    to->sum += more->sum;
    to->n += more->n;
    if (more->largest > to->largest) to->largest = more->largest;
    to->x_sum += more->x_sum;
    if (more->x_largest > to->x_largest) to->x_largest = more->x_largest;
}

/* The sum of the lanes of step_squares, the first lane first. */
DW_INLINE double dw_step_sum(const double *lanes)
{
    double sum = 0;
    for (int i = 0; i < DW_NORM_LANES; i++) sum += lanes[i];
    return sum;
}

/* factor: the step as a multiple of the root mean square. The step is poisoned if a value is NaN or
 * infinite, and 0 if it would be below 2^-96. */
DW_INLINE uint16_t dw_step_scale(const dw_squares *squares, double factor)
{
    if (squares->largest >= DW_F32_INFINITY) return DW_BF16_NAN;
    double step = sqrt(squares->sum / (double)squares->n) * factor;
    if (step < 0x1p-96) return 0;
    if (step > 0x1.fep127) return 0x7f7f;
    return dw_bf16_finite((float)step);
}

/* The largest bf16 that is not above a step, but for the rounding of a binary32; 0 below 2^-96. */
DW_INLINE uint16_t dw_step_below(double step)
{
    if (step < 0x1p-96) return 0;
    if (step > 0x1.fep127) return 0x7f7f;
    return (uint16_t)(dw_bits_of((float)step) >> 16);
}

/* With steps of at least the largest magnitude divided by this, no value is clamped, whatever the
 * rounding: dw_step_below takes off less than 1 in 128, and 126 * 128 / 127 + 1/2 is below 127.5.
 */
#define DW_STEPS_UNCLAMPED 126.0

/* The step with which |x - y| is hardly ever more than `error` times |x|. The square of an error is
 * step^2 / 12 in the mean with dither, and not more with nearest rounding of values that are not
 * chosen for it; with stochastic rounding it is step^2 / 6. The mean of n of them is above its
 * expectation by less than 4 parts in sqrt(n): these are more than 3 standard deviations. The step
 * is larger where values would be clamped otherwise. */
DW_INLINE uint16_t dw_step_of_error(const dw_squares *squares, double error, int is_stochastic)
{
    if (squares->largest >= DW_F32_INFINITY) return DW_BF16_NAN;
    double n = (double)squares->n, parts = is_stochastic ? 6 : 12,
           step = error * sqrt(parts * (squares->x_sum / n) / (1 + 4 / sqrt(n))),
           least = (double)dw_float_of(squares->largest) / DW_STEPS_UNCLAMPED;
    return dw_step_below(step > least ? step : least);
}

#endif
