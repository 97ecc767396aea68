/* SPDX-License-Identifier: Apache-2.0
 * test_coded.c - tests entropy-coded payloads (docs/format.md, 3.8): the decoder gives the same
 * values as without entropy coding. tests/fuzz compares what decoders make of payloads that break a
 * rule with its model. */
#include "base/bytes.h"
#include "support/seal.h"
#include "support/tool.h"

/* The shape of the tests' sample. It has 24 tiles of 2 rows each, and so two groups: one of 16
 * tiles and one of 8. */
enum { T = 48, C = 1000, COUNT = T * C };
static const dw_key key = {1, 0};

/* Opens a pair of encoder and decoder, and encodes a sample of normal values, the same in every
 * call. Writes the values to x; the frame is in the pair. */
static void encode(test_pair *pair, const char *config, float *x)
{
    test_random random = {7};
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, T, C);
    test_pair_open(pair, config, 1, T, C, DW_F32);
    test_fill(&random, x, DW_F32, COUNT, 1.0f);
    test_pair_encode(pair, &key, &tx);
}

/* Computes the digests of the pair's frame again, which may have been changed, and decodes it.
 * Returns the decoder's status. */
static dw_status decode(test_pair *pair, float *y)
{
    dw_tensor ty = dw_tensor_3d(y, DW_F32, 1, T, C);
    test_seal(pair->frame, pair->len);
    return test_pair_decode(pair, &ty);
}

/* Entropy coding is without loss: the decoded values have the same bits as without it, and the
 * frame is shorter. */
static void coded_values_are_those_of_plain_payloads(void **state)
{
    const char *const configs[] = {"direct:bits=3", "direct:bits=4,group=row", "mx:element=e2m1",
                                   "direct:form=step,group=sample", "direct:form=step,group=64"};
    static float x[COUNT], y[COUNT], plain[COUNT];
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        char text[80];
        test_pair one, other;
        snprintf(text, sizeof text, "%s,entropy=rans", configs[i]);
        encode(&one, text, x);
        encode(&other, configs[i], x);
        assert_int_equal(decode(&one, y), DW_OK);
        assert_int_equal(decode(&other, plain), DW_OK);
        assert_memory_equal(y, plain, sizeof y);
        assert_true(one.len < other.len);
        assert_int_equal(test_encoder_counters(one.encoder).encoded_bytes, one.len);
        assert_true(one.len <= one.cap);
        test_pair_close(&one);
        test_pair_close(&other);
    }
}

/* With another size of the first group both groups are wrong. The frame is refused, the decoder
 * holds no copy of the sample, and y keeps its values. */
static void payloads_of_two_wrong_groups_are_refused(void **state)
{
    static float x[COUNT], y[COUNT];
    test_pair pair;
    encode(&pair, "delta:form=step,group=256,entropy=rans", x);
    for (int by = -1; by <= 1; by += 2) {
        dw_put(test_pair_payload(&pair, NULL),
               dw_get(test_pair_payload(&pair, NULL), 4) + (uint64_t)by, 4);
        for (int k = 0; k < COUNT; k++) y[k] = 5;
        assert_int_equal(decode(&pair, y), by < 0 ? DW_ERR_FORMAT : DW_OK);
        for (int k = 0; k < COUNT && by < 0; k++) assert_true(y[k] == 5);
        assert_int_equal(test_decoder_counters(pair.decoder).keys_held, by < 0 ? 0 : 1);
    }
    test_pair_close(&pair);
}

/* One frame carries three samples. With key=f32 their key entries are floats, which are not entropy
 * coded; their changes are. When coded payloads have become shorter, the payloads behind them must
 * move. At the third visit one key was forgotten, so that a frame contains both kinds. */
static void payloads_of_both_kinds_share_a_frame(void **state)
{
    enum { N = 3, SMALL = 40 * 64 };
    static const dw_key keys[N] = {{1, 0}, {2, 0}, {3, 0}};
    static float x[N * SMALL], y[N * SMALL], made[N * SMALL];
    test_random random = {test_seed()};
    test_pair pair;
    test_pair_open(&pair, "delta:bits=4,key=f32,entropy=rans", N, 40, 64, DW_F32);
    dw_tensor ty = dw_tensor_3d(y, DW_F32, N, 40, 64), back = dw_tensor_3d(made, DW_F32, N, 40, 64);
    for (uint32_t visit = 0; visit < 4; visit++) {
        dw_encode_options options = {.struct_size = sizeof options, .reconstruction = &back};
        dw_tensor tx = dw_tensor_3d(x, DW_F32, N, 40, 64);
        test_fill(&random, x, DW_F32, N * SMALL, 1.0f);
        if (visit == 2) assert_int_equal(dw_encoder_forget(pair.encoder, keys[2]), DW_OK);
        assert_int_equal(
            dw_encode(pair.encoder, keys, &tx, &options, pair.frame, pair.cap, &pair.len), DW_OK);
        assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
        test_pair_take_reply(&pair);
        assert_memory_equal(y, made, sizeof y);
        for (int i = 0; i < N; i++) test_pair_in_step(&pair, keys[i]);
    }
    assert_int_equal(test_encoder_counters(pair.encoder).key_entries, N + 1);
    test_pair_close(&pair);
}

