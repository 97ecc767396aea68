/* SPDX-License-Identifier: Apache-2.0
 * test_profile.c - tests profiles of channels: fitting; NaN, limits of errors, rows of zeros; and
 * what is refused. tests/fuzz compares what decoders make of frames with its model. */
#include <math.h>

#include "deltawire/profile.h"
#include "support/tool.h"

static const dw_key keys[2] = {{3, 1}, {4, 0}};
enum { WIDEST = 320 };

/* A profile whose values the test knows, as they are after rounding to bf16. */
typedef struct known {
    dw_profile *profile;
    uint32_t rows, c;
    float values[3 * WIDEST];
} known;

static float rounded(float value)
{
    uint16_t half[1];
    test_set(half, DW_BF16, 0, value);
    return test_get(half, DW_BF16, 0);
}

/* means: how many lists. The second list is far from the first in channel 7. */
static void make_known(known *k, uint32_t means, uint32_t c, uint64_t seed)
{
    test_random random = {seed};
    k->rows = 1 + means;
    k->c = c;
    for (uint32_t i = 0; i < c; i++) {
        k->values[i] = rounded(powf(2, -10 * (float)test_uniform(&random)));
        for (uint32_t m = 1; m <= means; m++)
            k->values[m * c + i] = rounded(3 * test_normal(&random));
    }
    if (means == 2) k->values[2 * c + 7] = rounded(k->values[c + 7] + 5000);
    dw_tensor values = dw_tensor_3d(k->values, DW_F32, 1, k->rows, c);
    assert_int_equal(dw_profile_create(&k->profile, &values, NULL, NULL), DW_OK);
}

/* Which list of means a row takes. */
static uint32_t list_of(const known *k, const float *row)
{
    if (k->rows < 3) return 1;
    return fabsf(row[7] - k->values[2 * k->c + 7]) < fabsf(row[7] - k->values[k->c + 7]) ? 2 : 1;
}

/* The base of element i of a sample without prev. */
static float base_of(const known *k, const float *x, size_t i)
{
    size_t row = i / k->c;
    return k->rows == 1 ? 0 : k->values[list_of(k, x + row * k->c) * k->c + i % k->c];
}

/* ---- Hostile values ----------------------------------------------------------------------------
 */

static double norm(const known *k, const float *values, const float *minus, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double d = ((double)values[i] - (minus ? minus[i] : 0)) / k->values[i % k->c];
        sum += d * d;
    }
    return sqrt(sum);
}

TEST(nan_stays_in_its_row_and_rows_of_zeros_arrive)
{
    enum { T = 6, C = 320, SIZE = T * C };
    static float x[SIZE], y[SIZE], change[C];
    static known k;
    static const char *const configs[] = {"direct:form=step", "delta:form=step",
                                          "direct:form=step,rounding=dither,entropy=rans"};
    make_known(&k, 2, C, 3);
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, T, C), ty = dw_tensor_3d(y, DW_F32, 1, T, C);
    for (int config = 0; config < 3; config++) {
        test_random random = {1};
        test_pair pair;
        test_pair_open_with(&pair, configs[config], k.profile, 1, T, C, DW_F32);
        for (int i = 0; i < SIZE; i++) x[i] = i / C == 4 ? 0 : test_normal(&random);
        for (int i = 0; i < C; i++) x[5 * C + i] = k.values[2 * C + i]; /* the means themselves */
        x[C + 7] = NAN;
        x[2 * C + 100] = -INFINITY;
        test_pair_pass(&pair, keys, &tx, &ty);
        for (int i = 0; i < SIZE; i++) {
            bool is_poisoned = i / C == 1 || i / C == 2;
            if (isnan(y[i]) != is_poisoned) fail_msg("element %d is %g", i, (double)y[i]);
            if (i / C == 5) assert_true(y[i] == x[i]);
        }
        for (int i = 0; i < C; i++) change[i] = base_of(&k, x, 4 * C + i);
        assert_true(norm(&k, y + 4 * C, NULL, C) < 0.45 * norm(&k, change, NULL, C));
        assert_int_equal(test_encoder_counters(pair.encoder).poisoned_groups, 2);
        assert_int_equal(test_decoder_counters(pair.decoder).poisoned_groups, 2);
        assert_int_equal(test_encoder_counters(pair.encoder).zero_groups, 1);
        assert_int_equal(test_decoder_counters(pair.decoder).zero_groups, 1);
        if (pair.config.codec == DW_CODEC_DELTA) test_pair_in_step(&pair, keys[0]);
        test_pair_close(&pair);
    }
    dw_profile_destroy(k.profile);
}

