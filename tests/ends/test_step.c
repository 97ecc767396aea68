/* SPDX-License-Identifier: Apache-2.0
 * test_step.c - tests the form step through encoder and decoder: views with gaps, poison,
 * escaped values, the dead zone and counters. */
#include <fenv.h>
#include <math.h>

#include "step_rig.h"

/* Returns how many elements the memory of x has, gaps included. */
static size_t room_of(const dw_tensor *x)
{
    return (size_t)(x->n * x->stride_n);
}

/* Returns x as a view of `data` with a gap of `gap` elements behind every token, and of three times
 * as many behind every sample. */
static dw_tensor with_gaps(dw_tensor x, void *data, uint32_t gap)
{
    x.data = data;
    x.stride_t = (int64_t)x.c + gap;
    x.stride_n = x.stride_t * x.t + 3 * gap;
    return x;
}

/* Copies all values of a tensor to another one of the same shape and dtype. */
static void copy_rows(const dw_tensor *from, const dw_tensor *to)
{
    size_t size = dw_dtype_bytes(from->dtype);
    for (uint32_t i = 0; i < from->n; i++)
        for (uint32_t t = 0; t < from->t; t++)
            memcpy((char *)to->data + size * (size_t)(i * to->stride_n + t * to->stride_t),
                   (const char *)from->data +
                       size * (size_t)(i * from->stride_n + t * from->stride_t),
                   size * from->c);
}

/* Sends the same values through two pairs, in a view without gaps and in one with gaps. Fails
 * unless the frames of every visit have the same bytes. The memory for frames has other contents
 * before in the two pairs, so a byte of a frame that is not written is noticed, too. */
static void compare_gaps(const char *config, uint32_t t, uint32_t c, dw_dtype dtype,
                         test_random *random)
{
    dw_tensor x = with_gaps(dw_tensor_3d(NULL, dtype, N, t, c), NULL, 0), wide, y;
    uint32_t gap = 1 + (uint32_t)(test_next(random) % 9);
    wide = with_gaps(x, NULL, gap);
    x.data = malloc(4 * room_of(&x)), wide.data = malloc(4 * room_of(&wide));
    void *out = malloc(4 * room_of(&wide)), *dense = malloc(4 * room_of(&x));
    test_pair one, other;
    assert_true(x.data && wide.data && out && dense);
    test_pair_open(&one, config, N, t, c, dtype);
    test_pair_open(&other, config, N, t, c, dtype);
    for (int visit = 0; visit < 4; visit++) {
        test_fill(random, x.data, dtype, room_of(&x), 1);
        if (visit % 2) test_spoil(random, x.data, dtype, room_of(&x), visit > 1);
        memset(wide.data, 0xff, 4 * room_of(&wide)); /* NaN in the gaps */
        copy_rows(&x, &wide);
        memset(one.frame, 0, one.cap), memset(other.frame, 0x5a, other.cap);
        test_pair_encode(&one, keys, &x);
        test_pair_encode(&other, keys, &wide);
        if (one.len != other.len || memcmp(one.frame, other.frame, one.len) != 0)
            fail_msg("%s, (%u, %u): gaps of %u give another frame", config, t, c, gap);
        y = x, y.data = dense;
        assert_int_equal(test_pair_decode(&one, &y), DW_OK);
        y = wide, y.data = out;
        assert_int_equal(test_pair_decode(&other, &y), DW_OK);
        y = x, y.data = x.data;
        dw_tensor arrived = wide;
        arrived.data = out;
        copy_rows(&arrived, &y);
        assert_memory_equal(x.data, dense, room_of(&x) * dw_dtype_bytes(dtype));
    }
    test_pair_close(&one);
    test_pair_close(&other);
    free(x.data), free(wide.data), free(out), free(dense);
}

