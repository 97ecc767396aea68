/* SPDX-License-Identifier: Apache-2.0
 * test_mx.c - compares the elements and scales of microscaling with tables from the specification,
 * and checks the layout of the payload. */
#include "arithmetic/layout.h"
#include "arithmetic/mx.h"
#include "support/mx_model.h"
#include "support/tool.h"

static dw_element element_of(const mx_model *model)
{
    return (dw_element)(model - mx_models);
}

static bool same_float(float a, double b)
{
    return (double)a == b && !signbit(a) == !signbit(b);
}

/* All codes: 256 each of int8, E4M3 and E5M2, 64 each of E3M2 and E2M3, 16 of E2M1. */
TEST(elements_have_the_values_of_the_table)
{
    for (const mx_model *m = mx_models + 1; m <= mx_models + DW_ELEMENTS; m++) {
        dw_element_facts facts = dw_element_facts_of(element_of(m));
        assert_int_equal(facts.bits, m->bits);
        assert_int_equal(facts.top, m->top);
        assert_int_equal(facts.largest, m->last);
        assert_true(same_float(facts.most, mx_model_magnitude(m, m->last)));
        for (int code = 0; code < 1 << m->bits; code++)
            if (!same_float(dw_mx_value_of((uint8_t)code, facts, element_of(m)),
                            mx_model_value(m, code)))
                fail_msg("%s %02x is %a, not %a", m->name, (unsigned)code,
                         dw_mx_value_of((uint8_t)code, facts, element_of(m)),
                         mx_model_value(m, code));
    }
}

