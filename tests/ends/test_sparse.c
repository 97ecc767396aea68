/* SPDX-License-Identifier: Apache-2.0
 * test_sparse.c - tests the codecs topk and randk: which values arrive, compared with a sort; and
 * configs. tests/fuzz compares what decoders make of payloads that break a rule with its model. */
#include <math.h>

#include "arithmetic/half.h"
#include "base/bytes.h"
#include "common/tensor.h"
#include "support/seal.h"
#include "support/tool.h"

static const dw_key key = {3, 1};

static uint32_t magnitude(float value)
{
    return dw_bits_of(value) & 0x7fffffffu;
}

/* ---- topk, compared with a sort -------------------------------------------------------------- */

static const float *sorted; /* what place_order compares */

static int place_order(const void *a, const void *b)
{
    uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    uint32_t one = magnitude(sorted[i]), other = magnitude(sorted[k]);
    if (one != other) return one > other ? -1 : 1;
    return i < k ? -1 : 1;
}

/* Sets all but the k values of largest magnitude to 0. */
static void keep_largest(float *values, uint32_t n, uint32_t k)
{
    uint32_t *places = malloc(n * sizeof *places);
    assert_non_null(places);
    for (uint32_t i = 0; i < n; i++) places[i] = i;
    sorted = values;
    qsort(places, n, sizeof *places, place_order);
    for (uint32_t i = k; i < n; i++) values[places[i]] = 0;
    free(places);
}

/* The kinds of samples: normal values; a few different magnitudes, so that many are equal; all
 * equal; every 64th value large; large values at the end alone; or alone at some of the places by
 * which the library guesses a limit; magnitudes that differ in their last bits alone; normal values
 * with NaN, infinities and others that are rare. */
enum { NORMAL, FEW, EQUAL, EVERY_64TH, AT_THE_END, WHERE_GUESSED, LAST_BITS, SPOILED, KINDS };

/* Whether element i is one of the first 512 of n that the library looks at. */
static bool is_guessed_by(uint32_t i, uint32_t n)
{
    for (uint32_t line = 0; n > 65536 && line < 32; line++) {
        uint64_t at = (uint64_t)(line * 2654435769u) * (n - 16) >> 32;
        if (i >= at && i < at + 16) return true;
    }
    return false;
}

static float value_of(test_random *random, int kind, uint32_t i, uint32_t n)
{
    float sign = test_next(random) % 2 ? 1.0f : -1.0f;
    switch (kind) {
    case FEW: return sign * (float)(test_next(random) % 4);
    case EQUAL: return sign * 3;
    case EVERY_64TH: return test_normal(random) * (i % 64 == 5 ? 100.0f : 1.0f);
    case AT_THE_END: return test_normal(random) * (i > n - n / 50 ? 1e6f : 1.0f);
    case WHERE_GUESSED: return test_normal(random) + (is_guessed_by(i, n) ? 1e6f : 0.0f);
    case LAST_BITS: return sign * dw_float_of(0x40000000u + (uint32_t)(test_next(random) % 1000));
    default: return test_normal(random);
    }
}

/* Fills a tensor whose rows do not touch: values between the rows must neither be read nor
 * written. */
static void fill(void *x, dw_dtype dtype, int kind, uint32_t t, uint32_t c, uint32_t stride)
{
    test_random random = {(uint64_t)kind * 1000 + t + c};
    for (uint32_t i = 0; i < t * c; i++)
        test_set(x, dtype, i / c * (size_t)stride + i % c, value_of(&random, kind, i, t * c));
    for (uint32_t row = 0; kind == SPOILED && row < t; row++)
        test_spoil(&random, (char *)x + row * (size_t)stride * dw_dtype_bytes(dtype), dtype, c,
                   true);
}

enum { GAP = 3, MOST = 70000 + 700 * GAP };