/* Gaps between tokens change no bit of a frame, with any codec, group and rounding. */
TEST(gaps_between_rows_change_no_bit)
{
    static const char *const codecs[] = {"direct", "delta"}, *const groups[] = {"sample", "row",
                                                                                "64", "16"};
    static const char *const roundings[] = {
        "nearest",          "stochastic",           "dither",
        "dither,error=0.2", "trellis,entropy=rans", "trellis,entropy=rans,error=0.2"};
    static const uint32_t shapes[][2] = {{1, 1}, {5, 64}, {7, 70}, {40, 100}, {3, 2100}, {2, 4096}};
    test_random random = {test_seed()};
    for (uint32_t i = 0; i < 2 * 4 * 6; i++)
        for (size_t k = i % 2; k < sizeof shapes / sizeof *shapes; k += 2) {
            char config[96];
            snprintf(config, sizeof config,
                     "%s:form=step,group=%s,rounding=%s,seed=4,incarnation=7", codecs[i % 2],
                     groups[i / 2 % 4], roundings[i / 8]);
            compare_gaps(config, shapes[k][0], shapes[k][1], (dw_dtype)(1 + (i + k) % 3), &random);
        }
}

/* The caller's rounding mode changes no bit of a frame, and is the same after the call. The values
 * are such that the smallest error of the sums would change the step: three times their root mean
 * square is 1 + 2^-8 + 2^-24, which is half way between two binary32, and the lower one of them is
 * half way between two bf16. Sums that are rounded upwards would give a larger step. */
TEST(the_callers_rounding_mode_does_not_matter)
{
    enum { T = 120, C = 1000 };
    static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    static float x[T * C];
    uint8_t *like = NULL;
    for (size_t i = 0; i < T * C; i++)
        x[i] = (i % 3 ? 1.0f : -1.0f) * (float)(((1 << 24) + (1 << 16) + 1) / 3) / (1 << 24);
    for (uint32_t t = T - 40; t <= T; t++) {
        test_pair pair;
        dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, t, C);
        test_pair_open(&pair, "direct:form=step,group=sample,step=3,incarnation=7", 1, t, C,
                       DW_F32);
        test_pair_encode(&pair, keys, &tx);
        assert_non_null(like = malloc(pair.len));
        memcpy(like, pair.frame, pair.len);
        test_pair_close(&pair);
        for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
            test_pair_open(&pair, "direct:form=step,group=sample,step=3,incarnation=7", 1, t, C,
                           DW_F32);
            assert_int_equal(fesetround(modes[i]), 0);
            test_pair_encode(&pair, keys, &tx);
            assert_int_equal(fegetround(), modes[i]);
            assert_int_equal(fesetround(FE_TONEAREST), 0);
            assert_memory_equal(pair.frame, like, pair.len);
            test_pair_close(&pair);
        }
        free(like);
    }
}

/* A NaN or an infinity poisons all elements that share its step, and no others: they arrive as NaN,
 * and their prev stays as it was. */
TEST(poison_reaches_what_shares_the_step)
{
    enum { T = 3, C = 2100, SIZE = T * C };
    static const struct {
        const char *config;
        uint32_t first, end; /* the poisoned elements of the sample are first to end - 1 */
        uint64_t pieces;     /* how many groups the counters report as poisoned */
    } cases[] = {
        {"delta:form=step,group=sample,key=f32", 0, SIZE, 1},
        {"delta:form=step,group=row,key=f32", C, 2 * C, 2}, /* two segments */
        {"delta:form=step,group=64,key=f32,rounding=dither,incarnation=7", C + 64, C + 128, 1},
        {"delta:form=step,group=sample,rounding=dither,key=f32,incarnation=7", 0, SIZE, 1}};
    static float x[N * SIZE], y[N * SIZE], before[N * SIZE];
    test_random random = {test_seed()};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        test_pair pair;
        dw_tensor tx = dw_tensor_3d(x, DW_F32, N, T, C), ty = tx, prev;
        ty.data = y;
        test_pair_open(&pair, cases[k].config, N, T, C, DW_F32);
        for (int visit = 0; visit < 3; visit++) {
            test_fill(&random, x, DW_F32, N * SIZE, 1);
            if (visit == 1) x[SIZE + C + 70] = k % 2 ? INFINITY : NAN;
            test_pair_pass(&pair, keys, &tx, &ty);
            assert_int_equal(dw_decoder_peek(pair.decoder, keys[1], &prev), DW_OK);
            for (uint32_t i = 0; i < N * SIZE; i++) {
                bool hit = visit == 1 && i >= SIZE + cases[k].first && i < SIZE + cases[k].end;
                if (hit != (isnan(y[i]) != 0)) fail_msg("%s: element %u", cases[k].config, i);
                if (hit) assert_true(((float *)prev.data)[i - SIZE] == before[i]);
            }
            memcpy(before, y, sizeof y);
            for (int i = 0; i < N; i++) test_pair_in_step(&pair, keys[i]);
        }
        assert_int_equal(test_encoder_counters(pair.encoder).poisoned_groups, cases[k].pieces);
        assert_int_equal(test_decoder_counters(pair.decoder).poisoned_groups, cases[k].pieces);
        test_pair_close(&pair);
    }
}