/* The largest and smallest numbers that the text of the standard gives. */
TEST(elements_have_the_ends_of_the_standard)
{
    static const struct {
        dw_element element;
        uint8_t code;
        double value;
    } known[] = {
        {DW_ELEMENT_E4M3, 0x7e, 448},      {DW_ELEMENT_E4M3, 0x08, 0x1p-6},
        {DW_ELEMENT_E4M3, 0x01, 0x1p-9},   {DW_ELEMENT_E4M3, 0xff, -448}, /* NaN in the standard */
        {DW_ELEMENT_E5M2, 0x7b, 57344},    {DW_ELEMENT_E5M2, 0x04, 0x1p-14},
        {DW_ELEMENT_E5M2, 0x01, 0x1p-16},  {DW_ELEMENT_E5M2, 0x7c, 57344}, /* infinity there */
        {DW_ELEMENT_E5M2, 0xff, -57344},   {DW_ELEMENT_E3M2, 0x1f, 28},
        {DW_ELEMENT_E3M2, 0x04, 0.25},     {DW_ELEMENT_E3M2, 0x21, -0.0625},
        {DW_ELEMENT_E2M3, 0x1f, 7.5},      {DW_ELEMENT_E2M3, 0x08, 1},
        {DW_ELEMENT_E2M3, 0x21, -0.125},   {DW_ELEMENT_E2M1, 0x7, 6},
        {DW_ELEMENT_E2M1, 0x9, -0.5},      {DW_ELEMENT_E2M1, 0x8, -0.0},
        {DW_ELEMENT_INT8, 0x7f, 1.984375}, {DW_ELEMENT_INT8, 0x81, -1.984375},
        {DW_ELEMENT_INT8, 0x80, -2},       {DW_ELEMENT_INT8, 0x01, 0x1p-6}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_true(same_float(
            dw_mx_value_of(known[i].code, dw_element_facts_of(known[i].element), known[i].element),
            known[i].value));
}

static void check_code(const mx_model *m, float value, float inverse)
{
    dw_element_facts facts = dw_element_facts_of(element_of(m));
    int expected = mx_model_code(m, (double)value * (double)inverse);
    uint8_t found = dw_mx_code_of(value, inverse, facts, element_of(m));
    if (found != expected)
        fail_msg("%s: %a times %a has the code %02x, not %02x", m->name, value, inverse, found,
                 (unsigned)expected);
}

/* Every element, every tie between two, and the floats next to them, with both signs, at every
 * scale at which they are finite. */
TEST(mx_rounds_to_the_nearest_element)
{
    for (const mx_model *m = mx_models + 1; m <= mx_models + DW_ELEMENTS; m++)
        for (int code = 0; code <= m->last; code++)
            for (int scale = 0; scale <= 254; scale++) {
                double low = mx_model_magnitude(m, code),
                       high = code < m->last ? mx_model_magnitude(m, code + 1) : 2 * low,
                       at[] = {low, (low + high) / 2, high, (3 * low + high) / 4};
                for (int k = 0; k < 4; k++) {
                    float value = (float)ldexp(at[k], scale - 127), inverse = dw_mx_inverse(scale);
                    if (isinf(value) || isinf(nextafterf(value, INFINITY))) continue;
                    check_code(m, value, inverse);
                    check_code(m, -value, inverse);
                    check_code(m, nextafterf(value, INFINITY), inverse);
                    check_code(m, -nextafterf(value, -INFINITY), inverse);
                }
            }
}

/* The encoder writes only canonical codes: no -0, no infinity, no NaN, no -128. */
TEST(only_canonical_codes_are_written)
{
    for (const mx_model *m = mx_models + 1; m <= mx_models + DW_ELEMENTS; m++) {
        dw_element_facts facts = dw_element_facts_of(element_of(m));
        int sign = 1 << (m->bits - 1);
        for (int code = 0; code < 1 << m->bits; code++) {
            float value = dw_mx_value_of((uint8_t)code, facts, element_of(m));
            int expected = code;
            if (code == sign) expected = element_of(m) == DW_ELEMENT_INT8 ? 0x81 : 0;
            if (element_of(m) != DW_ELEMENT_INT8 && (code & (sign - 1)) > m->last)
                expected = (code & sign) | m->last;
            assert_int_equal(dw_mx_code_of(value, 1.0f, facts, element_of(m)), expected);
        }
        assert_int_equal(dw_mx_code_of(-0x1p-149f, 0x1p127f, facts, element_of(m)), 0);
    }
}

/* Every exponent with its smallest and its largest mantissa, and all subnormal powers of two. */
TEST(scales_are_those_of_the_largest_exponent)
{
    for (const mx_model *m = mx_models + 1; m <= mx_models + DW_ELEMENTS; m++) {
        for (uint32_t exponent = 0; exponent < 255; exponent++)
            for (int k = 0; k < 2; k++) {
                uint32_t largest = exponent << 23 | (k ? 0x7fffffu : 0);
                assert_int_equal(dw_mx_scale_of(largest, (uint32_t)m->top),
                                 mx_model_scale(m, (double)dw_float_of(largest)));
            }
        for (uint32_t bit = 0; bit < 23; bit++)
            assert_int_equal(dw_mx_scale_of(1u << bit, (uint32_t)m->top), 0);
        assert_int_equal(dw_mx_scale_of(DW_F32_INFINITY, (uint32_t)m->top), 0xff);
        assert_int_equal(dw_mx_scale_of(0x7fffffff, (uint32_t)m->top), 0xff);
    }
    for (uint32_t scale = 0; scale <= 254; scale++) {
        assert_true((double)dw_mx_power(scale) == ldexp(1, (int)scale - 127));
        assert_true((double)dw_mx_inverse(scale) == ldexp(1, 127 - (int)scale));
    }
}

/* A layout computed by hand. The first tile has 64 blocks with a scale of one byte each, then the
 * codes. The last tile has fewer blocks, and zeros fill its scales up to a multiple of 16 bytes. */
TEST(blocks_have_scales_of_one_byte)
{
    dw_layout layout;
    /* Each row has 31 whole blocks and one of 8 values. */
    assert_true(dw_layout_make_mx(&layout, 3, 1000, DW_ELEMENT_E2M1, 4, true));
    assert_int_equal(layout.pieces, 96);
    assert_int_equal(layout.tiles, 2);
    assert_int_equal(layout.last_channels, 8);
    assert_int_equal(layout.choice_bytes, 16);
    dw_tile first = dw_layout_tile(&layout, 0), second = dw_layout_tile(&layout, 1);
    assert_int_equal(first.offset, 16);
    assert_int_equal(first.codes, 16 + 64);
    assert_int_equal(second.offset, 16 + 64 + 1024);
    assert_int_equal(second.codes, 16 + 64 + 1024 + 32);
    assert_int_equal(layout.payload_bytes, 16 + 64 + 1024 + 32 + 512);
    assert_int_equal(dw_layout_scale(&layout, 63), 16 + 63);
    assert_int_equal(dw_layout_scale(&layout, 65), 16 + 64 + 1024 + 1);
    assert_true(dw_layout_make_mx(&layout, 1, 33, DW_ELEMENT_E2M3, 6, false));
    assert_int_equal(layout.payload_bytes, 16 + 48);
    assert_int_equal(dw_layout_tile(&layout, 0).codes, 16);
}

RUN_TESTS(NULL, NULL)
