/* SPDX-License-Identifier: Apache-2.0
 * check_step.c - tests the kernels of the form step. The C kernels are compared with a slow model,
 * those of every other table that this processor can run with the C kernels, byte by byte. The
 * errors of subtractive dither must have the distribution that theory promises.
 *
 * check_step [--share N]: only one in N of the random draws, for emulated processors. */
#include <float.h>
#include <math.h>

#include "kernel_rig.h"

/* ---- The model ------------------------------------------------------------------------------- */

/* Philox4x32-10, from the paper: Salmon et al., Parallel random numbers: as easy as 1, 2, 3. The
 * 16-bit part `element` mod 8 of the output for the counter `element` / 8. */
static uint32_t model_part(uint64_t key, uint64_t element)
{
    uint32_t c[4] = {(uint32_t)(element / 8), (uint32_t)(element / 8 >> 32), 0, 0};
    uint32_t low = (uint32_t)key, high = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t first = 0xD2511F53ull * c[0], second = 0xCD9E8D57ull * c[2];
        uint32_t next[4] = {(uint32_t)(second >> 32) ^ c[1] ^ low, (uint32_t)second,
                            (uint32_t)(first >> 32) ^ c[3] ^ high, (uint32_t)first};
        memcpy(c, next, sizeof c);
        low += 0x9E3779B9u;
        high += 0xBB67AE85u;
    }
    return c[element % 8 / 2] >> 16 * (element % 2) & 0xffff;
}

static double model_dither(const dw_step_run *run, uint64_t i)
{
    return (model_part(run->dither.key, run->dither.element + i) + 0.5) / 65536 - 0.5;
}

/* Double has more than twice the digits of binary32, so that a sum, a difference, a product or a
 * quotient of two binary32 that is rounded to double and then to binary32 is the same as one that
 * is rounded once. */
static float model_delta(const void *x, dw_dtype x_dtype, const void *prev, dw_dtype prev_dtype,
                         uint64_t i)
{
    double base = prev ? test_get(prev, prev_dtype, i) : 0;
    return (float)(test_get(x, x_dtype, i) - base);
}

static void model_put(const dw_step_run *run, void *to, dw_dtype dtype, uint64_t i, double z)
{
    double step = dw_bf16_widen(run->scale);
    float base = run->prev ? test_get(run->prev, run->prev_dtype, i) : 0.0f;
    double amount = (float)(run->codes[i] - 128 - z);
    float sum = dw_f32_finite((float)((double)base + (double)(float)(amount * step)));
    if (dtype == DW_F16) sum = dw_f16_widen(dw_f16_finite(sum));
    if (dtype == DW_BF16) sum = dw_bf16_widen(dw_bf16_finite(sum));
    test_set(to, dtype, i, sum);
}

static void model_encode(dw_step_run *run)
{
    double step = dw_bf16_widen(run->scale), inverse = step > 0 ? (float)(1 / step) : 0;
    if (isinf(inverse)) inverse = FLT_MAX;
    for (uint64_t i = 0; i < run->stored; i++) run->codes[i] = 128;
    for (uint64_t i = 0; i < run->n; i++) {
        double z = run->rounding == DW_ROUNDING_NEAREST ? 0 : model_dither(run, i);
        float delta = model_delta(run->x, run->x_dtype, run->prev, run->prev_dtype, i);
        double nearest = rint((float)((float)(delta * inverse) + z));
        bool is_zoned = run->rounding == DW_ROUNDING_NEAREST && run->zone > 0;
        if (is_zoned && fabs((double)(float)(delta * inverse)) <= run->zone) nearest = 0;
        int is_outside = !(nearest >= -127 && nearest <= 127);
        if (is_outside) nearest = -128; /* the escape */
        run->codes[i] = (uint8_t)(nearest + 128);
        run->escapes += (uint64_t)is_outside;
        if (run->rounding != DW_ROUNDING_DITHER) z = 0;
        if (run->next) model_put(run, run->next, run->prev_dtype, i, z);
    }
}

static void model_decode(const dw_step_run *run)
{
    for (uint64_t i = 0; i < run->n; i++)
        model_put(run, run->out, run->x_dtype, i,
                  run->rounding == DW_ROUNDING_DITHER ? model_dither(run, i) : 0);
}

