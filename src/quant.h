/* SPDX-License-Identifier: Apache-2.0
 * quant.h - scales and codes: the arithmetic of a piece, as text that C and CUDA share.
 *
 * docs/format.md, Exactness, numbers the steps that these functions are. Nothing here may be contracted, reassociated or
 * replaced by a division: the bits are the format. */
#ifndef DW_QUANT_H
#define DW_QUANT_H

#include <float.h>

#include "half.h"

#if !defined(__CUDACC__) && FLT_EVAL_METHOD != 0
#error "float arithmetic must be rounded to float: -msse2 -mfpmath=sse on x86, -fexcess-precision=fast on s390x (FLT_EVAL_METHOD must be 0)"
#endif
#if defined(__FAST_MATH__)
#error "the arithmetic is part of the format: build without -ffast-math"
#endif

#define DW_ZERO_BELOW 0x0f800000u /* 2^-96: keeps every scale a normal number (the inverse of one above 2^126 is subnormal) */

/* The largest magnitudes of a piece by sign, as binary32 bits without the sign. */
typedef struct dw_extremes {
    uint32_t positive, negative;
} dw_extremes;

DW_INLINE uint32_t dw_extremes_largest(dw_extremes extremes)
{
    return extremes.positive > extremes.negative ? extremes.positive : extremes.negative;
}

/* The smallest bf16 s with s * levels >= largest, at most the largest finite bf16. Rounding is monotonic and every bf16 is a binary32,
 * so the rounded quotient, cut to bf16, is that s or the one below it; the product that tells is exact (8 bits times 8).
 * largest: binary32 bits, finite, at least 2^-96. */
DW_INLINE uint16_t dw_scale_for(uint32_t largest, uint32_t levels)
{
    float amount = dw_float_of(largest), count = (float)levels;
    uint32_t scale = dw_bits_of(amount / count) >> 16;
    scale += dw_bf16_widen((uint16_t)scale) * count < amount ? 1u : 0u;
    return (uint16_t)(scale > DW_BF16_LARGEST ? DW_BF16_LARGEST : scale);
}

/* Steps 3 to 5 of the encoder: the scale of a piece. */
DW_INLINE uint16_t dw_scale_of(dw_extremes extremes, uint32_t bits, int is_signed)
{
    uint32_t largest = dw_extremes_largest(extremes);
    uint32_t half = 1u << (bits - 1);
    if (largest >= DW_F32_INFINITY) return DW_BF16_NAN;
    if (largest < DW_ZERO_BELOW) return 0;
    if (!is_signed) return dw_scale_for(largest, half - 1);
    return (uint16_t)(dw_scale_for(largest, half) | (extremes.positive > extremes.negative ? 0x8000u : 0u));
}

DW_INLINE int dw_scale_is_poisoned(uint16_t scale)
{
    return (scale & 0x7f80u) == 0x7f80u;
}

/* What deltas are multiplied by: 0 for pieces whose codes are all the zero level. */
DW_INLINE float dw_scale_inverse(uint16_t scale)
{
    return scale == 0 || dw_scale_is_poisoned(scale) ? 0.0f : 1.0f / dw_bf16_widen(scale);
}

/* Step 6. |delta * inverse| is at most 2^(bits-1) and a little, so adding and subtracting 1.5 * 2^23 rounds to an integer, ties to
 * even: two separately rounded sums, which vectorize where rintf is a call. */
DW_INLINE int32_t dw_code_of(float delta, float inverse, int32_t half)
{
    float scaled = delta * inverse;
    int32_t level = (int32_t)((scaled + 12582912.0f) - 12582912.0f);
    level = level < -half ? -half : level;
    level = level > half - 1 ? half - 1 : level;
    return level + half;
}

/* Steps 3 and 4 of the reconstruction; the product is exact. */
DW_INLINE float dw_reconstruct(float base, int32_t code, int32_t half, float scale)
{
    return base + (float)(code - half) * scale;
}

#endif
