/* SPDX-License-Identifier: Apache-2.0
 * test_places.c - tests the places that frames carry: compared with what is decoded, moved in every
 * dtype, used for a backward pass, and read from damaged frames. */
#include <math.h>

#include "base/bytes.h"
#include "deltawire/places.h"
#include "support/seal.h"
#include "support/tool.h"

enum { N = 3, T = 5, C = 107, GAP = 2, STRIDE = C + GAP, SIZE = T * C, ALL = N * T * STRIDE };

static float x[ALL], y[ALL], z[N * SIZE];
static const dw_key keys[N] = {{1, 0}, {2, 0}, {3, 0}};

static dw_tensor dense(void *data, dw_dtype dtype)
{
    return dw_tensor_3d(data, dtype, N, T, C);
}

static dw_tensor with_gaps(void *data, dw_dtype dtype)
{
    dw_tensor view = dense(data, dtype);
    view.stride_t = STRIDE;
    view.stride_n = (int64_t)T * STRIDE;
    return view;
}

/* Encodes random values, of which none is 0, and decodes them to y. */
static void pass(test_pair *pair, const char *config)
{
    test_random random = {7};
    dw_tensor tx = dense(x, DW_F32), ty = dense(y, DW_F32);
    test_pair_open(pair, config, N, T, C, DW_F32);
    test_fill(&random, x, DW_F32, N * SIZE, 1);
    test_pair_encode(pair, keys, &tx);
    assert_int_equal(test_pair_decode(pair, &ty), DW_OK);
}

static dw_places *places_of(const test_pair *pair)
{
    dw_places *places;
    dw_why why = {0};
    if (dw_places_read(&places, pair->frame, pair->len, NULL, &why)) fail_msg("%s", why.text);
    return places;
}

static void places_read_from_a_frame_are_those_of_y(void **state)
{
    static const struct {
        const char *config;
        double part;
        bool has_zeros; /* values that are sent may be rounded to 0 */
    } cases[] = {
        {"topk:keep=0.1", 0.1, false},           {"topk:keep=0.001", 0.001, false},
        {"topk:keep=1,dtype=bf16", 1, false},    {"topk:keep=0.3,bits=4,feedback=ef", 0.3, true},
        {"randk:keep=0.1,seed=5", 0.1, false},   {"randk:keep=0.7,scaling=unbiased", 0.7, false},
        {"cocktail:mask=1,keep=0.2", 0.2, true}, {"chunk:chunk=128,keep=0.25", 0.25, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        test_pair pair;
        pass(&pair, cases[i].config);
        dw_places *places = places_of(&pair);
        uint32_t k = dw_places_count(places);
        if (fabs(k - cases[i].part * SIZE) >= 4) fail_msg("%s: %u", cases[i].config, k);
        for (uint32_t n = 0; n < N; n++) {
            const uint32_t *list = dw_places_list(places, n);
            for (uint32_t at = 0, next = 0; at < SIZE; at++) {
                bool is_listed = next < k && list[next] == at;
                bool arrives = y[n * SIZE + at] < 0 || y[n * SIZE + at] > 0;
                if (arrives ? !is_listed : is_listed && !cases[i].has_zeros)
                    fail_msg("%s: sample %u, place %u", cases[i].config, n, at);
                next += is_listed;
                if (at == SIZE - 1) assert_int_equal(next, k);
            }
        }
        assert_null(dw_places_list(places, N));
        dw_places_destroy(places);
        test_pair_close(&pair);
    }
}

/* Encodes x of a fresh encoder with this config and number, and returns the frame's places. */
static dw_places *places_by(test_pair *pair, const char *config, uint64_t number)
{
    dw_tensor tx = dense(x, DW_F32), ty = dense(y, DW_F32);
    dw_encode_options options = {.struct_size = sizeof options, .places = number};
    dw_frame_info info = {.struct_size = sizeof info};
    test_pair_open(pair, config, N, T, C, DW_F32);
    assert_int_equal(
        dw_encode(pair->encoder, keys, &tx, &options, pair->frame, pair->cap, &pair->len), DW_OK);
    assert_int_equal(test_pair_decode(pair, &ty), DW_OK);
    assert_int_equal(dw_frame_read(pair->frame, pair->len, &info, NULL), DW_OK);
    assert_int_equal(info.draws_alike, number != 0);
    if (number) assert_int_equal(info.seed, number);
    return places_of(pair);
}

static bool are_equal(const dw_places *one, const dw_places *other, uint32_t sample)
{
    uint32_t k = dw_places_count(one);
    assert_int_equal(k, dw_places_count(other));
    return memcmp(dw_places_list(one, sample), dw_places_list(other, sample), k * sizeof k) == 0;
}

/* Encoders draw the same places if they are given the same number, and only then. */
static void ranks_with_one_draw_number_choose_the_same_places(void **state)
{
    static const char *const configs[] = {"randk:keep=0.1,seed=3", "cocktail:mask=0.1,keep=1"};
    static const struct {
        uint64_t numbers[2];
        bool are_equal;
    } cases[] = {{{7, 7}, true}, {{7, 8}, false}, {{0, 7}, false}, {{0, 0}, false}};
    test_random random = {7};
    test_fill(&random, x, DW_F32, N * SIZE, 1);
    for (int i = 0; i < 2; i++) {
        for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
            test_pair pairs[2];
            dw_places *one = places_by(&pairs[0], configs[i], cases[k].numbers[0]);
            dw_places *other = places_by(&pairs[1], configs[i], cases[k].numbers[1]);
            for (uint32_t n = 0; n < N; n++)
                assert_int_equal(are_equal(one, other, n), cases[k].are_equal);
            assert_false(are_equal(one, one, 0) &&
                         !memcmp(dw_places_list(one, 0), dw_places_list(one, 1), 40));
            dw_places_destroy(one);
            dw_places_destroy(other);
            test_pair_close(&pairs[0]);
            test_pair_close(&pairs[1]);
        }
    }
}

