/* SPDX-License-Identifier: Apache-2.0
 * half.h - the float formats binary32, binary16 and bfloat16, in code that C and CUDA share.
 *
 * Every conversion works on bit patterns, so it gives the same bits with every compiler and on
 * hardware without 16-bit floats. Source: IEEE 754-2019, 4.3.1 (round to nearest, ties to even). */
#ifndef DW_HALF_H
#define DW_HALF_H

#include <stdint.h>
#include <string.h>

#include "common/shared.h"

#define DW_F32_NAN      0x7fc00000u
#define DW_F32_INFINITY 0x7f800000u
#define DW_F32_LARGEST  0x7f7fffffu
#define DW_F16_NAN      0x7e00u
#define DW_BF16_NAN     0x7fc0u
#define DW_BF16_LARGEST 0x7f7fu

DW_INLINE uint32_t dw_bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

DW_INLINE float dw_float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

DW_INLINE int dw_is_finite(float value)
{
    return (dw_bits_of(value) & DW_F32_INFINITY) != DW_F32_INFINITY;
}

DW_INLINE float dw_bf16_widen(uint16_t half)
{
    return dw_float_of((uint32_t)half << 16);
}

/* Adding 0x7fff, plus one where the last kept bit is odd, makes the carry round to nearest even. */
DW_INLINE uint16_t dw_bf16_round(float value)
{
    uint32_t bits = dw_bits_of(value);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    uint32_t nan = (bits >> 16 & 0x8000u) | DW_BF16_NAN;
    return (uint16_t)((bits & 0x7fffffffu) > DW_F32_INFINITY ? nan : rounded);
}

/* A subnormal half counts units of 2^-24, and 0x1p-24 * n is exact. A product with 2^112 would
 * convert normal numbers exactly, too, but this choice among three cases vectorizes as well and
 * does not depend on the floating-point mode. */
DW_INLINE float dw_f16_widen(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t magnitude = half & 0x7fffu;
    uint32_t normal = (magnitude << 13) + (112u << 23);
    uint32_t special = (magnitude << 13) | DW_F32_INFINITY;
    uint32_t subnormal = dw_bits_of((float)(int32_t)magnitude * 0x1p-24f);
    uint32_t bits = magnitude >= 0x7c00u ? special : magnitude >= 0x0400u ? normal : subnormal;
    return dw_float_of(sign | bits);
}

/* Normal results are rounded by a carry, as in dw_bf16_round (13 bits are dropped). Results below
 * 2^-14, the subnormal ones, are rounded by adding 0.5: the last place of a binary32 near 0.5 is
 * worth 2^-24, the unit of the subnormals. The smallest number that becomes infinite is 65520,
 * 0x477ff000. */
DW_INLINE uint16_t dw_f16_round(float value)
{
    uint32_t bits = dw_bits_of(value);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t normal = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    uint32_t subnormal = dw_bits_of(dw_float_of(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t half = magnitude < 0x38800000u ? subnormal : normal;
    half = magnitude >= 0x477ff000u ? 0x7c00u : half;
    half = magnitude > DW_F32_INFINITY ? DW_F16_NAN : half;
    return (uint16_t)(sign | half);
}

/* Clamps the magnitude to `largest`, given as binary32 bits: the first step of RN in
 * docs/format.md. The rounding follows in the functions below. */
DW_INLINE float dw_clamp_magnitude(float value, uint32_t largest)
{
    uint32_t bits = dw_bits_of(value), magnitude = bits & 0x7fffffffu;
    return dw_float_of((bits & 0x80000000u) | (magnitude > largest ? largest : magnitude));
}

DW_INLINE float dw_f32_finite(float value)
{
    return dw_clamp_magnitude(value, DW_F32_LARGEST);
}

DW_INLINE uint16_t dw_f16_finite(float value)
{
    return dw_f16_round(dw_clamp_magnitude(value, 0x477fe000u)); /* 65504 */
}

/* As dw_bf16_round, but without the test for NaN: the clamp removes NaN. */
DW_INLINE uint16_t dw_bf16_finite(float value)
{
    uint32_t bits = dw_bits_of(dw_clamp_magnitude(value, 0x7f7f0000u));
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* Whether a finite value is too large for binary16 or, where is_f16 is 0, for bfloat16: converted,
 * it becomes infinite or, by a conversion that clamps, the largest number. */
DW_INLINE uint32_t dw_overflows(float value, int is_f16)
{
    uint32_t magnitude = dw_bits_of(value) & 0x7fffffffu,
             limit = is_f16 ? 0x477ff000u : 0x7f7f8000u;
    return magnitude >= limit && magnitude < DW_F32_INFINITY;
}

#endif