/* A fused product and sum is exact but for the rounding of the sum. */
static uint64_t model_squares(const void *x, dw_dtype x_dtype, const void *prev,
                              dw_dtype prev_dtype, uint64_t n, uint32_t limit,
                              double lanes[DW_NORM_LANES], uint32_t *largest)
{
    const uint64_t nan = 0x7ff8000000000000u;
    uint64_t left_out = 0;
    for (uint64_t i = 0; i < n; i++) {
        float delta = model_delta(x, x_dtype, prev, prev_dtype, i);
        double *lane = &lanes[i % DW_NORM_LANES];
        if ((dw_bits_of(delta) & 0x7fffffff) > limit) {
            left_out++;
            continue;
        }
        *lane = fma(delta, delta, *lane);
        if (isnan(*lane)) memcpy(lane, &nan, sizeof nan);
        uint32_t magnitude = isnan(delta) ? DW_F32_INFINITY : dw_bits_of(fabsf(delta));
        if (magnitude > *largest) *largest = magnitude;
    }
    return left_out;
}

/* ---- Runs and values ------------------------------------------------------------------------- */

static const char *describe(const dw_step_run *run)
{
    static char text[256];
    snprintf(text, sizeof text, "x %s%s%s prev %s%s rounding %d step %04x n %lu of %u from %lu",
             dtype_names[run->x_dtype], run->next ? "" : " (no state)", run->out ? " decoded" : "",
             dtype_names[run->prev_dtype], run->prev ? "" : " (none)", (int)run->rounding,
             run->scale, (unsigned long)run->n, (unsigned)run->stored,
             (unsigned long)run->dither.element);
    return text;
}

enum { ZERO, SAME, STEPS, EDGE, TIES, SMALL, WIDE, LOW, HIGH, POISON, MOODS };

/* A value that x may have. What STEPS, EDGE and TIES give lies few steps from the base, or 127. */
static float value_of(bench *b, uint32_t mood, float base, float step)
{
    uint32_t random = (uint32_t)test_next(&b->random), sign = random & 0x80000000u;
    float value;
    switch (mood) {
    case ZERO: return dw_float_of(sign);
    case SAME: return base;
    case SMALL: /* a multiple of 1/8 step, up to 1.5: often exactly at the edge of a dead zone */
        return base + step * ((float)below(b, 25) - 12) / 8;
    case STEPS: return base + step * 20 * test_normal(&b->random);
    case EDGE:
        value = step * (126.0f + (float)below(b, 256) / 64);
        return base + (sign ? -value : value);
    case TIES:
        value = step * ((float)below(b, 128) + 0.5f);
        if (below(b, 2)) value = nextafterf(value, below(b, 2) ? FLT_MAX : 0);
        return base + (sign ? -value : value);
    case LOW: return dw_float_of(sign | (random & (0x0fffffffu >> below(b, 28))));
    case HIGH: return dw_float_of(sign | (0xfcu + below(b, 3)) << 23 | (random & 0x7fffffu));
    case POISON: return dw_float_of(sign | 0x7f800000u | (below(b, 2) ? random & 0x7fffffu : 0));
    default: return dw_float_of(sign | below(b, 255) << 23 | (random & 0x7fffffu));
    }
}

/* Most runs have one kind of values of x and one of prev, with others among them. */
static void fill_run(bench *b, const dw_step_run *run, void *x, void *prev)
{
    uint32_t of_x = below(b, MOODS), of_prev = below(b, 3) ? WIDE : below(b, POISON);
    float step = dw_bf16_widen(run->scale);
    if (of_x == POISON) of_x = below(b, 4) ? STEPS : POISON;
    for (uint64_t i = 0; i < run->n; i++) {
        uint32_t mood = below(b, 32) ? of_x : below(b, of_x == POISON ? MOODS : POISON);
        test_set(prev, run->prev_dtype, i, value_of(b, below(b, 16) ? of_prev : ZERO, 0, step));
        float base = test_get(prev, run->prev_dtype, i);
        if (!isfinite(base)) test_set(prev, run->prev_dtype, i, base = -1.0f);
        test_set(x, run->x_dtype, i, value_of(b, mood, run->prev ? base : 0, step));
    }
}

static uint16_t any_step(bench *b)
{
    switch (below(b, 8)) {
    case 0: return 0;
    case 1: return (uint16_t)below(b, 0x80); /* subnormal */
    case 2: return (uint16_t)(0x7f80 - 1 - below(b, 0x500));
    case 3: return (uint16_t)below(b, 0x7f80);
    default: return (uint16_t)(0x3800 + below(b, 0x1000)); /* usual in practice */
    }
}

