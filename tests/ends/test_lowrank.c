/* SPDX-License-Identifier: Apache-2.0
 * test_lowrank.c - tests the codec lowrank without feedback: matrices of every kind, and shapes
 * that allow no such rank. tests/fuzz compares y with the product of what the payload holds. */
#include <math.h>

#include "arithmetic/half.h"
#include "arithmetic/quant.h"
#include "base/bytes.h"
#include "support/tool.h"

static const dw_key key = {3, 1};

enum { GAP = 3, MOST = 40000 };

/* A pair of ends, and a sample whose rows do not touch. */
typedef struct bench {
    test_pair pair;
    uint32_t t, c, stride;
    dw_tensor x, y;
    float *x_room, *y_room;
} bench;

static void open_bench(bench *b, const char *config, dw_dtype dtype, uint32_t t, uint32_t c)
{
    *b = (bench){.t = t, .c = c, .stride = c + GAP};
    b->x_room = calloc((size_t)t * b->stride, sizeof(float));
    b->y_room = calloc((size_t)t * b->stride, sizeof(float));
    assert_true(b->x_room && b->y_room);
    b->x = dw_tensor_3d(b->x_room, dtype, 1, t, c);
    b->x.stride_t = b->stride;
    b->x.stride_n = (int64_t)t * b->stride;
    b->y = b->x;
    b->y.data = b->y_room;
    test_pair_open(&b->pair, config, 1, t, c, dtype);
}

static void close_bench(bench *b)
{
    test_pair_close(&b->pair);
    free(b->x_room);
    free(b->y_room);
}

static size_t place(const bench *b, size_t i)
{
    return i / b->c * b->stride + i % b->c;
}

static float y_at(const bench *b, size_t i)
{
    return test_get(b->y.data, b->y.dtype, place(b, i));
}

/* Encodes and decodes x. What stands between the rows of y must stay. */
static void pass(bench *b)
{
    for (size_t i = 0; i < (size_t)b->t * b->stride; i++) test_set(b->y.data, b->y.dtype, i, 7);
    test_pair_encode(&b->pair, &key, &b->x);
    if (test_pair_decode(&b->pair, &b->y) != DW_OK)
        fail_msg("%u x %u: %s", b->t, b->c, dw_decoder_why(b->pair.decoder));
    for (size_t i = 0; i < (size_t)b->t * b->stride; i++)
        if (i % b->stride >= b->c && test_get(b->y.data, b->y.dtype, i) != 7)
            fail_msg("%u x %u: value %zu, between two rows, was written", b->t, b->c, i);
}

static uint8_t *payload_of(const test_pair *pair, size_t *bytes)
{
    dw_entry_info entry;
    assert_int_equal(dw_frame_entries(pair->frame, pair->len, 0, 1, &entry), DW_OK);
    assert_int_equal(entry.form, DW_FORM_LOWRANK);
    *bytes = (size_t)entry.payload_bytes;
    return pair->frame + entry.payload_offset;
}

