/* SPDX-License-Identifier: Apache-2.0
 * check_cuda.c - compares the kernels of cuda/ for the forms quantized, mx and floats, and for
 * compact copies, executed on the CPU, with the forms on the CPU: payloads, new prev, y, sums and
 * counts.
 *
 * check_cuda [--share N]: run only one in N of the random samples. Every second message runs with
 * blocks and threads from the last to the first. */
#include <math.h>

#include "codecs/copies.h"
#include "emulated.h"
#include "kernels/kernels.h"
#include "message.h"
#include "sample.h"

static uint32_t share = 1;

/* Moves a part of x near to prev, or makes it equal. */
static void approach(sample *s)
{
    uint32_t c = s->plan.c;
    for (size_t i = 0; i < s->dense; i++) {
        size_t at = s->offset + i / c * (size_t)s->stride + i % c;
        uint32_t mood = (uint32_t)(i / c + i % c / 32) % 5;
        float held = s->has_prev ? test_get(s->prev, s->prev_dtype, i) : -0.0f;
        if (mood == 0) test_set(s->x, s->x_dtype, at, held);
        if (mood == 2) test_set(s->x, s->x_dtype, at, held * (i % 2 ? 1.0f : 1.01f));
        if (mood > 2) test_set(s->x, s->x_dtype, at, held + 0.1f * test_get(s->x, s->x_dtype, at));
    }
}

/* Completes a sample whose form and layout are set. is_plain: its values are ordinary. */
static sample finish(sample s, uint32_t t, uint32_t c, bool is_plain)
{
    s.plan.t = t, s.plan.c = c;
    s.plan.payload_bytes = s.plan.layout.payload_bytes;
    s.plan.chunks = dw_layout_chunks(&s.plan.layout);
    uint32_t mood = is_plain ? 3 : sample_below(4);
    sample_fill(&s, mood == 0);
    if (mood < 3) approach(&s);
    return s;
}

/* searches: a search for the best scale over several tiles, over channels, or over rows of odd
 * width, with ordinary values, which would be drawn too seldom. */
static sample draw_quantized(bool searches)
{
    static const uint32_t groups[] = {16, 32, 64, 128, 256, DW_GROUP_ROW, DW_GROUP_CHANNEL};
    static const uint32_t widths[] = {1,   3,   16,  31,  64,   65,   96,   100,  128,
                                      252, 256, 300, 640, 1028, 2048, 2049, 2500, 4100};
    uint32_t c = sample_below(3) ? widths[sample_below(18)] : 1 + sample_below(700);
    uint32_t t = 1 + sample_below(c > 2000 ? 3 : 6000 / c > 40 ? 40 : 6000 / c);
    uint32_t group = groups[sample_below(7)], which = sample_below(3);
    if (searches) {
        c = which == 0 ? 2500 : which == 1 ? 300 : 96;
        t = which ? 20 : 3;
        group = which == 1 ? DW_GROUP_CHANNEL : DW_GROUP_ROW;
    }
    sample s = sample_draw(t, c, sample_below(4) != 0);
    s.plan.form = &dw_form_quantized;
    s.scale = searches ? DW_SCALE_MSE : (dw_scale)(1 + sample_below(3));
    s.is_stochastic = !searches && sample_below(3) == 0;
    assert_true(dw_layout_make(&s.plan.layout, t, c, 1 + sample_below(searches ? 4 : 8), group,
                               s.has_prev && sample_below(2)));
    return finish(s, t, c, searches);
}

static sample draw_mx(void)
{
    static const uint32_t widths[] = {1, 31, 32, 33, 64, 100, 256, 1000, 2048, 2500};
    uint32_t c = widths[sample_below(10)], t = 1 + sample_below(5000 / c > 30 ? 30 : 5000 / c);
    sample s = sample_draw(t, c, sample_below(4) != 0);
    dw_element element = (dw_element)(1 + sample_below(DW_ELEMENTS));
    s.plan.form = &dw_form_mx;
    assert_true(dw_layout_make_mx(&s.plan.layout, t, c, element, dw_element_facts_of(element).bits,
                                  s.has_prev && sample_below(2)));
    return finish(s, t, c, false);
}

