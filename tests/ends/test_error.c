/* SPDX-License-Identifier: Apache-2.0
 * test_error.c - the option error: the encoder finds the step with which so much is lost. */
#include <math.h>

#include "support/tool.h"

enum { N = 2, T = 40, C = 800, SIZE = T * C };
static const dw_key keys[N] = {{7, 0}, {9, 1}};

static double norm(const float *values, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)values[i] * values[i];
    return sqrt(sum);
}

static double distance(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(sum);
}

/* Normal values, or values of Laplace's distribution, which has more large and more small ones. */
static float draw(test_random *random, bool laplace)
{
    double u = test_uniform(random) - 0.5;
    if (!laplace) return test_normal(random);
    return (float)((u < 0 ? 1 : -1) * log(1 - 2 * fabs(u) + 1e-12));
}

/* The samples of each visit resemble those of the last one. */
static void visit_next(float *x, test_random *random, bool laplace, bool first)
{
    for (int i = 0; i < N * SIZE; i++)
        x[i] = (first ? 0 : 0.9f * x[i]) + (first ? 1 : 0.4f) * draw(random, laplace);
}

/* The pieces that the error is measured of: whole samples, or the rows of them. */
static void check_pieces(const char *config, const float *x, const float *y, size_t piece,
                         double error, double least)
{
    for (size_t at = 0; at < N * SIZE; at += piece) {
        double part = distance(x + at, y + at, piece) / norm(x + at, piece);
        if (part > error || part < least * error)
            fail_msg("%s: %g of the norm at %zu, not %g", config, part, at, error);
    }
}

/* What the receiver gets wrong is as much as asked for, and no more: at every visit, whatever the
 * rounding, of each sample or row. */
static void as_much_is_lost_as_asked_for(void **state)
{
    static const struct {
        const char *options;
        double error, least; /* least: of the error that is asked for, how much must be used */
        size_t piece;
    } cases[] = {
        {"error=0.02", 0.02, 0.97, SIZE},
        {"error=0.1", 0.1, 0.97, SIZE},
        {"error=0.1,rounding=dither", 0.1, 0.97, SIZE},
        {"error=0.7,rounding=dither", 0.7, 0.97, SIZE},
        {"error=3e-1,rounding=stochastic", 0.3, 0.95, SIZE},
        {"error=0.1,group=row", 0.1, 0.83, C},
        {"error=0.1,group=row,rounding=dither", 0.1, 0.83, C},
        /* large steps, with which nearest rounding loses less than they allow */
        {"error=0.7", 0.7, 0.5, SIZE},
    };
    static float x[N * SIZE], y[N * SIZE];
    dw_tensor tx = dw_tensor_3d(x, DW_F32, N, T, C), ty = dw_tensor_3d(y, DW_F32, N, T, C);
    (void)state;
    for (size_t k = 0; k < 4 * sizeof cases / sizeof *cases; k++) {
        test_random random = {11 + k};
        char config[128];
        test_pair pair;
        bool is_delta = k % 2, laplace = k / 2 % 2;
        snprintf(config, sizeof config, "%s:form=step,incarnation=7,%s",
                 is_delta ? "delta" : "direct", cases[k / 4].options);
        test_pair_open(&pair, config, N, T, C, DW_F32);
        for (int visit = 0; visit < 4; visit++) {
            /* A change that is smaller than the error may be lost as a whole. */
            bool coarse =
                cases[k / 4].error > 0.5 || (is_delta && visit && cases[k / 4].error > 0.2);
            visit_next(x, &random, laplace, visit == 0);
            test_pair_encode(&pair, keys, &tx);
            assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
            bool dithers = strstr(config, "dither") != NULL;
            check_pieces(config, x, y, cases[k / 4].piece, cases[k / 4].error,
                         coarse && !dithers ? 0.4 : cases[k / 4].least);
        }
        assert_int_equal(test_encoder_counters(pair.encoder).clamped_values, 0);
        test_pair_close(&pair);
    }
}

/* Where a value is more than 127 such steps from its base, the step is larger: nothing is clamped,
 * and nothing is further away than half a step. */
static void nothing_is_clamped(void **state)
{
    static const char *const configs[] = {"direct:form=step,error=0.001",
                                          "delta:form=step,error=0.001,rounding=dither",
                                          "direct:form=step,error=0.001,rounding=stochastic"};
    static float x[N * SIZE], y[N * SIZE];
    dw_tensor tx = dw_tensor_3d(x, DW_F32, N, T, C), ty = dw_tensor_3d(y, DW_F32, N, T, C);
    test_random random = {5};
    (void)state;
    for (size_t k = 0; k < sizeof configs / sizeof *configs; k++)
        for (float most = 1.0f; most < 1e30f; most *= 3.7f) {
            test_pair pair;
            for (int i = 0; i < N * SIZE; i++) x[i] = (float)(test_uniform(&random) - 0.5);
            x[33] = most, x[SIZE + 1] = -most;
            test_pair_open(&pair, configs[k], N, T, C, DW_F32);
            test_pair_encode(&pair, keys, &tx);
            assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
            assert_int_equal(test_encoder_counters(pair.encoder).clamped_values, 0);
            double widest = (k == 2 ? 1 : 0.5) * most / 126;
            for (int i = 0; i < N * SIZE; i++)
                assert_true(fabs((double)y[i] - x[i]) <= widest * 1.0001);
            test_pair_close(&pair);
        }
}

/* A sample that became zeros has no norm that an error could be a part of. It still arrives. */
static void zeros_arrive(void **state)
{
    static float x[N * SIZE], y[N * SIZE];
    dw_tensor tx = dw_tensor_3d(x, DW_F32, N, T, C), ty = dw_tensor_3d(y, DW_F32, N, T, C);
    test_random random = {6};
    test_pair pair;
    double most = 0;
    (void)state;
    test_pair_open(&pair, "delta:form=step,error=0.05", N, T, C, DW_F32);
    for (int visit = 0; visit < 3; visit++) {
        test_fill(&random, x, DW_F32, N * SIZE, visit ? 0 : 1);
        for (int i = 0; i < N * SIZE; i++) most = fmax(most, fabs((double)y[i]));
        test_pair_encode(&pair, keys, &tx);
        assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
        for (int i = 0; i < N * SIZE && visit; i++)
            assert_true(fabs((double)y[i]) <= most / 252 * 1.0001);
        most = 0;
    }
    test_pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_much_is_lost_as_asked_for),
        cmocka_unit_test(nothing_is_clamped),
        cmocka_unit_test(zeros_arrive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