/* Where rows are longer than a tile, a new group begins with every 8th row, even if the group
 * before it has fewer than 16 tiles. */
static void rows_that_are_cut_are_grouped_by_eight(void **state)
{
    enum { ROWS = 20, LONG = 2 * 2048 + 5 };
    static float x[ROWS * LONG], y[ROWS * LONG], plain[ROWS * LONG];
    test_random random = {test_seed()};
    test_pair pair, other;
    dw_frame_info info = {.struct_size = sizeof info};
    test_fill(&random, x, DW_F32, ROWS * LONG, 1.0f);
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, ROWS, LONG), ty = tx, tp = tx;
    ty.data = y;
    tp.data = plain;
    test_pair_open(&pair, "direct:form=step,group=sample,entropy=rans", 1, ROWS, LONG, DW_F32);
    test_pair_open(&other, "direct:form=step,group=sample", 1, ROWS, LONG, DW_F32);
    test_pair_encode(&pair, &key, &tx);
    test_pair_encode(&other, &key, &tx);
    assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
    assert_int_equal(test_pair_decode(&other, &tp), DW_OK);
    assert_memory_equal(y, plain, sizeof y);
    /* Each row has 3 tiles. 8 rows make 2 groups, 8 further rows 2, and the last 4 rows 1; so there
     * are 5 sizes, and then zeros. The sizes follow 16 bytes with the step. */
    const uint8_t *sizes = test_pair_payload(&pair, NULL) + 16;
    for (int i = 0; i < 5; i++) assert_true(dw_get(sizes + 4 * (size_t)i, 4) > 0);
    for (int i = 5; i < 8; i++) assert_int_equal(dw_get(sizes + 4 * (size_t)i, 4), 0);
    assert_int_equal(dw_frame_read(pair.frame, pair.len, &info, NULL), DW_OK);
    assert_true(info.length < other.len / 3);
    test_pair_close(&pair);
    test_pair_close(&other);
}

/* Returns how many bits per value a frame with x takes. The frame is the first of a new encoder. */
static double bits_of(const char *config, const float *x, uint32_t t, uint32_t c)
{
    test_pair pair;
    dw_tensor tx = dw_tensor_3d((void *)(uintptr_t)x, DW_F32, 1, t, c);
    test_pair_open(&pair, config, 1, t, c, DW_F32);
    test_pair_encode(&pair, &key, &tx);
    double bits = 8.0 * (double)pair.len / t / c;
    test_pair_close(&pair);
    return bits;
}

/* Both ends know the dither, so that dithered codes can be sorted by it before they are entropy
 * coded; only the encoder knows the random numbers of stochastic rounding. With a step of 4
 * deviations, the codes take 0.66 bits per value if they are sorted and 0.92 if not
 * (docs/format.md, 3.9). Frames take somewhat more than their codes; the limit for sorted ones lies
 * between these two numbers. */
static void dither_that_is_known_makes_codes_shorter(void **state)
{
    static float x[256 * 128];
    test_random random = {test_seed()};
    test_fill(&random, x, DW_F32, 256 * 128, 1.0f);
    double known = bits_of("direct:form=step,group=sample,step=4,rounding=dither,entropy=rans", x,
                           256, 128),
           unknown =
               bits_of("direct:form=step,group=sample,step=4,rounding=stochastic,entropy=rans", x,
                       256, 128);
    if (known > 0.82 || unknown < 0.92) fail_msg("%f and %f bits", known, unknown);
}

/* For each sample of a frame, the entropy coder needs 28 KB for its tables, and further memory that
 * must depend on the size of the sample. If it were that of the longest possible block, which has
 * 32768 codes, eight small samples would exceed the limit here. */
static void small_samples_need_little_memory(void **state)
{
    enum { SAMPLES = 8 };
    static float x[SAMPLES * 64];
    static uint8_t frame[1 << 16];
    test_allocator used = {.fail_at = -1};
    dw_config config;
    dw_encoder *encoder;
    size_t len;
    assert_int_equal(dw_config_parse(&config, "direct:bits=4,entropy=rans", NULL), DW_OK);
    dw_host host = {.struct_size = sizeof host, .allocator = test_allocator_hooks(&used)};
    assert_int_equal(dw_encoder_create(&encoder, &config, &host, NULL), DW_OK);
    dw_tensor tx = dw_tensor_3d(x, DW_F32, SAMPLES, 1, 64);
    assert_int_equal(dw_encode(encoder, NULL, &tx, NULL, frame, sizeof frame, &len), DW_OK);
    assert_in_range(used.most_bytes, 1, (SAMPLES + 2) * 32768);
    dw_encoder_destroy(encoder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(coded_values_are_those_of_plain_payloads),
        cmocka_unit_test(payloads_of_two_wrong_groups_are_refused),
        cmocka_unit_test(payloads_of_both_kinds_share_a_frame),
        cmocka_unit_test(rows_that_are_cut_are_grouped_by_eight),
        cmocka_unit_test(dither_that_is_known_makes_codes_shorter),
        cmocka_unit_test(small_samples_need_little_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
