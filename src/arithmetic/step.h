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

/* Whether the value of a scaled delta is escaped, because the delta lies outside of the levels: its
 * nearest integer, ties to even, is below -127 or above 127, which is so from 127.5 on. NaN counts,
 * too. */
enum { DW_STEP_ESCAPES = 0x42ff0000 /* the bits of 127.5 */ };
DW_INLINE int dw_step_escapes(float scaled)
{
    return (dw_bits_of(scaled) & 0x7fffffffu) >= DW_STEP_ESCAPES;
}

/* The level of a scaled delta. Where its value is escaped it is -128, whose code is 0, until that
 * value has been stored; then it is 0. */
DW_INLINE int32_t dw_step_level(float scaled)
{
    return dw_step_escapes(scaled) ? -DW_STEP_ZERO : (int32_t)dw_rint(scaled);
}

/* The value that an escaped element of a payload stands for. NaN and infinities, which no encoder
 * writes, count as 0. */
DW_INLINE float dw_step_escaped(uint32_t bits)
{
    return (bits & 0x7f800000u) == 0x7f800000u ? 0 : dw_float_of(bits);
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
DW_INLINE void dw_step_unify_nan(double *lanes, uint32_t *largest)
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
    double sum; /* of the squares of the deltas, as dw_bulk_sum returns it for each tile */
    uint64_t n;
    uint32_t largest; /* the largest magnitude of a delta, outliers included */
    double peak;      /* the largest mean of the squares of a tile */
    double least;     /* the largest of what dw_step_of_tile returns for each tile */
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
    if (more->peak > to->peak) to->peak = more->peak;
    if (more->least > to->least) to->least = more->least;
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

/* ---- Outliers: the step follows from the bulk of the values -----------------------------------
 *
 * The root mean square of the values that share a step says little if one of them is a hundred
 * times as large as the others, so such values are left out of it. They are looked for in each
 * tile, or piece of a tile, in a few passes: a pass leaves out what is more than DW_BULK_LIMIT
 * times the root mean square of what the pass before has kept. A pass that would leave out more
 * than one value in DW_BULK_SHARE, or all that is not tiny, does not count and is the last. One
 * after which the sum of squares is still at least half of what it was counts, but is the last. */

enum {
    DW_NO_LIMIT = 0x7fffffff,
    DW_BULK_LIMIT = 6,
    DW_BULK_SHARE = 64,
    DW_BULK_PASSES = 4 /* besides the first, which leaves out nothing */
};

/* Returns above which magnitude the next pass leaves values out; DW_NO_LIMIT where there are none.
 * sum, n, largest: the sum of squares, the number and the largest magnitude of the values that the
 * last pass has kept. */
DW_INLINE uint32_t dw_bulk_limit(double sum, uint64_t n, uint32_t largest)
{
    if (largest >= DW_F32_INFINITY || !(sum > 0)) return DW_NO_LIMIT;
    uint32_t limit = dw_bits_of((float)(sqrt(sum / (double)n) * DW_BULK_LIMIT));
    return largest > limit ? limit : (uint32_t)DW_NO_LIMIT;
}

/* Whether a pass over n values counts that has left some of them out. sum: of the others. */
DW_INLINE int dw_bulk_counts(double sum, uint64_t n, uint64_t left_out)
{
    return left_out <= n / DW_BULK_SHARE && sum >= 0x1p-150 * (double)(n - left_out);
}

/* Whether another pass may follow one that counts. before, sum: of the values that were kept before
 * it, and by it. */
DW_INLINE int dw_bulk_goes_on(double before, double sum)
{
    return 2 * sum < before;
}

/* Returns what the sum of the squares of n values would be if the values that were left out had
 * the mean square of the others. */
DW_INLINE double dw_bulk_sum(double sum, uint64_t n, uint64_t left_out)
{
    return left_out ? sum / (double)(n - left_out) * (double)n : sum;
}

/* No step is less than this multiple of the root mean square of any tile, but for those below. So
 * by Chebyshev's inequality less than one value in 74 escapes, because it is more than 124 steps
 * large (or 127, without a trellis), besides those that are left out of the root mean square. All
 * together are less than one in 32, for which a tile has room (arithmetic/layout.h). */
#define DW_STEP_LEAST 0.07

/* Returns the least step for a tile where the step follows from a limit of the error: as above, or
 * less if nothing but outliers escapes with less. mean: of the squares that were kept; largest: the
 * largest magnitude that was kept. The least bf16 below it is smaller by less than 1 in 128, and
 * the dither is at most 1/2. */
DW_INLINE double dw_step_of_tile(double mean, uint32_t largest)
{
    double least = sqrt(mean) * DW_STEP_LEAST, all = (double)dw_float_of(largest) / 122;
    return all < least ? all : least;
}

/* Returns the step, as a bf16, that is `factor` times the root mean square of the deltas. It is
 * NaN, which marks a poisoned piece, if a delta is NaN or infinite. It is 0 if it would be below
 * 2^-96, and at most the largest finite bf16. */
DW_INLINE uint16_t dw_step_scale(const dw_squares *squares, double factor)
{
    if (squares->largest >= DW_F32_INFINITY) return DW_BF16_NAN;
    double step = sqrt(squares->sum / (double)squares->n) * factor,
           least = sqrt(squares->peak) * DW_STEP_LEAST;
    step = step > least ? step : least;
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

/* No value escapes, whatever the rounding, if the step is at least the largest magnitude of a
 * delta divided by this number. Proof: dw_step_below makes the step smaller by less than 1 in 128,
 * so a delta is at most 126 * 128 / 127 steps large, which is below 127.5 with a dither of 1/2. */
#define DW_STEPS_UNESCAPED 126.0

/* The mean square of the error along a trellis whose levels are chosen by nothing but their errors
 * is at most step^2 / 3.75. (With small steps it was step^2 / 3.79; with larger ones it is less.)
 */
#define DW_TRELLIS_PARTS 3.75

/* Returns the step, as a bf16, with which the norm |x - y| is hardly ever more than `error` times
 * the norm |x|. NaN if a delta is NaN or infinite.
 *
 * parts: by the rounding. The expected square of the error of a value is step^2 / parts:
 * step^2 / 12 with dither, step^2 / 6 with stochastic rounding, step^2 / DW_TRELLIS_PARTS along a
 * trellis. With nearest rounding it is about step^2 / 12 as well, unless the values were made to be
 * rounded badly. The mean of n squares exceeds its expectation hardly ever by more than the factor
 * 1 + 4 / sqrt(n), which is more than 3 standard deviations away; so the step is chosen for a mean
 * that is smaller by this factor. Where that would be less than the least step, because what is
 * coded is much larger than x, the least step is taken, although the error then exceeds `error`. */
DW_INLINE uint16_t dw_step_of_error(const dw_squares *squares, double error, double parts)
{
    if (squares->largest >= DW_F32_INFINITY) return DW_BF16_NAN;
    double n = (double)squares->n,
           step = error * sqrt(parts * (squares->x_sum / n) / (1 + 4 / sqrt(n)));
    return dw_step_below(step > squares->least ? step : squares->least);
}

#endif
