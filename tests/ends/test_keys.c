/* SPDX-License-Identifier: Apache-2.0
 * test_keys.c - keys from their first visit to their end: the quota, forgetting and its
 * announcement, a new incarnation, another shape. */
#include "support/tool.h"
#include "wire/reply.h"

TEST(a_full_quota_sends_stateless_and_never_fails)
{
    test_random random = {test_seed()};
    float x[3 * 64], y[3 * 64];
    test_pair pair;
    dw_key keys[3] = {{1, 0}, {2, 0}, {3, 0}};
    test_pair_open(&pair, "delta:bits=4,quota_bytes=512", 3, 1, 64, DW_F32); /* for two keys */
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 3, 1, 64), ty = dw_tensor_3d(y, DW_F32, 3, 1, 64);
    for (int epoch = 0; epoch < 3; epoch++) {
        test_fill(&random, x, DW_F32, 192, 1.0f);
        test_pair_pass(&pair, keys, &tx, &ty);
        test_pair_take_reply(&pair);
        for (int i = 0; i < 3; i++) test_pair_in_step(&pair, keys[i]);
    }
    assert_int_equal(test_encoder_counters(pair.encoder).stateless_entries, 3);
    assert_int_equal(test_encoder_counters(pair.encoder).delta_entries, 4);
    assert_int_equal(test_decoder_counters(pair.decoder).keys_held, 2);
    assert_int_equal(dw_encoder_forget(pair.encoder, keys[0]), DW_OK);
    test_pair_pass(&pair, keys + 1, &(dw_tensor){x, DW_F32, 1, 1, 64, 64, 64},
                   &(dw_tensor){y, DW_F32, 1, 1, 64, 64, 64});
    assert_int_equal(test_decoder_counters(pair.decoder).keys_held, 1);
    test_pair_in_step(&pair, keys[0]);
    test_pair_close(&pair);
}

/* Sends one sample through both ends, and passes the reply to the encoder. */
static dw_status visit(test_pair *pair, uint64_t sample, uint32_t t, float *x, float *y)
{
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, t, 64), ty = dw_tensor_3d(y, DW_F32, 1, t, 64);
    test_pair_encode(pair, &(dw_key){sample, 0}, &tx);
    dw_status status = test_pair_decode(pair, &ty);
    if (pair->reply_len) test_pair_take_reply(pair);
    return status;
}

/* Sends one sample in a frame that is no longer than the decoder expects. */
static void visit_within_limit(test_pair *pair, dw_key key, const dw_tensor *tx,
                               const dw_tensor *ty)
{
    dw_encode_options options = {.struct_size = sizeof options};
    assert_int_equal(dw_decoder_expect(pair->decoder, &key, tx, &options.limit), DW_OK);
    test_pair_encode_with(pair, &key, tx, &options);
    assert_int_equal(test_pair_decode(pair, ty), DW_OK);
    if (pair->reply_len) test_pair_take_reply(pair);
}

/* The first samples come no more: others take their place, within the quota, and both ends agree.
 * While samples come again, in any order, none gives way to another one. */
TEST(samples_that_come_no_more_give_way)
{
    enum { HELD = 8, SAMPLES = 16, EPOCHS = 12 };
    float x[64], y[64];
    test_random random = {test_seed()};
    test_pair pair;
    test_pair_open(&pair, "delta:bits=4,quota_bytes=2048,prev=f32", 1, 1, 64, DW_F32);
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1, 64), ty = dw_tensor_3d(y, DW_F32, 1, 1, 64);
    for (uint64_t epoch = 0; epoch < 2 * EPOCHS; epoch++) {
        uint64_t begin = epoch < EPOCHS ? 0 : 1000, step = 1 + 2 * (test_next(&random) % 8),
                 deltas = test_encoder_counters(pair.encoder).delta_entries;
        for (uint64_t i = 0; i < SAMPLES; i++) {
            dw_key key = {begin + (i * step + epoch) % SAMPLES, 0};
            test_fill(&random, x, DW_F32, 64, 1.0f);
            for (int k = 0; epoch == 6 && k < 99; k++) /* calls that fail are no uses */
                assert_true(dw_encode(pair.encoder, &key, &tx, NULL, pair.frame, 99, &pair.len));
            visit_within_limit(&pair, key, &tx, &ty);
            test_pair_in_step(&pair, key);
            assert_true(test_decoder_counters(pair.decoder).keys_held <= HELD);
        }
        uint64_t hits = test_encoder_counters(pair.encoder).delta_entries - deltas,
                 evicted = test_encoder_counters(pair.encoder).evicted_keys;
        if (epoch > 0 && epoch < EPOCHS) assert_true(hits == HELD && evicted == 0);
        if (epoch == 2 * EPOCHS - 1) assert_true(hits == HELD && evicted == HELD);
    }
    test_pair_close(&pair);
}