static sample draw_floats(void)
{
    static const uint32_t widths[] = {1, 2, 3, 5, 7, 8, 31, 64, 100, 256, 300, 2048, 2049};
    uint32_t c = sample_below(3) ? widths[sample_below(13)] : 1 + sample_below(700);
    uint32_t t = 1 + sample_below(6000 / c > 60 ? 60 : 6000 / c), role = sample_below(3);
    sample s = sample_draw(t, c, role > 0);
    s.has_prev = false;
    s.is_sync = role == 2;
    s.prev_dtype = (dw_dtype)(1 + sample_below(3));
    dw_dtype wire = (dw_dtype)(1 + sample_below(3));
    if (s.is_sync) {
        s.x_dtype = wire = s.prev_dtype;
        s.stride = c;
        s.offset = 0;
        s.tensor = s.dense;
    }
    s.plan = (dw_plan){.form = &dw_form_floats,
                       .params = {.form = &dw_form_floats, .dtype = wire},
                       .prev = s.prev_dtype,
                       .t = t,
                       .c = c};
    assert_int_equal(dw_form_floats.plan(&s.plan, NULL), DW_OK);
    sample_fill(&s, sample_below(2));
    if (sample_below(3) == 0) /* any bits, which are often NaN */
        for (size_t i = 0; i < s.tensor * dw_dtype_bytes(s.x_dtype); i++)
            s.x[i] = (unsigned char)sample_below(256);
    return s;
}

/* Gives most pieces of a random payload scales that are common; a few are 0 or poisoned. */
static void make_scales_ordinary(const sample *s, uint8_t *payload)
{
    const dw_layout *layout = &s->plan.layout;
    for (uint64_t i = 0; i < layout->pieces; i++) {
        uint8_t *scale = payload + dw_layout_scale(layout, i);
        uint32_t kind = sample_below(16);
        if (layout->scale_size == 1)
            *scale = (uint8_t)(kind ? 110 + sample_below(30) : 0);
        else
            scale[1] = (uint8_t)(0x3c + sample_below(6) + (sample_below(2) << 7));
        if (layout->scale_size == 2 && kind == 0) scale[0] = scale[1] = 0;
        if (layout->scale_size == 2 && kind == 1) scale[0] = 0xc0, scale[1] = 0x7f;
    }
}

/* Compares so many random samples of a form, or a share of them. Half of what is decoded was
 * written by an encoder; the rest are random bytes. */
static void check(const dw_form *form, bool encodes, uint32_t draws)
{
    const char *family = form == &dw_form_quantized ? "dw"
                         : form == &dw_form_mx      ? "dw_mx"
                                                    : "dw_floats";
    sample_source.state = test_seed();
    for (uint32_t draw = 0; draw < draws / share; draw++) {
        sample s = form == &dw_form_quantized ? draw_quantized(draw % 8 == 7)
                   : form == &dw_form_mx      ? draw_mx()
                                              : draw_floats();
        output expected = output_make(&s, NULL);
        if (form != &dw_form_floats && sample_below(4)) make_scales_ordinary(&s, expected.payload);
        if (!encodes && sample_below(2)) sample_spec_encode(&s, &expected);
        (encodes ? sample_compare_encode : sample_compare_decode)(
            &s, family, &expected, encodes ? sample_spec_encode : sample_spec_decode, draw % 2);
        sample_free(&s);
    }
}

TEST(quantized_frames_equal_those_of_the_cpu)
{
    check(&dw_form_quantized, true, 1800);
}

TEST(quantized_tensors_equal_those_of_the_cpu)
{
    check(&dw_form_quantized, false, 1200);
}

TEST(mx_frames_equal_those_of_the_cpu)
{
    check(&dw_form_mx, true, 1200);
}

TEST(mx_tensors_equal_those_of_the_cpu)
{
    check(&dw_form_mx, false, 1200);
}

TEST(frames_of_floats_equal_those_of_the_cpu)
{
    check(&dw_form_floats, true, 1500);
}

TEST(tensors_of_floats_equal_those_of_the_cpu)
{
    check(&dw_form_floats, false, 1500);
}

/* ---- Compact copies -------------------------------------------------------------------------- */

enum { COPIES = 2, MOST_ELEMENTS = 9000, MOST_COPY = MOST_ELEMENTS / 16 * 17 + 17 };

/* Memory of a part, aligned as that of a device; what is behind the used part must not be
 * written. */
typedef struct copy {
    _Alignas(16) uint16_t base[MOST_ELEMENTS];
    _Alignas(16) uint16_t made[MOST_ELEMENTS];
    _Alignas(16) uint8_t held[MOST_COPY];
    _Alignas(16) uint8_t fresh[MOST_COPY];
} copy;

