/* SPDX-License-Identifier: Apache-2.0
 * test_rotated.c - tests transform=hadamard: NaN, bounds of errors and residuals; and what is
 * refused. tests/fuzz compares what decoders make of frames with its model. */
#include <math.h>

#include "codecs/contraction.h"
#include "support/tool.h"

static const dw_key keys[2] = {{3, 1}, {4, 0}};

/* Rotates all blocks, as docs/format.md, 3.11, says. */
static void rotate(float *values, size_t n, uint32_t width)
{
    float made[256];
    for (size_t at = 0; at < n; at += width) {
        float *v = values + at;
        for (uint32_t i = 0; i < width; i++) v[i] /= (float)width;
        for (uint32_t s = 1; s < width; s *= 2) {
            for (uint32_t i = 0; i < width; i++)
                made[i] = i & s ? v[i - s] - v[i] : v[i] + v[i + s];
            memcpy(v, made, width * sizeof *made);
        }
        for (uint32_t i = 0; i < width; i++) v[i] *= sqrtf((float)width);
    }
}

/* ---- NaN ------------------------------------------------------------------------------------- */

/* Fills y with what must arrive if element `at` of x is NaN: NaN in its block, and in its piece. */
TEST(nan_stays_in_its_blocks)
{
    static const struct {
        const char *config;
        uint32_t reach; /* how many elements a NaN poisons */
    } wrong[] = {{"delta:bits=4,group=16,transform=hadamard,rotate=64", 64},
                 {"delta:bits=4,group=64,transform=hadamard,rotate=16", 64},
                 {"delta:form=mx,transform=hadamard,rotate=256", 256},
                 {"delta:form=step,group=16,transform=hadamard", 64},
                 {"direct:bits=2,group=32,transform=hadamard,rotate=16", 32},
                 {"direct:bits=4,group=row,transform=hadamard,rotate=16", 512},
                 {"mx:transform=hadamard,rotate=16", 32}};
    enum { T = 3, C = 512, SIZE = T * C, AT = 700 };
    static float x[SIZE], y[SIZE], before[SIZE];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        test_random random = {i};
        test_pair pair;
        dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, T, C), ty = dw_tensor_3d(y, DW_F32, 1, T, C);
        uint32_t from = AT / wrong[i].reach * wrong[i].reach, end = from + wrong[i].reach;
        test_pair_open(&pair, wrong[i].config, 1, T, C, DW_F32);
        test_fill(&random, x, DW_F32, SIZE, 1);
        test_pair_pass(&pair, keys, &tx, &ty);
        memcpy(before, y, sizeof y);
        x[AT] = i % 2 ? INFINITY : NAN;
        test_pair_pass(&pair, keys, &tx, &ty);
        for (uint32_t k = 0; k < SIZE; k++)
            if (isnan(y[k]) != (k >= from && k < end))
                fail_msg("%s: element %u is %g", wrong[i].config, k, (double)y[k]);
        x[AT] = 0.5f;
        dw_tensor held;
        if (pair.config.codec == DW_CODEC_DELTA) {
            assert_int_equal(dw_encoder_peek(pair.encoder, keys[0], &held), DW_OK);
            assert_memory_equal((float *)held.data + from, before + from, wrong[i].reach * 4);
            test_pair_in_step(&pair, keys[0]);
        }
        test_pair_close(&pair);
    }
}

/* Sums of the largest values there are do not become NaN: x is finite, and so is y, or the block is
 * poisoned as a whole. */
TEST(sums_of_huge_values_become_no_nan)
{
    enum { C = 256 };
    static float x[C], y[C];
    test_random random = {1};
    test_pair pair;
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1, C), ty = dw_tensor_3d(y, DW_F32, 1, 1, C);
    test_pair_open(&pair, "direct:bits=4,transform=hadamard,rotate=256,group=256", 1, 1, C, DW_F32);
    for (int kind = 0; kind < 3; kind++) {
        for (int i = 0; i < C; i++)
            x[i] =
                kind == 0 ? 3e38f : (test_next(&random) % 2 ? 1 : -1) * (kind == 1 ? 3e38f : 2e37f);
        test_pair_pass(&pair, keys, &tx, &ty);
        for (int i = 0; i < C; i++) assert_true(isnan(y[i]) == isnan(y[0]));
        assert_true(isnan(y[0]) == (kind == 0) || kind == 1);
    }
    test_pair_close(&pair);
}

/* ---- Errors ---------------------------------------------------------------------------------- */

/* The limit of a norm also holds where a change is coded and x itself decides about the step. */
TEST(changes_keep_to_an_error)
{
    enum { T = 5, C = 320, SIZE = T * C };
    static float x[SIZE], y[SIZE];
    static const char *const configs[] = {
        "delta:form=step,group=sample,error=0.03,transform=hadamard",
        "delta:form=step,error=0.03,group=row,transform=hadamard,rotate=16",
        "delta:form=step,error=0.03,group=64,transform=hadamard,rounding=dither"};
    test_random random = {2};
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, T, C), ty = dw_tensor_3d(y, DW_F32, 1, T, C);
    for (size_t k = 0; k < 3; k++) {
        test_pair pair;
        test_pair_open(&pair, configs[k], 1, T, C, DW_F32);
        for (int visit = 0; visit < 6; visit++) {
            for (int i = 0; i < SIZE; i++)
                x[i] = visit ? x[i] + 0.2f * test_normal(&random) : 5 * test_normal(&random);
            test_pair_pass(&pair, keys, &tx, &ty);
            for (int i = 0; i < SIZE; i++) y[i] -= x[i];
            assert_true(test_norm(y, SIZE) <= 0.03 * test_norm(x, SIZE));
            /* It is not a hundred times finer than asked for. */
            assert_true(test_norm(y, SIZE) >= 0.01 * test_norm(x, SIZE));
        }
        test_pair_close(&pair);
    }
}

