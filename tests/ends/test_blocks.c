/* SPDX-License-Identifier: Apache-2.0
 * test_blocks.c - tests the codec blocks: what arrives, compared with a search through the whole
 * codebook; what is counted; and fitted codebooks, compared with a sort. */
#include <math.h>

#include "arithmetic/half.h"
#include "base/bytes.h"
#include "support/tool.h"

enum { ENTRIES = 256, GAP = 3, MOST = 70000 + 700 * GAP };
enum { DYNAMIC, LINEAR, QUANTILE };

static const dw_key key = {3, 1};
static const char *const names[] = {"dynamic", "linear", "quantile"};

static float float_at(const uint8_t *from)
{
    return dw_float_of((uint32_t)dw_get(from, 4));
}

static size_t up(size_t n, size_t m)
{
    return (n + m - 1) / m * m;
}

/* ---- The reference --------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

/* The middles of 2^i intervals between 0.1 and 1, in every decade; see docs/format.md, 3.13. */
static void make_dynamic(float entries[ENTRIES])
{
    int n = 0;
    double power = 1e7;
    entries[n++] = 0;
    entries[n++] = 1;
    for (int i = 0; i < 7; i++, power /= 10)
        for (int k = 0; k < 1 << i; k++) {
            entries[n] = (float)(((2 << i) + 9 * (2 * k + 1)) / ((2 << i) * power));
            entries[n + 1] = -entries[n];
            n += 2;
        }
    assert_int_equal(n, ENTRIES);
    qsort(entries, ENTRIES, sizeof *entries, ascending);
}

/* Whether a value lies above the middle of two others, exactly. Twice the value is compared with
 * the rounded sum of the others. If they are equal, the rounding error of the sum decides. */
static bool is_above_middle(float value, float low, float high)
{
    volatile double sum = (double)low + high, of_high = sum - low, of_low = sum - of_high;
    volatile double lost = (low - of_low) + (high - of_high), twice = 2 * (double)value;
    return twice != sum ? twice > sum : lost < 0;
}

/* The entry that is nearest to a value, by comparing all. They are in ascending order. */
static uint32_t nearest(const float *entries, uint32_t n, float value)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (is_above_middle(value, entries[best], entries[i])) best = i;
    return best;
}

/* RN of a finite value to a dtype, as its bits. */
static uint32_t rounded(float value, dw_dtype dtype)
{
    if (dtype == DW_F32) return dw_bits_of(dw_f32_finite(value + 0.0f));
    return dtype == DW_F16 ? dw_f16_finite(value + 0.0f) : dw_bf16_finite(value + 0.0f);
}

static uint32_t nan_of(dw_dtype dtype)
{
    return dtype == DW_F32 ? DW_F32_NAN : dtype == DW_F16 ? DW_F16_NAN : DW_BF16_NAN;
}

static uint32_t bits_at(const void *data, dw_dtype dtype, size_t i)
{
    return dtype == DW_F32 ? ((const uint32_t *)data)[i] : ((const uint16_t *)data)[i];
}

/* How many blocks the reference has found that count as zeros, or are poisoned. */
static uint32_t zero_blocks, poisoned_blocks;

/* Writes y of a block whose values are x, as bits. */
static void reference(int codebook, const float *x, uint32_t n, dw_dtype dtype, uint32_t *y)
{
    static float dynamic[ENTRIES];
    float most = 0;
    bool poisoned = false;
    make_dynamic(dynamic);
    for (uint32_t i = 0; i < n; i++) {
        poisoned = poisoned || !isfinite(x[i]);
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    }
    zero_blocks += !poisoned && most < 0x1p-96f;
    poisoned_blocks += poisoned;
    volatile float factor = (codebook == LINEAR ? 127.0f : 1.0f) / most, u, value;
    for (uint32_t i = 0; i < n; i++) {
        if (poisoned || most < 0x1p-96f) {
            y[i] = poisoned ? nan_of(dtype) : 0;
            continue;
        }
        u = x[i] * factor;
        value = codebook == LINEAR ? nearbyintf(u) / 127.0f : dynamic[nearest(dynamic, ENTRIES, u)];
        value *= most;
        y[i] = rounded(value, dtype);
    }
}

/* Writes y of a sample whose codebook was fitted and is in the payload. */
static void reference_of_fitted(const uint8_t *payload, const float *x, uint32_t n, dw_dtype dtype,
                                uint32_t *y)
{
    float entries[ENTRIES];
    uint32_t count = n < ENTRIES ? (uint32_t)up(n, 4) : ENTRIES;
    bool has_bad = false;
    for (uint32_t i = 0; i < count; i++) entries[i] = float_at(payload + 4 * i);
    for (uint32_t i = 0; i < n; i++) has_bad = has_bad || !isfinite(x[i]);
    assert_int_equal(has_bad, isnan(entries[count - 1]));
    poisoned_blocks += has_bad;
    for (uint32_t i = 0; i < n; i++)
        y[i] = isfinite(x[i]) ? rounded(entries[nearest(entries, count - has_bad, x[i])], dtype)
                              : nan_of(dtype);
}