/* With the same places and seed, two encoders that round at random do not round alike. */
static void ranks_with_one_draw_number_round_differently(void **state)
{
    static float first[N * SIZE];
    static const char config[] = "randk:keep=0.5,bits=3,rounding=stochastic,seed=3";
    test_pair pairs[2];
    int differ = 0, arrive = 0;
    test_random random = {7};
    test_fill(&random, x, DW_F32, N * SIZE, 1);
    dw_places_destroy(places_by(&pairs[0], config, 5));
    memcpy(first, y, sizeof first);
    dw_places_destroy(places_by(&pairs[1], config, 5));
    for (int i = 0; i < N * SIZE; i++) {
        arrive += y[i] < 0 || y[i] > 0;
        differ += memcmp(&first[i], &y[i], sizeof *y) != 0;
    }
    if (differ < arrive / 8) fail_msg("%d of %d values differ", differ, arrive);
    test_pair_close(&pairs[0]);
    test_pair_close(&pairs[1]);
}

/* Codecs that draw no places make the same frames with and without the number. */
static void codecs_without_drawn_places_ignore_the_number(void **state)
{
    static const char *const configs[] = {"topk:keep=0.1", "direct:bits=4", "delta:bits=4",
                                          "direct:form=step,group=sample,rounding=dither,seed=4",
                                          "chunk:chunk=128"};
    test_random random = {7};
    test_fill(&random, x, DW_F32, N * SIZE, 1);
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        char config[100];
        test_pair pairs[2];
        snprintf(config, sizeof config, "%s,incarnation=9", configs[i]);
        for (uint64_t number = 0; number < 2; number++) {
            dw_tensor tx = dense(x, DW_F32);
            dw_encode_options options = {.struct_size = sizeof options, .places = number};
            test_pair *pair = &pairs[number];
            test_pair_open(pair, config, N, T, C, DW_F32);
            assert_int_equal(
                dw_encode(pair->encoder, keys, &tx, &options, pair->frame, pair->cap, &pair->len),
                DW_OK);
        }
        assert_int_equal(pairs[0].len, pairs[1].len);
        assert_memory_equal(pairs[0].frame, pairs[1].frame, pairs[0].len);
        test_pair_close(&pairs[0]);
        test_pair_close(&pairs[1]);
    }
}

