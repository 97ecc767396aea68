/* SPDX-License-Identifier: Apache-2.0
 * quant.h - scales and codes: the arithmetic of a piece, in code that C and CUDA share.
 *
 * These functions are the numbered steps of docs/format.md, Exactness. Nothing here may be fused,
 * reordered or replaced by a division: the bits are part of the format. */
#ifndef DW_QUANT_H
#define DW_QUANT_H

#include <float.h>

#include "arithmetic/half.h"

#if !defined(__CUDACC__) && FLT_EVAL_METHOD != 0
#error "FLT_EVAL_METHOD must be 0: -msse2 -mfpmath=sse on x86, -fexcess-precision=fast on s390x"
#endif
#if defined(__FAST_MATH__)
#error "the arithmetic is part of the format: build without -ffast-math"
#endif

/* Pieces whose largest magnitude is below 2^-96 are coded as zero, so that every other scale is a
 * normal number with a finite inverse. (The inverse of a scale above 2^126 is subnormal.) */
#define DW_ZERO_BELOW 0x0f800000u

/* The largest positive and negative magnitude of a piece, as binary32 bits without the sign. */
typedef struct dw_extremes {
    uint32_t positive, negative;
} dw_extremes;

DW_INLINE uint32_t dw_extremes_largest(dw_extremes extremes)
{
    return extremes.positive > extremes.negative ? extremes.positive : extremes.negative;
}

/* Whether an encoder codes x itself in place of x - prev, given their extremes in a piece: where x
 * is smaller. Not where x has NaN or infinite values, which poison the piece in both cases:
 * processors differ in the bits of the NaN that a difference is. */
DW_INLINE int dw_is_direct_better(dw_extremes direct, dw_extremes delta)
{
    uint32_t of_x = dw_extremes_largest(direct);
    return of_x < DW_F32_INFINITY && of_x < dw_extremes_largest(delta);
}

/* L of docs/format.md, 5: a scale is a magnitude divided by L, rounded up. Levels reach from
 * -2^(bits-1) to 2^(bits-1) - 1. uses_all: the magnitude belongs on the lowest level, so L is
 * 2^(bits-1). Otherwise this level, which only one sign has, is not needed, and L is one less. One
 * bit has only the levels -1 and 1, so L is 1. */
DW_INLINE uint32_t dw_levels(uint32_t bits, int uses_all)
{
    uint32_t half = 1u << (bits - 1);
    return bits == 1 || uses_all ? half : half - 1;
}

/* The scale for a piece whose largest magnitude is `largest`: the smallest bf16 s with s * L >=
 * largest, where L = dw_levels(bits, uses_all). But s is at most the largest bf16 whose product
 * with L is finite. (An infinite product would make prev jump between the ends of the number range
 * for ever.) First branch: L is a power of two, so the quotient largest / L is exact, and it is
 * rounded up. Second branch: the quotient is computed in binary32 and truncated to bf16. The result
 * is s or the bf16 just below it, because rounding is monotonic and every bf16 is a binary32. Its
 * product with L decides which of them it is. This product is exact (8 bits times at most 7). If
 * the product of s is infinite, the next lower bf16 is the largest allowed. largest: bits of a
 * binary32, at least 2^-99, so that s is a normal number, and finite unless uses_all. */
DW_INLINE uint16_t dw_scale_for(uint32_t largest, uint32_t bits, int uses_all)
{
    uint32_t scale;
    if (bits == 1 || uses_all) {
        uint32_t most = DW_BF16_LARGEST - ((bits - 1) << 7);
        scale = (largest - ((bits - 1) << 23) + 0xffffu) >> 16;
        scale = scale > most ? most : scale;
    } else {
        float amount = dw_float_of(largest), count = (float)dw_levels(bits, 0);
        scale = dw_bits_of(amount / count) >> 16;
        scale += dw_bf16_widen((uint16_t)scale) * count < amount ? 1u : 0u;
        scale -= dw_bf16_widen((uint16_t)scale) * count > FLT_MAX ? 1u : 0u;
    }
    return (uint16_t)scale;
}