/* A sample that is sent again at once does not say how long samples stay away. */
TEST(samples_that_come_once_in_an_epoch_keep_their_room_after_one_came_twice)
{
    enum { HELD = 8, SAMPLES = 64, EPOCHS = 6 };
    float x[64] = {1}, y[64];
    test_pair pair;
    test_pair_open(&pair, "delta:bits=4,quota_bytes=2048,prev=f32", 1, 1, 64, DW_F32);
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        uint64_t deltas = test_encoder_counters(pair.encoder).delta_entries;
        for (uint64_t i = 0; i < SAMPLES; i++)
            for (int times = epoch == 0 && i == 5 ? 2 : 1; times > 0; times--)
                assert_int_equal(visit(&pair, i, 1, x, y), DW_OK);
        if (epoch > 1)
            assert_int_equal(test_encoder_counters(pair.encoder).delta_entries - deltas, HELD);
    }
    test_pair_close(&pair);
}

/* When both ends have the same quota, a new key must always find room in the end: after keys were
 * forgotten, frames were lost, or the encoder was created anew. */
TEST(equal_quotas_never_lock_a_key_out)
{
    float x[128] = {1}, y[128];
    test_pair pair;
    test_pair_open(&pair, "delta:bits=4,quota_bytes=256,prev=f32", 1, 1, 64, DW_F32); /* 1 copy */
    assert_int_equal(visit(&pair, 1, 1, x, y), DW_OK);
    dw_encoder_forget(pair.encoder, (dw_key){1, 0});
    for (int i = 0; i < 4; i++) assert_int_equal(visit(&pair, 2, 1, x, y), DW_OK);
    assert_int_equal(test_decoder_counters(pair.decoder).keys_held, 1);
    /* The decoder dropped the forgotten key, so there was room for the new one. */
    assert_true(test_encoder_counters(pair.encoder).delta_entries >= 2);
    /* A new encoder sends another key. The copies of the old encoder's keys must give way. */
    test_pair_renew_encoder(&pair);
    for (int i = 0; i < 3; i++) assert_int_equal(visit(&pair, 9, 1, x, y), DW_OK);
    assert_int_equal(test_encoder_counters(pair.encoder).delta_entries, 2);
    test_pair_close(&pair);
}

TEST(a_lost_announcement_is_repeated)
{
    float x[128] = {1}, y[128];
    test_pair pair;
    /* The quota has room for two copies. */
    test_pair_open(&pair, "delta:bits=4,quota_bytes=512,prev=f32", 1, 1, 64, DW_F32);
    assert_int_equal(visit(&pair, 1, 1, x, y), DW_OK);
    assert_int_equal(visit(&pair, 2, 1, x, y), DW_OK);
    dw_encoder_forget(pair.encoder, (dw_key){1, 0});
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1, 64);
    test_pair_encode(&pair, &(dw_key){2, 0}, &tx); /* announces that key 1 is gone; is lost */
    int statuses = 0;
    for (int i = 0; i < 100; i++)
        statuses += visit(&pair, 2 + (uint64_t)i % 2, 1, x, y) == DW_ERR_LIMIT;
    assert_int_equal(statuses, 0);
    assert_int_equal(test_decoder_counters(pair.decoder).keys_held, 2);
    test_pair_in_step(&pair, (dw_key){1, 0});
    test_pair_in_step(&pair, (dw_key){3, 0});
    test_pair_close(&pair);
}

/* Another encoder, which has what that of the pair saves now. */
static dw_encoder *saved_of(const test_pair *pair)
{
    dw_encoder *saved;
    assert_int_equal(dw_encoder_create(&saved, &pair->config, NULL, NULL), DW_OK);
    assert_int_equal(dw_encoder_export(pair->encoder, NULL, test_import_encoder, saved), DW_OK);
    return saved;
}

static void restore(test_pair *pair, dw_encoder *saved)
{
    dw_encoder_destroy(pair->encoder);
    pair->encoder = saved;
}