/* A limit of the error is one in units of the weights, of x and not of its distance from means. */
TEST(rows_keep_to_an_error_in_units_of_the_weights)
{
    enum { T = 5, C = 320, SIZE = T * C };
    static float x[SIZE], y[SIZE];
    static known k;
    test_random random = {2};
    test_pair pair;
    make_known(&k, 2, C, 8);
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, T, C), ty = dw_tensor_3d(y, DW_F32, 1, T, C);
    test_pair_open_with(&pair, "delta:form=step,error=0.06,key_error=0.02", k.profile, 1, T, C,
                        DW_F32);
    for (int visit = 0; visit < 4; visit++) {
        double limit = visit ? 0.06 : 0.02;
        for (int i = 0; i < SIZE; i++)
            x[i] = visit ? x[i] + 0.2f * test_normal(&random) : 5 * test_normal(&random);
        test_pair_pass(&pair, keys, &tx, &ty);
        for (int row = 0; row < T; row++) {
            double part = norm(&k, y + row * C, x + row * C, C) / norm(&k, x + row * C, NULL, C);
            assert_true(part <= limit && part > limit / 3);
        }
    }
    test_pair_close(&pair);
    dw_profile_destroy(k.profile);
}

/* ---- Fitting -----------------------------------------------------------------------------------
 */

enum { FIT_N = 3, FIT_T = 40, FIT_C = 64, FIT = FIT_N * FIT_T * FIT_C };

/* Rows around means, the first of each sample around others; channel 5 is 300 times as large. */
static void fill_like_activations(test_random *random, float *x)
{
    for (int i = 0; i < FIT; i++) {
        int c = i % FIT_C, t = i / FIT_C % FIT_T;
        x[i] = (test_normal(random) + 2) * (c == 5 ? 300 : 1);
        if (t == 0) x[i] = test_normal(random) + (c == 9 ? 90000.0f : 0);
    }
}

TEST(a_fit_finds_means_of_both_kinds_of_rows_and_weights)
{
    static float x[FIT], g[FIT];
    test_random random = {3};
    dw_profile *profile, *again;
    dw_tensor tx = dw_tensor_3d(x, DW_F32, FIT_N, FIT_T, FIT_C),
              tg = dw_tensor_3d(g, DW_F32, FIT_N, FIT_T, FIT_C);
    fill_like_activations(&random, x);
    for (int i = 0; i < FIT; i++) g[i] = test_normal(&random) * (i % FIT_C == 11 ? 8 : 1);
    x[17 * FIT_C + 3] = NAN; /* its row is left out */
    assert_int_equal(dw_profile_fit(&profile, &tx, &tg, NULL, NULL), DW_OK);
    dw_tensor values = dw_profile_values(profile);
    const float *of = values.data;
    assert_true(values.n == 1 && values.t == 3 && values.c == FIT_C);
    assert_true(fabsf(of[FIT_C + 5] - 600) < 120 && fabsf(of[FIT_C + 6] - 2) < 0.4f);
    assert_true(of[2 * FIT_C + 9] == 90112 && fabsf(of[FIT_C + 9] - 2) < 0.4f);
    for (int c = 0; c < FIT_C; c++) /* 1 / (8 + 0.1) and 1 / (1 + 0.1), of a largest of about 1 */
        assert_true(c == 11 ? of[c] > 0.08f && of[c] < 0.25f : of[c] > 0.5f && of[c] <= 1);
    /* The values make the same profile again. */
    assert_int_equal(dw_profile_create(&again, &values, NULL, NULL), DW_OK);
    assert_int_equal(dw_profile_digest(again), dw_profile_digest(profile));
    dw_profile_destroy(again);
    dw_profile_destroy(profile);
    /* Without a gradient, weights are roots of deviations. */
    assert_int_equal(dw_profile_fit(&profile, &tx, NULL, NULL, NULL), DW_OK);
    of = dw_profile_values(profile).data;
    assert_true(of[5] == 1 && fabsf(of[6] - 1 / sqrtf(300)) < 0.01f);
    dw_profile_destroy(profile);
}