/* Numbers of all magnitudes in some groups, and of similar ones in others; none is infinite. held:
 * any bytes, as a state that somebody made up may have. */
static void draw_copy(copy *c)
{
    for (uint32_t i = 0; i < MOST_ELEMENTS; i++) {
        uint32_t exponent = i / 16 % 3 ? 100 + i / 64 % 60 + sample_below(9) : sample_below(255);
        c->made[i] = (uint16_t)(sample_below(2) << 15 | exponent << 7 | sample_below(128));
        if (sample_below(16) == 0) c->made[i] &= 0x8000;
        c->base[i] = (uint16_t)i;
    }
    for (uint32_t i = 0; i < MOST_COPY; i++) {
        c->held[i] = (uint8_t)sample_below(256);
        c->fresh[i] = (uint8_t)i;
    }
}

static dw_copies copies_in(copy *c, uint32_t bits, uint64_t elements, uint32_t what)
{
    return (dw_copies){.bits = bits,
                       .elements = elements,
                       .held = what & 1 ? c->held : NULL,
                       .base = c->base,
                       .made = c->made,
                       .fresh = what & 2 ? c->fresh : NULL};
}

/* Sets the blocks of a part, which share its stretches of 2048 elements. */
static dw_cuda_share share_copy(uint64_t elements, dw_cuda_sums *sums, dw_cuda_report *to,
                                uint64_t grid[DW_CUDA_PHASES])
{
    dw_cuda_share made = {.sums = sums, .report = to, .serial = 1 + test_next(&sample_source) / 2};
    for (int i = 0; i < 2; i++) {
        int phase = i ? DW_CUDA_EXPAND : DW_CUDA_COMPACT;
        made.first[phase] = grid[phase];
        made.blocks[phase] = 1 + test_next(&sample_source) % ((elements + 2047) / 2048);
        grid[phase] += made.blocks[phase];
    }
    return made;
}

#define RUN_ON_COPIES(side, parts, grid)                                                           \
    (dw_shim_launch("dw_expand_" #side, parts, COPIES, grid[DW_CUDA_EXPAND]) &&                    \
     dw_shim_launch("dw_compact_" #side, parts, COPIES, grid[DW_CUDA_COMPACT]))

static void run_on_copies(copy *found, uint32_t bits, const uint64_t elements[COPIES],
                          const uint32_t what[COPIES], bool encodes)
{
    static dw_cuda_encode_part out[COPIES];
    static dw_cuda_decode_part in[COPIES];
    dw_cuda_sums sums[COPIES] = {0};
    dw_cuda_report reports[COPIES] = {0};
    uint64_t grid[DW_CUDA_PHASES] = {0};
    for (int i = 0; i < COPIES; i++) {
        dw_copies copies = copies_in(&found[i], bits, elements[i], what[i]);
        out[i].share = in[i].share = share_copy(elements[i], &sums[i], &reports[i], grid);
        out[i].job.copies = in[i].job.copies = copies;
    }
    assert_true(encodes ? RUN_ON_COPIES(encode, out, grid) : RUN_ON_COPIES(decode, in, grid));
    for (int i = 0; i < COPIES; i++) /* the last block has ended the part */
        assert_int_equal(reports[i].serial, out[i].share.serial);
}

TEST(compact_copies_equal_those_of_the_cpu)
{
    static copy expected[COPIES], found[COPIES];
    sample_source.state = test_seed();
    for (uint32_t draw = 0; draw < 600 / share; draw++) {
        uint32_t bits = draw % 2 ? 8 : 4, what[COPIES] = {sample_below(4), 3};
        uint64_t elements[COPIES];
        for (int i = 0; i < COPIES; i++) {
            elements[i] = 1 + sample_below(sample_below(2) ? 100 : MOST_ELEMENTS);
            draw_copy(&expected[i]);
        }
        memcpy(found, expected, sizeof found);
        for (int i = 0; i < COPIES; i++) {
            dw_copies copies = copies_in(&expected[i], bits, elements[i], what[i]);
            if (copies.held) dw_copies_expand(&dw_kernels_c, &copies, 0, 1);
            if (copies.fresh) dw_copies_store(&dw_kernels_c, &copies, 0, 1);
        }
        dw_shim_turn_round(draw / 2 % 2);
        run_on_copies(found, bits, elements, what, draw / 4 % 2);
        assert_memory_equal(found, expected, sizeof found);
    }
}

RUN_TESTS_AFTER(share = test_share(argc, argv))