/* The decoder learns with the next frame that a key was forgotten. Until then there is no room for
 * another one. */
TEST(a_restored_encoder_announces_what_was_forgotten_before_it_was_saved)
{
    float x[128] = {1}, y[128];
    for (int has_replies = 0; has_replies < 2; has_replies++) {
        test_pair pair;
        test_pair_open(&pair,
                       has_replies ? "delta:bits=4,quota_bytes=512,prev=f32"
                                   : "delta:bits=4,quota_bytes=512,prev=f32,replies=never",
                       1, 1, 64, DW_F32);
        for (uint64_t key = 1; key < 3; key++) assert_int_equal(visit(&pair, key, 1, x, y), DW_OK);
        dw_encoder_forget(pair.encoder, (dw_key){1, 0});
        dw_status status =
            dw_encoder_export(pair.encoder, &(dw_key){1, 0}, test_import_encoder, NULL);
        assert_int_equal(status, DW_ERR_ARGUMENT);
        assert_string_equal(dw_encoder_why(pair.encoder), "the key was forgotten");
        for (int i = 0; i < 3; i++) restore(&pair, saved_of(&pair));
        for (int i = 0; i < 4; i++) assert_int_equal(visit(&pair, 3 - i % 2, 1, x, y), DW_OK);
        assert_int_equal(test_encoder_counters(pair.encoder).stateless_entries, 1);
        assert_int_equal(test_encoder_counters(pair.encoder).delta_entries, 2);
        assert_int_equal(test_decoder_counters(pair.decoder).keys_held, 2);
        test_pair_close(&pair);
    }
}

TEST(an_encoder_that_was_restored_from_an_earlier_moment_finds_room_for_its_keys)
{
    float x[128] = {1}, y[128];
    test_pair pair;
    int refused = 0;
    test_pair_open(&pair, "delta:bits=4,quota_bytes=512,prev=f32", 1, 1, 64, DW_F32);
    assert_int_equal(visit(&pair, 2, 1, x, y), DW_OK);
    dw_encoder *saved = saved_of(&pair);
    assert_int_equal(visit(&pair, 1, 1, x, y), DW_OK);
    restore(&pair, saved);
    assert_int_equal(visit(&pair, 3, 1, x, y), DW_ERR_LIMIT);
    for (uint64_t i = 0; i < 6; i++) refused += visit(&pair, 2 + i % 2, 1, x, y) != DW_OK;
    assert_int_equal(refused, 0);
    assert_int_equal(test_encoder_counters(pair.encoder).delta_entries, 4);
    test_pair_close(&pair);
}

/* Reading a saved state does not count as a visit. If it did, the next visit of each key would seem
 * to follow soon, and keys that come as rarely as before would make way for others. */
TEST(a_restored_encoder_forgets_no_key_that_comes_again)
{
    float x[128] = {1}, y[128];
    test_pair pair;
    test_pair_open(&pair, "delta:bits=4,quota_bytes=2048,prev=f32", 1, 1, 64, DW_F32);
    for (int epoch = 0; epoch < 6; epoch++) {
        if (epoch == 3) restore(&pair, saved_of(&pair));
        for (uint64_t key = 0; key < 64; key++) assert_int_equal(visit(&pair, key, 1, x, y), DW_OK);
    }
    assert_int_equal(test_encoder_counters(pair.encoder).delta_entries, 3 * 8);
    assert_int_equal(test_encoder_counters(pair.encoder).evicted_keys, 0);
    test_pair_close(&pair);
}

TEST(a_restored_encoder_is_refused_once_however_often_it_had_begun_anew)
{
    float x[128] = {1}, y[128];
    test_pair pair;
    int refused = 0;
    test_pair_open(&pair, "delta:bits=4", 1, 1, 64, DW_F32);
    assert_int_equal(visit(&pair, 1, 1, x, y), DW_OK);
    dw_encoder *saved = saved_of(&pair);
    for (int i = 0; i < 10; i++) {
        if (i % 2 == 0) dw_encoder_reset(pair.encoder);
        assert_int_equal(visit(&pair, 1, 1, x, y), DW_OK);
    }
    dw_encoder *again = saved_of(&(test_pair){.config = pair.config, .encoder = saved});
    restore(&pair, saved);
    for (int i = 0; i < 8; i++) refused += visit(&pair, 1, 1, x, y) != DW_OK;
    assert_int_equal(refused, 1);
    restore(&pair, again);
    dw_encoder_reset(pair.encoder); /* begins an incarnation that the decoder has not seen */
    for (int i = 0; i < 8; i++) assert_int_equal(visit(&pair, 1, 1, x, y), DW_OK);
    test_pair_close(&pair);
}