/* Channels that are constant in the rows of the fit, also at values that bf16 does not have, get no
 * weight near 0, by which what they do in other rows would become the largest of all. */
TEST(channels_that_did_not_vary_do_no_harm_when_they_do)
{
    static float x[FIT], y[FIT];
    test_random random = {6};
    dw_profile *profile;
    dw_key ids[FIT_N] = {{1, 0}, {2, 0}, {3, 0}};
    dw_tensor tx = dw_tensor_3d(x, DW_F32, FIT_N, FIT_T, FIT_C),
              ty = dw_tensor_3d(y, DW_F32, FIT_N, FIT_T, FIT_C);
    for (int visit = 0; visit < 2; visit++) {
        double error = 0, all = 0;
        test_pair pair;
        for (int i = 0; i < FIT; i++)
            x[i] = i % FIT_C < 8    ? 0.1f
                   : i % FIT_C < 12 ? (float)visit * test_normal(&random)
                                    : test_normal(&random);
        if (visit == 0) assert_int_equal(dw_profile_fit(&profile, &tx, NULL, NULL, NULL), DW_OK);
        test_pair_open_with(&pair, "direct:form=step,step=0.3", profile, FIT_N, FIT_T, FIT_C,
                            DW_F32);
        test_pair_pass(&pair, ids, &tx, &ty);
        for (int i = 0; i < FIT; i++) {
            error += ((double)y[i] - x[i]) * ((double)y[i] - x[i]);
            all += (double)x[i] * x[i];
        }
        printf("visit %d: error %.3f\n", visit, sqrt(error / all));
        assert_true(error < 0.15 * 0.15 * all);
        test_pair_close(&pair);
    }
    dw_profile_destroy(profile);
}

/* Deviations are those from the means that are subtracted, which are bf16: 100.3 becomes 100.5. */
TEST(weights_know_how_means_are_rounded)
{
    static float x[FIT];
    test_random random = {7};
    dw_profile *profile;
    dw_tensor tx = dw_tensor_3d(x, DW_F32, FIT_N, FIT_T, FIT_C);
    for (int i = 0; i < FIT; i++)
        x[i] = i % FIT_C < 4 ? 100.3f + 0.02f * test_normal(&random) : test_normal(&random);
    assert_int_equal(dw_profile_fit(&profile, &tx, NULL, NULL, NULL), DW_OK);
    const float *of = dw_profile_values(profile).data;
    assert_true(of[FIT_C] == 100.5f && fabsf(of[0] / of[20] - sqrtf(0.3f / 1.1f)) < 0.05f);
    dw_profile_destroy(profile);
}

/* ---- What is refused ---------------------------------------------------------------------------
 */

TEST(an_end_without_the_profile_refuses_frames)
{
    enum { T = 2, C = 64 };
    static float x[T * C], y[T * C], narrow[T * 32];
    static known k, other;
    dw_why why = {.text = ""};
    dw_config config;
    dw_decoder *decoder;
    dw_encoder *encoder;
    test_pair pair, another, plain;
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, T, C), ty = dw_tensor_3d(y, DW_F32, 1, T, C),
              bad = dw_tensor_3d(narrow, DW_F32, 1, T, 32);
    size_t reply_len;
    make_known(&k, 2, C, 1);
    make_known(&other, 2, C, 2);
    test_pair_open_with(&pair, "direct:form=step", k.profile, 1, T, C, DW_F32);
    test_pair_open_with(&another, "direct:form=step", other.profile, 1, T, C, DW_F32);
    test_pair_open(&plain, "direct:form=step", 1, T, C, DW_F32);
    test_pair_encode(&pair, keys, &tx);
    test_pair *const wrong[] = {&another, &plain};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(dw_decode(wrong[i]->decoder, pair.frame, pair.len, &ty, NULL, pair.reply,
                                   pair.reply_cap, &reply_len),
                         DW_ERR_MISMATCH);
        assert_non_null(strstr(dw_decoder_why(wrong[i]->decoder), "profile"));
    }
    test_pair_refuses(&pair, keys, &bad, DW_ERR_SHAPE, "64 channels, and the tensor has 32");
    /* A digest alone is no profile, and another digest is not the profile's. */
    char text[80];
    snprintf(text, sizeof text, "direct:form=step,profile=%u", dw_profile_digest(k.profile));
    assert_int_equal(dw_config_parse(&config, text, &why), DW_OK);
    assert_int_equal(dw_decoder_create(&decoder, &config, NULL, &why), DW_ERR_CONFIG);
    assert_non_null(strstr(why.text, "the config has none"));
    config.profile = other.profile;
    assert_int_equal(dw_encoder_create(&encoder, &config, NULL, &why), DW_ERR_CONFIG);
    assert_non_null(strstr(why.text, "not the one"));
    config.profile = k.profile;
    assert_int_equal(dw_encoder_create(&encoder, &config, NULL, &why), DW_OK);
    dw_encoder_destroy(encoder);
    test_pair_close(&plain);
    test_pair_close(&another);
    test_pair_close(&pair);
    dw_profile_destroy(other.profile);
    dw_profile_destroy(k.profile);
}