static void check_moves(const dw_places *places, dw_dtype dtype)
{
    uint32_t k = dw_places_count(places), number = 0;
    dw_tensor tx = with_gaps(x, dtype), ty = with_gaps(y, dtype),
              tz = dw_tensor_3d(z, DW_F32, N, 1, k);
    test_random random = {(uint64_t)dtype};
    test_fill(&random, x, dtype, ALL, 1);
    test_spoil(&random, x, dtype, ALL, true);
    for (size_t i = 0; i < ALL; i++) test_set(y, dtype, i, 7);
    assert_int_equal(dw_places_gather(places, &tx, &tz, NULL), DW_OK);
    assert_int_equal(dw_places_scatter(places, &tz, &ty, NULL), DW_OK);
    for (uint32_t n = 0; n < N; n++)
        for (uint32_t t = 0; t < T; t++)
            for (uint32_t c = 0; c < STRIDE; c++) {
                uint32_t at = (n * T + t) * STRIDE + c, left = k - number % k;
                const uint32_t *list = dw_places_list(places, n) + k - left;
                bool is_next = number < (n + 1) * k && *list == t * C + c && c < C;
                float value = test_get(x, dtype, at), wanted = c < C ? 0 : 7;
                if (is_next && memcmp(&z[number], &value, sizeof value) != 0)
                    fail_msg("z of place %u: %g, not %g", at, (double)z[number], (double)value);
                if (is_next) wanted = z[number++];
                value = test_get(y, dtype, at);
                if (memcmp(&value, &wanted, sizeof value) != 0)
                    fail_msg("y of place %u: %g, not %g", at, (double)value, (double)wanted);
            }
    assert_int_equal(number, N * k);
}

/* With few places, tokens have none. */
static void places_gather_and_scatter_every_dtype(void **state)
{
    static const char *const configs[] = {"topk:keep=0.2", "topk:keep=0.002"};
    for (int i = 0; i < 2; i++) {
        test_pair pair;
        pass(&pair, configs[i]);
        dw_places *places = places_of(&pair);
        for (dw_dtype dtype = DW_F32; dtype <= DW_BF16; dtype++) check_moves(places, dtype);
        dw_places_destroy(places);
        test_pair_close(&pair);
    }
}

/* Between two places there may be many tokens without any. */
static void gaps_between_places_may_be_long(void **state)
{
    enum { TOKENS = 90, WIDTH = 3, NEXT = 5 };
    static float flat[TOKENS * WIDTH], spread[TOKENS * NEXT], got[TOKENS];
    test_pair pair;
    flat[1] = flat[4] = flat[199] = flat[268] = 9;
    test_pair_open(&pair, "topk:keep=0.0148", 1, TOKENS, WIDTH, DW_F32);
    dw_tensor tx = dw_tensor_3d(flat, DW_F32, 1, TOKENS, WIDTH);
    test_pair_encode(&pair, keys, &tx);
    dw_places *places = places_of(&pair);
    assert_int_equal(dw_places_count(places), 4);
    for (uint32_t i = 0; i < TOKENS * WIDTH; i++) spread[i / WIDTH * NEXT + i % WIDTH] = (float)i;
    dw_tensor ts = dw_tensor_3d(spread, DW_F32, 1, TOKENS, WIDTH),
              tz = dw_tensor_3d(got, DW_F32, 1, 1, 4);
    ts.stride_t = NEXT;
    assert_int_equal(dw_places_gather(places, &ts, &tz, NULL), DW_OK);
    for (uint32_t i = 0; i < 4; i++)
        assert_true(got[i] == (float)dw_places_list(places, 0)[i] && flat[(int)got[i]] == 9);
    dw_places_destroy(places);
    test_pair_close(&pair);
}

/* Halves that z brings to y are rounded to nearest, ties to even. */
static void scattered_values_are_rounded(void **state)
{
    static uint16_t half[N * SIZE];
    test_pair pair;
    pass(&pair, "topk:keep=0.2");
    dw_places *places = places_of(&pair);
    uint32_t k = dw_places_count(places), at = dw_places_list(places, 0)[3];
    dw_tensor ty = dense(half, DW_BF16), tz = dw_tensor_3d(z, DW_F32, N, 1, k);
    memset(z, 0, sizeof z);
    z[3] = 1.01171875f; /* between 1.0078125 and 1.015625, of which the second is even */
    assert_int_equal(dw_places_scatter(places, &tz, &ty, NULL), DW_OK);
    assert_true(test_get(half, DW_BF16, at) == 1.015625f);
    z[3] = 1e9f;
    ty.dtype = DW_F16;
    assert_int_equal(dw_places_scatter(places, &tz, &ty, NULL), DW_OK);
    assert_true(test_get(half, DW_F16, at) == 65504);
    z[3] = -INFINITY;
    assert_int_equal(dw_places_scatter(places, &tz, &ty, NULL), DW_OK);
    assert_true(test_get(half, DW_F16, at) == -INFINITY);
    dw_places_destroy(places);
    test_pair_close(&pair);
}