static void check_largest(dw_dtype dtype, int kind, uint32_t t, uint32_t c, double keep)
{
    static float x[MOST], y[MOST], expected[MOST];
    uint32_t stride = c + (t > 1 ? GAP : 0), n = t * c, k = (uint32_t)ceil(n * keep - 1e-9);
    char text[80];
    test_pair pair;
    dw_tensor tx = dw_tensor_3d(x, dtype, 1, t, c), ty = dw_tensor_3d(y, dtype, 1, t, c);
    tx.stride_t = ty.stride_t = stride;
    tx.stride_n = ty.stride_n = (int64_t)t * stride;
    snprintf(text, sizeof text, "topk:keep=%g", keep);
    fill(x, dtype, kind, t, c, stride);
    for (uint32_t i = 0; i < n; i++)
        expected[i] = test_get(x, dtype, i / c * (size_t)stride + i % c);
    keep_largest(expected, n, k);
    for (size_t i = 0; i < (size_t)t * stride; i++) test_set(y, dtype, i, 7);
    test_pair_open(&pair, text, 1, t, c, dtype);
    test_pair_encode(&pair, &key, &tx);
    assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
    for (size_t i = 0; i < (size_t)t * stride; i++) {
        float value = test_get(y, dtype, i);
        size_t at = i / stride * c + i % stride;
        if (i % stride >= c) {
            assert_true(value == 7);
        } else if (isnan(expected[at])) {
            if (!isnan(value)) fail_msg("%s, kind %d: no NaN at element %zu", text, kind, at);
        } else if (memcmp(&value, &expected[at], sizeof value) != 0) {
            fail_msg("%s, kind %d, %u x %u: element %zu is %g, not %g", text, kind, t, c, at,
                     (double)value, (double)expected[at]);
        }
    }
    test_pair_close(&pair);
}

static void topk_sends_the_largest_values(void **state)
{
    static const uint32_t shapes[][2] = {{1, 1}, {1, 63}, {5, 33}, {1, 4096}, {700, 100}};
    static const double keeps[] = {0.000001, 0.01, 0.2, 1};
    static const dw_dtype dtypes[] = {DW_F32, DW_F16, DW_BF16};
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (size_t i = 0; i < sizeof keeps / sizeof *keeps; i++)
                for (int d = 0; d < 3; d++)
                    check_largest(dtypes[d], kind, shapes[s][0], shapes[s][1], keeps[i]);
}

/* ---- Values ---------------------------------------------------------------------------------- */

enum { T = 8, C = 500, COUNT = T * C };

/* Opens a pair, encodes and decodes normal values. */
static void pass(test_pair *pair, const char *config, float *x, float *y)
{
    test_random random = {11};
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, T, C), ty = dw_tensor_3d(y, DW_F32, 1, T, C);
    test_pair_open(pair, config, 1, T, C, DW_F32);
    test_fill(&random, x, DW_F32, COUNT, 1);
    test_pair_encode(pair, &key, &tx);
    assert_int_equal(test_pair_decode(pair, &ty), DW_OK);
}

/* Quantized values are those that direct makes of a row of the chosen values. */
static void topk_quantizes_values_as_direct_does(void **state)
{
    static float x[COUNT], y[COUNT], row[COUNT], direct[COUNT];
    static const char *const rests[] = {"bits=4", "bits=3,group=16", "bits=8,group=row",
                                        "bits=1,scale=mse"};
    for (size_t i = 0; i < sizeof rests / sizeof *rests; i++) {
        char text[80];
        test_pair pair, other;
        uint32_t k = 0;
        snprintf(text, sizeof text, "topk:keep=0.1,%s", rests[i]);
        pass(&pair, text, x, y);
        test_pair_close(&pair);
        keep_largest(x, COUNT, COUNT / 10);
        for (int e = 0; e < COUNT; e++)
            if (x[e] != 0) row[k++] = x[e];
        snprintf(text, sizeof text, "direct:%s", rests[i]);
        dw_tensor tx = dw_tensor_3d(row, DW_F32, 1, 1, k), ty = tx;
        ty.data = direct;
        test_pair_open(&other, text, 1, 1, k, DW_F32);
        test_pair_encode(&other, &key, &tx);
        assert_int_equal(test_pair_decode(&other, &ty), DW_OK);
        k = 0;
        for (int e = 0; e < COUNT; e++) {
            float expected = x[e] != 0 ? direct[k++] : 0;
            assert_memory_equal(&y[e], &expected, sizeof expected);
        }
        test_pair_close(&other);
    }
}

/* With randk there is one value of each stretch, which is x or, unbiased, as many times x as the
 * stretch has elements. Other frames have other places. */
static void randk_sends_one_value_of_each_stretch(void **state)
{
    static float x[COUNT], y[COUNT], other[COUNT];
    for (int unbiased = 0; unbiased < 2; unbiased++) {
        const char *text = unbiased ? "randk:keep=0.0301,scaling=unbiased" : "randk:keep=0.0301";
        test_pair pair;
        dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, T, C), ty = dw_tensor_3d(other, DW_F32, 1, T, C);
        uint32_t k = 121, start = 0; /* 4000 * 0.0301 is 120.4 */
        pass(&pair, text, x, y);
        for (uint32_t j = 0; j < k; j++) {
            uint32_t size = COUNT / k + (j < COUNT % k), sent = 0;
            for (uint32_t i = start; i < start + size; i++) {
                if (y[i] == 0) continue;
                sent++;
                assert_true(y[i] == x[i] * (unbiased ? (float)size : 1.0f));
            }
            assert_int_equal(sent, 1);
            start += size;
        }
        assert_int_equal(start, COUNT);
        test_pair_encode(&pair, &key, &tx);
        assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
        assert_true(memcmp(y, other, sizeof y) != 0);
        test_pair_close(&pair);
    }
}