/* ---- What arrives ---------------------------------------------------------------------------- */

/* Kinds of samples: normal values; a few magnitudes that are equal; all equal; magnitudes of all
 * orders; values that differ in their last bits; one large value among small ones; nothing but
 * zeros, of both signs; very small values; halves of the codes' distances, which lie between two
 * entries; some values that are rare or not finite. */
enum { NORMAL, FEW, EQUAL, ORDERS, LAST_BITS, SPIKE, ZEROS, TINY, MIDDLES, RARE, SPOILED, KINDS };

static float value_of(test_random *random, int kind, uint32_t i)
{
    float sign = test_next(random) % 2 ? 1.0f : -1.0f;
    switch (kind) {
    case FEW: return sign * (float)(test_next(random) % 4);
    case EQUAL: return -3;
    case ORDERS: return sign * ldexpf(1 + (float)test_uniform(random), (int)(i % 200) - 100);
    case LAST_BITS: return dw_float_of(0x3f800000u + (uint32_t)(test_next(random) % 9));
    case SPIKE: return test_normal(random) * (i % 7000 == 5 ? 1e6f : 1e-3f);
    case ZEROS: return sign * 0.0f;
    case TINY: return test_normal(random) * 0x1p-97f;
    case MIDDLES: return i % 64 ? (float)((int)(test_next(random) % 255) - 127) : 127.0f;
    default: return test_normal(random);
    }
}

static void fill(void *x, dw_dtype dtype, int kind, uint32_t t, uint32_t c, uint32_t stride)
{
    test_random random = {(uint64_t)kind * 1000 + t + c};
    for (uint32_t i = 0; i < t * c; i++)
        test_set(x, dtype, i / c * (size_t)stride + i % c, value_of(&random, kind, i));
    if (kind < RARE) return;
    for (uint32_t row = 0; row < t; row += 3)
        test_spoil(&random, (char *)x + row * (size_t)stride * dw_dtype_bytes(dtype), dtype, c,
                   kind == SPOILED);
}

static float x[MOST], y[MOST], dense[MOST];
static uint32_t expected[MOST];

static void check(int codebook, uint32_t block, dw_dtype dtype, int kind, uint32_t t, uint32_t c)
{
    uint32_t stride = c + (t > 1 ? GAP : 0), n = t * c;
    char text[80];
    test_pair pair;
    dw_tensor tx = dw_tensor_3d(x, dtype, 1, t, c), ty = dw_tensor_3d(y, dtype, 1, t, c);
    tx.stride_t = ty.stride_t = stride;
    tx.stride_n = ty.stride_n = (int64_t)t * stride;
    zero_blocks = poisoned_blocks = 0;
    snprintf(text, sizeof text,
             codebook == QUANTILE ? "blocks:codebook=%s" : "blocks:codebook=%s,block=%u",
             names[codebook], (unsigned)block);
    fill(x, dtype, kind, t, c, stride);
    for (size_t i = 0; i < (size_t)t * stride; i++) test_set(y, dtype, i, 7);
    test_pair_open(&pair, text, 1, t, c, dtype);
    test_pair_pass(&pair, &key, &tx, &ty);
    for (uint32_t i = 0; i < n; i++) dense[i] = test_get(x, dtype, i / c * (size_t)stride + i % c);
    for (uint32_t at = 0; codebook != QUANTILE && at < n; at += block)
        reference(codebook, dense + at, n - at < block ? n - at : block, dtype, expected + at);
    if (codebook == QUANTILE)
        reference_of_fitted(test_pair_payload(&pair, NULL), dense, n, dtype, expected);
    for (size_t i = 0; i < (size_t)t * stride; i++) {
        size_t at = i / stride * c + i % stride;
        if (i % stride >= c)
            assert_true(test_get(y, dtype, i) == 7);
        else if (bits_at(y, dtype, i) != expected[at])
            fail_msg("%s, kind %d, %u x %u: element %zu of %g is %#x, not %#x", text, kind,
                     (unsigned)t, (unsigned)c, at, (double)dense[at],
                     (unsigned)bits_at(y, dtype, i), (unsigned)expected[at]);
    }
    dw_counters sent = test_encoder_counters(pair.encoder),
                received = test_decoder_counters(pair.decoder);
    assert_int_equal(sent.groups, codebook == QUANTILE ? 1 : (n + block - 1) / block);
    assert_int_equal(sent.zero_groups, zero_blocks);
    assert_int_equal(sent.poisoned_groups, poisoned_blocks);
    assert_int_equal(received.groups, sent.groups);
    assert_int_equal(received.zero_groups, sent.zero_groups);
    assert_int_equal(received.poisoned_groups, sent.poisoned_groups);
    test_pair_close(&pair);
}