static size_t up16(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

/* ---- Matrices of every kind ------------------------------------------------------------------ */

/* Fills x with a matrix of rank `rank`, or with noise beside it. */
static void fill(bench *b, uint64_t seed, uint32_t rank, double noise)
{
    test_random random = {seed};
    static float p[MOST], q[MOST];
    for (size_t i = 0; i < rank * (size_t)b->t; i++) p[i] = test_normal(&random);
    for (size_t i = 0; i < rank * (size_t)b->c; i++) q[i] = test_normal(&random);
    for (size_t i = 0; i < (size_t)b->t * b->c; i++) {
        double sum = noise * (double)test_normal(&random);
        for (size_t k = 0; k < rank; k++)
            sum += (double)p[k * b->t + i / b->c] * (double)q[k * b->c + i % b->c];
        test_set(b->x.data, b->x.dtype, place(b, i), (float)sum);
    }
}

/* The norm of x - y as a part of the norm of x. */
static double error_of(const bench *b)
{
    double error = 0, whole = 0;
    for (size_t i = 0; i < (size_t)b->t * b->c; i++) {
        double x = (double)test_get(b->x.data, b->x.dtype, place(b, i)), y = (double)y_at(b, i);
        error += (x - y) * (x - y);
        whole += x * x;
    }
    return sqrt(error / whole);
}

/* Whatever the sizes are: a frame is never longer than a decoder takes it, and no longer than
 * dw_frame_bound says. */
static void frames_of_any_shape_fit_their_bound(void **state)
{
    static const char *const options[] = {"bits=8,group=256", "bits=8,group=row", "bits=8,group=16",
                                          "bits=5", "dtype=f32"};
    static const uint32_t widths[] = {1, 2, 3, 5, 6, 7, 17, 33, 100, 2000};
    for (size_t k = 0; k < 5; k++)
        for (size_t w = 0; w < 10; w++)
            for (uint32_t n = 1; n < 5000; n += n < 1300 ? n / 7 + 1 : 2701) {
                char text[100];
                bench b;
                snprintf(text, sizeof text, "lowrank:rank=1024,width=%u,%s", widths[w], options[k]);
                open_bench(&b, text, DW_F32, 1, n);
                for (uint32_t i = 0; i < n; i++) b.x_room[i] = (float)(i * i % 31);
                pass(&b);
                if (error_of(&b) > 0.3) fail_msg("%s: %u: %g", text, n, error_of(&b));
                close_bench(&b);
            }
}

static void expect_error(const char *config, uint32_t rank, double noise, double least_error,
                         double most_error)
{
    bench b;
    open_bench(&b, config, DW_F32, 60, 200);
    fill(&b, 11, rank, noise);
    pass(&b);
    double error = error_of(&b);
    if (error < least_error || error > most_error)
        fail_msg("%s: the error of a matrix of rank %u is %g", config, rank, error);
    close_bench(&b);
}

/* A matrix of a rank that is sent arrives, but for rounding; of a larger one, nearly the best
 * approximation. */
static void matrices_of_low_rank_arrive(void **state)
{
    expect_error("lowrank:rank=4", 4, 0, 0, 2e-6);
    expect_error("lowrank:rank=4", 1, 0, 0, 2e-6);
    expect_error("lowrank:rank=60", 60, 0, 0, 4e-6);
    expect_error("lowrank:rank=4,iterations=1", 4, 0, 0, 2e-6);
    expect_error("lowrank:rank=3,iterations=8", 4, 0, 0.3, 0.52);
    expect_error("lowrank:rank=4,dtype=bf16", 4, 0, 1e-4, 4e-3);
    expect_error("lowrank:rank=4,dtype=f16", 4, 0, 1e-5, 1e-3);
    expect_error("lowrank:rank=4,bits=8", 4, 0, 1e-4, 0.02);
    expect_error("lowrank:rank=4,bits=4", 4, 0, 1e-3, 0.25);
    expect_error("lowrank:rank=4,bits=4,group=16,rounding=stochastic", 4, 0, 1e-3, 0.184);
    /* Without the fit of q to the rounded p, these are 0.188 and 0.531. */
    expect_error("lowrank:rank=4,bits=2", 4, 0, 0.1, 0.524);
    expect_error("lowrank:rank=4,iterations=8", 4, 0.1, 0.02, 0.06);
}

/* Zeros, and values so small that they count as zeros, arrive as +0. One value, equal rows, values
 * near both ends of the number range: they arrive, and nothing is NaN. */
static void finite_matrices_give_no_nan(void **state)
{
    static const float sizes[] = {0.0f, 1e-44f, 1e-28f, 1.0f, 1e30f, 3e38f};
    for (int kind = 0; kind < 4; kind++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            bench b;
            test_random random = {k};
            open_bench(&b, "lowrank:rank=5", DW_F32, 12, 40);
            for (uint32_t i = 0; i < 12 * 40; i++) {
                float unit = kind == 0 ? (i == 77) : kind == 1 ? 1.0f : test_normal(&random) / 8;
                if (kind == 2 && i / 40 % 2) unit = 0;
                b.x_room[place(&b, i)] = unit * sizes[k];
            }
            pass(&b);
            for (uint32_t i = 0; i < 12 * 40; i++) {
                float y = y_at(&b, i);
                if (!isfinite(y)) fail_msg("kind %d, size %g", kind, (double)sizes[k]);
                if (k < 2) assert_true(dw_bits_of(y) == 0);
            }
            /* At the end of the range q is too large for binary32, and clamped. */
            if (kind < 2 && k >= 2 && k < 5 && error_of(&b) > 1e-5)
                fail_msg("kind %d, size %g: %g", kind, (double)sizes[k], error_of(&b));
            close_bench(&b);
        }
}

/* Where a matrix has a lower rank than the config, the rows of both factors that it does not need
 * are zeros, and not rounding errors that were scaled up. */
static void lowrank_factors_beyond_the_rank_of_x_are_zero(void **state)
{
    bench b;
    size_t bytes, second = up16(4 * 6 * 60);
    open_bench(&b, "lowrank:rank=6", DW_F32, 60, 200);
    fill(&b, 3, 2, 0);
    pass(&b);
    const uint8_t *payload = payload_of(&b.pair, &bytes);
    for (size_t k = 0; k < 6; k++)
        for (size_t i = 0; i < 60; i++) {
            bool is_zero = dw_get(payload + 4 * (k * 60 + i), 4) << 33 == 0;
            bool q_is_zero = dw_get(payload + second + 4 * (k * 200 + i), 4) << 33 == 0;
            assert_true(k < 2 || (is_zero && q_is_zero));
        }
    close_bench(&b);
}

/* A value that is not finite makes all of y NaN. The next sample of the same encoder is not
 * affected. */
static void values_that_are_not_finite_poison_the_sample(void **state)
{
    static const char *const configs[] = {"lowrank", "lowrank:bits=4", "lowrank:dtype=f16",
                                          "lowrank:width=33"};
    for (size_t k = 0; k < sizeof configs / sizeof *configs; k++)
        for (int spoiled = 0; spoiled < 3; spoiled++) {
            bench b;
            open_bench(&b, configs[k], DW_F32, 12, 40);
            fill(&b, 3, 2, 0);
            float old = b.x_room[place(&b, 99)];
            if (spoiled) b.x_room[place(&b, 99)] = spoiled == 1 ? NAN : -INFINITY;
            pass(&b);
            for (uint32_t i = 0; i < 12 * 40; i++) {
                float y = y_at(&b, i);
                assert_true(spoiled ? dw_bits_of(y) == DW_F32_NAN : isfinite(y));
            }
            assert_int_equal(test_encoder_counters(b.pair.encoder).poisoned_groups > 0,
                             spoiled > 0);
            b.x_room[place(&b, 99)] = old;
            pass(&b);
            assert_true(error_of(&b) < 0.9);
            close_bench(&b);
        }
}

/* ---- Shapes and configs ---------------------------------------------------------------------- */

static void ranks_that_a_sample_cannot_have_are_refused(void **state)
{
    static float x[400], y[400];
    static const struct {
        uint32_t t, c;
        const char *says;
    } wrong[] = {{3, 50, "can be 1 to 3"}, {50, 3, "can be 1 to 3"}, {1, 400, "can be 1 to 1"}};
    test_pair pair;
    size_t len;
    test_pair_open(&pair, "lowrank:rank=4", 1, 20, 20, DW_F32);
    for (int i = 0; i < 3; i++) {
        dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, wrong[i].t, wrong[i].c);
        assert_int_equal(dw_encode(pair.encoder, &key, &tx, NULL, pair.frame, pair.cap, &len),
                         DW_ERR_SHAPE);
        assert_non_null(strstr(dw_encoder_why(pair.encoder), "rank is 4"));
        assert_non_null(strstr(dw_encoder_why(pair.encoder), wrong[i].says));
        assert_non_null(strstr(dw_encoder_why(pair.encoder), "or a width"));
        assert_int_equal(dw_frame_bound(&pair.config, &tx), 0);
    }
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 20, 20), ty = dw_tensor_3d(y, DW_F32, 1, 20, 20);
    test_pair_pass(&pair, &key, &tx, &ty);
    assert_int_equal(test_encoder_counters(pair.encoder).frames, 1);
    test_pair_close(&pair);
}