/* Without replies nothing could bring the ends in step if the decoder took frames for old ones. */
TEST(an_encoder_that_is_saved_after_a_reset_goes_on_with_a_fixed_incarnation)
{
    float x[128] = {1}, y[128];
    test_pair pair;
    test_pair_open(&pair, "delta:bits=4,incarnation=9,replies=never", 1, 1, 64, DW_F32);
    for (int i = 0; i < 9; i++) assert_int_equal(visit(&pair, i % 3, 1, x, y), DW_OK);
    assert_int_equal(dw_encoder_reset(pair.encoder), DW_OK);
    for (int i = 0; i < 2; i++) restore(&pair, saved_of(&pair));
    for (int i = 0; i < 9; i++) assert_int_equal(visit(&pair, i % 3, 1, x, y), DW_OK);
    assert_int_equal(test_encoder_counters(pair.encoder).delta_entries, 6);
    test_pair_close(&pair);
}

TEST(a_decoder_without_keys_takes_no_state_of_an_earlier_incarnation)
{
    float x[128] = {1}, y[128];
    uint8_t saved[1000];
    size_t len;
    test_pair pair;
    test_pair_open(&pair, "delta:bits=4", 1, 1, 64, DW_F32);
    assert_int_equal(visit(&pair, 1, 1, x, y), DW_OK);
    dw_key key = {1, 0};
    assert_int_equal(test_export_decoder(pair.decoder, key, saved, sizeof saved, &len), DW_OK);
    dw_encoder_reset(pair.encoder);
    assert_int_equal(visit(&pair, 1, 1, x, y), DW_OK);
    dw_encoder_forget(pair.encoder, key); /* which a frame without state announces */
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1, 64), ty = dw_tensor_3d(y, DW_F32, 1, 1, 64);
    const dw_encode_options options = {.struct_size = sizeof options, .stateless = 1};
    test_pair_encode_with(&pair, &key, &tx, &options);
    assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
    assert_int_equal(test_decoder_counters(pair.decoder).keys_held, 0);
    assert_int_equal(dw_decoder_import(pair.decoder, saved, len), DW_ERR_MISMATCH);
    test_pair_renew_decoder(&pair);
    assert_int_equal(dw_decoder_import(pair.decoder, saved, len), DW_OK);
    test_pair_close(&pair);
}

/* A stream of samples, each of which is seen once and then forgotten: neither end may grow. */
TEST(forgotten_keys_leave_nothing_behind)
{
    float x[128] = {1}, y[128];
    test_pair pair;
    test_pair_open(&pair, "delta:bits=4", 1, 1, 64, DW_F32);
    for (uint64_t i = 0; i < 2000; i++) {
        assert_int_equal(visit(&pair, i, 1, x, y), DW_OK);
        dw_encoder_forget(pair.encoder, (dw_key){i, 0});
    }
    assert_true(test_decoder_counters(pair.decoder).keys_held <= 2);
    assert_true(test_encoder_counters(pair.encoder).state_bytes < 4096);
    test_pair_close(&pair);
}

/* An encoder that was restored with its incarnation, but without its state, learns from the reply
 * to its first frame up to which number frames are refused, also where a copy of an earlier encoder
 * is held of the key. */
