/* SPDX-License-Identifier: Apache-2.0
 * test_dither.c - tests subtractive dither (rounding=dither of the form step) through encoder and
 * decoder: which random numbers are drawn, that errors do not depend on x, and that prev comes
 * closer to x from visit to visit. */
#include <math.h>

#include "step_rig.h"

/* Returns how many of n values differ between a and b. */
static long differing(const float *a, const float *b, long n)
{
    long count = 0;
    for (long i = 0; i < n; i++) count += a[i] != b[i];
    return count;
}

/* The random numbers that both ends draw depend on the seed, the incarnation, the key and the
 * sequence of a frame, and on nothing else. With other numbers nearly every value of y is another.
 */
static void dither_is_drawn_anew_for_every_visit(void **state)
{
    enum { SIZE = 512 };
    static float x[N * SIZE], y[N * SIZE], other[N * SIZE];
    dw_tensor tx = dw_tensor_3d(x, DW_F32, N, 2, SIZE / 2), ty = tx;
    test_random random = {test_seed()};
    test_pair pair;
    test_fill(&random, x, DW_F32, SIZE, 1);
    memcpy(x + SIZE, x, SIZE * sizeof *x); /* both samples are the same */
    pass("direct:form=step,group=sample,rounding=dither,seed=3,incarnation=7", &tx, y);
    assert_true(differing(y, y + SIZE, SIZE) > SIZE - 8);
    pass("direct:form=step,group=sample,rounding=dither,seed=3,incarnation=7", &tx, other);
    assert_int_equal(differing(y, other, N * SIZE), 0);
    pass("direct:form=step,group=sample,rounding=dither,seed=3,incarnation=8", &tx, other);
    assert_true(differing(y, other, N * SIZE) > N * SIZE - 16);
    pass("direct:form=step,group=sample,rounding=dither,seed=4,incarnation=7", &tx, other);
    assert_true(differing(y, other, N * SIZE) > N * SIZE - 16);
    test_pair_open(&pair, "direct:form=step,group=sample,rounding=dither,seed=3,incarnation=7", N,
                   2, SIZE / 2, DW_F32);
    for (int visit = 0; visit < 2; visit++) {
        ty.data = visit ? other : y;
        test_pair_encode(&pair, keys, &tx);
        assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
    }
    assert_true(differing(y, other, N * SIZE) > N * SIZE - 16);
    test_pair_close(&pair);
    /* Without an incarnation in the config, each encoder chooses one at random. */
    pass("direct:form=step,group=sample,rounding=dither", &tx, y);
    pass("direct:form=step,group=sample,rounding=dither", &tx, other);
    assert_true(differing(y, other, N * SIZE) > N * SIZE - 16);
}

/* With subtractive dither the error y - x is uniformly distributed over one step, whatever x is. In
 * units of the step it has the mean 0, the variance 1/12 and no correlation with x; each is checked
 * to within 4 standard deviations of its estimate. With nearest rounding and a step of 3 deviations
 * the error is correlated with x, so the test would notice if dither did nothing. */
static void dithered_errors_do_not_depend_on_x(void **state)
{
    enum { T = 96, C = 1000, SIZE = T * C };
    static float x[SIZE], y[SIZE];
    test_random random = {3};
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, T, C), ty = tx;
    ty.data = y;
    for (int k = 0; k < 3; k++) {
        test_pair pair;
        test_pair_open(&pair,
                       k == 0 ? "direct:form=step,group=sample,rounding=dither,step=3,incarnation=7"
                       : k == 1
                           ? "direct:form=step,group=sample,rounding=dither,step=0.5,incarnation=7"
                           : "direct:form=step,group=sample,step=3,incarnation=7",
                       1, T, C, DW_F32);
        for (long i = 0; i < SIZE; i++) x[i] = k == 1 ? (float)(i % 7) : test_normal(&random);
        test_pair_encode(&pair, keys, &tx);
        assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
        errors s = errors_of(x, y, step_in(&pair), SIZE);
        double correlation = s.ex / sqrt(s.e2 * s.x2);
        if (k < 2) {
            assert_true(fabs(s.e / s.n) < 4 * sqrt(1 / 12.0 / s.n));
            assert_true(fabs(s.e2 / s.n - 1 / 12.0) < 4 * sqrt(1 / 180.0 / s.n));
            assert_true(fabs(correlation) < 4 / sqrt(s.n));
        } else {
            assert_true(correlation < -0.2);
        }
        test_pair_close(&pair);
    }
}

