/* SPDX-License-Identifier: Apache-2.0
 * test_trellis.c - tests rounding=trellis through encoder and decoder: that the error is
 * never larger than what is coded, poison, values that are too large, and frames that are refused.
 */
#include <math.h>

#include "step_rig.h"
#include "support/seal.h"

enum { T = 128, C = 128, SIZE = T * C };

/* Draws values of a normal distribution, or of Laplace's. */
static void draw(test_random *random, bool is_laplace, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double u = test_uniform(random) - 0.5;
        x[i] = is_laplace ? (float)((u < 0 ? 1 : -1) * log(1 - 2 * fabs(u) + 1e-12) / sqrt(2))
                          : test_normal(random);
    }
}

static double norm_of(const float *x, const float *y, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)x[i] - (y ? y[i] : 0);
        sum += d * d;
    }
    return sqrt(sum);
}

/* However large the step is, making all values 0 is one of the ways that are compared. So the error
 * is never larger than what is coded, and changes bring prev closer to x. */
TEST(errors_never_exceed_what_is_coded)
{
    static const double steps[] = {0.07, 0.5, 1, 1.5, 2, 3, 10, 90};
    static float x[SIZE], y[SIZE];
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, T, C), ty = dw_tensor_3d(y, DW_F32, 1, T, C);
    for (int k = 0; k < 8; k++) {
        test_random random = {5};
        test_pair pair;
        char config[128];
        snprintf(config, sizeof config,
                 "delta:form=step,group=sample,step=%g,key_step=%g,rounding=trellis,"
                 "entropy=rans",
                 steps[k], steps[k]);
        test_pair_open(&pair, config, 1, T, C, DW_F32);
        draw(&random, k % 2, x, SIZE);
        double last = norm_of(x, NULL, SIZE);
        for (int visit = 0; visit < 6; visit++) {
            test_pair_pass(&pair, keys, &tx, &ty);
            double left = norm_of(x, y, SIZE);
            assert_true(left <= 1.0001 * last);
            if (steps[k] > 0.1 && steps[k] <= 1.5)
                assert_true(left < 0.7 * steps[k] * last + 1e-6 * norm_of(x, NULL, SIZE));
            last = left;
        }
        test_pair_close(&pair);
    }
}

/* A NaN poisons the piece that it is in, and no other: rows here, of which four share a lane's walk
 * through the trellis. */
TEST(poison_stays_in_its_row)
{
    static const char *const configs[] = {
        "direct:form=step,group=row,rounding=trellis,entropy=rans",
        "direct:form=step,group=16,step=0.3,rounding=trellis,entropy=rans"};
    static float x[SIZE], y[SIZE];
    for (int k = 0; k < 2; k++) {
        test_random random = {9};
        uint32_t piece = k ? 16 : C, bad = 3 * C + 20;
        draw(&random, false, x, SIZE);
        x[bad] = NAN;
        dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, T, C);
        pass(configs[k], &tx, y);
        for (uint32_t i = 0; i < SIZE; i++) {
            bool is_bad = i / piece == bad / piece;
            assert_int_equal(isnan(y[i]) != 0, is_bad);
            if (!is_bad) assert_true(fabsf(y[i] - x[i]) < 4);
        }
    }
}

/* Values of more than 124 steps arrive as they are, and are counted. */
TEST(values_too_large_for_a_trellis_arrive_as_they_are)
{
    static float x[SIZE], y[SIZE];
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, T, C), ty = dw_tensor_3d(y, DW_F32, 1, T, C);
    test_random random = {3};
    test_pair pair;
    draw(&random, false, x, SIZE);
    x[77] = 1000, x[5000] = -1000;
    test_pair_open(&pair, "direct:form=step,group=sample,step=0.07,rounding=trellis,entropy=rans",
                   1, T, C, DW_F32);
    test_pair_pass(&pair, keys, &tx, &ty);
    assert_true(y[77] == 1000 && y[5000] == -1000);
    assert_int_equal(test_encoder_counters(pair.encoder).escaped_values, 2);
    test_pair_close(&pair);
}

/* Returns the place of the byte that says whether a block's codes follow a trellis, in the first
 * entry of a frame whose sample has one step. */
static uint8_t *parts_of(test_pair *pair)
{
    dw_entry_info entry;
    assert_int_equal(dw_frame_entries(pair->frame, pair->len, 0, 1, &entry), DW_OK);
    return pair->frame + entry.payload_offset + 32 + 3;
}

/* The decoder needs no option to read a trellis. It refuses one where codes are dithered, and one
 * in codes that are not in steps. */
TEST(decoders_read_a_trellis_without_an_option)
{
    static const char *const others[] = {
        "direct:form=step,group=sample,rounding=dither,step=0.5,entropy=rans,incarnation=7",
        "direct:bits=8,group=row,entropy=rans,incarnation=7"};
    static float x[SIZE], y[SIZE];
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, T, C), ty = dw_tensor_3d(y, DW_F32, 1, T, C);
    test_random random = {4};
    test_pair pair, plain;
    draw(&random, false, x, SIZE);
    test_pair_open(&pair, "direct:form=step,group=sample,step=0.4,rounding=trellis,entropy=rans", 1,
                   T, C, DW_F32);
    test_pair_open(&plain, "direct:form=step,group=sample,entropy=rans", 1, T, C, DW_F32);
    test_pair_encode(&pair, keys, &tx);
    assert_int_equal(*parts_of(&pair), 2);
    assert_int_equal(dw_decode(plain.decoder, pair.frame, pair.len, &ty, NULL, NULL, 0, NULL),
                     DW_OK);
    assert_true(norm_of(x, y, SIZE) < 0.25 * norm_of(x, NULL, SIZE));
    test_pair_close(&pair);
    test_pair_close(&plain);
    for (int k = 0; k < 2; k++) {
        test_pair_open(&pair, others[k], 1, T, C, DW_F32);
        test_pair_encode(&pair, keys, &tx);
        dw_entry_info entry;
        assert_int_equal(dw_frame_entries(pair.frame, pair.len, 0, 1, &entry), DW_OK);
        pair.frame[entry.payload_offset + 16 + (k ? 16 * 16 : 16) + 3] = 2;
        test_seal(pair.frame, pair.len);
        assert_int_equal(test_pair_decode(&pair, &ty), DW_ERR_FORMAT);
        assert_non_null(strstr(dw_decoder_why(pair.decoder), "parts"));
        test_pair_close(&pair);
    }
}

int main(void)
{
    if (!test_can_run()) return 77;
    return test_run(NULL, NULL);
}
