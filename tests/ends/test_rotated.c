/* SPDX-License-Identifier: Apache-2.0
 * test_rotated.c - tests transform=hadamard: frames compared with those of tensors that the test
 * rotates itself; NaN, bounds of errors and residuals; and what is refused. */
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

/* ---- The same payloads as of a tensor that was rotated before -------------------------------- */

static const struct {
    const char *plain;
    uint32_t width, t, c;
} cases[] = {
    {"direct:bits=4", 64, 9, 128},
    {"direct:bits=1,group=16", 256, 3, 512},
    {"direct:bits=3,group=256", 16, 7, 272},
    {"direct:bits=8,group=row", 64, 30, 192},
    {"direct:bits=2,group=row,scale=mse", 256, 3, 4352},
    {"direct:bits=5,group=row", 16, 2, 2064},
    {"direct:bits=3,rounding=stochastic,seed=5", 16, 5, 80},
    {"mx", 64, 11, 192},
    {"mx:element=e2m1", 16, 60, 48},
    {"direct:form=step,group=sample", 64, 17, 320},
    {"direct:form=step,group=row,deadzone=0.6", 256, 3, 2304},
    {"direct:form=step,group=16,rounding=dither,seed=9", 64, 9, 128},
    {"direct:form=step,group=sample,error=0.1", 16, 4, 144},
    {"direct:form=step,group=sample,rounding=dither,step=3,entropy=rans", 16, 60, 128},
    {"direct:form=step,group=sample,rounding=trellis,step=0.6,entropy=rans", 16, 60, 128},
    {"direct:bits=3,entropy=rans", 64, 60, 128},
};
enum { MOST = 60 * 320, GAP = 5 };

static void expect_same_payload(const test_pair *one, const test_pair *other, const char *what)
{
    uint64_t bytes, wanted;
    const uint8_t *payload = test_pair_payload(one, &bytes),
                  *expected = test_pair_payload(other, &wanted);
    if (bytes != wanted || memcmp(payload, expected, bytes) != 0)
        fail_msg("%s: another payload than of the tensor that was rotated before", what);
}

static void compare_with_rotated(size_t i, dw_dtype dtype, bool adds)
{
    static float x[MOST + 60 * GAP], y[MOST], before[MOST], plain_y[MOST], dense[MOST];
    uint32_t t = cases[i].t, c = cases[i].c, width = cases[i].width, n = t * c;
    test_random random = {i + 1};
    test_pair pair, plain;
    dw_tensor tx = dw_tensor_3d(x, dtype, 1, t, c), rotated = dw_tensor_3d(dense, DW_F32, 1, t, c),
              ty = dw_tensor_3d(y, DW_F32, 1, t, c), other = dw_tensor_3d(plain_y, DW_F32, 1, t, c);
    char text[160];
    assert_true(n <= MOST && t <= 60);
    tx.stride_t = (int64_t)c + GAP;
    tx.stride_n = (int64_t)t * tx.stride_t;
    for (uint32_t k = 0; k < n; k++) {
        size_t at = k / c * ((size_t)c + GAP) + k % c;
        test_set(x, dtype, at, test_normal(&random) * (k % 37 == 5 ? 20.0f : 1.0f));
        dense[k] = test_get(x, dtype, at);
    }
    rotate(dense, n, width);
    snprintf(text, sizeof text, "%s%cincarnation=7,transform=hadamard,rotate=%u", cases[i].plain,
             strchr(cases[i].plain, ':') ? ',' : ':', width);
    test_pair_open(&pair, text, 1, t, c, dtype);
    snprintf(text, sizeof text, "%s%cincarnation=7", cases[i].plain,
             strchr(cases[i].plain, ':') ? ',' : ':');
    test_pair_open(&plain, text, 1, t, c, DW_F32);
    test_pair_encode(&pair, keys, &tx);
    test_pair_encode(&plain, keys, &rotated);
    expect_same_payload(&pair, &plain, text);

    for (uint32_t k = 0; k < n; k++) y[k] = before[k] = test_normal(&random);
    assert_int_equal(test_pair_decode(&plain, &other), DW_OK);
    rotate(plain_y, n, width);
    if (adds) {
        dw_decode_options options = {.struct_size = sizeof options, .adds = 1, .factor = 0.3f};
        assert_int_equal(dw_decode(pair.decoder, pair.frame, pair.len, &ty, &options, pair.reply,
                                   pair.reply_cap, &pair.reply_len),
                         DW_OK);
        for (uint32_t k = 0; k < n; k++) {
            volatile float product = 0.3f * plain_y[k];
            plain_y[k] = before[k] + product;
        }
    } else {
        assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
        for (uint32_t k = 0; k < n; k++) plain_y[k] += 0.0f; /* -0 becomes +0 */
    }
    if (memcmp(y, plain_y, n * sizeof *y) != 0) fail_msg("%s: another y", text);
    test_pair_close(&plain);
    test_pair_close(&pair);
}

