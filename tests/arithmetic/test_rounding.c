/* SPDX-License-Identifier: Apache-2.0
 * test_rounding.c - stochastic rounding: it is unbiased at every level, within 4 sigma; it does not
 * depend on the position, the key, the version or neighbouring elements; and it uses the same
 * random numbers however a tensor is divided. Seeds are fixed, so the outcome is the same in every
 * run. */
#include <math.h>

#include "support/tool.h"

enum { G = 64, T = 512, ELEMENTS = T * G };

typedef struct rounder {
    test_pair pair;
    float *x, *y;
} rounder;

static rounder open_rounder(const char *config, uint32_t t, uint32_t c)
{
    rounder r;
    test_pair_open(&r.pair, config, 1, t, c, DW_F32);
    r.x = malloc((size_t)t * c * sizeof *r.x);
    r.y = malloc((size_t)t * c * sizeof *r.y);
    assert_true(r.x && r.y);
    return r;
}

static void close_rounder(rounder *r)
{
    test_pair_close(&r->pair);
    free(r->x), free(r->y);
}

static void turn(rounder *r, dw_key key, uint32_t t, uint32_t c)
{
    dw_tensor x = dw_tensor_3d(r->x, DW_F32, 1, t, c), y = dw_tensor_3d(r->y, DW_F32, 1, t, c);
    test_pair_encode(&r->pair, &key, &x);
    assert_int_equal(test_pair_decode(&r->pair, &y), DW_OK);
}

/* The first value of every group is the largest level, which makes the scale 1. The others lie at a
 * fraction (`share`) above a level. Their mean error must be within 4 sigma of zero. For each of
 * the 64 positions in a group, with fewer values, it must be within 5. */
static void check_level(uint32_t bits, int level, double share)
{
    char config[64];
    int most = (1 << (bits - 1)) - 1;
    double value = level + share, sum = 0, lanes[G] = {0}, n = (double)(ELEMENTS - T);
    snprintf(config, sizeof config, "direct:bits=%u,rounding=stochastic,seed=%d", (unsigned)bits,
             200 + level);
    rounder r = open_rounder(config, T, G);
    for (int i = 0; i < ELEMENTS; i++) r.x[i] = i % G == 0 ? (float)most : (float)value;
    turn(&r, (dw_key){bits, 0}, T, G);
    double exact = r.x[1]; /* the value, rounded to f32 */
    for (int i = 0; i < ELEMENTS; i++) {
        if (i % G == 0) continue;
        assert_true(r.y[i] == (float)floor(exact) || r.y[i] == (float)ceil(exact));
        sum += r.y[i] - exact;
        lanes[i % G] += r.y[i] - exact;
    }
    double sigma = sqrt(share * (1 - share));
    if (fabs(sum) > 4 * sigma * sqrt(n))
        fail_msg("%u bits, %g: off by %g", (unsigned)bits, value, sum / n);
    for (int k = 1; k < G; k++)
        if (fabs(lanes[k]) > 5 * sigma * sqrt((double)T))
            fail_msg("%u bits, %g: lane %d is off by %g", (unsigned)bits, value, k, lanes[k] / T);
    close_rounder(&r);
}

TEST(stochastic_rounding_is_right_on_average)
{
    static const double shares[] = {0.5, 0.25, 0.9, 0.03};
    for (uint32_t bits = 2; bits <= 8; bits++) {
        int most = (1 << (bits - 1)) - 1, step = most / 8 + 1;
        for (int level = -most; level < most; level += step)
            for (int s = 0; s < 4; s++) check_level(bits, level, shares[s]);
    }
}