TEST(blocks_send_the_nearest_codes)
{
    static const uint32_t shapes[][2] = {{1, 1}, {1, 63}, {5, 33}, {1, 4099}, {70, 1000}};
    static const uint32_t blocks[] = {64, 4096, 65536};
    for (int codebook = DYNAMIC; codebook <= QUANTILE; codebook++)
        for (int kind = 0; kind < KINDS; kind++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
                for (int b = 0; b < (codebook == QUANTILE ? 1 : 3); b++) {
                    dw_dtype dtype = (dw_dtype)(1 + (kind + (int)s + b) % 3);
                    if (s == 4 && kind != NORMAL && kind != SPOILED) continue;
                    check(codebook, blocks[b], dtype, kind, shapes[s][0], shapes[s][1]);
                }
}

/* ---- Fitted codebooks ------------------------------------------------------------------------ */

static void encode_fitted(test_pair *pair, uint32_t n)
{
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1, n);
    test_pair_open(pair, "blocks:codebook=quantile", 1, 1, n, DW_F32);
    test_pair_encode(pair, &key, &tx);
}

/* Of samples that are sampled whole, the codebook has the extremes, 0 and the middles of bins of
 * equally many values. */
TEST(codebooks_are_quantiles)
{
    static const uint32_t sizes[] = {1, 2, 4, 5, 255, 256, 300, 16384};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int bad = 0; bad < 2; bad++) {
            test_random random = {s};
            test_pair pair;
            float wanted[ENTRIES];
            uint32_t n = sizes[s], count = n < ENTRIES ? (uint32_t)up(n, 4) : ENTRIES, m = 0;
            for (uint32_t i = 0; i < n; i++) x[i] = test_normal(&random) + 1;
            if (bad) x[n / 2] = s % 2 ? NAN : -INFINITY;
            for (uint32_t i = 0; i < n; i++)
                if (isfinite(x[i])) dense[m++] = x[i];
            qsort(dense, m, sizeof *dense, ascending);
            uint32_t middles = count - 3 - (uint32_t)bad;
            memset(wanted, 0, sizeof wanted);
            for (uint32_t j = 0; j < middles && m; j++)
                wanted[j] = dense[(2 * j + 1) * m / (2 * middles)];
            if (m) wanted[middles] = dense[0], wanted[middles + 1] = dense[m - 1];
            qsort(wanted, count - (uint32_t)bad, sizeof *wanted, ascending);
            if (bad) wanted[count - 1] = dw_float_of(DW_F32_NAN);
            encode_fitted(&pair, n);
            for (uint32_t i = 0; i < count; i++) {
                float entry = float_at(test_pair_payload(&pair, NULL) + 4 * i);
                if (memcmp(&entry, &wanted[i], sizeof entry) != 0)
                    fail_msg("entry %u of %u values is %g, not %g", (unsigned)i, (unsigned)n,
                             (double)entry, (double)wanted[i]);
            }
            test_pair_close(&pair);
        }
}

/* Of larger samples one value of each stretch is looked at. It must not be of the same channels
 * again and again: every other channel of this sample is larger. */
TEST(large_samples_are_sampled_evenly)
{
    enum { ALL = 65536, CHANNELS = 64 };
    test_random random = {5};
    test_pair pair;
    for (uint32_t i = 0; i < ALL; i++)
        x[i] = test_normal(&random) + (float)(i % CHANNELS + i % 2 * CHANNELS);
    memcpy(dense, x, ALL * sizeof *x);
    qsort(dense, ALL, sizeof *dense, ascending);
    encode_fitted(&pair, ALL);
    const uint8_t *payload = test_pair_payload(&pair, NULL);
    for (uint32_t i = 4; i < ENTRIES - 4; i++) {
        float entry = float_at(payload + 4 * i), wanted = dense[i * (uint64_t)ALL / ENTRIES];
        if (fabsf(entry - wanted) > 2)
            fail_msg("entry %u is %g, not %g", (unsigned)i, (double)entry, (double)wanted);
    }
    test_pair_close(&pair);
}

/* ---- Configs --------------------------------------------------------------------------------- */

TEST(wrong_blocks_configs_are_refused)
{
    static const test_wrong_config wrong[] = {
        {"blocks:block=100", "64 128 256 512 1024 2048 4096"},
        {"blocks:block=131072", "65536"},
        {"blocks:codebook=normal", "dynamic linear quantile"},
        {"blocks:codebook=quantile,block=64", "not allowed with the other options"},
        {"direct:block=64", "unknown option"},
    };
    static const test_right_config right[] = {
        {"blocks", "blocks"},
        {"blocks:codebook=dynamic,block=4096", "blocks"},
        {"blocks:block=65536,codebook=linear", "blocks:codebook=linear,block=65536"},
        {"blocks:codebook=quantile,feedback=ef", "blocks:codebook=quantile,feedback=ef"},
    };
    test_configs(wrong, sizeof wrong / sizeof *wrong, right, sizeof right / sizeof *right);
}

RUN_TESTS(NULL, NULL)
