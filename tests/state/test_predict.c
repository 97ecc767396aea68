/* SPDX-License-Identifier: Apache-2.0
 * test_predict.c - keys, copies and quota. */
#include "state/predict.h"
#include "support/tool.h"

TEST(keys_are_found_after_any_additions_and_removals)
{
    enum { MANY = 2000 };
    static dw_held *held[MANY];
    test_random random = {test_seed()};
    dw_predictor predictor;
    dw_allocator allocator = dw_mem_allocator(&(dw_allocator){0});
    dw_predictor_init(&predictor, &allocator, 0);
    memset(held, 0, sizeof held);
    uint64_t keys = 0;
    for (int step = 0; step < 40000; step++) {
        uint32_t i = (uint32_t)(test_next(&random) % MANY);
        dw_key key = {i % 7, i};
        assert_ptr_equal(dw_predictor_find(&predictor, key), held[i]);
        if (held[i]) {
            dw_predictor_remove(&predictor, held[i]);
            held[i] = NULL;
            keys--;
        } else {
            assert_int_equal(dw_predictor_add(&predictor, key, &held[i]), DW_OK);
            keys++;
        }
        assert_int_equal(predictor.keys, keys);
    }
    dw_predictor_release(&predictor);
}

/* Within one incarnation the highest sequence counts, in whatever order the calls come. Another
 * incarnation has its own sequence. */
TEST(late_frames_are_refused_up_to_the_highest)
{
    dw_predictor predictor;
    dw_held *held;
    dw_allocator allocator = dw_mem_allocator(&(dw_allocator){0});
    dw_predictor_init(&predictor, &allocator, 0);
    assert_false(dw_predictor_refuses(&predictor, 7, 1));
    dw_predictor_refuse_until(&predictor, 7, 10);
    dw_predictor_refuse_until(&predictor, 7, 5);
    assert_true(dw_predictor_refuses(&predictor, 7, 1) && dw_predictor_refuses(&predictor, 7, 10));
    assert_false(dw_predictor_refuses(&predictor, 7, 11));
    assert_false(dw_predictor_refuses(&predictor, 8, 1));
    assert_int_equal(dw_predictor_add(&predictor, (dw_key){1, 0}, &held), DW_OK);
    dw_predictor_drop(&predictor, held); /* it has no copy, so no frame was ever accepted for it */
    assert_true(dw_predictor_refuses(&predictor, 7, 10));
    dw_predictor_refuse_until(&predictor, 8, 2);
    assert_true(dw_predictor_refuses(&predictor, 8, 2));
    assert_false(dw_predictor_refuses(&predictor, 8, 3) || dw_predictor_refuses(&predictor, 7, 1));
    dw_predictor_release(&predictor);
}

TEST(sizes_that_overflow_are_refused)
{
    uint64_t result = 7;
    void *array = NULL;
    uint64_t cap = 0;
    dw_allocator allocator = dw_mem_allocator(&(dw_allocator){0});
    assert_false(dw_size_multiply(UINT64_MAX / 2, 3, &result));
    assert_false(dw_size_add(UINT64_MAX, 1, &result));
    assert_int_equal(result, 7);
    assert_true(dw_size_multiply(UINT64_MAX, 1, &result));
    assert_false(dw_mem_grow(&allocator, &array, &cap, UINT64_MAX / 8, 64));
    assert_null(array);
}

TEST(impossible_tensors_are_refused)
{
    float x[64] = {0};
    uint8_t frame[1024];
    size_t len;
    test_pair pair;
    test_pair_open(&pair, "delta:bits=4", 1, 1, 64, DW_F32);
    const struct {
        dw_tensor x;
        dw_status status;
    } bad[] = {
        {{x, (dw_dtype)9, 1, 1, 64, 64, 64}, DW_ERR_ARGUMENT},
        {{x, DW_F32, 0, 1, 64, 64, 64}, DW_ERR_ARGUMENT},
        {{x, DW_F32, 1, 0, 64, 64, 64}, DW_ERR_ARGUMENT},
        {{x, DW_F32, 1, 1, 0, 64, 64}, DW_ERR_ARGUMENT},
        {{x, DW_F32, 1, 2, 64, 64, 63}, DW_ERR_ARGUMENT},
        {{x, DW_F32, 2, 1, 64, -64, 64}, DW_ERR_ARGUMENT},
        {{NULL, DW_F32, 1, 1, 64, 64, 64}, DW_ERR_ARGUMENT},
        {{x, DW_F32, UINT32_MAX, UINT32_MAX, UINT32_MAX, 64, UINT32_MAX}, DW_ERR_LIMIT},
        {{x, DW_F32, 2, 1, 64, INT64_MAX, 64}, DW_ERR_LIMIT},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(
            dw_encode(pair.encoder, &(dw_key){1, 0}, &bad[i].x, NULL, frame, sizeof frame, &len),
            bad[i].status);
        assert_true(dw_encoder_why(pair.encoder)[0] != 0);
        if (bad[i].x.data) assert_int_equal(dw_frame_bound(&pair.config, &bad[i].x), 0);
    }
    dw_key twice[2] = {{1, 0}, {1, 0}};
    float two[128] = {0};
    dw_tensor tx = dw_tensor_3d(two, DW_F32, 2, 1, 64);
    assert_int_equal(dw_encode(pair.encoder, twice, &tx, NULL, frame, sizeof frame, &len),
                     DW_ERR_ARGUMENT);
    tx.n = 1;
    assert_int_equal(dw_encode(pair.encoder, twice, &tx, NULL, frame, 100, &len),
                     DW_ERR_BUFFER_TOO_SMALL);
    assert_int_equal(test_encoder_counters(pair.encoder).keys_held, 0);
    assert_int_equal(dw_encoder_resync(pair.encoder, twice, 1, frame, sizeof frame, &len),
                     DW_ERR_ARGUMENT);
    test_pair_close(&pair);
}

TEST(a_short_reply_buffer_is_refused)
{
    float x[64] = {1}, y[64];
    test_pair pair;
    test_pair_open(&pair, "delta:bits=4", 1, 1, 64, DW_F32);
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1, 64), ty = dw_tensor_3d(y, DW_F32, 1, 1, 64);
    test_pair_encode(&pair, &(dw_key){1, 0}, &tx);
    pair.reply_cap--;
    assert_int_equal(test_pair_decode(&pair, &ty), DW_ERR_BUFFER_TOO_SMALL);
    assert_int_equal(test_decoder_counters(pair.decoder).keys_held, 0);
    assert_int_equal(dw_decode(pair.decoder, pair.frame, pair.len, &ty, NULL, NULL, 0, NULL),
                     DW_OK);
    test_pair_close(&pair);
}

RUN_TESTS(NULL, NULL)
