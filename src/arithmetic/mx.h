/* SPDX-License-Identifier: Apache-2.0
 * mx.h - the elements and scales of microscaling, in code that C and CUDA share.
 *
 * Source: OCP Microscaling Formats (MX) Specification 1.0, 5.3 (elements), 5.4 (E8M0) and 6.3
 * (conversion); docs/format.md, 3.3 and 5. A value is an element times 2^(scale - 127).
 *
 * All numbers here are binary32, and every step but one is exact: the rounding of a delta to the
 * element's grid. It is a single rounding for these reasons:
 *
 *   - delta * 2^(127 - scale) is exact unless the product is below 2^-126, because multiplying by a
 *     power of two changes no digits. A product below 2^-126 may be rounded, but it remains far
 *     below half of the smallest element (2^-17), so its code is 0 in any case. At scale 254 the
 *     power itself is the subnormal number 2^-127, which is exact, too.
 *   - An element times 2^(scale - 127) is exact even at the lowest scale: the last place of an
 *     element is worth at least 2^-16, so that of the product at least 2^-143, and binary32 goes
 *     down to 2^-149. At the highest scales the product may become infinite; the clamp of RN then
 *     makes it the largest number of the dtype.
 *
 * Subnormal numbers occur as operands and results, so the floating-point mode must keep them, as
 * the rest of the arithmetic requires, too (common/cpu.h). */
#ifndef DW_MX_H
#define DW_MX_H

#include "arithmetic/quant.h"
#include "deltawire/deltawire.h"

enum { DW_ELEMENTS = 6, DW_MX_BLOCK = 32, DW_MX_POISONED = 0xff };

/* The properties of an element format. A float has its sign in the top bit, then exponent and
 * fraction; exponent 0 means subnormal. */
typedef struct dw_element_facts {
    uint32_t bits, fraction; /* bits of a code; how many of them are fraction */
    uint32_t bias;           /* of the exponent; not used for int8 */
    uint32_t top;     /* the exponent of the largest element (emax in the OCP specification) */
    uint32_t largest; /* the code of the largest element */
    float most;       /* the value of the largest element */
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

/* 2^(scale - 127), for a scale other than DW_MX_POISONED. The smallest is a subnormal number. */
DW_INLINE float dw_mx_power(uint32_t scale)
{
    return dw_float_of(scale ? scale << 23 : 0x00400000u);
}

/* The scale of a block, from the bits of its largest magnitude: 127 + floor(log2(magnitude)) - top,
 * but at least 0. The exponent field of a normal number is 127 + floor(log2). Of a subnormal number
 * it is 0, so the scale is 0 for every `top`, which is right because its logarithm is below -126.
 * No scale exceeds 254. */
DW_INLINE uint32_t dw_mx_scale_of(uint32_t largest, uint32_t top)
{
    uint32_t exponent = largest >> 23;
    if (largest >= DW_F32_INFINITY) return DW_MX_POISONED;
    return exponent > top ? exponent - top : 0;
}

/* The factor that deltas are multiplied by before they are rounded. */
DW_INLINE float dw_mx_inverse(uint32_t scale)
{
    return dw_mx_power(254 - scale);
}

/* The code of a finite delta times the inverse of the scale: rounded to nearest even and limited to
 * the largest element. Between two powers of two the elements have a fixed distance, the step.
 * Adding 2^23 steps to the magnitude makes the last place of the sum worth one step, so the
 * addition rounds, and the low bits of the sum are the number of steps. A result of zero has code
 * 0, whatever its sign. */
DW_INLINE uint8_t dw_mx_code_of(float delta, float inverse, dw_element_facts of, dw_element element)
{
    uint32_t bits = dw_bits_of(delta * inverse), magnitude = bits & 0x7fffffffu, code;
    if (magnitude > dw_bits_of(of.most)) magnitude = dw_bits_of(of.most);
    if (element == DW_ELEMENT_INT8) {
        float places = 131072.0f; /* 2^17: its last place is worth 2^-6 */
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

/* The value of an element's code, without the scale. Codes that OCP assigns to infinities and NaN
 * are read as the largest element of their sign; 0x80 of int8 is -2. */
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