/* Every element of a stretch is drawn equally often: the mean of many unbiased frames is x, within
 * five standard deviations. */
static void unbiased_randk_frames_average_to_x(void **state)
{
    enum { FRAMES = 4000, WIDTH = 40, STRETCH = 8 };
    static float x[WIDTH], y[WIDTH];
    double sums[WIDTH] = {0};
    test_pair pair;
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1, WIDTH), ty = dw_tensor_3d(y, DW_F32, 1, 1, WIDTH);
    for (int i = 0; i < WIDTH; i++) x[i] = 1;
    test_pair_open(&pair, "randk:keep=0.125,scaling=unbiased,incarnation=5", 1, 1, WIDTH, DW_F32);
    for (int frame = 0; frame < FRAMES; frame++) {
        test_pair_encode(&pair, &key, &tx);
        assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
        for (int i = 0; i < WIDTH; i++) sums[i] += y[i];
    }
    double deviation = sqrt((double)FRAMES * (STRETCH - 1));
    for (int i = 0; i < WIDTH; i++) assert_true(fabs(sums[i] - FRAMES) < 5 * deviation);
    test_pair_close(&pair);
}

/* ---- Configs --------------------------------------------------------------------------------- */

static void wrong_sparse_configs_are_refused(void **state)
{
    static const test_wrong_config wrong[] = {
        {"topk:keep=0", "from 0.000001 to 1"},
        {"topk:keep=1.5", "from 0.000001 to 1"},
        {"topk:keep=0.0000001", "from 0.000001 to 1"},
        {"topk:group=64", "not allowed with the other options"},
        {"topk:bits=4,dtype=f16", "not allowed with the other options"},
        {"topk:bits=4,group=channel", "16 32 64 128 256 row"},
        {"topk:bits=4,group=sample", "16 32 64 128 256 row"},
        {"topk:scaling=unbiased", "unknown option"},
        {"topk:seed=4", "not allowed with the other options"},
        {"topk:f16", "unknown option"},
        {"topk:bits=4,rounding=dither", "nearest stochastic"},
        {"topk:entropy=rans", "unknown option"},
        {"randk:scaling=unbiased,feedback=ef", "none unstable"},
        {"topk:bits=1,feedback=ef", "none unstable"},
        {"topk:bits=4,group=row,feedback=ef", "none unstable"},
    };
    static const test_right_config right[] = {
        {"topk", "topk"},
        {"topk:keep=0.01", "topk"},
        {"topk:bits=4,group=64", "topk:bits=4"},
        {"topk:dtype=bf16,keep=1e-3", "topk:keep=0.001,dtype=bf16"},
        {"randk:seed=4,scaling=unbiased,keep=1", "randk:keep=1,seed=4,scaling=unbiased"},
        {"topk:feedback=ef,keep=0.000001", "topk:keep=0.000001,feedback=ef"},
    };
    test_configs(wrong, sizeof wrong / sizeof *wrong, right, sizeof right / sizeof *right);
}

static void a_sample_that_is_too_large_is_refused_with_the_limit(void **state)
{
    static const char *const configs[] = {"topk", "randk", "cocktail", "chunk", "tah:tile=16"};
    float x[1], frame[64];
    size_t len;
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1u << 18, 1u << 18);
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        dw_encoder *encoder;
        encoder = test_encoder(configs[i]);
        assert_int_equal(dw_encode(encoder, &key, &tx, NULL, frame, sizeof frame, &len),
                         DW_ERR_LIMIT);
        assert_non_null(strstr(dw_encoder_why(encoder), "takes at most"));
        assert_non_null(strstr(dw_encoder_why(encoder), "as several samples"));
        dw_encoder_destroy(encoder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(topk_sends_the_largest_values),
        cmocka_unit_test(topk_quantizes_values_as_direct_does),
        cmocka_unit_test(randk_sends_one_value_of_each_stretch),
        cmocka_unit_test(unbiased_randk_frames_average_to_x),
        cmocka_unit_test(a_sample_that_is_too_large_is_refused_with_the_limit),
        cmocka_unit_test(wrong_sparse_configs_are_refused),
    };
    return cmocka_run_group_tests_name("sparse", tests, NULL, NULL);
}
