/* SPDX-License-Identifier: Apache-2.0
 * test_sparse.c - tests the codecs topk, chunk, cocktail and randk: which values arrive, compared
 * with counting; and configs. tests/fuzz compares what decoders make of payloads that break a rule
 * with its model. */
#include <math.h>

#include "arithmetic/half.h"
#include "support/tool.h"

static const dw_key key = {3, 1};

/* ---- Values of largest magnitude, compared with counting ----------------------------------------
 */

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

enum { GAP = 3, MOST = 140000 };

/* Opens a pair with these options besides, encodes x and decodes y; the pair stays open. */
static void pass(test_pair *pair, const char *config, const dw_tensor *x, const dw_tensor *y)
{
    uint32_t t = x->t, c = x->c;
    test_pair_open(pair, config, 1, t, c, x->dtype);
    test_pair_pass(pair, &key, x, y);
}

static void check_largest(dw_dtype dtype, int kind, uint32_t t, uint32_t c, double keep)
{
    static float x[MOST], y[MOST], expected[MOST];
    static bool marks[MOST];
    uint32_t stride = c + (t > 1 ? GAP : 0), n = t * c, k = part_of(n, keep);
    char text[80];
    test_pair pair;
    dw_tensor tx = dw_tensor_3d(x, dtype, 1, t, c), ty = dw_tensor_3d(y, dtype, 1, t, c);
    tx.stride_t = ty.stride_t = stride;
    tx.stride_n = ty.stride_n = (int64_t)t * stride;
    snprintf(text, sizeof text, "topk:keep=%g", keep);
    fill(x, dtype, kind, t, c, stride);
    for (uint32_t i = 0; i < n; i++)
        expected[i] = test_get(x, dtype, i / c * (size_t)stride + i % c);
    mark_largest(expected, n, k, marks);
    for (uint32_t i = 0; i < n; i++)
        if (!marks[i]) expected[i] = 0;
    for (size_t i = 0; i < (size_t)t * stride; i++) test_set(y, dtype, i, 7);
    pass(&pair, text, &tx, &ty);
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
                check_largest(dtypes[((size_t)kind + s + i) % 3], kind, shapes[s][0], shapes[s][1],
                              keeps[i]);
}

/* ---- chunk and cocktail ------------------------------------------------------------------------
 */

/* Of each kind of values, those that make a difference for chunks and masks. */
static const int some_kinds[] = {NORMAL, FEW, SPOILED};

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
    fill(x, dtype, kind, 1, n, n);
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
    for (int which = 0; which < 3; which++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int i = 0; i < 3; i++)
                for (int k = 0; k < 4; k++)
                    check_chunks(dtypes[(i + k + which) % 3], some_kinds[which], shapes[s][0],
                                 shapes[s][1], chunks[i], keeps[k]);
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
    fill(x, dtype, kind, 1, n, n);
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
    test_pair_pass(&pair, &key, &tx, &ty);
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
    for (int which = 0; which < 3; which++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int i = 0; i < 3; i++)
                for (int k = 0; k < 3; k++)
                    check_mask(dtypes[(i + k + which) % 3], some_kinds[which], shapes[s][0],
                               shapes[s][1], masks[i], keeps[k]);
    check_mask(DW_F32, NORMAL, 1, MOST, 0.99, 0.01);
}

/* ---- randk ---------------------------------------------------------------------------------- */

enum { T = 8, C = 500, COUNT = T * C };

/* With randk there is one value of each stretch, which is x or, unbiased, as many times x as the
 * stretch has elements. Other frames have other places. */
static void randk_sends_one_value_of_each_stretch(void **state)
{
    static float x[COUNT], y[COUNT], other[COUNT];
    for (int unbiased = 0; unbiased < 2; unbiased++) {
        const char *text = unbiased ? "randk:keep=0.0301,scaling=unbiased" : "randk:keep=0.0301";
        test_pair pair;
        test_random random = {11};
        dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, T, C), ty = dw_tensor_3d(y, DW_F32, 1, T, C);
        uint32_t k = 121, start = 0; /* 4000 * 0.0301 is 120.4 */
        test_fill(&random, x, DW_F32, COUNT, 1);
        pass(&pair, text, &tx, &ty);
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
        ty.data = other;
        test_pair_pass(&pair, &key, &tx, &ty);
        assert_true(memcmp(y, other, sizeof y) != 0);
        test_pair_close(&pair);
    }
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
        {"topk", "topk"},
        {"topk:keep=0.01", "topk"},
        {"topk:bits=4,group=64", "topk:bits=4"},
        {"topk:dtype=bf16,keep=1e-3", "topk:keep=0.001,dtype=bf16"},
        {"randk:seed=4,scaling=unbiased,keep=1", "randk:keep=1,seed=4,scaling=unbiased"},
        {"topk:feedback=ef,keep=0.000001", "topk:keep=0.000001,feedback=ef"},
        {"cocktail", "cocktail"},
        {"cocktail:mask=0.1,keep=0.2,bits=4,group=64", "cocktail"},
        {"cocktail:mask=1e-3,feedback=ef,seed=3", "cocktail:mask=0.001,seed=3,feedback=ef"},
        {"chunk:keep=0.015625,bits=2,chunk=4096,scale=absmax,group=16", "chunk"},
        {"chunk:chunk=128,keep=1,feedback=ef", "chunk:chunk=128,keep=1,feedback=ef"},
        {"chunk:scale=signed", "chunk:scale=signed"},
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
        cmocka_unit_test(chunk_sends_the_largest_of_each_chunk),
        cmocka_unit_test(cocktail_sends_the_largest_of_the_mask),
        cmocka_unit_test(randk_sends_one_value_of_each_stretch),
        cmocka_unit_test(a_sample_that_is_too_large_is_refused_with_the_limit),
        cmocka_unit_test(wrong_sparse_configs_are_refused),
    };
    return cmocka_run_group_tests_name("sparse", tests, NULL, NULL);
}