/* One bit: every y is s or -s, and their mean is x. */
TEST(stochastic_rounding_to_one_bit_is_right_on_average)
{
    for (float value = -0.9f; value < 1; value += 0.3f) {
        rounder r = open_rounder("direct:bits=1,rounding=stochastic", T, G);
        double sum = 0, n = (double)(ELEMENTS - T);
        for (int i = 0; i < ELEMENTS; i++) r.x[i] = i % G == 0 ? 1.0f : value;
        turn(&r, (dw_key){1, 0}, T, G);
        for (int i = 0; i < ELEMENTS; i++) {
            assert_true(fabsf(r.y[i]) == 1.0f);
            if (i % G) sum += r.y[i] - value;
        }
        double sigma = sqrt(1 - (double)value * value);
        assert_true(fabs(sum) <= 4 * sigma * sqrt(n));
        close_rounder(&r);
    }
}

/* Encodes values half way between two levels, and stores which way each was rounded: 1 or -1. */
static void flips(rounder *r, dw_key key, int8_t *up)
{
    for (int i = 0; i < ELEMENTS; i++) r->x[i] = i % G == 0 ? 7.0f : 0.5f;
    turn(r, key, T, G);
    for (int i = 0; i < ELEMENTS; i++) up[i] = i % G == 0 ? 0 : r->y[i] > 0.5f ? 1 : -1;
}

static double correlation(const int8_t *a, const int8_t *b, int lag)
{
    long sum = 0, n = 0;
    for (int i = 0; i + lag < ELEMENTS; i++) sum += a[i] * b[i + lag], n += a[i] && b[i + lag];
    return (double)sum / sqrt((double)n);
}

TEST(random_numbers_of_keys_and_versions_are_independent)
{
    static int8_t first[ELEMENTS], again[ELEMENTS], other_key[ELEMENTS], other_slice[ELEMENTS],
        other_seed[ELEMENTS];
    rounder r = open_rounder("direct:bits=4,rounding=stochastic,seed=1", T, G);
    rounder seeded = open_rounder("direct:bits=4,rounding=stochastic,seed=2", T, G);
    flips(&r, (dw_key){1, 0}, first);
    flips(&r, (dw_key){1, 0}, again);
    flips(&r, (dw_key){2, 0}, other_key);
    flips(&r, (dw_key){1, 1}, other_slice);
    flips(&seeded, (dw_key){1, 0}, other_seed);
    for (int lag = 1; lag <= 130; lag++)
        if (fabs(correlation(first, first, lag)) > 4.5)
            fail_msg("elements %d apart are correlated", lag);
    const int8_t *others[] = {again, other_key, other_slice, other_seed};
    for (int k = 0; k < 4; k++)
        for (int lag = 0; lag <= 16; lag++)
            if (fabs(correlation(first, others[k], lag)) > 4.5)
                fail_msg("visit %d is correlated with the first at a distance of %d", k, lag);
    close_rounder(&r);
    close_rounder(&seeded);
}

/* The random number of an element depends on its place in the sample alone, so it is the same
 * however the sample is cut into rows, groups and strips. */
TEST(random_numbers_belong_to_elements)
{
    static const char *const cuts[] = {"group=16", "group=64", "group=256", "group=row",
                                       "group=channel"};
    enum { ROWS = 31, COLUMNS = 2100 };
    float *expected = NULL;
    for (size_t k = 0; k < sizeof cuts / sizeof *cuts; k++) {
        char config[96];
        snprintf(config, sizeof config, "direct:bits=4,rounding=stochastic,seed=9,%s", cuts[k]);
        rounder r = open_rounder(config, ROWS, COLUMNS);
        /* These values make the scale 1 in every piece, however the sample is cut. */
        for (int i = 0; i < ROWS * COLUMNS; i++)
            r.x[i] = i % COLUMNS % 16 == 0 || i / COLUMNS == 0 ? 7.0f : 2.5f;
        turn(&r, (dw_key){1, 0}, ROWS, COLUMNS);
        if (!expected) {
            expected = r.y;
            r.y = NULL;
        } else {
            assert_memory_equal(expected, r.y, ROWS * COLUMNS * sizeof(float));
        }
        close_rounder(&r);
    }
    free(expected);
}

RUN_TESTS(NULL, NULL)