static void wrong_lowrank_configs_are_refused(void **state)
{
    static const test_wrong_config wrong[] = {
        {"lowrank:rank=0", "from 1 to 1024"},
        {"lowrank:rank=1025", "from 1 to 1024"},
        {"lowrank:iterations=9", "from 1 to 8"},
        {"lowrank:restart=3", "not allowed with the other options"},
        {"lowrank:restart=0,feedback=ef", "from 1 to 1000000"},
        {"lowrank:width=0", "from 1 to 2147483647"},
        {"lowrank:group=64", "not allowed with the other options"},
        {"lowrank:bits=4,dtype=f16", "not allowed with the other options"},
        {"lowrank:bits=4,group=channel", "16 32 64 128 256 row"},
        {"lowrank:bits=4,rounding=dither", "nearest stochastic"},
        {"lowrank:entropy=rans", "unknown option"},
        {"lowrank:keep=0.1", "unknown option"},
        {"lowrank:bits=1,scale=absmax,feedback=ef", "none unstable"},
        {"lowrank:bits=2,rounding=stochastic,feedback=ef", "none unstable"},
        {"direct:rank=4", "unknown option"},
    };
    static const test_right_config right[] = {
        {"lowrank", "lowrank"},
        {"lowrank:rank=4,iterations=2", "lowrank"},
        {"lowrank:rank=1,iterations=1", "lowrank:rank=1,iterations=1"},
        {"lowrank:feedback=ef,iterations=1,restart=9", "lowrank:restart=9,feedback=ef"},
        {"lowrank:feedback=ef,iterations=2", "lowrank:iterations=2,feedback=ef"},
        {"lowrank:width=64,bits=8,group=64", "lowrank:width=64,bits=8"},
    };
    test_configs(wrong, sizeof wrong / sizeof *wrong, right, sizeof right / sizeof *right);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrices_of_low_rank_arrive),
        cmocka_unit_test(frames_of_any_shape_fit_their_bound),
        cmocka_unit_test(finite_matrices_give_no_nan),
        cmocka_unit_test(lowrank_factors_beyond_the_rank_of_x_are_zero),
        cmocka_unit_test(values_that_are_not_finite_poison_the_sample),
        cmocka_unit_test(ranks_that_a_sample_cannot_have_are_refused),
        cmocka_unit_test(wrong_lowrank_configs_are_refused),
    };
    return cmocka_run_group_tests_name("lowrank", tests, NULL, NULL);
}
