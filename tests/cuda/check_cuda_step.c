/* SPDX-License-Identifier: Apache-2.0
 * check_cuda_step.c - compares the kernels of the form step in cuda/, executed on the CPU, with the
 * form on the CPU: payloads, new prev, y, sums and counts.
 *
 * check_cuda_step [--share N]: run only one in N of the random samples. Every second message runs
 * with blocks and threads from the last to the first. */
#include "kernels/kernels.h"
#include "sample.h"

static uint32_t share = 1;

/* As DW_WINDOW in cuda/step.cuh: the sums of so many tiles are joined at a time. */
enum { WINDOW = 1024 };

/* ---- Samples --------------------------------------------------------------------------------- */

/* Fills a sample. Some elements of x become equal to prev, or near it. */
static void fill_sample(sample *s)
{
    uint32_t c = s->plan.c;
    sample_fill(s, sample_below(4) == 0);
    bool near = sample_below(2), equal = sample_below(8) == 0;
    for (size_t i = 0; i < s->dense; i++) {
        size_t place = s->offset + i / c * (size_t)s->stride + i % c;
        float held = s->has_prev ? test_get(s->prev, s->prev_dtype, i) : -0.0f;
        if ((near && i / 32 % 3 == 0) || equal || i / 256 % 7 == 0)
            test_set(s->x, s->x_dtype, place, near && i % 2 ? held * 1.01f : held);
    }
    if (sample_below(2)) sample_add_outliers(s);
}

/* Fills a sample with values that are sensitive to the order in which squares are added: their step
 * lies so near to a boundary between two rounded steps that another order gives another step.
 *
 * Without any rounding, three times the root mean square of these values is 1 + 13 * 2^-8 + 2^-24.
 * That is half way between two binary32 numbers, and the lower one of them is half way between two
 * bf16 numbers. The values come in couples of w and 7 w, in random order and with random signs,
 * whose root mean square is 5 w; so no two sums of tiles are alike. The values of a couple are
 * neighbours in a row. But where a sample shares a step they are half the sample apart, so that the
 * sums of chunks differ as well. */
static void fill_sensitive(sample *s)
{
    float w = 1175279 * 0x1p-24f;
    size_t c = s->plan.c, half = s->plan.t / 2;
    uint8_t *coins = sample_allocate(s->dense);
    s->x = sample_allocate(s->tensor * sizeof(float));
    s->prev = sample_allocate(s->dense * dw_dtype_bytes(s->prev_dtype));
    memset(s->x, 0, s->tensor * sizeof(float));
    memset(s->prev, 0, s->dense * dw_dtype_bytes(s->prev_dtype));
    for (size_t i = 0; i < s->dense; i++) {
        size_t row = i / c, column = i % c;
        bool apart = s->plan.layout.by_sample && row < 2 * half;
        bool is_second = apart ? row >= half : column % 2;
        bool is_alone = !apart && !is_second && column + 1 == c;
        bool swapped = coins[!is_second ? i : apart ? i - half * c : i - 1] % 2;
        float value = is_alone ? 5 * w : swapped == is_second ? w : 7 * w;
        test_set(s->x, DW_F32, s->offset + row * (size_t)s->stride + column,
                 coins[i] & 64 ? value : -value);
    }
    free(coins);
}

/* Returns a sample of t tokens with c channels. is_sensitive: see fill_sensitive. */
static sample make_sample(uint32_t t, uint32_t c, uint32_t group, bool has_state, bool is_sensitive)
{
    static const uint32_t steps[] = {10, 350, 1400, 4000, 100000};
    sample s = sample_draw(t, c, has_state);
    uint32_t rounding = sample_below(3);
    if (is_sensitive) {
        s.x_dtype = DW_F32;
        if (!has_state) s.prev_dtype = DW_F32;
    }
    s.is_stochastic = rounding == 1;
    s.keeps_residual = has_state && s.prev_dtype == DW_F32 && sample_below(3) == 0;
    if (s.keeps_residual) s.audit.every = 0; /* a residual has no digest */
    s.plan = (dw_plan){.form = &dw_form_step,
                       .params = {.form = &dw_form_step,
                                  .bits = 8,
                                  .group = group,
                                  .step = is_sensitive ? 3000 : steps[sample_below(5)],
                                  .dithers = rounding == 2},
                       .t = t,
                       .c = c};
    if (group != DW_LAYOUT_SAMPLE && sample_below(3) == 0)
        s.plan.params.error = sample_below(2) ? 0.001 + sample_below(60) / 1000.0 : 0.5;
    assert_int_equal(dw_form_step.plan(&s.plan, NULL), DW_OK);
    if (is_sensitive)
        fill_sensitive(&s);
    else
        fill_sample(&s);
    return s;
}

/* Returns a sample of random shape, group and rounding. */
static sample draw_sample(void)
{
    static const uint32_t widths[] = {1, 31, 32, 33, 64, 100, 256, 1000, 2048, 2500, 4097};
    static const uint32_t groups[] = {
        16, 32, 64, 128, 256, DW_LAYOUT_ROW, DW_LAYOUT_ROW, DW_LAYOUT_SAMPLE, DW_LAYOUT_SAMPLE};
    uint32_t c = widths[sample_below(11)], most = sample_below(4) ? 5000 : 50000;
    uint32_t t = 1 + sample_below(most / c > 60 ? 60 : most / c + 1);
    return make_sample(t, c, groups[sample_below(9)], sample_below(4) != 0, sample_below(4) == 0);
}

/* ---- Comparisons ----------------------------------------------------------------------------- */

