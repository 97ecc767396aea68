/* SPDX-License-Identifier: Apache-2.0
 * test_coded.c - tests entropy-coded payloads (docs/format.md, 3.8): two groups that break a rule,
 * and memory. tests/fuzz compares what decoders make of other payloads with its model. */
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

/* With another size of the first group both groups are wrong. The frame is refused, the decoder
 * holds no copy of the sample, and y keeps its values. */
TEST(payloads_of_two_wrong_groups_are_refused)
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

/* For each sample of a frame, the entropy coder needs 28 KB for its tables, and further memory that
 * must depend on the size of the sample. If it were that of the longest possible block, which has
 * 32768 codes, eight small samples would exceed the limit here. */
TEST(small_samples_need_little_memory)
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

RUN_TESTS(NULL, NULL)