/* A poisoned key entry sets prev to 0. The values of the sample arrive with the next visit, as a
 * change. */
TEST(a_poisoned_key_entry_starts_from_zero)
{
    float x[64], y[64];
    test_pair pair;
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1, 64), ty = tx, prev;
    ty.data = y;
    test_pair_open(&pair, "delta:form=step,group=sample,step=0.1", 1, 1, 64, DW_F32);
    for (int i = 0; i < 64; i++) x[i] = (float)i - 30;
    x[5] = NAN;
    test_pair_pass(&pair, keys, &tx, &ty);
    assert_int_equal(dw_decoder_peek(pair.decoder, keys[0], &prev), DW_OK);
    for (int i = 0; i < 64; i++) assert_true(isnan(y[i]) && ((float *)prev.data)[i] == 0);
    x[5] = -25;
    test_pair_pass(&pair, keys, &tx, &ty);
    for (int i = 0; i < 64; i++) assert_true(fabsf(y[i] - x[i]) < 1.5f);
    test_pair_close(&pair);
}

/* ---- Outliers -------------------------------------------------------------------------------- */

enum { ROWS = 128, CHANNELS = 576, VALUES = ROWS * CHANNELS };

/* Fills x with values of a normal distribution, and puts an outlier at `place`. */
static void fill_beside(float *x, uint64_t seed, size_t place, float outlier)
{
    test_random random = {seed};
    for (int i = 0; i < VALUES; i++) x[i] = test_normal(&random);
    if (outlier > 0) x[place] = outlier;
}

/* Root mean squares of the errors of all values but the outlier, and of those in its row. */
typedef struct beside {
    double all, in_row;
} beside;

static double error_of(const float *x, const float *y, size_t from, size_t n, size_t place)
{
    double sum = 0;
    for (size_t i = from; i < from + n; i++)
        if (i != place) sum += ((double)y[i] - x[i]) * ((double)y[i] - x[i]);
    return sqrt(sum / (double)n);
}

/* Sends three visits in which there is an outlier, or none where it is 0. Returns the errors of the
 * last one. The outlier itself must arrive, but for rounding. */
static beside errors_beside(const char *config, size_t place, float outlier)
{
    static float x[VALUES], y[VALUES];
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, ROWS, CHANNELS), ty = tx;
    test_pair pair;
    ty.data = y;
    test_pair_open(&pair, config, 1, ROWS, CHANNELS, DW_F32);
    for (uint64_t visit = 0; visit < 3; visit++) {
        fill_beside(x, 5 + visit, place, outlier);
        test_pair_pass(&pair, keys, &tx, &ty);
        if (pair.reply_len) test_pair_take_reply(&pair);
    }
    test_pair_close(&pair);
    if (outlier > 200 &&
        fabs(y[place] / outlier - 1) > (strstr(config, "feedback") ? 0.01 : 0x1p-8))
        fail_msg("%s: an outlier of %g has become %g", config, (double)outlier, (double)y[place]);
    return (beside){error_of(x, y, 0, VALUES, place),
                    error_of(x, y, place / CHANNELS * CHANNELS, CHANNELS, place)};
}

/* One value that is far larger than the others changes neither the step of the others nor their
 * error, whatever the rounding and whoever shares the step, in entries that carry x itself and in
 * changes; and it arrives as it is. */
