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

/* Returns a delta in units of the step, before it is rounded. inverse: of the step, as
 * dw_step_inverse returns it. z: the dither, or 0 for nearest rounding. The result may be infinite.
 * It is NaN only where the delta is NaN, or where it is infinite and the step is 0. */
DW_INLINE float dw_step_scaled(float delta, float inverse, float z)
{
    float scaled = delta * inverse;
    return scaled + z;
}

/* Returns 0 where the magnitude of a scaled delta is at most `zone`, the dead zone in steps;
 * otherwise, and for NaN, returns the scaled delta unchanged. */
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

/* What an encoder measures of n elements before it chooses their step. A delta is what is coded of
 * an element: x - prev, or x where there is no prev. Magnitudes are the bits of a binary32. */
typedef struct dw_squares {
    double sum; /* of the squares of the deltas */
    uint64_t n;
    uint32_t largest; /* the largest magnitude of a delta */
    /* The same of x itself. They are set only where the step depends on x. */
    double x_sum;
    uint32_t x_largest;
} dw_squares;

/* Adds what was measured of further elements. */
DW_INLINE void dw_squares_add(dw_squares *to, const dw_squares *more)
{
    to->sum += more->sum;
    to->n += more->n;
    if (more->largest > to->largest) to->largest = more->largest;
    to->x_sum += more->x_sum;
    if (more->x_largest > to->x_largest) to->x_largest = more->x_largest;
}

/* Returns the sum of the lanes that the kernel step_squares fills. They are added in order. */
DW_INLINE double dw_step_sum(const double *lanes)
{
    double sum = 0;
    for (int i = 0; i < DW_NORM_LANES; i++) sum += lanes[i];
    return sum;
}

/* Returns the step, as a bf16, that is `factor` times the root mean square of the deltas. It is
 * NaN, which marks a poisoned piece, if a delta is NaN or infinite. It is 0 if it would be below
 * 2^-96, and at most the largest finite bf16. */
DW_INLINE uint16_t dw_step_scale(const dw_squares *squares, double factor)
{
    if (squares->largest >= DW_F32_INFINITY) return DW_BF16_NAN;
    double step = sqrt(squares->sum / (double)squares->n) * factor;
    if (step < 0x1p-96) return 0;
    if (step > 0x1.fep127) return 0x7f7f;
    return dw_bf16_finite((float)step);
}

/* Returns the largest bf16 that is not above `step`, which is first rounded to a binary32; 0 where
 * the step is below 2^-96. */
DW_INLINE uint16_t dw_step_below(double step)
{
    if (step < 0x1p-96) return 0;
    if (step > 0x1.fep127) return 0x7f7f;
    return (uint16_t)(dw_bits_of((float)step) >> 16);
}

/* No value is clamped, whatever the rounding, if the step is at least the largest magnitude of a
 * delta divided by this number. Proof: dw_step_below makes the step smaller by less than 1 in 128,
 * so a delta is at most 126 * 128 / 127 steps large, which is below 127.5 with a dither of 1/2. */
#define DW_STEPS_UNCLAMPED 126.0
/* The same for codes along a trellis, which are limited to 124 steps (arithmetic/trellis.h). */
#define DW_TRELLIS_UNCLAMPED 123.0

/* The mean square of the error along a trellis whose levels are chosen by nothing but their errors
 * is at most step^2 / 3.75. (With small steps it was step^2 / 3.79; with larger ones it is less.)
 */
#define DW_TRELLIS_PARTS 3.75

/* Returns the step, as a bf16, with which the norm |x - y| is hardly ever more than `error` times
 * the norm |x|. NaN if a delta is NaN or infinite.
 *
 * parts, unclamped: by the rounding. The expected square of the error of a value is step^2 / parts:
 * step^2 / 12 with dither, step^2 / 6 with stochastic rounding, step^2 / DW_TRELLIS_PARTS along a
 * trellis. With nearest rounding it is about step^2 / 12 as well, unless the values were made to be
 * rounded badly. The mean of n squares exceeds its expectation hardly ever by more than the factor
 * 1 + 4 / sqrt(n), which is more than 3 standard deviations away; so the step is chosen for a mean
 * that is smaller by this factor. A step with which values would be clamped, because they are more
 * than `unclamped` steps large, is replaced by the smallest one with which none is, although the
 * error then exceeds `error`. */
DW_INLINE uint16_t dw_step_of_error(const dw_squares *squares, double error, double parts,
                                    double unclamped)
{
    if (squares->largest >= DW_F32_INFINITY) return DW_BF16_NAN;
    double n = (double)squares->n,
           step = error * sqrt(parts * (squares->x_sum / n) / (1 + 4 / sqrt(n))),
           least = (double)dw_float_of(squares->largest) / unclamped;
    return dw_step_below(step > least ? step : least);
}

#endif
