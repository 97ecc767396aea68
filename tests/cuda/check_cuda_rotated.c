/* SPDX-License-Identifier: Apache-2.0
 * check_cuda_rotated.c - compares the kernels of cuda/ for rotated blocks of channels, and for
 * weights of channels, executed on the CPU, with the forms on the CPU: payloads, new prev, y, sums
 * and counts.
 *
 * check_cuda_rotated [--share N]: run only one in N of the random samples. Every second message
 * runs with blocks and threads from the last to the first. */
#include <math.h>

#include "arithmetic/mx.h"
#include "codecs/profile.h"
#include "sample.h"
#include "support/profiles.h"

static uint32_t share = 1;

/* ---- Samples --------------------------------------------------------------------------------- */

/* A form, and what the names of its kernels begin with. */
static const struct family {
    const dw_form *form;
    const char *name;
} families[] = {{&dw_form_quantized, "dw"}, {&dw_form_mx, "dw_mx"}, {&dw_form_step, "dw_step"}};

/* Returns random parameters of a form, but for the rotation. */
static dw_form_params draw_params(const dw_form *form)
{
    static const uint32_t steps[] = {10, 350, 1400, 100000};
    static const uint32_t groups[] = {
        16, 32, 64, 128, 256, DW_LAYOUT_ROW, DW_LAYOUT_ROW, DW_LAYOUT_SAMPLE, DW_LAYOUT_SAMPLE};
    dw_form_params params = {.form = form, .group = groups[sample_below(7)]};
    if (form == &dw_form_quantized) params.bits = 1 + sample_below(8);
    if (form == &dw_form_mx) params.element = (dw_element)(1 + sample_below(DW_ELEMENTS));
    if (form != &dw_form_step) return params;
    params.group = groups[sample_below(9)];
    params.bits = 8;
    params.step = steps[sample_below(4)];
    params.dithers = sample_below(2);
    if (params.group == DW_LAYOUT_ROW && sample_below(2)) params.error = 0.06;
    return params;
}

/* Makes all values of a few blocks the same, and puts NaN into some of these. Values of 3e38 become
 * infinite at one place of the rotated block, by the last of its products; so one piece of the
 * block is poisoned, and others are not. */
static void fill_blocks(sample *s, uint32_t width)
{
    uint32_t c = s->plan.c;
    for (uint32_t turn = sample_below(4); turn > 0; turn--) {
        size_t row = sample_below(s->plan.t), column = sample_below(c / width) * (size_t)width,
               place = s->offset + row * (size_t)s->stride + column;
        float value = sample_below(2) ? 3e38f : 1.5f;
        for (size_t i = 0; i < width; i++) test_set(s->x, s->x_dtype, place + i, value);
        if (sample_below(4) == 0) test_set(s->x, s->x_dtype, place + sample_below(width), NAN);
    }
}

/* Returns a sample whose rows have three tiles, in which the best scale of a row follows from all
 * tiles: rotated values of the first one are distributed much like a normal distribution, and all
 * others have nearly the magnitude of the largest one. */
static sample draw_long_rows(void)
{
    enum { WIDTH = 16, C = 2 * DW_TILE_ELEMENTS + WIDTH };
    uint32_t t = 1 + sample_below(2);
    sample s = sample_draw(t, C, false);
    s.scale = DW_SCALE_MSE;
    s.plan = (dw_plan){.form = &dw_form_quantized, .t = t, .c = C};
    s.plan.params = (dw_form_params){.form = &dw_form_quantized,
                                     .bits = 2 + sample_below(2),
                                     .group = DW_LAYOUT_ROW,
                                     .rotates = WIDTH};
    assert_int_equal(dw_form_quantized.plan(&s.plan, NULL), DW_OK);
    sample_fill(&s, false);
    for (size_t i = 0; i < s.dense; i++) {
        size_t column = i % C, place = s.offset + i / C * (size_t)s.stride + column;
        float value = ((float)sample_below(2001) - 1000) / 1000;
        if (column >= DW_TILE_ELEMENTS) value = column % WIDTH ? 0 : value < 0 ? -10 : 10;
        test_set(s.x, s.x_dtype, place, value);
    }
    return s;
}

