/* SPDX-License-Identifier: Apache-2.0
 * half.h - the float formats: binary32, binary16 and bfloat16, as text that C and CUDA share.
 *
 * Every conversion works on bit patterns, so that it gives the same bits with every compiler and
 * with hardware that has no 16-bit floats. Source: IEEE 754-2019, 4.3.1 (round to nearest, ties to
 * even). */
#ifndef DW_HALF_H
#define DW_HALF_H

#include <stdint.h>
#include <string.h>

#include "base/shared.h"

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

DW_INLINE float dw_bf16_widen(uint16_t half)
{
    return dw_float_of((uint32_t)half << 16);
}

/* Adding 0x7fff, and one more where the last kept bit is odd, rounds to nearest even in the
 * carry. */
DW_INLINE uint16_t dw_bf16_round(float value)
{
    uint32_t bits = dw_bits_of(value);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    uint32_t nan = (bits >> 16 & 0x8000u) | DW_BF16_NAN;
    return (uint16_t)((bits & 0x7fffffffu) > DW_F32_INFINITY ? nan : rounded);
}

/* Subnormals: 2^-24 units, and 0x1p-24 * n is exact. The product of a normal with 2^112 would be
 * exact too, but a table of three cases vectorizes as well and needs no assumption about the
 * floating-point mode. */
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

/* Normal results round in the carry, as in bf16 (13 bits are dropped). Subnormal ones, below 2^-14,
 * are rounded by adding 0.5: there the last place of a binary32 is 2^-24, the unit of the
 * subnormals. 65520 = 0x477ff000 is the first to become infinite. */
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

/* RN of docs/format.md: clamped to the largest finite magnitude of the dtype, as binary32 bits,
 * then rounded. */
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

/* As dw_bf16_round; what is clamped is no NaN. */
DW_INLINE uint16_t dw_bf16_finite(float value)
{
    uint32_t bits = dw_bits_of(dw_clamp_magnitude(value, 0x7f7f0000u));
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

#endif
