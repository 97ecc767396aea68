/* SPDX-License-Identifier: Apache-2.0
 * mx.h - the elements and scales of microscaling, as text that C and CUDA share.
 *
 * Source: OCP Microscaling Formats (MX) Specification 1.0, 5.3 (elements), 5.4 (E8M0) and 6.3
 * (conversion); docs/format.md, 3.3 and 5. A value is an element times 2^(scale - 127).
 *
 * All numbers here are binary32, and every step but one is exact. That one is the rounding to the
 * grid of the element, and it is one rounding because:
 *
 *   - delta * 2^(127 - scale) is exact unless its magnitude is below 2^-126, for a power of two
 *     changes no digits. A product below 2^-126 may have been rounded, but it stays at or below
 *     2^-126, far below half of the smallest element (2^-17), and gets the code 0 either way. The
 *     power itself is a subnormal number, 2^-127, at scale 254; it is exact too.
 *   - an element times 2^(scale - 127) is exact down to the lowest scale: the last place of no
 *     element is worth less than 2^-16, so that of no product less than 2^-143, and binary32 counts
 *     in 2^-149. At the highest scales it may become infinite, which the clamp of RN turns into the
 *     largest number of the dtype.
 *
 * Subnormal numbers take part as operands and results of all of this, so the floating-point mode
 * must keep them, as the rest of the arithmetic needs it as well (base/cpu.h). */
#ifndef DW_MX_H
#define DW_MX_H

#include "arithmetic/quant.h"
#include "deltawire/deltawire.h"

enum { DW_ELEMENTS = 6, DW_MX_BLOCK = 32, DW_MX_POISONED = 0xff };

/* What tells the elements apart. Floats: sign, exponent and fraction, the sign on top; exponent 0:
 * subnormal. */
typedef struct dw_element_facts {
    uint32_t bits, fraction; /* of a code, and of those the digits behind the point */
    uint32_t bias;           /* of the exponent; no use for int8 */
    uint32_t top;            /* the exponent of the largest element: emax of OCP */
    uint32_t largest;        /* its code */
    float most;              /* and its value */
} dw_element_facts;

DW_INLINE dw_element_facts dw_element_facts_of(dw_element element)
{
    dw_element_facts facts = {8, 6, 0, 0, 0x7f, 1.984375f};
    const dw_element_facts e4m3 = {8, 3, 7, 8, 0x7e, 448.0f}, e5m2 = {8, 2, 15, 15, 0x7b, 57344.0f};
    const dw_element_facts e3m2 = {6, 2, 3, 4, 0x1f, 28.0f}, e2m3 = {6, 3, 1, 2, 0x1f, 7.5f};
    const dw_element_facts e2m1 = {4, 1, 1, 2, 0x7, 6.0f};
    switch (element) {
    case DW_ELEMENT_E4M3: facts = e4m3; break;
    case DW_ELEMENT_E5M2: facts = e5m2; break;
    case DW_ELEMENT_E3M2: facts = e3m2; break;
    case DW_ELEMENT_E2M3: facts = e2m3; break;
    case DW_ELEMENT_E2M1: facts = e2m1; break;
    default: break;
    }
    return facts;
}

/* 2^(scale - 127), of a scale that is not DW_MX_POISONED; the lowest is a subnormal number. */
DW_INLINE float dw_mx_power(uint32_t scale)
{
    return dw_float_of(scale ? scale << 23 : 0x00400000u);
}

/* The scale of a block whose largest magnitude has these bits: 127 + floor(log2 of it) - top, at
 * least 0. The exponent field is 127 + floor(log2) of a normal number; of a subnormal one, whose
 * logarithm is below -126, it is 0, and so is the scale for every top. No scale passes 254. */
DW_INLINE uint32_t dw_mx_scale_of(uint32_t largest, uint32_t top)
{
    uint32_t exponent = largest >> 23;
    if (largest >= DW_F32_INFINITY) return DW_MX_POISONED;
    return exponent > top ? exponent - top : 0;
}

/* What deltas are multiplied by. */
DW_INLINE float dw_mx_inverse(uint32_t scale)
{
    return dw_mx_power(254 - scale);
}

/* The code of a delta that is finite, times the inverse of the scale: to nearest even, at most the
 * largest element. A delta between two powers of two has steps of a fixed size there: in its sum
 * with 2^23 of these steps the last places count them, rounded. What rounds to zero has code 0,
 * whatever its sign. */
DW_INLINE uint8_t dw_mx_code_of(float delta, float inverse, dw_element_facts of, dw_element element)
{
    uint32_t bits = dw_bits_of(delta * inverse), magnitude = bits & 0x7fffffffu, code;
    if (magnitude > dw_bits_of(of.most)) magnitude = dw_bits_of(of.most);
    if (element == DW_ELEMENT_INT8) {
        float places = 131072.0f; /* 2^17: its last place is 2^-6 */
        code = dw_bits_of(dw_float_of(magnitude) + places) - dw_bits_of(places);
        return (uint8_t)(bits >> 31 ? 0u - code : code);
    }
    uint32_t smallest = (128u - of.bias) << 23, exponent = magnitude & 0x7f800000u;
    if (exponent < smallest) exponent = smallest;
    uint32_t places = exponent + ((23u - of.fraction) << 23);
    code = dw_bits_of(dw_float_of(magnitude) + dw_float_of(places)) - places;
    code += (exponent - smallest) >> (23u - of.fraction);
    return (uint8_t)(code && bits >> 31 ? code | 1u << (of.bits - 1) : code);
}

/* The value of an element's code, before the scale. Codes that OCP gives to infinities and NaN are
 * the largest element of their sign; 0x80 of int8 is -2. */
DW_INLINE float dw_mx_value_of(uint8_t code, dw_element_facts of, dw_element element)
{
    uint32_t sign_bit = 1u << (of.bits - 1), magnitude = code & (sign_bit - 1u);
    if (element == DW_ELEMENT_INT8) return (float)(int8_t)code * 0.015625f;
    if (magnitude > of.largest) magnitude = of.largest;
    uint32_t field = magnitude >> of.fraction, steps = magnitude & ((1u << of.fraction) - 1u);
    if (field)
        steps += 1u << of.fraction;
    else
        field = 1;
    uint32_t value =
        dw_bits_of((float)(int32_t)steps * dw_mx_power(field + 127u - of.bias - of.fraction));
    return dw_float_of(code & sign_bit ? value | 0x80000000u : value);
}

#endif
