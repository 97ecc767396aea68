/* SPDX-License-Identifier: Apache-2.0
 * test_cocktail.c - tests the codecs cocktail and chunk: which values arrive, compared with
 * counting; and configs. */
#include <math.h>

#include "arithmetic/half.h"
#include "base/bytes.h"
#include "common/tensor.h"
#include "support/seal.h"
#include "support/tool.h"

static const dw_key key = {3, 1};

enum { MOST = 140000 };

/* Opens a pair with these options besides, encodes x and decodes y; the pair stays open. */
static void pass(test_pair *pair, const char *config, const dw_tensor *x, const dw_tensor *y)
{
    uint32_t t = x->t, c = x->c;
    test_pair_open(pair, config, 1, t, c, x->dtype);
    test_pair_encode(pair, &key, x);
    assert_int_equal(test_pair_decode(pair, y), DW_OK);
}

/* ---- Which values arrive --------------------------------------------------------------------- */

static uint32_t part_of(uint32_t n, double part)
{
    return (uint32_t)ceil(n * part - 1e-9);
}

/* Marks the k values of largest magnitude of n. NaN is larger than infinity. */
static void mark_largest(const float *values, uint32_t n, uint32_t k, bool *marks)
{
    for (uint32_t i = 0; i < n; i++) marks[i] = false;
    uint32_t low = 0, high = 0x80000000u, above = 0;
    while (high - low > 1) { /* find the largest limit that at least k magnitudes reach */
        uint32_t middle = low + (high - low) / 2, reach = 0;
        for (uint32_t i = 0; i < n; i++) reach += (dw_bits_of(values[i]) & 0x7fffffffu) >= middle;
        *(reach >= k ? &low : &high) = middle;
    }
    for (uint32_t i = 0; i < n; i++)
        above += marks[i] = (dw_bits_of(values[i]) & 0x7fffffffu) > low;
    for (uint32_t i = 0; i < n && above < k; i++)
        if ((dw_bits_of(values[i]) & 0x7fffffffu) == low) above += marks[i] = true;
}

/* Replaces the values that are marked by what direct makes of a row of them, and all others by
 * 0. */
static void through_direct(float *values, const bool *marks, uint32_t n, const char *rest,
                           dw_dtype y_dtype)
{
    static float row[MOST], arrived[MOST];
    char text[80];
    test_pair pair;
    uint32_t k = 0;
    for (uint32_t i = 0; i < n; i++)
        if (marks[i]) row[k++] = values[i];
    dw_tensor x = dw_tensor_3d(row, DW_F32, 1, 1, k), y = dw_tensor_3d(arrived, y_dtype, 1, 1, k);
    snprintf(text, sizeof text, "direct:%s", rest);
    pass(&pair, text, &x, &y);
    test_pair_close(&pair);
    k = 0;
    for (uint32_t i = 0; i < n; i++) values[i] = marks[i] ? test_get(arrived, y_dtype, k++) : 0;
}

/* What to send: normal values; few different magnitudes; and normal ones with NaN, infinities and
 * others that are rare. */
enum { NORMAL, FEW, SPOILED, KINDS };

static void fill(void *x, dw_dtype dtype, int kind, uint32_t n)
{
    test_random random = {(uint64_t)kind * 1000 + n};
    for (uint32_t i = 0; i < n; i++)
        test_set(x, dtype, i,
                 kind == FEW ? (float)((int)(test_next(&random) % 9) - 4) : test_normal(&random));
    if (kind == SPOILED) test_spoil(&random, x, dtype, n, true);
}

static void compare(const void *y, dw_dtype dtype, const float *expected, uint32_t n,
                    const char *text)
{
    for (uint32_t i = 0; i < n; i++) {
        float value = test_get(y, dtype, i);
        if (isnan(value) && isnan(expected[i])) continue;
        if (memcmp(&value, &expected[i], sizeof value) != 0)
            fail_msg("%s: element %u is %g, not %g", text, i, (double)value, (double)expected[i]);
    }
}

static void check_chunks(dw_dtype dtype, int kind, uint32_t t, uint32_t c, uint32_t chunk,
                         double keep)
{
    static float x[MOST], y[MOST], expected[MOST];
    static bool marks[MOST];
    uint32_t n = t * c;
    char text[120];
    test_pair pair;
    dw_tensor tx = dw_tensor_3d(x, dtype, 1, t, c), ty = dw_tensor_3d(y, dtype, 1, t, c);
    snprintf(text, sizeof text, "chunk:keep=%g,chunk=%u,bits=5,group=32,scale=signed", keep, chunk);
    fill(x, dtype, kind, n);
    for (uint32_t i = 0; i < n; i++) expected[i] = test_get(x, dtype, i);
    for (uint32_t i = 0; i < n; i += chunk) {
        uint32_t here = n - i < chunk ? n - i : chunk;
        mark_largest(expected + i, here, part_of(here, keep), marks + i);
    }
    through_direct(expected, marks, n, "bits=5,group=32,scale=signed", dtype);
    pass(&pair, text, &tx, &ty);
    compare(y, dtype, expected, n, text);
    test_pair_close(&pair);
}

static void chunk_sends_the_largest_of_each_chunk(void **state)
{
    static const uint32_t shapes[][2] = {{1, 1}, {1, 127}, {5, 77}, {2, 4096}, {700, 100}};
    static const uint32_t chunks[] = {128, 4096, 65536};
    static const double keeps[] = {0.000001, 0.015625, 0.2, 1};
    static const dw_dtype dtypes[] = {DW_F32, DW_F16, DW_BF16};
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int i = 0; i < 3; i++)
                for (int k = 0; k < 4; k++)
                    check_chunks(dtypes[(i + k + kind) % 3], kind, shapes[s][0], shapes[s][1],
                                 chunks[i], keeps[k]);
    check_chunks(DW_F32, NORMAL, 1, MOST, 65536, 0.01);
}