/* The backward pass of the two samples: what is at the forward's places arrives, in a frame that
 * has no places. */
static void a_backward_pass_sends_no_places(void **state)
{
    static float gradient[N * SIZE], back[N * SIZE], sent[N * SIZE];
    test_pair forward, backward, apart;
    test_random random = {3};
    pass(&forward, "topk:keep=0.25,dtype=bf16");
    dw_places *ours = places_of(&forward), *theirs = places_of(&forward);
    uint32_t k = dw_places_count(ours);
    dw_tensor tg = dense(gradient, DW_F32), tb = dense(back, DW_F32),
              tz = dw_tensor_3d(z, DW_F32, N, 1, k), ts = dw_tensor_3d(sent, DW_F32, N, 1, k);
    test_pair_open(&backward, "direct:bits=8", N, 1, k, DW_F32);
    test_fill(&random, gradient, DW_F32, N * SIZE, 1);
    assert_int_equal(dw_places_gather(theirs, &tg, &tz, NULL), DW_OK);
    test_pair_encode(&backward, keys, &tz);
    test_pair_open(&apart, "topk:keep=0.25,bits=8", N, T, C, DW_F32);
    test_pair_encode(&apart, keys, &tg);
    assert_true(backward.len + (size_t)N * SIZE / 8 < apart.len);
    assert_int_equal(test_pair_decode(&backward, &ts), DW_OK);
    assert_int_equal(dw_places_scatter(ours, &ts, &tb, NULL), DW_OK);
    for (int i = 0; i < N * SIZE; i++) {
        bool is_there = y[i] < 0 || y[i] > 0;
        float error = fabsf(back[i] - (is_there ? gradient[i] : 0));
        if (error > (is_there ? 0.05f : 0.0f)) fail_msg("element %d: %g", i, (double)error);
    }
    dw_places_destroy(ours);
    dw_places_destroy(theirs);
    test_pair_close(&forward);
    test_pair_close(&backward);
    test_pair_close(&apart);
}

/* ---- What is refused ------------------------------------------------------------------------- */

static void places_refuse_tensors_of_another_shape(void **state)
{
    test_pair pair;
    dw_why why;
    dw_places *places;
    pass(&pair, "topk:keep=0.2");
    places = places_of(&pair);
    dw_tensor tx = dense(x, DW_F32), tz = dw_tensor_3d(z, DW_F32, N, 1, dw_places_count(places)),
              wrong = tz;
    wrong.c--;
    assert_int_equal(dw_places_gather(places, &tx, &wrong, &why), DW_ERR_SHAPE);
    assert_non_null(
        strstr(why.text, "carries 107 elements of each sample of a tensor (3, 5, 107)"));
    wrong = tx;
    wrong.t--;
    assert_int_equal(dw_places_scatter(places, &tz, &wrong, &why), DW_ERR_SHAPE);
    wrong = tz;
    wrong.dtype = DW_BF16;
    assert_int_equal(dw_places_gather(places, &tx, &wrong, &why), DW_ERR_ARGUMENT);
    wrong = tx;
    wrong.stride_n = 1;
    assert_int_equal(dw_places_scatter(places, &tz, &wrong, &why), DW_ERR_ARGUMENT);
    assert_int_equal(dw_places_gather(places, &wrong, &tz, &why), DW_OK);
    wrong = tx;
    wrong.data = NULL;
    assert_int_equal(dw_places_gather(places, &wrong, &tz, &why), DW_ERR_ARGUMENT);
    assert_int_equal(dw_places_scatter(places, &tz, &wrong, &why), DW_ERR_ARGUMENT);
    assert_int_equal(dw_places_gather(NULL, &tx, &tz, &why), DW_ERR_ARGUMENT);
    assert_int_equal(dw_places_gather(places, NULL, &tz, NULL), DW_ERR_ARGUMENT);
    assert_int_equal(dw_places_scatter(places, &tz, NULL, NULL), DW_ERR_ARGUMENT);
    dw_places_destroy(places);
    dw_places_destroy(NULL);
    assert_int_equal(dw_places_count(NULL), 0);
    assert_null(dw_places_list(NULL, 0));
    test_pair_close(&pair);
}