TEST(wrong_values_make_no_profile)
{
    static const float wrong[] = {0, -0.5f, 1.01f, 0x1p-25f, NAN, INFINITY};
    float values[4 * 3] = {1, 1, 1};
    dw_profile *profile;
    dw_why why = {.text = ""};
    dw_tensor of = dw_tensor_3d(values, DW_F32, 1, 1, 3);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        values[1] = wrong[i];
        assert_int_equal(dw_profile_create(&profile, &of, NULL, &why), DW_ERR_ARGUMENT);
        assert_null(profile);
        assert_non_null(strstr(why.text, "profile"));
    }
    values[1] = 1;
    of.t = 3;
    values[4] = -INFINITY;
    assert_int_equal(dw_profile_create(&profile, &of, NULL, &why), DW_ERR_ARGUMENT);
    of.t = 4;
    assert_int_equal(dw_profile_create(&profile, &of, NULL, &why), DW_ERR_SHAPE);
    assert_int_equal(dw_profile_create(&profile, NULL, NULL, &why), DW_ERR_ARGUMENT);
    for (int i = 0; i < 12; i++) values[i] = NAN;
    assert_int_equal(dw_profile_fit(&profile, &of, NULL, NULL, &why), DW_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "no row is finite"));
    for (int i = 0; i < 12; i++) values[i] = 0; /* zeros have a profile: all weights are 1 */
    assert_int_equal(dw_profile_fit(&profile, &of, &of, NULL, &why), DW_OK);
    dw_profile_destroy(profile);
    dw_allocator half = test_allocator_hooks(NULL);
    half.release = NULL;
    assert_int_equal(dw_profile_fit(&profile, &of, &of, &half, &why), DW_ERR_ARGUMENT);
    assert_null(profile);
    assert_non_null(strstr(why.text, "one of its two functions"));
    dw_profile_destroy(NULL);
    assert_int_equal(dw_profile_digest(NULL), 0);
}

/* Every allocation fails once. */
TEST(without_memory_there_is_no_profile)
{
    float x[4 * 8] = {1, 2, 3};
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 4, 8);
    dw_status status = DW_ERR_NO_MEMORY;
    for (int fails = 0; status == DW_ERR_NO_MEMORY; fails++) {
        test_allocator counts = {.fail_at = fails};
        dw_allocator hooks = test_allocator_hooks(&counts);
        dw_profile *profile;
        status = dw_profile_fit(&profile, &tx, NULL, &hooks, NULL);
        assert_true((status == DW_OK) == (profile != NULL) && fails < 5);
        dw_profile_destroy(profile);
        assert_int_equal(counts.out_blocks, 0);
    }
    assert_int_equal(status, DW_OK);
}

TEST(wrong_configs_with_profiles_are_refused)
{
    static const test_wrong_config wrong[] = {
        {"direct:profile=7", "profile"},
        {"direct:form=step,profile=0", "from 1"},
        {"direct:form=step,group=sample,profile=7", "without group=sample"},
        {"direct:form=step,error=abs:0.1,profile=7", "error=abs"},
        {"direct:form=step,transform=hadamard,profile=7", "transform"},
        {"direct:form=step,step=0.5,feedback=ef,profile=7", "feedback"},
        {"raw:profile=7", "unknown option"},
    };
    static const test_right_config right[] = {
        {"direct:profile=7,form=step", "direct:form=step,profile=7"},
        {"delta:form=step,profile=4294967295,group=64",
         "delta:form=step,group=64,profile=4294967295"},
    };
    test_configs(wrong, sizeof wrong / sizeof *wrong, right, sizeof right / sizeof *right);
}

RUN_TESTS(NULL, NULL)
