/* SPDX-License-Identifier: Apache-2.0
 * test_sparse.c - tests the codecs topk, chunk and cocktail: which values arrive, compared with
 * counting; and the configs of all sparse codecs. The places that cocktail and randk draw are in
 * the golden frames and in the model of tests/fuzz, which also reads hostile payloads. */
#include <math.h>

#include "arithmetic/half.h"
#include "support/tool.h"

static const dw_key key = {3, 1};

/* ---- What is sent, by counting --------------------------------------------------------------- */

static uint32_t part_of(uint32_t n, double part)
{
    return (uint32_t)ceil(n * part - 1e-9);
}

/* Of n values some are marked. Leaves the mark of those of largest magnitude, `keep` of them. NaN
 * is larger than infinity. */
static void mark_largest(const float *values, uint32_t n, double keep, bool *marks)
{
    uint32_t low = 0, high = 0x80000000u, marked = 0, above = 0;
    for (uint32_t i = 0; i < n; i++) marked += marks[i];
    uint32_t k = part_of(marked, keep);
    while (high - low > 1) { /* find the largest limit that at least k magnitudes reach */
        uint32_t middle = low + (high - low) / 2, reach = 0;
        for (uint32_t i = 0; i < n; i++)
            reach += marks[i] && (dw_bits_of(values[i]) & 0x7fffffffu) >= middle;
        *(reach >= k ? &low : &high) = middle;
    }
    for (uint32_t i = 0; i < n; i++)
        above += marks[i] && (dw_bits_of(values[i]) & 0x7fffffffu) > low;
    for (uint32_t i = 0; i < n; i++) { /* of equal ones the first */
        uint32_t magnitude = dw_bits_of(values[i]) & 0x7fffffffu;
        bool is_tie = marks[i] && magnitude == low && above < k;
        above += is_tie;
        marks[i] = marks[i] && (magnitude > low || is_tie);
    }
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

/* Encodes x and decodes y with these options besides. */
static void pass(const char *config, const dw_tensor *x, const dw_tensor *y)
{
    test_pair pair;
    test_pair_open(&pair, config, 1, x->t, x->c, x->dtype);
    test_pair_pass(&pair, &key, x, y);
    test_pair_close(&pair);
}

/* Replaces the values that are marked by what direct makes of a row of them. */
static void through_direct(float *values, const bool *marks, uint32_t n, const char *config,
                           dw_dtype y_dtype)
{
    static float row[MOST], arrived[MOST];
    uint32_t k = 0;
    for (uint32_t i = 0; i < n; i++)
        if (marks[i]) row[k++] = values[i];
    dw_tensor x = dw_tensor_3d(row, DW_F32, 1, 1, k), y = dw_tensor_3d(arrived, y_dtype, 1, 1, k);
    pass(config, &x, &y);
    k = 0;
    for (uint32_t i = 0; i < n; i++)
        if (marks[i]) values[i] = test_get(arrived, y_dtype, k++);
}

/* The candidates of a mask are those that arrive if all of them are sent. They are drawn alike for
 * the same incarnation, key and sequence. */
static void mark_candidates(double mask, uint32_t t, uint32_t c, bool *marks)
{
    static float ones[MOST], y[MOST];
    char text[80];
    dw_tensor tx = dw_tensor_3d(ones, DW_F32, 1, t, c), ty = dw_tensor_3d(y, DW_F32, 1, t, c);
    for (uint32_t i = 0; i < t * c; i++) ones[i] = 1;
    snprintf(text, sizeof text, "cocktail:mask=%g,keep=1,incarnation=9,seed=4", mask);
    pass(text, &tx, &ty);
    for (uint32_t i = 0; i < t * c; i++) marks[i] = y[i] != 0;
}

/* Of a sample: mask: the part of the values that are candidates. keep: the part of these that is
 * sent, of `chunk` values each. values: how direct writes them; NULL: as they are. */
typedef struct sparse {
    const char *config, *values;
    double mask, keep;
    uint32_t chunk;
} sparse;

static void check(const sparse *s, dw_dtype dtype, int kind, uint32_t t, uint32_t c)
{
    static float x[MOST], y[MOST], expected[MOST];
    static bool marks[MOST];
    uint32_t stride = c + (t > 1 ? GAP : 0), n = t * c;
    dw_tensor tx = dw_tensor_3d(x, dtype, 1, t, c), ty = dw_tensor_3d(y, dtype, 1, t, c);
    tx.stride_t = ty.stride_t = stride;
    tx.stride_n = ty.stride_n = (int64_t)t * stride;
    fill(x, dtype, kind, t, c, stride);
    for (uint32_t i = 0; i < n; i++) {
        expected[i] = test_get(x, dtype, i / c * (size_t)stride + i % c);
        marks[i] = true;
    }
    if (s->mask < 1) mark_candidates(s->mask, t, c, marks);
    for (uint32_t i = 0; i < n; i += s->chunk)
        mark_largest(expected + i, n - i < s->chunk ? n - i : s->chunk, s->keep, marks + i);
    if (s->values) through_direct(expected, marks, n, s->values, dtype);
    for (size_t i = 0; i < (size_t)t * stride; i++) test_set(y, dtype, i, 7);
    pass(s->config, &tx, &ty);
    for (size_t i = 0; i < (size_t)t * stride; i++) {
        size_t at = i / stride * c + i % stride;
        float value = test_get(y, dtype, i), wanted = i % stride >= c ? 7
                                                      : marks[at]     ? expected[at]
                                                                      : 0;
        if (!(isnan(value) && isnan(wanted)) && memcmp(&value, &wanted, sizeof value) != 0)
            fail_msg("%s, kind %d, %u x %u: element %zu is %g, not %g", s->config, kind, t, c, at,
                     (double)value, (double)wanted);
    }
}

TEST(the_largest_values_arrive)
{
    static const uint32_t shapes[][2] = {{1, 1}, {1, 127}, {5, 33}, {2, 4096}, {700, 100}};
    static const double keeps[] = {0.000001, 0.015625, 0.2, 1}, masks[] = {0.1, 0.3, 1};
    static const uint32_t chunks[] = {128, 4096, 65536};
    static const dw_dtype dtypes[] = {DW_F32, DW_F16, DW_BF16};
    char text[3][120];
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (size_t k = 0; k < sizeof keeps / sizeof *keeps; k++) {
                size_t i = ((size_t)kind + s + k) % 3;
                sparse codecs[] = {
                    {text[0], NULL, 1, keeps[k], MOST},
                    {text[1], "direct:bits=5,group=32,scale=signed", 1, keeps[k], chunks[i]},
                    {text[2], "direct:bits=4", masks[i], keeps[k], MOST}};
                snprintf(text[0], sizeof text[0], "topk:keep=%g", keeps[k]);
                snprintf(text[1], sizeof text[1],
                         "chunk:keep=%g,chunk=%u,bits=5,group=32,scale=signed", keeps[k],
                         chunks[i]);
                snprintf(text[2], sizeof text[2], "cocktail:mask=%g,keep=%g,incarnation=9,seed=4",
                         masks[i], keeps[k]);
                for (int codec = 0; codec < 3; codec++)
                    check(&codecs[codec], dtypes[i], kind, shapes[s][0], shapes[s][1]);
            }
    sparse long_ones[] = {
        {"chunk:keep=0.01,chunk=65536,bits=4,group=64,scale=signed", "direct:bits=4", 1, 0.01,
         65536},
        {"cocktail:mask=0.99,keep=0.01,incarnation=9,seed=4", "direct:bits=4", 0.99, 0.01, MOST}};
    for (int codec = 0; codec < 2; codec++) check(&long_ones[codec], DW_F32, NORMAL, 1, MOST);
}

/* ---- Configs --------------------------------------------------------------------------------- */

TEST(wrong_sparse_configs_are_refused)
{
    static const test_wrong_config wrong[] = {
        {"topk:keep=0", "from 0.000001 to 1"},
        {"topk:keep=0.0000001", "from 0.000001 to 1"},
        {"topk:group=64", "not allowed with the other options"},
        {"topk:bits=4,dtype=f16", "not allowed with the other options"},
        {"topk:bits=4,group=channel", "16 32 64 128 256 row"},
        {"topk:scaling=unbiased", "unknown option"},
        {"topk:seed=4", "not allowed with the other options"},
        {"topk:bits=4,rounding=dither", "nearest stochastic"},
        {"topk:entropy=rans", "unknown option"},
        {"randk:scaling=unbiased,feedback=ef", "none unstable"},
        {"topk:bits=1,feedback=ef", "none unstable"},
        {"topk:bits=4,group=row,feedback=ef", "none unstable"},
        {"cocktail:mask=0", "from 0.000001 to 1"},
        {"cocktail:chunk=4096", "unknown option"},
        {"cocktail:dtype=f16", "unknown option"},
        {"cocktail:scaling=unbiased", "unknown option"},
        {"cocktail:group=channel", "16 32 64 128 256 row"},
        {"cocktail:bits=1,feedback=ef", "none unstable"},
        {"cocktail:group=row,feedback=ef", "none unstable"},
        {"chunk:chunk=100", "128 256 512 1024 2048 4096 8192 16384 32768 65536"},
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

TEST(a_sample_that_is_too_large_is_refused_with_the_limit)
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

RUN_TESTS(NULL, NULL)