static double largest(const float *values, size_t n)
{
    float most = 0;
    for (size_t i = 0; i < n; i++) most = fmaxf(most, fabsf(values[i]));
    return (double)most;
}

/* What a form states of its contraction holds for rotated values. */
TEST(residuals_of_rotated_values_are_bounded)
{
    enum { T = 4, C = 320, SIZE = T * C };
    static float x[SIZE], y[SIZE], coded[SIZE], held[SIZE];
    static const char *const configs[] = {
        "direct:bits=2,transform=hadamard", "direct:bits=4,group=row,transform=hadamard,rotate=16",
        "mx:element=e2m1,transform=hadamard",
        "direct:form=step,group=sample,step=1.2,transform=hadamard",
        "direct:bits=1,group=16,transform=hadamard,rotate=16"};
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, T, C), ty = dw_tensor_3d(y, DW_F32, 1, T, C), view;
    for (size_t k = 0; k < sizeof configs / sizeof *configs; k++) {
        char text[160];
        test_random random = {k};
        test_pair pair;
        snprintf(text, sizeof text, "%s,feedback=ef", configs[k]);
        test_pair_open(&pair, text, 1, T, C, DW_F32);
        dw_contraction contraction = dw_contraction_of(&pair.config);
        assert_int_equal(contraction.kind, DW_CONTRACTS_ALWAYS);
        uint32_t width = pair.config.rotate ? pair.config.rotate : 64;
        double gradients = 0, bound = contraction.part / (1 - contraction.part);
        memset(held, 0, sizeof held);
        for (int visit = 0; visit < 20; visit++) {
            for (int i = 0; i < SIZE; i++)
                x[i] = test_normal(&random) * (i % 97 == 3 ? 40.0f : 1.0f);
            for (int i = 0; i < SIZE; i++) coded[i] = x[i] - held[i];
            test_pair_pass(&pair, keys, &tx, &ty);
            for (int i = 0; i < SIZE; i++) {
                volatile float sum = held[i] + y[i];
                held[i] = sum - x[i];
            }
            assert_int_equal(dw_encoder_peek(pair.encoder, keys[0], &view), DW_OK);
            assert_memory_equal(view.data, held, sizeof held);
            float rest[SIZE];
            memcpy(rest, held, sizeof held);
            rotate(rest, SIZE, width);
            rotate(coded, SIZE, width);
            rotate(x, SIZE, width);
            gradients = fmax(gradients, largest(x, SIZE));
            assert_true(largest(rest, SIZE) <=
                        contraction.part * largest(coded, SIZE) * (1 + 1e-5));
            assert_true(largest(rest, SIZE) <= bound * gradients * (1 + 1e-5));
        }
        test_pair_close(&pair);
    }
}

/* ---- What is refused ------------------------------------------------------------------------- */

TEST(blocks_must_divide_a_token)
{
    static float x[4 * 200], y[4 * 200];
    test_pair pair;
    dw_tensor good = dw_tensor_3d(x, DW_F32, 1, 2, 128), bad = dw_tensor_3d(x, DW_F32, 1, 2, 96),
              out = dw_tensor_3d(y, DW_F32, 1, 2, 128);
    test_pair_open(&pair, "delta:bits=4,transform=hadamard", 1, 2, 128, DW_F32);
    test_pair_pass(&pair, keys, &good, &out);
    test_pair_refuses(&pair, keys, &bad, DW_ERR_SHAPE, "rotate=64");
    assert_non_null(strstr(dw_encoder_why(pair.encoder), "96 channels cannot be divided"));
    assert_non_null(strstr(dw_encoder_why(pair.encoder), "rotate=16, 64 or 256"));
    assert_int_equal(dw_frame_bound(&pair.config, &bad), 0);
    test_pair_encode(&pair, keys, &good); /* a change: nothing was lost */
    assert_int_equal(test_pair_decode(&pair, &out), DW_OK);
    assert_int_equal(test_encoder_counters(pair.encoder).delta_entries, 1);
    test_pair_close(&pair);
}

TEST(wrong_rotated_configs_are_refused)
{
    static const test_wrong_config wrong[] = {
        {"direct:transform=fourier", "none hadamard"},
        {"direct:rotate=64", "not allowed with the other options"},
        {"direct:transform=hadamard,rotate=32", "16 64 256"},
        {"direct:group=channel,transform=hadamard", "not with group=channel"},
        {"direct:form=step,group=sample,error=abs:0.1,transform=hadamard", "error=abs"},
        {"direct:form=step,error=0.1,group=16,transform=hadamard", "rotate is not more than group"},
        {"delta:transform=hadamard,choose=group", "not allowed with the other options"},
        {"raw:transform=hadamard", "unknown option"},
        {"topk:transform=hadamard", "unknown option"},
    };
    static const test_right_config right[] = {
        {"direct:transform=none", "direct"},
        {"direct:rotate=64,transform=hadamard", "direct:transform=hadamard"},
        {"mx:transform=hadamard,rotate=16", "mx:transform=hadamard,rotate=16"},
        {"direct:form=step,error=0.1,group=64,transform=hadamard",
         "direct:form=step,transform=hadamard,group=64,error=0.1"},
        {"delta:form=step,group=sample,entropy=rans,rate=2,transform=hadamard",
         "delta:form=step,transform=hadamard,group=sample,rate=2,entropy=rans"},
    };
    test_configs(wrong, sizeof wrong / sizeof *wrong, right, sizeof right / sizeof *right);
}

RUN_TESTS(NULL, NULL)
