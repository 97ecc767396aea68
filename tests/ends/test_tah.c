/* SPDX-License-Identifier: Apache-2.0
 * test_tah.c - tests the codec tah: which tiles have 4 bits, pivots, residuals, and what is
 * refused. */
#include <math.h>

#include "codecs/contraction.h"
#include "support/tool.h"

static const dw_key key = {3, 1};

static uint64_t up16(uint64_t n)
{
    return (n + 15) / 16 * 16;
}

/* The parts of a payload with n tiles. */
typedef struct parts {
    uint8_t *mask, *pivots, *offsets, *codes;
} parts;

static parts parts_of(uint8_t *frame, size_t len, uint64_t n)
{
    dw_entry_info entry;
    assert_int_equal(dw_frame_entries(frame, len, 0, 1, &entry), DW_OK);
    uint8_t *payload = frame + entry.payload_offset;
    uint64_t pivots = up16((n + 7) / 8), offsets = pivots + up16(n), codes = offsets + up16(2 * n);
    return (parts){payload, payload + pivots, payload + offsets, payload + codes};
}

static bool is_wide(const parts *p, uint64_t tile)
{
    return p->mask[tile / 8] >> tile % 8 & 1;
}

static void rotate(float *v, uint32_t g)
{
    float made[256];
    for (uint32_t i = 0; i < g; i++) v[i] /= (float)g;
    for (uint32_t s = 1; s < g; s *= 2) {
        for (uint32_t i = 0; i < g; i++) made[i] = i & s ? v[i - s] - v[i] : v[i] + v[i + s];
        memcpy(v, made, g * sizeof *made);
    }
    for (uint32_t i = 0; i < g; i++) v[i] *= sqrtf((float)g);
}

/* ---- Pivots and wide tiles, compared with a search of the whole tile and a sort -------------- */

enum { MOST = 90 * 768, MOST_TILES = MOST / 16 };

static const float *sorted;

static int by_range(const void *a, const void *b)
{
    uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    if (sorted[i] != sorted[k]) return sorted[i] > sorted[k] ? -1 : 1;
    return i < k ? -1 : 1;
}

/* The pivot and the range of a tile, as docs/format.md says of the library. */
static uint32_t pivot_of(float *tile, uint32_t g, float tau, float *range)
{
    uint32_t pivot = 0;
    float second = 0, low, high;
    for (uint32_t i = 1; i < g; i++)
        if (fabsf(tile[i]) > fabsf(tile[pivot])) pivot = i;
    for (uint32_t i = 0; i < g; i++)
        if (i != pivot && fabsf(tile[i]) > second) second = fabsf(tile[i]);
    if (!(fabsf(tile[pivot]) > tau * second)) pivot = 0;
    float first = tile[0];
    tile[0] = tile[pivot];
    tile[pivot] = first;
    tile[0] = 0; /* it moves all rotated values alike */
    rotate(tile, g);
    low = high = tile[0];
    for (uint32_t i = 1; i < g; i++) {
        low = fminf(low, tile[i]);
        high = fmaxf(high, tile[i]);
    }
    *range = high - low;
    return pivot;
}

static void check_choices(uint32_t g, float tau, double share, dw_dtype dtype, uint32_t t,
                          uint32_t c, int kind)
{
    static float x[MOST + 90 * 3], ranges[MOST_TILES];
    static uint32_t pivots[MOST_TILES], order[MOST_TILES];
    uint32_t n = t * c / g, wide = (uint32_t)ceil(n * share - 1e-9), stride = c + 3;
    char text[80];
    test_random random = {g + t + (uint64_t)kind};
    test_pair pair;
    dw_tensor tx = dw_tensor_3d(x, dtype, 1, t, c);
    assert_true((size_t)t * c <= MOST && t <= 90);
    tx.stride_t = stride;
    tx.stride_n = (int64_t)t * stride;
    for (uint32_t i = 0; i < t * c; i++) {
        float value = kind == 1 ? (float)(test_next(&random) % 3) : test_normal(&random);
        test_set(x, dtype, i / c * (size_t)stride + i % c, value * (i % 41 == 7 ? 9.0f : 1.0f));
    }
    for (uint32_t i = 0; i < n; i++) {
        float tile[256];
        for (uint32_t k = 0; k < g; k++) {
            uint32_t at = i * g + k;
            tile[k] = test_get(x, dtype, at / c * (size_t)stride + at % c);
        }
        pivots[i] = pivot_of(tile, g, tau, &ranges[i]);
        order[i] = i;
    }
    sorted = ranges;
    qsort(order, n, sizeof *order, by_range);
    snprintf(text, sizeof text, "tah:tile=%u,tau=%g,share=%g", g, (double)tau, share);
    test_pair_open(&pair, text, 1, t, c, dtype);
    test_pair_encode(&pair, &key, &tx);
    assert_int_equal(pair.len, dw_frame_bound(&pair.config, &tx));
    parts p = parts_of(pair.frame, pair.len, n);
    for (uint32_t i = 0; i < n; i++) {
        if (is_wide(&p, order[i]) != (i < wide)) fail_msg("%s: tile %u", text, order[i]);
        if (p.pivots[i] != pivots[i]) fail_msg("%s: pivot of tile %u", text, i);
    }
    test_pair_close(&pair);
}

TEST(tah_chooses_tiles_and_pivots_as_a_search_does)
{
    for (int kind = 0; kind < 2; kind++) {
        check_choices(64, 1, 0.8, DW_F32, 5, 192, kind);
        check_choices(64, 2, 0.8, DW_BF16, 90, 768, kind);
        check_choices(16, 1.5f, 0.3, DW_F16, 90, 768, kind);
        check_choices(256, 1, 0.5, DW_F32, 33, 768, kind);
        check_choices(64, 1, 1, DW_F32, 33, 128, kind);
        check_choices(64, 1, 0.000001, DW_F32, 33, 128, kind);
        check_choices(16, 3, 0.8, DW_F32, 1, 16, kind);
    }
}