/* Compares the kernels with the specification, and frees the sample. */
static void compare(sample *s, sample_work *spec, sample_comparison *with, bool backwards)
{
    output expected = output_make(s, NULL);
    if (sample_below(2) == 0)
        sample_spec_encode(s, &expected); /* a payload that an encoder has written */
    else if (sample_below(2))
        sample_make_rooms_ordinary(s, expected.payload);
    with(s, "dw_step", &expected, spec, backwards);
    sample_free(s);
}

/* Compares so many random samples, or a share of them. */
static void check(sample_work *spec, sample_comparison *with, uint32_t draws)
{
    sample_source.state = test_seed();
    for (uint32_t draw = 0; draw < draws / share; draw++) {
        sample s = draw_sample();
        compare(&s, spec, with, draw % 2);
    }
}

TEST(frames_equal_those_of_the_cpu)
{
    check(sample_spec_encode, sample_compare_encode, 1800);
}

TEST(tensors_equal_those_of_the_cpu)
{
    check(sample_spec_decode, sample_compare_decode, 1200);
}

/* Adds the squares of a tile of a sensitive sample whose rows have several tiles. There are no
 * outliers among them. */
static void add_tile(const sample *s, uint64_t tile, dw_squares *to)
{
    const dw_layout *layout = &s->plan.layout;
    uint64_t row = tile / layout->row_segments,
             column = tile % layout->row_segments * DW_TILE_ELEMENTS;
    uint64_t left = layout->c - column, n = left < DW_TILE_ELEMENTS ? left : DW_TILE_ELEMENTS;
    double lanes[DW_NORM_LANES] = {0};
    uint32_t largest = 0;
    dw_kernels_c.step_squares(sample_at(s->x, DW_F32, s->offset + row * (size_t)s->stride + column),
                              DW_F32, NULL, DW_F32, n, DW_NO_LIMIT, lanes, &largest);
    dw_squares more = {.sum = dw_step_sum(lanes), .n = n, .largest = largest};
    more.peak = more.sum / (double)n;
    dw_squares_add(to, &more);
}

/* Returns the step of such a sample. window: 0, or the number of tiles after which a chunk's sum is
 * added even if the chunk goes on, as a faulty kernel would do. */
static uint16_t step_of(const sample *s, uint64_t window)
{
    const dw_layout *layout = &s->plan.layout;
    uint64_t each = dw_layout_chunk_tiles(layout);
    dw_squares all = {0}, chunk = {0};
    for (uint64_t i = 0; i < layout->tiles; i++) {
        add_tile(s, i, &chunk);
        if ((i + 1) % each && i + 1 < layout->tiles && (!window || (i + 1) % window)) continue;
        dw_squares_add(&all, &chunk);
        chunk = (dw_squares){0};
    }
    return dw_step_scale(&all, s->plan.params.step / 1000.0);
}

/* Returns a sensitive sample whose step would be another one if chunks were cut at windows. Every
 * few samples are so. */
static sample make_cut_sample(uint32_t t, uint32_t c)
{
    for (int tries = 0;; tries++) {
        sample s = make_sample(t, c, DW_LAYOUT_SAMPLE, false, true);
        if (step_of(&s, 0) != step_of(&s, WINDOW)) return s;
        if (tries == 99) fail_msg("no sample of (%u, %u) shows the order of its sums", t, c);
        sample_free(&s);
    }
}

/* These samples have more tiles than the last block joins at a time. They have chunks that end
 * within such a window of tiles, chunks that go on in the next, and chunks longer than a window. */
TEST(large_samples_have_the_step_of_the_cpu)
{
    static const struct {
        uint32_t t, c;
    } shapes[] = {{64 * 1100 + 1, 1}, {64 * WINDOW, 2}, {343, 4097}, {9, 2048 * 129 + 1}};
    sample_source.state = test_seed();
    for (uint32_t i = 0; i < 4 && (i < 1 || share <= 6); i++) {
        sample s = i < 2 ? make_sample(shapes[i].t, shapes[i].c, DW_LAYOUT_SAMPLE, i, true)
                         : make_cut_sample(shapes[i].t, shapes[i].c);
        compare(&s, sample_spec_encode, sample_compare_encode, i % 2);
    }
    for (uint32_t i = 0; i < 96 / share; i++) { /* chunks of 24 tiles */
        sample s = make_sample(20, 4097, DW_LAYOUT_SAMPLE, i % 2, true);
        compare(&s, sample_spec_encode, sample_compare_encode, i % 2);
    }
}

/* The only escaped values of these tiles are escaped because of their dither. */
TEST(dithers_may_make_values_escape)
{
    sample_source.state = test_seed();
    for (uint32_t i = 0; i < 4 + 20 / share; i++) {
        sample s = sample_draw(32, 256, false);
        s.x_dtype = s.prev_dtype = DW_F32;
        s.is_stochastic = i % 2;
        s.plan = (dw_plan){.form = &dw_form_step, .t = 32, .c = 256};
        s.plan.params = (dw_form_params){.form = &dw_form_step,
                                         .bits = 8,
                                         .group = DW_LAYOUT_SAMPLE,
                                         .step = 350,
                                         .dithers = i % 2 == 0};
        assert_int_equal(dw_form_step.plan(&s.plan, NULL), DW_OK);
        sample_fill(&s, false);
        sample_add_at_the_limit(&s);
        compare(&s, sample_spec_encode, sample_compare_encode, i / 2 % 2);
    }
}

RUN_TESTS_AFTER(share = test_share(argc, argv))