/* The candidates of a frame are those that arrive if all of them are sent, which are drawn alike
 * for the same incarnation, key and sequence. Some stretches of them are not of equal length. */
static void check_mask(dw_dtype dtype, int kind, uint32_t t, uint32_t c, double mask, double keep)
{
    static float x[MOST], y[MOST], expected[MOST], candidates[MOST];
    static bool are[MOST], marks[MOST];
    uint32_t n = t * c, m = part_of(n, mask), found = 0;
    char text[120];
    test_pair pair;
    dw_tensor tx = dw_tensor_3d(x, dtype, 1, t, c), ty = dw_tensor_3d(y, dtype, 1, t, c);
    for (uint32_t i = 0; i < n; i++) test_set(x, dtype, i, 1);
    snprintf(text, sizeof text, "cocktail:mask=%g,keep=1,incarnation=9,seed=4", mask);
    pass(&pair, text, &tx, &ty);
    test_pair_close(&pair);
    fill(x, dtype, kind, n);
    for (uint32_t i = 0, end = 0, in = 0, stretch = 0; i < n; i++) {
        if (i == end) {
            assert_true(i == 0 || in == 1); /* one candidate of each stretch */
            end += n / m + (stretch++ < n % m);
            in = 0;
        }
        are[i] = test_get(y, dtype, i) != 0;
        in += are[i];
        expected[i] = test_get(x, dtype, i);
        if (are[i]) candidates[found++] = expected[i];
    }
    assert_int_equal(found, m);
    static bool chosen[MOST];
    mark_largest(candidates, m, part_of(m, keep), chosen);
    for (uint32_t i = 0, j = 0; i < n; i++) marks[i] = are[i] && chosen[j++];
    through_direct(expected, marks, n, "bits=4", dtype);
    snprintf(text, sizeof text, "cocktail:mask=%g,keep=%g,incarnation=9,seed=4", mask, keep);
    pass(&pair, text, &tx, &ty);
    compare(y, dtype, expected, n, text);
    /* The next frame has other candidates. */
    test_pair_encode(&pair, &key, &tx);
    assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
    for (uint32_t i = 0, other = 0; kind == NORMAL && keep == 1 && mask < 1 && n > 1000 && i < n;
         i++) {
        other += !are[i] && test_get(y, dtype, i) != 0;
        if (i == n - 1) assert_true(other > 0);
    }
    test_pair_close(&pair);
}

static void cocktail_sends_the_largest_of_the_mask(void **state)
{
    static const uint32_t shapes[][2] = {{1, 1}, {1, 127}, {5, 77}, {2, 4096}, {700, 100}};
    static const double masks[] = {0.1, 0.3, 1}, keeps[] = {0.0001, 0.2, 1};
    static const dw_dtype dtypes[] = {DW_F32, DW_F16, DW_BF16};
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int i = 0; i < 3; i++)
                for (int k = 0; k < 3; k++)
                    check_mask(dtypes[(i + k + kind) % 3], kind, shapes[s][0], shapes[s][1],
                               masks[i], keeps[k]);
    check_mask(DW_F32, NORMAL, 1, MOST, 0.99, 0.01);
}

/* ---- Configs --------------------------------------------------------------------------------- */

static void wrong_cocktail_configs_are_refused(void **state)
{
    static const test_wrong_config wrong[] = {
        {"cocktail:mask=0", "from 0.000001 to 1"},
        {"cocktail:mask=1.01", "from 0.000001 to 1"},
        {"cocktail:keep=2", "from 0.000001 to 1"},
        {"cocktail:chunk=4096", "unknown option"},
        {"cocktail:dtype=f16", "unknown option"},
        {"cocktail:scaling=unbiased", "unknown option"},
        {"cocktail:group=channel", "16 32 64 128 256 row"},
        {"cocktail:bits=1,feedback=ef", "none unstable"},
        {"cocktail:group=row,feedback=ef", "none unstable"},
        {"chunk:chunk=100", "128 256 512 1024 2048 4096 8192 16384 32768 65536"},
        {"chunk:chunk=131072", "128 256"},
        {"chunk:mask=0.1", "unknown option"},
        {"chunk:seed=4,entropy=rans", "unknown option"},
        {"chunk:bits=2,rounding=stochastic,feedback=ef", "none unstable"},
        {"topk:chunk=128", "unknown option"},
        {"randk:mask=0.1", "unknown option"},
    };
    static const test_right_config right[] = {
        {"cocktail", "cocktail"},
        {"cocktail:mask=0.1,keep=0.2,bits=4,group=64", "cocktail"},
        {"cocktail:mask=1e-3,feedback=ef,seed=3", "cocktail:mask=0.001,seed=3,feedback=ef"},
        {"chunk:keep=0.015625,bits=2,chunk=4096,scale=absmax,group=16", "chunk"},
        {"chunk:chunk=128,keep=1,feedback=ef", "chunk:chunk=128,keep=1,feedback=ef"},
        {"chunk:scale=signed", "chunk:scale=signed"},
    };
    test_configs(wrong, sizeof wrong / sizeof *wrong, right, sizeof right / sizeof *right);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunk_sends_the_largest_of_each_chunk),
        cmocka_unit_test(cocktail_sends_the_largest_of_the_mask),
        cmocka_unit_test(wrong_cocktail_configs_are_refused),
    };
    return cmocka_run_group_tests_name("cocktail", tests, NULL, NULL);
}