static void places_refuse_frames_without_places(void **state)
{
    static const char *const configs[] = {"direct", "raw", "delta", "lowrank:rank=2", "blocks"};
    test_pair pair;
    dw_places *places;
    dw_why why;
    for (int i = 0; i < 5; i++) {
        pass(&pair, configs[i]);
        assert_int_equal(dw_places_read(&places, pair.frame, pair.len, NULL, &why),
                         DW_ERR_UNSUPPORTED);
        assert_non_null(strstr(why.text, "all elements"));
        assert_null(places);
        test_pair_close(&pair);
    }
    assert_int_equal(dw_places_read(&places, NULL, 0, NULL, &why), DW_ERR_ARGUMENT);
    assert_int_equal(dw_places_read(NULL, x, 0, NULL, NULL), DW_ERR_ARGUMENT);
}

/* Any byte of a frame may be another one, with the digests as they were or computed again. */
static void damaged_frames_are_refused(void **state)
{
    static const char *const configs[] = {"topk:keep=0.02", "randk:keep=0.02", "cocktail:keep=0.2",
                                          "chunk:chunk=128,keep=0.02"};
    for (int i = 0; i < 4; i++) {
        test_pair pair;
        dw_places *places;
        pass(&pair, configs[i]);
        uint8_t *copy = malloc(pair.len);
        assert_non_null(copy);
        memcpy(copy, pair.frame, pair.len);
        for (size_t at = 0; at < 2 * pair.len; at++) {
            memcpy(pair.frame, copy, pair.len);
            pair.frame[at / 2] ^= (uint8_t)(1u << (at / 2 + at % 2 * 3) % 8);
            dw_status status = dw_places_read(&places, pair.frame, pair.len, NULL, NULL);
            assert_true(status == DW_ERR_FORMAT || status == DW_ERR_VERSION ||
                        status == DW_ERR_CORRUPT);
            assert_null(places);
            test_seal(pair.frame, pair.len);
            status = dw_places_read(&places, pair.frame, pair.len, NULL, NULL);
            assert_true(status == DW_OK || status == DW_ERR_FORMAT || status == DW_ERR_VERSION ||
                        status == DW_ERR_UNSUPPORTED || status == DW_ERR_CORRUPT);
            dw_places_destroy(places);
        }
        memcpy(pair.frame, copy, pair.len);
        for (size_t len = 0; len < pair.len; len++)
            assert_int_not_equal(dw_places_read(&places, pair.frame, len, NULL, NULL), DW_OK);
        free(copy);
        test_pair_close(&pair);
    }
}

static void missing_memory_is_an_error(void **state)
{
    test_pair pair;
    dw_places *places;
    test_allocator allocator = {.fail_at = 0};
    dw_allocator hooks = test_allocator_hooks(&allocator);
    pass(&pair, "topk:keep=0.02");
    for (; dw_places_read(&places, pair.frame, pair.len, &hooks, NULL); allocator.fail_at++) {
        assert_true(allocator.fail_at < 3);
        assert_null(places);
        assert_int_equal(allocator.out_blocks, 0);
        allocator.calls = 0;
    }
    assert_int_equal(allocator.fail_at, 2);
    dw_places_destroy(places);
    assert_int_equal(allocator.out_blocks, 0);
    assert_int_equal(allocator.out_bytes, 0);
    test_pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_read_from_a_frame_are_those_of_y),
        cmocka_unit_test(ranks_with_one_draw_number_choose_the_same_places),
        cmocka_unit_test(ranks_with_one_draw_number_round_differently),
        cmocka_unit_test(codecs_without_drawn_places_ignore_the_number),
        cmocka_unit_test(places_gather_and_scatter_every_dtype),
        cmocka_unit_test(gaps_between_places_may_be_long),
        cmocka_unit_test(scattered_values_are_rounded),
        cmocka_unit_test(a_backward_pass_sends_no_places),
        cmocka_unit_test(places_refuse_tensors_of_another_shape),
        cmocka_unit_test(places_refuse_frames_without_places),
        cmocka_unit_test(damaged_frames_are_refused),
        cmocka_unit_test(missing_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