/* Returns a sample of the form step with a profile. */
static sample draw_weighed(void)
{
    static const uint32_t widths[] = {1, 31, 64, 96, 100, 256, 576, 2048, 2500, 4097};
    uint32_t c = widths[sample_below(10)], t = 1 + sample_below(c < 200 ? 40 : 6000 / c + 1);
    sample s = sample_draw(t, c, sample_below(4) != 0);
    s.plan = (dw_plan){.form = &dw_form_step, .params = draw_params(&dw_form_step), .t = t, .c = c};
    if (s.plan.params.group == DW_LAYOUT_SAMPLE) s.plan.params.group = DW_LAYOUT_ROW;
    s.is_stochastic = !s.plan.params.dithers && sample_below(2);
    s.scale = DW_SCALE_ABSMAX;
    s.plan.params.weighs = true;
    s.channels = dw_profile_channels(test_profile(sample_below(3), c));
    assert_int_equal(dw_form_step.plan(&s.plan, NULL), DW_OK);
    sample_fill(&s, sample_below(4) == 0);
    for (size_t i = 0; i < s.dense; i++) /* some rows are near the second means */
        if (s.channels.means[1] && i / c % 3 == 1)
            test_set(s.x, s.x_dtype, s.offset + i / c * (size_t)s.stride + i % c,
                     s.channels.means[1][i % c] + (float)(i % 7) / 4);
    if (sample_below(2)) sample_add_outliers(&s);
    return s;
}

static sample draw_sample(const dw_form *form)
{
    static const uint32_t widths[] = {16, 64, 256}, blocks[] = {1, 2, 3, 5, 8, 13, 33, 67, 129};
    uint32_t width = widths[sample_below(3)], c = width * blocks[sample_below(9)];
    uint32_t t = 1 + sample_below(5000 / c > 40 ? 40 : 5000 / c + 1);
    sample s = sample_draw(t, c, sample_below(4) != 0);
    s.is_stochastic = sample_below(2);
    s.scale = (dw_scale)(DW_SCALE_ABSMAX + sample_below(3));
    s.keeps_residual = s.has_state && s.prev_dtype == DW_F32 && sample_below(4) == 0;
    if (s.keeps_residual) s.audit.every = 0; /* a residual has no digest */
    s.plan = (dw_plan){.form = form, .params = draw_params(form), .t = t, .c = c};
    if (form != &dw_form_quantized) s.scale = DW_SCALE_ABSMAX;
    if (s.plan.params.dithers) s.is_stochastic = false;
    s.plan.params.rotates = width;
    assert_int_equal(form->plan(&s.plan, NULL), DW_OK);
    sample_fill(&s, sample_below(4) == 0);
    fill_blocks(&s, width);
    if (form == &dw_form_step && sample_below(2)) sample_add_outliers(&s);
    return s;
}

/* ---- Comparisons ----------------------------------------------------------------------------- */

/* Gives most pieces of a random payload scales that are common; a few are poisoned. */
static void make_scales_ordinary(const sample *s, uint8_t *payload)
{
    const dw_layout *layout = &s->plan.layout;
    for (uint64_t i = 0; i < layout->pieces; i++) {
        uint8_t *scale = payload + dw_layout_scale(layout, i);
        bool is_poisoned = sample_below(16) == 0;
        if (layout->scale_size == 1)
            *scale = (uint8_t)(is_poisoned ? DW_MX_POISONED : 110 + sample_below(30));
        else
            scale[1] = (uint8_t)(0x3c + sample_below(6)), scale[0] &= 0xfe;
        if (layout->scale_size == 2 && is_poisoned) scale[0] = 0xc0, scale[1] = 0x7f;
    }
}

static void check(sample_work *spec, sample_comparison *compare, uint32_t draws)
{
    sample_source.state = test_seed();
    for (uint32_t draw = 0; draw < draws / share; draw++) {
        const struct family *family = &families[draw % 3];
        bool long_rows = family->form == &dw_form_quantized && draw % 9 == 0;
        bool weighs = family->form == &dw_form_step && draw % 2;
        sample s = long_rows ? draw_long_rows()
                   : weighs  ? draw_weighed()
                             : draw_sample(family->form);
        output expected = output_make(&s, NULL);
        if (sample_below(4)) make_scales_ordinary(&s, expected.payload);
        if (s.plan.layout.escapes && sample_below(2))
            sample_make_rooms_ordinary(&s, expected.payload);
        compare(&s, family->name, &expected, spec, sample_below(2));
        sample_free(&s);
    }
}

TEST(frames_equal_those_of_the_cpu)
{
    check(sample_spec_encode, sample_compare_encode, 2400);
}

TEST(tensors_equal_those_of_the_cpu)
{
    check(sample_spec_decode, sample_compare_decode, 1800);
}

RUN_TESTS_AFTER(share = test_share(argc, argv))