/* Draws a run without its memory, whose pointers say only whether there will be some. */
static dw_step_run run_of(bench *b, dw_dtype x, dw_dtype prev, uint64_t n)
{
    static char something;
    dw_step_run run = {.x_dtype = x, .prev_dtype = prev, .n = n, .scale = any_step(b)};
    run.stored = (uint32_t)n + below(b, 2) * below(b, (uint32_t)(DW_TILE_ELEMENTS - n + 1));
    run.rounding = (dw_rounding)(DW_ROUNDING_NEAREST + below(b, 3));
    run.dither = (dw_dither){test_next(&b->random), test_next(&b->random) >> below(b, 64)};
    run.escapes = below(b, 1000);
    /* Half of the runs have a dead zone: of 4/8 to 8/8 steps, which values of SMALL can meet
     * exactly, or of 0.62 steps. */
    if (below(b, 2)) run.zone = below(b, 2) ? (float)(4 + below(b, 5)) / 8 : 0.62f;
    run.prev = below(b, 4) ? &something : NULL;
    run.next = below(b, 4) ? &something : NULL;
    if (!run.prev && !run.next) run.prev_dtype = (dw_dtype)0;
    return run;
}

/* ---- Checks ---------------------------------------------------------------------------------- */

static bool is_of_c(const bench *b)
{
    return b->kernels == specification;
}

/* The memory that both sides of a comparison start from. */
static struct {
    unsigned char x[4 * MOST], prev[4 * MOST], next[4 * MOST], codes[MOST];
} plain;

static void check_encode(bench *b, const dw_step_run *drawn_run)
{
    dw_step_run run = *drawn_run, expected;
    if (!run.prev_dtype) run.prev_dtype = DW_F32;
    fill_run(b, &run, plain.x, plain.prev);
    size_t x_bytes = run.n * dw_dtype_bytes(run.x_dtype),
           prev_bytes = run.n * dw_dtype_bytes(run.prev_dtype);
    run.prev_dtype = drawn_run->prev_dtype;
    expected = run;
    run.x = guarded_copy(b, SLOT_X, plain.x, x_bytes);
    if (run.prev) run.prev = guarded_copy(b, SLOT_PREV, plain.prev, prev_bytes);
    void *next = guarded(b, SLOT_NEXT, prev_bytes);
    if (run.next) run.next = next;
    run.codes = guarded(b, SLOT_CODES, run.stored);
    expected.x = plain.x;
    if (run.prev) expected.prev = plain.prev;
    expected.codes = memcpy(plain.codes, run.codes, run.stored);
    memcpy(plain.next, next, prev_bytes);
    if (run.next) expected.next = plain.next;
    (is_of_c(b) ? model_encode : specification->step_encode)(&expected);
    b->kernels->step_encode(&run);
    const char *name = b->kernels->name, *text = describe(&run);
    same_bytes("codes", expected.codes, run.codes, run.stored, name, text);
    same_bytes("next", plain.next, next, prev_bytes, name, text);
    same_bytes("escapes", &expected.escapes, &run.escapes, sizeof run.escapes, name, text);
    if (!run.next) return;
    /* a decoder makes the same of the codes */
    dw_step_run decoded = run;
    decoded.x_dtype = run.prev_dtype;
    decoded.out = next;
    b->kernels->step_decode(&decoded);
    same_bytes("decoded next", plain.next, next, prev_bytes, name, text);
}

/* Decodes random codes. */
static void check_decode(bench *b, const dw_step_run *drawn_run)
{
    dw_step_run run = *drawn_run, expected;
    if (!run.prev_dtype) run.prev_dtype = DW_F32;
    fill_run(b, &run, plain.x, plain.prev);
    size_t out_bytes = run.n * dw_dtype_bytes(run.x_dtype),
           prev_bytes = run.n * dw_dtype_bytes(run.prev_dtype);
    run.x = NULL;
    run.next = NULL;
    expected = run;
    if (run.prev) run.prev = guarded_copy(b, SLOT_PREV, plain.prev, prev_bytes);
    if (run.prev) expected.prev = plain.prev;
    run.out = guarded(b, SLOT_NEXT, out_bytes);
    run.codes = guarded(b, SLOT_CODES, run.n);
    expected.out = memcpy(plain.next, run.out, out_bytes);
    expected.codes = memcpy(plain.codes, run.codes, run.n);
    (is_of_c(b) ? model_decode : specification->step_decode)(&expected);
    b->kernels->step_decode(&run);
    same_bytes("decoded", expected.out, run.out, out_bytes, b->kernels->name, describe(&run));
}

