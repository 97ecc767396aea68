/* SPDX-License-Identifier: Apache-2.0
 * compact.h - the arithmetic of compact copies of prev (common/compact.h), in code that C and CUDA
 * share.
 *
 * The elements of a group are bfloat16. Its scale is a power of two, and codes are whole multiples
 * of a unit: with 8 bits -127 to 127, with 4 bits 0, 1, 2, 3, 4, 6, 8, 12 and the same with a minus
 * sign. So elements are exact in bfloat16, and to expand a copy and to make it compact again
 * changes nothing. Source: OCP Microscaling Formats 1.0, MXINT8 and MXFP4. */
#ifndef DW_ARITHMETIC_COMPACT_H
#define DW_ARITHMETIC_COMPACT_H

#include "arithmetic/half.h"
#include "common/compact.h"

/* Scales outside of this range would have units, or inverses of units, that are not normal binary32
 * numbers. */
enum { DW_COMPACT_LEAST = 8, DW_COMPACT_MOST = 254 };

/* The scale of a group. largest: the largest of the magnitudes, bits & 0x7fff. The scale is
 * its exponent, or the next one where the largest code would be passed: from 127.5 units on, or
 * from 14. */
DW_INLINE uint32_t dw_compact_scale(uint32_t largest, uint32_t bits)
{
    uint32_t scale = (largest + (bits == 8 ? 0x01u : 0x20u)) >> 7;
    return scale < DW_COMPACT_LEAST  ? (uint32_t)DW_COMPACT_LEAST
           : scale > DW_COMPACT_MOST ? (uint32_t)DW_COMPACT_MOST
                                     : scale;
}

/* The unit of a scale: 2^(scale - 133), with 4 bits 2^(scale - 130); and 1 / unit. Readers take
 * scales out of range for the nearest in range. */
DW_INLINE float dw_compact_unit(uint32_t scale, uint32_t bits)
{
    uint32_t in_range = scale < DW_COMPACT_LEAST  ? (uint32_t)DW_COMPACT_LEAST
                        : scale > DW_COMPACT_MOST ? (uint32_t)DW_COMPACT_MOST
                                                  : scale;
    return dw_float_of((in_range - (bits == 8 ? 6u : 3u)) << 23);
}

DW_INLINE float dw_compact_inverse(uint32_t scale, uint32_t bits)
{
    return dw_float_of(((bits == 8 ? 260u : 257u) - scale) << 23);
}

/* Rounds to nearest even, by an addition that leaves the integer in the lowest bits. */
DW_INLINE int32_t dw_compact_round(float value)
{
    return (int32_t)(dw_bits_of(value + 12582912.0f) - 0x4b400000u); /* 1.5 * 2^23 */
}

/* The code of an element: with 8 bits its units plus 128; with 4 bits 0 to 7, and 8 more if it is
 * negative. Codes of 4 bits are 1, 2 and 4 units apart: each of three lines is the lowest where it
 * counts. */
DW_INLINE uint32_t dw_compact_code(uint32_t element, float inverse, uint32_t bits)
{
    float units = dw_bf16_widen((uint16_t)(bits == 8 ? element : element & 0x7fffu)) * inverse;
    if (bits == 8) {
        units = units < -127 ? -127 : units;
        return (uint32_t)(dw_compact_round(units > 127 ? 127 : units) + 128);
    }
    units = units > 12 ? 12 : units;
    int32_t near = dw_compact_round(units), middle = dw_compact_round(units * 0.5f) + 2,
            far = dw_compact_round(units * 0.25f) + 4;
    int32_t code = near < middle ? near : middle;
    return (uint32_t)(code < far ? code : far) | (element >> 12 & 8u);
}

/* The element of a code; exact, but for code 0 of 8 bits, which is neither written nor read, with
 * the largest unit. */
DW_INLINE uint16_t dw_compact_element(int32_t code, float unit, uint32_t bits)
{
    int32_t n = code & 7, middle = 2 * n - 4, far = 4 * n - 16;
    int32_t units = n > middle ? n : middle;
    units = units > far ? units : far;
    units = bits == 8 ? code - 128 : code & 8 ? -units : units;
    return dw_bf16_finite((float)units * unit);
}

#endif