/* If x stays the same, the change that a visit codes is the error that the visit before has left.
 * Dither multiplies the square of the error by step^2 / 12, where step is the option; so the error
 * shrinks as long as the option is below sqrt(12). Stochastic rounding multiplies it by at most
 * step^2 / 4. */
static void prev_approaches_x_at_the_largest_steps(void **state)
{
    enum { T = 16, C = 1024, SIZE = T * C, VISITS = 24 };
    static const struct {
        const char *config;
        /* By how much a visit may multiply the mean square of the error. */
        double least, most;
    } cases[] = {
        {"delta:form=step,group=sample,rounding=dither,step=3,incarnation=7", 0.70, 0.80},
        {"delta:form=step,rounding=dither,step=3,group=row,incarnation=7", 0.70, 0.80},
        {"delta:form=step,group=sample,rounding=dither,step=1,incarnation=7", 0.07, 0.10},
        {"delta:form=step,group=sample,rounding=stochastic,step=1.8,incarnation=7", 0, 0.85},
        {"delta:form=step,group=sample,step=3", 0, 1}};
    static float x[SIZE], y[SIZE];
    test_random random = {5};
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, T, C), ty = tx;
    ty.data = y;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        test_pair pair;
        double last = 0;
        test_fill(&random, x, DW_F32, SIZE, 1);
        test_pair_open(&pair, cases[k].config, 1, T, C, DW_F32);
        for (int visit = 0; visit < VISITS; visit++) {
            test_pair_encode(&pair, keys, &tx);
            assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
            double left = errors_of(x, y, 1, SIZE).e2 / SIZE;
            if (left < 1e-9) break; /* below this, the rounding of binary32 disturbs the quotient */
            if (visit && (left < cases[k].least * last || left > cases[k].most * last))
                fail_msg("%s, visit %d: the mean square of the error is %g, and was %g before",
                         cases[k].config, visit, left, last);
            last = left;
        }
        assert_true(last < (cases[k].most < 1 ? 0.01 : 1));
        test_pair_close(&pair);
    }
}

/* Where key entries do not fit into the limit of a frame, stateless entries carry x, as short as a
 * change, and where the caller asks for it, all entries are stateless. All of them are dithered. */
static void short_entries_are_dithered(void **state)
{
    float x[N * 64], y[N * 64], told[N * 64];
    dw_tensor tx = dw_tensor_3d(x, DW_F32, N, 1, 64), ty = tx, tz = tx;
    dw_encode_options options = {.struct_size = sizeof options, .reconstruction = &tz};
    test_random random = {test_seed()};
    test_pair pair;
    ty.data = y, tz.data = told;
    test_pair_open(&pair, "delta:form=step,group=sample,rounding=dither,key=f32,incarnation=7", N,
                   1, 64, DW_F32);
    for (int visit = 0; visit < 3; visit++) {
        test_fill(&random, x, DW_F32, N * 64, 1);
        options.limit = visit == 0 ? 80 + 6 * 8 + 2 * 48 + 96 + 256 : 0;
        options.stateless = visit == 2;
        assert_int_equal(
            dw_encode(pair.encoder, keys, &tx, &options, pair.frame, pair.cap, &pair.len), DW_OK);
        assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
        assert_memory_equal(y, told, sizeof y);
        for (int i = 0; i < N * 64; i++) assert_true(fabsf(y[i] - x[i]) < 1.5f);
    }
    dw_counters sent = test_encoder_counters(pair.encoder);
    assert_int_equal(sent.stateless_entries, 1 + N);
    assert_int_equal(sent.key_entries, N);
    assert_int_equal(sent.delta_entries, 1);
    test_pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dither_is_drawn_anew_for_every_visit),
        cmocka_unit_test(dithered_errors_do_not_depend_on_x),
        cmocka_unit_test(prev_approaches_x_at_the_largest_steps),
        cmocka_unit_test(short_entries_are_dithered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