TEST(an_outlier_leaves_the_error_of_the_other_values)
{
    static const char *const configs[] = {
        "direct:form=step,group=sample,step=0.5,incarnation=7",
        "direct:form=step,step=0.5,group=row,entropy=rans,incarnation=7",
        "direct:form=step,step=0.5,group=64,incarnation=7",
        "direct:form=step,group=sample,step=1,rounding=dither,entropy=rans,incarnation=7",
        "direct:form=step,step=1,group=128,rounding=dither,incarnation=7",
        "direct:form=step,group=sample,step=1,rounding=stochastic,incarnation=7",
        "direct:form=step,group=sample,step=1,rounding=trellis,entropy=rans,incarnation=7",
        "direct:form=step,step=1,group=row,rounding=trellis,entropy=rans,incarnation=7",
        "direct:form=step,group=sample,step=0.5,deadzone=0.7,incarnation=7",
        "direct:form=step,group=sample,error=0.1,entropy=rans,incarnation=7",
        "direct:form=step,error=0.1,group=row,incarnation=7",
        "direct:form=step,group=sample,rate=3,entropy=rans,incarnation=7",
        "direct:form=step,group=sample,step=1,feedback=ef,incarnation=7",
        "direct:form=step,step=1,group=128,feedback=ef,rounding=dither,entropy=rans,incarnation=7",
        "delta:form=step,group=sample,step=0.5,entropy=rans,incarnation=7",
        "delta:form=step,step=0.5,group=row,prev=bf16,incarnation=7",
        "delta:form=step,group=sample,error=0.1,rounding=dither,entropy=rans,incarnation=7",
        "delta:form=step,group=sample,rate=3,entropy=rans,incarnation=7"};
    static const float outliers[] = {10, 421, 1e5f};
    static const size_t places[] = {3, 77 * CHANNELS + 500};
    for (size_t k = 0; k < sizeof configs / sizeof *configs; k++)
        for (size_t p = 0; p < 2; p++) {
            beside without = errors_beside(configs[k], places[p], 0);
            for (size_t o = p; o < 3; o += 2 - k % 2) {
                beside with = errors_beside(configs[k], places[p], outliers[o]);
                if (with.all > 1.1 * without.all || with.in_row > 1.1 * without.in_row)
                    fail_msg("%s, %g at %zu: errors of %g and %g, without it %g and %g", configs[k],
                             (double)outliers[o], places[p], with.all, with.in_row, without.all,
                             without.in_row);
            }
        }
}

/* With feedback, an escaped value is sent together with what earlier visits left of it. */
TEST(an_escaped_value_carries_its_residual)
{
    static float x[VALUES], y[VALUES];
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, ROWS, CHANNELS), ty = tx;
    test_pair pair;
    ty.data = y;
    test_pair_open(&pair, "direct:form=step,group=sample,step=1,feedback=ef", 1, ROWS, CHANNELS,
                   DW_F32);
    for (int visit = 0; visit < 3; visit++) {
        fill_beside(x, 5, 77, visit == 1 ? 1e4f : 0.3f);
        test_pair_pass(&pair, keys, &tx, &ty);
        if (visit == 0) assert_true(y[77] == 0);
        if (visit == 1) assert_true(fabsf(y[77] - 10000.3f) < 0.01f);
        if (visit == 2) assert_true(y[77] == 0);
    }
    test_pair_close(&pair);
}

/* However values are distributed, every value arrives to within a step, because the room of a tile
 * suffices for all that escape. */
TEST(the_room_of_a_tile_suffices_for_all_that_escapes)
{
    static const char *const configs[] = {
        "direct:form=step,group=sample,step=0.07",
        "direct:form=step,step=0.07,group=row",
        "direct:form=step,step=0.07,group=64,entropy=rans",
        "direct:form=step,error=0.0001,group=row",
        "direct:form=step,group=sample,error=0.0001",
        "direct:form=step,group=sample,step=0.07,rounding=trellis,entropy=rans"};
    enum { T = 9, C = 700, SIZE = T * C };
    static float x[SIZE], y[SIZE];
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, T, C), ty = tx;
    test_random random = {test_seed()};
    ty.data = y;
    for (int draw = 0; draw < 400; draw++) {
        const char *config = configs[draw % 6];
        double most = 0, shape = 1 + 40 * test_uniform(&random);
        test_pair pair;
        for (int i = 0; i < SIZE; i++) {
            double size = exp(shape * (test_uniform(&random) - 1)) * (i / C == draw % 11 ? 100 : 1);
            x[i] = (float)(test_uniform(&random) < 0.5 ? -size : size);
            if (draw % 3 == 0 && i % (2 + draw % 90)) x[i] = 0;
            if (fabs((double)x[i]) > most) most = fabs((double)x[i]);
        }
        test_pair_open(&pair, config, 1, T, C, DW_F32);
        test_pair_pass(&pair, keys, &tx, &ty);
        for (int i = 0; i < SIZE; i++)
            if (fabs((double)y[i] - x[i]) > 0.08 * most) fail_msg("%s, draw %d", config, draw);
        test_pair_close(&pair);
    }
}