static void check_squares(bench *b, const dw_step_run *drawn_run)
{
    dw_step_run run = *drawn_run;
    double sums[2][DW_NORM_LANES];
    uint32_t start = below(b, 2) ? below(b, 0x7f800000) : 0, largest[2] = {start, start},
             limit = below(b, 2) ? below(b, 0x7f800001) : DW_NO_LIMIT;
    uint64_t left_out[2];
    if (!run.prev_dtype) run.prev_dtype = DW_F32;
    fill_run(b, &run, plain.x, plain.prev);
    bool has_prev = run.prev != NULL, continues = below(b, 2) != 0;
    for (int i = 0; i < DW_NORM_LANES; i++)
        sums[0][i] = sums[1][i] = continues ? test_uniform(&b->random) : 0;
    run.x = guarded_copy(b, SLOT_X, plain.x, run.n * dw_dtype_bytes(run.x_dtype));
    run.prev = guarded_copy(b, SLOT_PREV, plain.prev, run.n * dw_dtype_bytes(run.prev_dtype));
    if (!has_prev) run.prev = NULL;
    /* Half of the limits are a magnitude that occurs, which is not left out. */
    if (limit != DW_NO_LIMIT && below(b, 2))
        limit = dw_bits_of(model_delta(plain.x, run.x_dtype, has_prev ? plain.prev : NULL,
                                       run.prev_dtype, below(b, (uint32_t)run.n))) &
                0x7fffffff;
    left_out[0] = (is_of_c(b) ? model_squares : specification->step_squares)(
        plain.x, run.x_dtype, has_prev ? plain.prev : NULL, run.prev_dtype, run.n, limit, sums[0],
        &largest[0]);
    left_out[1] = b->kernels->step_squares(run.x, run.x_dtype, run.prev, run.prev_dtype, run.n,
                                           limit, sums[1], &largest[1]);
    const char *name = b->kernels->name, *text = describe(&run);
    same_bytes("sums of squares", sums[0], sums[1], sizeof sums[0], name, text);
    same_bytes("largest", &largest[0], &largest[1], sizeof largest[0], name, text);
    same_bytes("left out", &left_out[0], &left_out[1], sizeof left_out[0], name, text);
}

static void check_every_kind(bench *b, void (*check)(bench *, const dw_step_run *))
{
    int draws = drawn(b, 300, 6);
    for (int x = 0; x < DTYPES; x++)
        for (int prev = 0; prev < DTYPES; prev++)
            for (int draw = 0; draw < draws; draw++) {
                uint64_t n = draw == 0   ? DW_TILE_ELEMENTS
                             : draw == 1 ? DW_TILE_ELEMENTS - 1
                             : draw == 2 ? 1
                                         : 1 + below(b, draw % 4 ? 200 : DW_TILE_ELEMENTS);
                dw_step_run run = run_of(b, dtypes[x], dtypes[prev], n);
                check(b, &run);
            }
}

KERNEL_TEST_BY(for_all_tables, encodes_as_specified)
{
    check_every_kind(b, check_encode);
}

KERNEL_TEST_BY(for_all_tables, decodes_as_specified)
{
    check_every_kind(b, check_decode);
}

KERNEL_TEST_BY(for_all_tables, adds_squares_as_specified)
{
    check_every_kind(b, check_squares);
}

/* dither_bytes gives the high byte of each element's random number. A counter of the generator
 * gives the numbers of eight elements; so runs of any length from any element on are tried, because
 * they may begin and end amid a counter's numbers. The 16 bytes before and behind the result must
 * not change. */
KERNEL_TEST_BY(for_all_tables, draws_high_bytes_as_specified)
{
    static uint8_t room[DW_TILE_ELEMENTS + 32];
    for (int draw = drawn(b, 300, 30); draw > 0; draw--) {
        uint64_t n = 1 + below(b, draw % 3 ? 100 : DW_TILE_ELEMENTS);
        dw_dither dither = {test_next(&b->random), test_next(&b->random) >> below(b, 64)};
        memset(room, 0x5a, sizeof room);
        b->kernels->dither_bytes(&dither, n, room + 16);
        for (uint64_t i = 0; i < n; i++)
            assert_int_equal(room[16 + i], model_part(dither.key, dither.element + i) >> 8);
        for (uint64_t i = 0; i < 16; i++) assert_true(room[i] == 0x5a && room[16 + n + i] == 0x5a);
    }
}

/* A step of 0 and a base of either zero: prev' is the base, bit for bit, except that -0 becomes +0
 * unless the value is -0, too. All signs of zeros are compared with a table of IEEE 754's rules. */