static void payloads_are_those_of_rotated_tensors(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        compare_with_rotated(i, DW_F32, false);
        compare_with_rotated(i, i % 2 ? DW_F16 : DW_BF16, true);
    }
}

/* A change is x - prev, rotated; and prev becomes prev plus what is rotated back. */
static void delta_rotates_changes(void **state)
{
    static const char *const forms[] = {"bits=4,choose=never", "form=mx,choose=never",
                                        "form=step,group=row"};
    enum { T = 3, C = 2112, SIZE = T * C };
    static float x[SIZE], change[SIZE], prev[SIZE], y[SIZE];
    test_random random = {5};
    for (size_t f = 0; f < 3; f++) {
        char text[160];
        test_pair pair, plain;
        dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, T, C), held,
                  d = dw_tensor_3d(change, DW_F32, 1, T, C), ty = dw_tensor_3d(y, DW_F32, 1, T, C);
        bool is_step = strstr(forms[f], "step");
        snprintf(text, sizeof text, "delta:%s,key=f32,prev=f32,transform=hadamard",
                 is_step  ? forms[f]
                 : f == 0 ? "bits=4"
                          : "form=mx");
        test_pair_open(&pair, text, 1, T, C, DW_F32);
        snprintf(text, sizeof text, "%s",
                 is_step  ? "direct:form=step,group=row"
                 : f == 0 ? "direct:bits=4"
                          : "mx:element=e2m1");
        test_pair_open(&plain, text, 1, T, C, DW_F32);
        test_fill(&random, x, DW_F32, SIZE, 1);
        test_pair_encode(&pair, keys, &tx);
        assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
        assert_memory_equal(x, y, sizeof x);
        memcpy(prev, x, sizeof x);
        for (int visit = 0; visit < 3; visit++) {
            for (size_t i = 0; i < SIZE; i++) x[i] += 0.1f * test_normal(&random);
            for (size_t i = 0; i < SIZE; i++) change[i] = x[i] - prev[i];
            rotate(change, SIZE, 64);
            test_pair_encode(&pair, keys, &tx);
            test_pair_encode(&plain, keys, &d);
            expect_same_payload(&pair, &plain, text);
            assert_int_equal(test_pair_decode(&plain, &d), DW_OK);
            rotate(change, SIZE, 64);
            for (size_t i = 0; i < SIZE; i++) prev[i] += change[i];
            assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
            assert_memory_equal(y, prev, sizeof y);
            assert_int_equal(dw_encoder_peek(pair.encoder, keys[0], &held), DW_OK);
            assert_memory_equal(held.data, prev, sizeof prev);
            test_pair_in_step(&pair, keys[0]);
        }
        test_pair_close(&plain);
        test_pair_close(&pair);
    }
}

/* ---- NaN ------------------------------------------------------------------------------------- */

/* Fills y with what must arrive if element `at` of x is NaN: NaN in its block, and in its piece. */
static void nan_stays_in_its_blocks(void **state)
{
    static const struct {
        const char *config;
        uint32_t reach; /* how many elements a NaN poisons */
    } wrong[] = {{"delta:bits=4,group=16,transform=hadamard,rotate=64", 64},
                 {"delta:bits=4,group=64,transform=hadamard,rotate=16", 64},
                 {"delta:form=mx,transform=hadamard,rotate=256", 256},
                 {"delta:form=step,group=16,transform=hadamard", 64},
                 {"direct:bits=2,group=32,transform=hadamard,rotate=16", 32},
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
        test_pair_encode(&pair, keys, &tx);
        assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
        memcpy(before, y, sizeof y);
        x[AT] = i % 2 ? INFINITY : NAN;
        test_pair_encode(&pair, keys, &tx);
        assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
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
static void sums_of_huge_values_become_no_nan(void **state)
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
        test_pair_encode(&pair, keys, &tx);
        assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
        for (int i = 0; i < C; i++) assert_true(isnan(y[i]) == isnan(y[0]));
        assert_true(isnan(y[0]) == (kind == 0) || kind == 1);
    }
    test_pair_close(&pair);
}

/* ---- Errors ---------------------------------------------------------------------------------- */

static double norm(const float *values, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)values[i] * values[i];
    return sqrt(sum);
}

/* Activations with one percent of outlier channels. */
static void fill_outliers(test_random *random, float *x, uint32_t t, uint32_t c)
{
    for (uint32_t i = 0; i < t * c; i++)
        x[i] = test_normal(random) * (i % c % 100 == 37 ? 30.0f : 1.0f);
}