/* ---- Residuals, and NaN, which stays in its tile --------------------------------------------- */

/* Activations with one percent of outlier channels, most of which are far from 0, too. */
static void fill_outliers(test_random *random, float *x, uint32_t t, uint32_t c)
{
    for (uint32_t i = 0; i < t * c; i++) {
        bool is_outlier = i % c % 100 == 37;
        x[i] = test_normal(random) * (is_outlier ? 10.0f : 1.0f);
        if (is_outlier && i % c % 200 == 37) x[i] += 25;
    }
}

TEST(residuals_of_tah_are_bounded)
{
    enum { T = 4, C = 512, SIZE = T * C };
    static float x[SIZE], y[SIZE], coded[SIZE], held[SIZE];
    static const char *const configs[] = {"tah:feedback=ef", "tah:tile=16,tau=2,feedback=ef",
                                          "tah:tile=256,share=1,feedback=ef",
                                          "tah:scale=mse,share=0.1,feedback=ef"};
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, T, C), ty = dw_tensor_3d(y, DW_F32, 1, T, C), view;
    for (size_t k = 0; k < sizeof configs / sizeof *configs; k++) {
        test_random random = {k};
        test_pair pair;
        test_pair_open(&pair, configs[k], 1, T, C, DW_F32);
        dw_contraction contraction = dw_contraction_of(&pair.config);
        int tile = pair.config.tile ? (int)pair.config.tile : 64;
        assert_int_equal(contraction.kind, DW_CONTRACTS_BY_NORM);
        memset(held, 0, sizeof held);
        for (int visit = 0; visit < 12; visit++) {
            fill_outliers(&random, x, T, C);
            /* One large value in each tile, which is half at the top and half at the bottom. */
            for (int i = 0; visit > 6 && i < SIZE; i++) x[i] = i % 2 ? 1.0f : -1.0f;
            if (visit == 5) x[70] = NAN;
            for (int i = 0; i < SIZE; i++) coded[i] = x[i] - held[i];
            test_pair_pass(&pair, &key, &tx, &ty);
            for (int i = 0; i < SIZE; i++) {
                volatile float sum = held[i] + y[i];
                if (!isnan(y[i])) held[i] = sum - x[i];
            }
            assert_int_equal(dw_encoder_peek(pair.encoder, key, &view), DW_OK);
            assert_memory_equal(view.data, held, sizeof held);
            for (int i = 0; i < SIZE; i++)
                assert_true(isnan(y[i]) == (visit == 5 && i / tile == 70 / tile));
            assert_int_equal(test_encoder_counters(pair.encoder).poisoned_groups, visit >= 5);
            assert_int_equal(test_decoder_counters(pair.decoder).poisoned_groups, visit >= 5);
            if (visit != 5)
                assert_true(test_norm(held, SIZE) <= contraction.part * test_norm(coded, SIZE));
        }
        test_pair_close(&pair);
    }
}

/* ---- What is refused ------------------------------------------------------------------------- */

TEST(tiles_must_divide_a_token)
{
    static float x[2 * 128];
    test_pair pair;
    dw_tensor good = dw_tensor_3d(x, DW_F32, 1, 2, 128), bad = dw_tensor_3d(x, DW_F32, 1, 2, 96);
    test_pair_open(&pair, "tah", 1, 2, 128, DW_F32);
    test_pair_refuses(&pair, &key, &bad, DW_ERR_SHAPE, "tile=64");
    assert_non_null(strstr(dw_encoder_why(pair.encoder), "96 channels cannot be divided"));
    assert_non_null(strstr(dw_encoder_why(pair.encoder), "tile=16, 64 or 256"));
    assert_int_equal(dw_frame_bound(&pair.config, &bad), 0);
    test_pair_encode(&pair, &key, &good);
    test_pair_close(&pair);
}

TEST(wrong_tah_configs_are_refused)
{
    static const test_wrong_config wrong[] = {
        {"tah:tile=32", "16 64 256"},           {"tah:tau=0.5", "from 1 to 1000000"},
        {"tah:share=0", "from 0.000001 to 1"},  {"tah:share=1.1", "from 0.000001 to 1"},
        {"tah:bits=4", "unknown option"},       {"tah:scale=absmax", "signed mse"},
        {"direct:tile=64", "unknown option"},   {"tah:transform=hadamard", "unknown option"},
        {"tah:entropy=rans", "unknown option"}, {"tah:tile=256,feedback=ef", "none unstable"},
    };
    static const test_right_config right[] = {
        {"tah:tile=64,share=0.8,tau=1", "tah"},
        {"tah:tile=256,feedback=unstable", "tah:tile=256,feedback=unstable"},
        {"tah:tau=2.5,share=0.75,scale=mse", "tah:share=0.75,tau=2.5,scale=mse"},
    };
    dw_config config;
    dw_why why;
    char text[DW_CONFIG_TEXT_BYTES];
    test_configs(wrong, sizeof wrong / sizeof *wrong, right, sizeof right / sizeof *right);
    assert_int_equal(dw_config_parse(&config, "tah:tau=3", &why), DW_OK);
    assert_int_equal(dw_config_agreement(&config, text, sizeof text), DW_OK);
    assert_string_equal(text, "tah"); /* the decoder does not know tau */
}

RUN_TESTS(NULL, NULL)