/* Steps 3 to 5 of the encoder: the scale of a piece. is_signed: the value of largest magnitude is
 * placed on the lowest level, and the scale takes its sign accordingly. */
DW_INLINE uint16_t dw_scale_of(dw_extremes extremes, uint32_t bits, int is_signed)
{
    uint32_t largest = dw_extremes_largest(extremes);
    if (largest >= DW_F32_INFINITY) return DW_BF16_NAN;
    if (largest < DW_ZERO_BELOW) return 0;
    uint32_t flips = bits > 1 && is_signed && extremes.positive > extremes.negative;
    return (uint16_t)(dw_scale_for(largest, bits, is_signed) | (flips ? 0x8000u : 0u));
}

DW_INLINE int dw_scale_is_poisoned(uint16_t scale)
{
    return (scale & 0x7f80u) == 0x7f80u;
}

DW_INLINE int dw_scale_is_flat(uint16_t scale)
{
    return scale == 0 || dw_scale_is_poisoned(scale);
}

/* The factor that deltas are multiplied by: 0 for pieces whose codes are all the zero level. */
DW_INLINE float dw_scale_inverse(uint16_t scale)
{
    return dw_scale_is_flat(scale) ? 0.0f : 1.0f / dw_bf16_widen(scale);
}

/* Rounds to an integer, ties to even, for |value| < 2^22. Adding 1.5 * 2^23 and subtracting it
 * again are two roundings that vectorize, where rintf is a function call. */
DW_INLINE float dw_rint(float value)
{
    return (value + 12582912.0f) - 12582912.0f;
}

/* Step 6: the code of a delta. |delta * inverse| exceeds 2^(bits-1) at most slightly. dither: 0, or
 * the amount that stochastic rounding adds. A flat piece has inverse 0 and gets only zero levels,
 * because a dither is always below a half. */
DW_INLINE int32_t dw_code_of(float delta, float inverse, int32_t half, float dither)
{
    float scaled = delta * inverse;
    /* One bit: a dither is a part of the distance between two levels, and the levels -1 and 1 are
     * two scales apart. So the value is halved before the dither is added. Without a dither it is
     * not halved, because the product could underflow to zero. */
    if (half == 1)
        return inverse == 0.0f || (dither == 0.0f ? scaled : scaled * 0.5f + dither) >= 0.0f;
    int32_t level = (int32_t)dw_rint(scaled + dither);
    level = level < -half ? -half : level;
    level = level > half - 1 ? half - 1 : level;
    return level + half;
}

/* Stochastic rounding: the interval (-1/2, 1/2) is divided into 65536 equal parts, and a random
 * number of 16 bits selects one. The dither is the middle of this part, exactly. DW_DITHER_NONE
 * selects a part next to 0. It is used for padding, which must stay on the zero level. */
#define DW_DITHER_NONE 0x8000u
DW_INLINE float dw_dither_of(uint16_t part)
{
    return (float)part * 0x1p-16f + (0x1p-17f - 0.5f);
}

/* Steps 3 and 4 of the reconstruction. The product is exact. */
DW_INLINE float dw_reconstruct(float base, int32_t code, int32_t half, float scale)
{
    int32_t level = half == 1 ? 2 * code - 1 : code - half;
    return base + (float)level * scale;
}

/* What remains of sum, which is an old residual plus y, when x is taken away: the new residual of
 * error feedback (codecs/residual.h). One that is not finite would poison its group for ever, so it
 * becomes +0. */
DW_INLINE float dw_residual_of(float sum, float x)
{
    float rest = sum - x;
    return dw_is_finite(rest) ? rest : 0.0f;
}

/* Whether an element was sent as infinity because, with its residual, it is too large for the
 * 16-bit dtype in which it travels, and x alone is not: the counters count such an x already. */