static double error_of(const char *config, const float *x, uint32_t t, uint32_t c)
{
    static float y[256 * 768];
    test_pair pair;
    dw_tensor tx = dw_tensor_3d((void *)(uintptr_t)x, DW_F32, 1, t, c),
              ty = dw_tensor_3d(y, DW_F32, 1, t, c);
    test_pair_open(&pair, config, 1, t, c, DW_F32);
    test_pair_encode(&pair, keys, &tx);
    assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
    for (uint32_t i = 0; i < t * c; i++) y[i] -= x[i];
    test_pair_close(&pair);
    return norm(y, (size_t)t * c) / norm(x, (size_t)t * c);
}

static void rotation_lowers_the_error_of_outliers(void **state)
{
    enum { T = 64, C = 768 };
    static float x[T * C];
    test_random random = {test_seed()};
    fill_outliers(&random, x, T, C);
    double plain = error_of("direct:bits=4", x, T, C),
           rotated = error_of("direct:bits=4,transform=hadamard", x, T, C);
    printf("outlier channels, 4 bits: %.4f plain, %.4f rotated\n", plain, rotated);
    assert_true(rotated < 0.9 * plain);
    /* The limit of a norm holds for the norm of what is rotated back. */
    assert_true(error_of("direct:form=step,group=sample,error=0.05,transform=hadamard", x, T, C) <=
                0.05);
    assert_true(error_of("direct:form=step,group=64,error=0.1,transform=hadamard,rotate=16", x, T,
                         C) <= 0.1);
}

/* The limit of a norm also holds where a change is coded and x itself decides about the step. */
static void changes_keep_to_an_error(void **state)
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
            test_pair_encode(&pair, keys, &tx);
            assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
            for (int i = 0; i < SIZE; i++) y[i] -= x[i];
            assert_true(norm(y, SIZE) <= 0.03 * norm(x, SIZE));
            /* It is not a hundred times finer than asked for. */
            assert_true(norm(y, SIZE) >= 0.01 * norm(x, SIZE));
        }
        test_pair_close(&pair);
    }
}

static double largest(const float *values, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++) most = fmax(most, fabs((double)values[i]));
    return most;
}

/* What a form states of its contraction holds for rotated values. */
static void residuals_of_rotated_values_are_bounded(void **state)
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
            test_pair_encode(&pair, keys, &tx);
            assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
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

static void blocks_must_divide_a_token(void **state)
{
    static float x[4 * 200], y[4 * 200];
    test_pair pair;
    dw_tensor good = dw_tensor_3d(x, DW_F32, 1, 2, 128), bad = dw_tensor_3d(x, DW_F32, 1, 2, 96),
              out = dw_tensor_3d(y, DW_F32, 1, 2, 128);
    size_t len = 77;
    test_pair_open(&pair, "delta:bits=4,transform=hadamard", 1, 2, 128, DW_F32);
    test_pair_encode(&pair, keys, &good);
    assert_int_equal(test_pair_decode(&pair, &out), DW_OK);
    assert_int_equal(dw_encode(pair.encoder, keys, &bad, NULL, pair.frame, pair.cap, &len),
                     DW_ERR_SHAPE);
    assert_non_null(strstr(dw_encoder_why(pair.encoder), "rotate=64"));
    assert_non_null(strstr(dw_encoder_why(pair.encoder), "96 channels cannot be divided"));
    assert_non_null(strstr(dw_encoder_why(pair.encoder), "rotate=16, 64 or 256"));
    assert_int_equal(dw_frame_bound(&pair.config, &bad), 0);
    test_pair_encode(&pair, keys, &good); /* a change: nothing was lost */
    assert_int_equal(test_pair_decode(&pair, &out), DW_OK);
    assert_int_equal(test_encoder_counters(pair.encoder).delta_entries, 1);
    test_pair_close(&pair);
}

static void wrong_rotated_configs_are_refused(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(payloads_are_those_of_rotated_tensors),
        cmocka_unit_test(delta_rotates_changes),
        cmocka_unit_test(nan_stays_in_its_blocks),
        cmocka_unit_test(sums_of_huge_values_become_no_nan),
        cmocka_unit_test(rotation_lowers_the_error_of_outliers),
        cmocka_unit_test(changes_keep_to_an_error),
        cmocka_unit_test(residuals_of_rotated_values_are_bounded),
        cmocka_unit_test(blocks_must_divide_a_token),
        cmocka_unit_test(wrong_rotated_configs_are_refused),
    };
    return cmocka_run_group_tests_name("rotated", tests, NULL, NULL);
}