/* ---- The dead zone --------------------------------------------------------------------------- */

/* With deadzone=0.75, values of up to 0.75 steps become 0. All others are rounded to the nearest
 * step, as without a dead zone. */
TEST(values_in_the_dead_zone_become_zero)
{
    static float x[512], y[512], plain[512];
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 2, 256), ty = tx;
    test_pair pair;
    int zeros = 0;
    ty.data = y;
    for (int i = 0; i < 512; i++) x[i] = (float)(i - 256) / 50;
    pass("direct:form=step,group=sample,step=1", &tx, plain);
    test_pair_open(&pair, "direct:form=step,group=sample,step=1,deadzone=0.75", 1, 2, 256, DW_F32);
    test_pair_pass(&pair, keys, &tx, &ty);
    double step = step_in(&pair);
    for (int i = 0; i < 512; i++) {
        bool is_zero = fabs((double)x[i]) <= 0.75 * step;
        zeros += is_zero && plain[i] != 0;
        if (y[i] != (is_zero ? 0 : plain[i]))
            fail_msg("%g became %g with a step of %g", (double)x[i], (double)y[i], step);
    }
    assert_true(zeros > 20); /* so many values are 0 only because of the dead zone */
    test_pair_close(&pair);
}

/* The counters say how many groups a frame has, how many of them are all zeros, and how large the
 * error is, which the encoder measures of a part of the values. */
TEST(counters_describe_the_frame)
{
    enum { T = 64, C = 1000, SIZE = T * C };
    static float x[N * SIZE], y[N * SIZE];
    static const struct {
        const char *config;
        uint64_t pieces, zeros; /* of both samples; the second one is too small for a step */
        double error;           /* the mean square of the error, in squares of the step */
    } cases[] = {
        {"direct:form=step,group=sample", 2, 1, 0},
        {"direct:form=step,group=sample,rounding=dither,step=2,incarnation=7", 2, 1, 1 / 12.0},
        {"direct:form=step,group=row,rounding=dither,step=2,incarnation=7", 2 * T, T, 1 / 12.0},
        {"direct:form=step,group=64", 2 * T * 16, T * 16, 0}};
    test_random random = {7};
    dw_tensor tx = dw_tensor_3d(x, DW_F32, N, T, C), ty = tx;
    ty.data = y;
    test_fill(&random, x, DW_F32, SIZE, 1);
    for (long i = SIZE; i < N * SIZE; i += 2) x[i] = 0x1p-97f;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        test_pair pair;
        test_pair_open(&pair, cases[k].config, N, T, C, DW_F32);
        test_pair_pass(&pair, keys, &tx, &ty);
        dw_counters sent = test_encoder_counters(pair.encoder),
                    taken = test_decoder_counters(pair.decoder);
        assert_int_equal(sent.groups, cases[k].pieces);
        assert_int_equal(taken.groups, cases[k].pieces);
        assert_int_equal(sent.zero_groups, cases[k].zeros);
        assert_int_equal(taken.zero_groups, cases[k].zeros);
        assert_int_equal(sent.poisoned_groups + sent.escaped_values, 0);
        double share = errors_of(x, y, 1, SIZE).e2 / errors_of(x, y, 1, SIZE).x2;
        assert_true(fabs(sent.error_square / sent.x_square / share - 1) < 0.15);
        if (cases[k].error > 0) assert_true(fabs(share / (4 * cases[k].error) - 1) < 0.05);
        for (long i = SIZE; i < N * SIZE; i++) assert_true(y[i] == 0);
        test_pair_close(&pair);
    }
}

RUN_TESTS(NULL, NULL)