TEST(a_copy_of_another_encoder_hides_no_drop_number)
{
    float x[64] = {1}, y[64];
    test_pair first, second, restored;
    const dw_key key = {1, 0}, gone = {9, 0};
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1, 64), ty = dw_tensor_3d(y, DW_F32, 1, 1, 64);
    test_pair_open(&first, "delta:bits=4,incarnation=5", 1, 1, 64, DW_F32);
    test_pair_open(&second, "delta:bits=4,incarnation=6", 1, 1, 64, DW_F32);
    test_pair_open(&restored, "delta:bits=4,incarnation=6", 1, 1, 64, DW_F32);
    test_pair_pass(&first, &key, &tx, &ty);
    for (int i = 0; i < 20; i++) test_pair_encode(&second, &gone, &tx); /* they are lost */
    dw_encoder_forget(second.encoder, gone);
    dw_encode_options options = {.struct_size = sizeof options, .stateless = 1};
    test_pair_encode_with(&second, &key, &tx, &options);
    assert_int_equal(dw_decode(first.decoder, second.frame, second.len, &ty, NULL, second.reply,
                               second.reply_cap, &second.reply_len),
                     DW_OK);
    for (int i = 0; i < 2; i++) {
        test_pair_encode(&restored, &key, &tx);
        assert_int_equal(dw_decode(first.decoder, restored.frame, restored.len, &ty, NULL,
                                   restored.reply, restored.reply_cap, &restored.reply_len),
                         i ? DW_OK : DW_ERR_STALE);
        assert_int_equal(
            dw_encoder_take_reply(restored.encoder, restored.reply, restored.reply_len), DW_OK);
    }
    test_pair_close(&restored);
    test_pair_close(&second);
    test_pair_close(&first);
}

/* The answer to a late frame of an incarnation that was replaced names no number of it. */
TEST(an_incarnation_that_was_replaced_has_no_drop_number)
{
    float x[64] = {1}, y[64];
    test_pair first, second;
    const dw_key key = {1, 0}, other = {2, 0};
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1, 64), ty = dw_tensor_3d(y, DW_F32, 1, 1, 64);
    uint8_t late[1024];
    dw_reply_entry entry;
    test_pair_open(&first, "delta:bits=4,incarnation=5", 1, 1, 64, DW_F32);
    test_pair_open(&second, "delta:bits=4,incarnation=6", 1, 1, 64, DW_F32);
    test_pair_encode(&first, &key, &tx);
    size_t late_len = first.len;
    assert_true(late_len <= sizeof late);
    memcpy(late, first.frame, late_len);
    dw_encoder_forget(first.encoder, key);
    test_pair_encode(&first, &other, &tx); /* announces that the key is gone */
    assert_int_equal(test_pair_decode(&first, &ty), DW_OK);
    test_pair_encode(&second, &other, &tx);
    assert_int_equal(dw_decode(first.decoder, second.frame, second.len, &ty, NULL, second.reply,
                               second.reply_cap, &second.reply_len),
                     DW_OK);
    assert_int_equal(dw_decode(first.decoder, late, late_len, &ty, NULL, first.reply,
                               first.reply_cap, &first.reply_len),
                     DW_ERR_STALE);
    dw_reply_get_entry(first.reply, 0, &entry);
    assert_int_equal(entry.held, 0);
    assert_int_equal(entry.version, 0);
    test_pair_close(&second);
    test_pair_close(&first);
}

TEST(used_up_sequences_begin_a_new_incarnation)
{
    float x[128] = {1}, y[128];
    test_pair pair;
    dw_key key = {1, 0};
    test_pair_open(&pair, "delta:bits=4,incarnation=9", 1, 1, 64, DW_F32);
    assert_int_equal(visit(&pair, 1, 1, x, y), DW_OK);
    dw_reply_entry far_ahead = {
        .key = key, .held = 1, .incarnation = 9, .version = UINT64_MAX, .chain = 3};
    dw_reply_put_entry(pair.reply, 0, &far_ahead);
    dw_reply_finalize(pair.reply, &(dw_reply_info){.incarnation = 9, .sequence = 1, .n = 1});
    pair.reply_len = dw_reply_bound(1);
    test_pair_take_reply(&pair);
    for (int i = 0; i < 3; i++) assert_int_equal(visit(&pair, 1, 1, x, y), DW_OK);
    test_pair_in_step(&pair, key);
    test_pair_close(&pair);
}

TEST(a_key_whose_shape_changes_starts_anew)
{
    float x[512], y[512];
    test_random random = {test_seed()};
    test_pair pair;
    dw_key key = {1, 0};
    test_pair_open(&pair, "delta:bits=4,prev=f32", 1, 4, 128, DW_F32);
    test_fill(&random, x, DW_F32, 512, 1.0f);
    for (uint32_t t = 4; t >= 1; t--) {
        dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, t, 128), ty = dw_tensor_3d(y, DW_F32, 1, t, 128);
        test_pair_pass(&pair, &key, &tx, &ty);
        test_pair_in_step(&pair, key);
    }
    assert_int_equal(test_encoder_counters(pair.encoder).key_entries, 4);
    test_pair_close(&pair);
}

RUN_TESTS(NULL, NULL)