KERNEL_TEST_BY(for_all_tables, zeros_keep_their_signs)
{
    float x[64] = {0}, prev[64], next[64];
    uint8_t codes[64];
    for (int rounding = 1; rounding <= 3; rounding++) {
        for (int i = 0; i < 64; i++) prev[i] = i % 2 ? -0.0f : i % 4 ? 0.0f : 3.0f;
        dw_step_run run = {.x_dtype = DW_F32,
                           .prev_dtype = DW_F32,
                           .n = 64,
                           .stored = 64,
                           .rounding = (dw_rounding)rounding,
                           .x = x,
                           .prev = prev,
                           .next = next,
                           .codes = codes,
                           .dither = {7, 0}};
        b->kernels->step_encode(&run);
        for (int i = 0; i < 64; i++) {
            bool subtracts = rounding == 3 && model_dither(&run, (uint64_t)i) > 0;
            float expected = signbit(prev[i]) && !subtracts ? 0.0f : prev[i];
            assert_int_equal(codes[i], 128);
            assert_int_equal(dw_bits_of(next[i]), dw_bits_of(expected));
        }
    }
}

/* ---- The distribution of the error ----------------------------------------------------------- */

typedef struct moments {
    double n, error, square, signal, signal_square, product;
} moments;

static void moments_add(moments *m, double signal, double error)
{
    m->n++;
    m->error += error;
    m->square += error * error;
    m->signal += signal;
    m->signal_square += signal * signal;
    m->product += signal * error;
}

/* Errors are in steps. They must be as those of independent draws, evenly from (-1/2, 1/2). */
static void moments_check(const moments *m, const char *what)
{
    double mean = m->error / m->n, variance = m->square / m->n - mean * mean;
    double signal = m->signal / m->n, spread = m->signal_square / m->n - signal * signal;
    double together = m->product / m->n - mean * signal;
    double correlation = together / sqrt(variance * spread);
    print_message("%s: %.0f errors, mean %.2f sigma, variance * 12 %.5f, correlation %.2f sigma\n",
                  what, m->n, mean * sqrt(12 * m->n), variance * 12, correlation * sqrt(m->n));
    assert_true(fabs(mean) * sqrt(12 * m->n) < 4);
    assert_true(fabs(variance * 12 - 1) < 0.005);
    assert_true(fabs(correlation) * sqrt(m->n) < 4);
}

/* The C kernels alone: all tables make the same bits. */
static void for_the_specification(void **state)
{
    const kernel_check *what = *state;
    try_table(specification, what->check);
}

/* One sample, coded in runs. The signals are normally distributed around a base, with a tenth of a
 * step (which nearest rounding would make 0), one step, and 20 steps. */
KERNEL_TEST_BY(for_the_specification, errors_are_even_and_independent)
{
    static const double sizes[] = {0.1, 1, 20};
    static float x[DW_TILE_ELEMENTS], prev[DW_TILE_ELEMENTS], next[DW_TILE_ELEMENTS];
    uint8_t codes[DW_TILE_ELEMENTS];
    moments all, of_sign[2], one;
    double step = dw_bf16_widen(0x3c35);
    uint64_t element = 3;
    memset(&all, 0, sizeof all);
    memset(of_sign, 0, sizeof of_sign);
    for (int size = 0; size < 3; size++) {
        memset(&one, 0, sizeof one);
        for (int runs = drawn(b, 10000000 / 3 / DW_TILE_ELEMENTS + 1, 1); runs > 0; runs--) {
            for (int i = 0; i < DW_TILE_ELEMENTS; i++) {
                prev[i] = test_normal(&b->random);
                x[i] = prev[i] + (float)(step * sizes[size]) * test_normal(&b->random);
            }
            dw_step_run run = {.x_dtype = DW_F32,
                               .prev_dtype = DW_F32,
                               .n = DW_TILE_ELEMENTS,
                               .stored = DW_TILE_ELEMENTS,
                               .scale = 0x3c35,
                               .rounding = DW_ROUNDING_DITHER,
                               .x = x,
                               .prev = prev,
                               .next = next,
                               .codes = codes,
                               .dither = {0x0123456789abcdefu, element}};
            b->kernels->step_encode(&run);
            assert_int_equal(run.escapes, 0);
            for (int i = 0; i < DW_TILE_ELEMENTS; i++) {
                double signal = ((double)x[i] - prev[i]) / step,
                       error = ((double)next[i] - x[i]) / step;
                assert_true(fabs(error) < 0.5001);
                moments_add(&one, signal, error);
                moments_add(&all, signal, error);
                moments_add(&of_sign[signal < 0], signal, error);
            }
            element += DW_TILE_ELEMENTS;
        }
        moments_check(&one, size == 0 ? "0.1 steps" : size == 1 ? "1 step" : "20 steps");
    }
    moments_check(&all, "all signals");
    moments_check(&of_sign[0], "positive signals");
    moments_check(&of_sign[1], "negative signals");
}

RUN_KERNEL_TESTS
