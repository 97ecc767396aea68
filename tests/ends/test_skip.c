/* SPDX-License-Identifier: Apache-2.0
 * test_skip.c - samples that have hardly changed are not sent (the option skip). */
#include <math.h>

#include "support/tool.h"

enum { N = 3, T = 5, C = 70, GAP = 9, COUNT = T * C };
static const dw_key keys[N] = {{1, 0}, {2, 0}, {3, 0}};

static double norm_of_difference(const float *a, const float *b)
{
    double sum = 0;
    for (int i = 0; i < COUNT; i++) {
        double d = (double)a[i] - (b ? (double)b[i] : 0);
        sum += d * d;
    }
    return sqrt(sum);
}

/* A sample that moves a little at every visit is skipped until it has left the distance, which is
 * measured from what the decoder holds; so what arrives is never further away than that. What lies
 * between the rows is no part of it. A value that is not finite is sent at once: a norm that leaves
 * it out would say that nothing has changed. */
TEST(skipped_samples_stay_within_the_skip_limit)
{
    static const float bad[N] = {NAN, INFINITY, -INFINITY};
    static float x[N * COUNT], y[N * COUNT], wide[N * T * (C + GAP)];
    test_random random = {test_seed()};
    test_pair pair;
    test_pair_open(&pair, "delta:bits=8,skip=0.02", N, T, C, DW_F32);
    dw_tensor tx = {wide, DW_F32, N, T, C, T * (C + GAP), C + GAP};
    dw_tensor ty = dw_tensor_3d(y, DW_F32, N, T, C);
    test_fill(&random, x, DW_F32, N * COUNT, 1.0f);
    for (int visit = 0; visit < 40; visit++) {
        for (int i = 0; i < N * COUNT && visit > 0; i++)
            x[i] += 0.005f * (float)(i / COUNT + 1) * test_normal(&random);
        test_spoil(&random, wide, DW_F32, N * T * (C + GAP), true);
        for (int row = 0; row < N * T; row++)
            memcpy(wide + (size_t)row * (C + GAP), x + (size_t)row * C, 4 * C);
        test_pair_pass(&pair, keys, &tx, &ty);
        test_pair_take_reply(&pair);
        for (int i = 0; i < N; i++) {
            const float *sent = x + (size_t)i * COUNT, *arrived = y + (size_t)i * COUNT;
            assert_true(norm_of_difference(sent, arrived) <=
                        0.02 * norm_of_difference(sent, NULL) * 1.0001);
            test_pair_in_step(&pair, keys[i]);
        }
    }
    dw_counters sent = test_encoder_counters(pair.encoder),
                got = test_decoder_counters(pair.decoder);
    assert_int_equal(sent.key_entries, N);
    assert_int_equal(sent.skipped_entries + sent.delta_entries, 39 * N);
    assert_true(sent.skipped_entries > 25 && sent.delta_entries > 25);
    assert_int_equal(got.skipped_entries, sent.skipped_entries);
    for (int i = 0; i < N; i++) wide[i * T * (C + GAP) + C / 2] = bad[i];
    test_pair_pass(&pair, keys, &tx, &ty);
    assert_int_equal(test_encoder_counters(pair.encoder).skipped_entries, sent.skipped_entries);
    for (int i = 0; i < N; i++) assert_true(isnan(y[i * COUNT + C / 2]));
    test_pair_close(&pair);
}

/* After a lost frame the encoder starts from an older copy, and measures from that one. */
TEST(the_distance_is_that_from_the_copy_of_the_decoder)
{
    static float x[COUNT], y[COUNT];
    test_random random = {test_seed()};
    test_pair pair;
    test_pair_open(&pair, "delta:bits=8,skip=0.1", 1, T, C, DW_F32);
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, T, C), ty = dw_tensor_3d(y, DW_F32, 1, T, C);
    test_fill(&random, x, DW_F32, COUNT, 1.0f);
    test_pair_pass(&pair, keys, &tx, &ty);
    test_pair_take_reply(&pair);
    for (int i = 0; i < COUNT; i++) x[i] += 1;
    test_pair_encode(&pair, keys, &tx); /* this frame is lost */
    test_pair_encode(&pair, keys, &tx); /* and this one is skipped, which the decoder refuses */
    assert_int_equal(test_pair_decode(&pair, &ty), DW_ERR_BASE);
    test_pair_take_reply(&pair);
    test_pair_pass(&pair, keys, &tx, &ty);
    assert_int_equal(test_encoder_counters(pair.encoder).skipped_entries, 1);
    assert_true(norm_of_difference(x, y) < 0.1 * norm_of_difference(x, NULL));
    test_pair_close(&pair);
}

RUN_TESTS(NULL, NULL)