DW_INLINE uint32_t dw_residual_overflows(float arrives, float x, int is_f16)
{
    return (dw_bits_of(arrives) & 0x7fffffffu) == DW_F32_INFINITY && dw_is_finite(x) &&
           !dw_overflows(x, is_f16);
}

/* The new residual of an element of which `arrives` was sent. Where a finite x arrives as infinity,
 * nothing is left: a residual that stayed would make infinity of every later x, too. Where x is not
 * finite or NaN arrives, nothing was sent, and the residual stays as it was. */
DW_INLINE float dw_residual_next(float held, float arrives, float x)
{
    if (dw_is_finite(arrives)) return dw_residual_of(held + arrives, x);
    return dw_bits_of(arrives) << 1 == DW_F32_INFINITY << 1 && dw_is_finite(x) ? 0.0f : held;
}

/* The scales that the mean-square search tries, and the data to compare them. Errors are measured
 * in units of the attempt's own scale, so that no square overflows or underflows; `weight` makes
 * the sums of the attempts comparable. */
enum { DW_ATTEMPTS = 4 };
typedef struct dw_attempts {
    uint16_t scale[DW_ATTEMPTS];
    float inverse[DW_ATTEMPTS], weight[DW_ATTEMPTS];
} dw_attempts;

/* Attempt i chooses its scale so that the lowest level lies at this many 64ths of the largest
 * magnitude of the piece. For each number of bits, these four values together lost the least on
 * recorded activations and gradients. */
DW_INLINE uint32_t dw_attempt_part(uint32_t bits, uint32_t i)
{
    const uint8_t parts[8][DW_ATTEMPTS] = {{11, 16, 20, 24}, {42, 49, 55, 62}, {48, 53, 58, 64},
                                           {57, 59, 61, 64}, {61, 63, 64, 67}, {63, 64, 66, 68},
                                           {64, 65, 66, 67}, {64, 65, 66, 67}};
    return parts[bits - 1][i];
}

/* extremes: those of a piece that is neither poisoned nor zero. */
DW_INLINE dw_attempts dw_attempts_of(dw_extremes extremes, uint32_t bits)
{
    dw_attempts made;
    uint32_t largest = dw_extremes_largest(extremes);
    uint16_t sign = bits > 1 && extremes.positive > extremes.negative ? 0x8000u : 0u;
    for (uint32_t i = 0; i < DW_ATTEMPTS; i++) {
        float part = (float)dw_attempt_part(bits, i) * 0x1p-6f;
        made.scale[i] =
            (uint16_t)(dw_scale_for(dw_bits_of(dw_float_of(largest) * part), bits, 1) | sign);
        made.inverse[i] = dw_scale_inverse(made.scale[i]);
        float to_first = dw_bf16_widen(made.scale[i]) * made.inverse[0];
        made.weight[i] = to_first * to_first;
    }
    return made;
}

/* The squared error of nearest rounding, in units of the scale. */
DW_INLINE float dw_attempt_square(float delta, float inverse, float least, float most)
{
    float scaled = delta * inverse, level = dw_rint(scaled);
    level = level < least ? least : level;
    level = level > most ? most : level;
    if (most == 0.0f) level = scaled < 0.0f ? -1.0f : 1.0f; /* one bit */
    float error = scaled - level;
    return error * error;
}

/* Adds the partial sums of the lanes, in a fixed order. */
enum { DW_NORM_LANES = 16 };
DW_INLINE float dw_lanes_sum(const float *lanes)
{
    float sum = 0;
    for (int i = 0; i < DW_NORM_LANES; i++) sum += lanes[i];
    return sum;
}

/* The scale with the smallest error; the first one among equals. */
DW_INLINE uint16_t dw_attempts_best(const dw_attempts *made, const float *sums)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < DW_ATTEMPTS; i++)
        if (sums[i] * made->weight[i] < sums[best] * made->weight[best]) best = i;
    return made->scale[best];
}

#endif
