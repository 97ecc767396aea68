/* SPDX-License-Identifier: Apache-2.0
 * test_new_profiles.c - tests encoders and decoders that are given profiles while frames are sent:
 * which frames can be decoded, that prev is not touched, and what is refused. */
#include "deltawire/profile.h"
#include "support/profiles.h"
#include "support/tool.h"

static const dw_key keys[1] = {{3, 1}};
enum { T = 6, C = 96, SIZE = T * C, PROFILES = 6 };

/* Each has weights of its own, and none, one or two lists of means. */
static dw_profile *profile_of(uint32_t i)
{
    static float values[3 * C];
    dw_profile *made;
    dw_tensor of = dw_tensor_3d(values, DW_F32, 1, 1 + i % 3, C);
    for (uint32_t at = 0; at < (1 + i % 3) * C; at++)
        values[at] = test_profile_value(at / C, at % C) / (at < C ? (float)(1u << i) : 1);
    assert_int_equal(dw_profile_create(&made, &of, NULL, NULL), DW_OK);
    return made;
}

static void fill(test_random *random, float *x)
{
    for (int i = 0; i < SIZE; i++) x[i] += (i % 7 ? 1 : 9) * test_normal(random);
}

/* Makes the pair's buffer large enough for frames with a profile, which may be longer. */
static void make_room(test_pair *pair, const dw_tensor *x)
{
    dw_config config = pair->config;
    config.profile = test_profile(2, C);
    pair->cap = dw_frame_bound(&config, x);
    free(pair->frame);
    pair->frame = malloc(pair->cap);
    assert_non_null(pair->frame);
}

/* context: the pair to which the state is copied. */
static dw_status copy_encoder(void *context, dw_key key, const void *saved, size_t len)
{
    return dw_encoder_import(((test_pair *)context)->encoder, saved, len);
}

static dw_status copy_decoder(void *context, dw_key key, const void *saved, size_t len)
{
    return dw_decoder_import(((test_pair *)context)->decoder, saved, len);
}

/* A frame after a change is that of ends which had the profile all the time and hold the same
 * prev. A decoder that was not given the profile refuses the frame, and nothing has changed. */
TEST(a_new_profile_is_used_from_the_next_frame_on)
{
    static const char *const configs[] = {"delta:form=step,incarnation=5", "direct:form=step",
                                          "delta:form=step,error=0.05,entropy=rans,incarnation=5"};
    for (int config = 0; config < 3; config++) {
        static float x[SIZE], y[SIZE], expected[SIZE];
        test_random random = {9};
        test_pair pair, same;
        dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, T, C), ty = dw_tensor_3d(y, DW_F32, 1, T, C),
                  te = dw_tensor_3d(expected, DW_F32, 1, T, C);
        test_pair_open(&pair, configs[config], 1, T, C, DW_F32);
        make_room(&pair, &tx);
        for (uint32_t i = 0; i < PROFILES; i++) {
            dw_profile *profile = profile_of(i);
            uint64_t bytes, wanted;
            fill(&random, x);
            assert_int_equal(dw_encoder_use_profile(pair.encoder, profile), DW_OK);
            test_pair_open_with(&same, configs[config], profile, 1, T, C, DW_F32);
            if (pair.config.codec == DW_CODEC_DELTA) {
                assert_int_equal(dw_encoder_export(pair.encoder, NULL, copy_encoder, &same), DW_OK);
                assert_int_equal(dw_decoder_export(pair.decoder, NULL, copy_decoder, &same), DW_OK);
            }
            test_pair_encode(&pair, keys, &tx);
            assert_int_equal(test_pair_decode(&pair, &ty), DW_ERR_MISMATCH);
            assert_non_null(strstr(dw_decoder_why(pair.decoder), "profile"));
            assert_int_equal(dw_decoder_add_profile(pair.decoder, profile), DW_OK);
            assert_int_equal(dw_decoder_add_profile(pair.decoder, profile), DW_OK);
            assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
            test_pair_pass(&same, keys, &tx, &te);
            const uint8_t *one = test_pair_payload(&pair, &bytes),
                          *other = test_pair_payload(&same, &wanted);
            assert_int_equal(bytes, wanted);
            assert_memory_equal(one, other, bytes);
            assert_memory_equal(y, expected, sizeof y);
            test_pair_close(&same);
            dw_profile_destroy(profile); /* the ends of the other pair have copies */
        }
        test_pair_close(&pair);
    }
}

/* A decoder knows the last four that were added, and encoders can go back to any of them, or to
 * none. */
TEST(a_decoder_knows_the_last_four_profiles)
{
    static float x[SIZE], y[SIZE];
    test_random random = {2};
    test_pair pair;
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, T, C), ty = dw_tensor_3d(y, DW_F32, 1, T, C);
    dw_profile *profiles[PROFILES];
    test_pair_open(&pair, "delta:form=step", 1, T, C, DW_F32);
    make_room(&pair, &tx);
    for (uint32_t i = 0; i < PROFILES; i++) {
        profiles[i] = profile_of(i);
        assert_int_equal(dw_decoder_add_profile(pair.decoder, profiles[i]), DW_OK);
    }
    for (uint32_t i = 0; i <= PROFILES; i++) { /* the last of them is none */
        bool is_known = i >= PROFILES - 4;
        fill(&random, x);
        assert_int_equal(dw_encoder_use_profile(pair.encoder, i < PROFILES ? profiles[i] : NULL),
                         DW_OK);
        test_pair_encode(&pair, keys, &tx);
        assert_int_equal(test_pair_decode(&pair, &ty), is_known ? DW_OK : DW_ERR_MISMATCH);
        if (is_known) test_pair_in_step(&pair, keys[0]);
        assert_int_equal(dw_encoder_take_reply(pair.encoder, pair.reply, pair.reply_len), DW_OK);
    }
    for (uint32_t i = 0; i < PROFILES; i++) dw_profile_destroy(profiles[i]);
    test_pair_close(&pair);
}

TEST(profiles_that_an_end_cannot_use_are_refused)
{
    static const char *const configs[] = {"delta:bits=4", "raw:f32",
                                          "direct:form=step,group=sample",
                                          "direct:form=step,step=0.5,feedback=ef"};
    static float x[SIZE];
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, T, C / 2);
    dw_profile *profile = profile_of(1);
    test_pair pair;
    assert_int_equal(dw_encoder_use_profile(NULL, profile), DW_ERR_ARGUMENT);
    assert_int_equal(dw_decoder_add_profile(NULL, profile), DW_ERR_ARGUMENT);
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        test_pair_open(&pair, configs[i], 1, T, C, DW_F32);
        assert_int_equal(dw_encoder_use_profile(pair.encoder, profile), DW_ERR_CONFIG);
        assert_non_null(strstr(dw_encoder_why(pair.encoder), "profile"));
        assert_int_equal(dw_decoder_add_profile(pair.decoder, profile), DW_ERR_CONFIG);
        assert_int_equal(dw_decoder_add_profile(pair.decoder, NULL), DW_ERR_ARGUMENT);
        test_pair_close(&pair);
    }
    test_pair_open(&pair, "direct:form=step", 1, T, C, DW_F32);
    assert_int_equal(dw_encoder_use_profile(pair.encoder, profile), DW_OK);
    test_pair_refuses(&pair, keys, &tx, DW_ERR_SHAPE, "channels");
    test_pair_close(&pair);
    dw_profile_destroy(profile);
}

/* Every allocation fails once; the end goes on with what it had. */
TEST(without_memory_an_end_goes_on_as_before)
{
    static float x[SIZE], y[SIZE];
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, T, C), ty = dw_tensor_3d(y, DW_F32, 1, T, C);
    dw_profile *profile = profile_of(2);
    test_allocator counts = {.fail_at = -1};
    dw_encoder *encoder;
    test_pair pair;
    test_random random = {4};
    test_pair_open(&pair, "direct:form=step", 1, T, C, DW_F32);
    pair.host.allocator = test_allocator_hooks(&counts);
    assert_int_equal(dw_encoder_create(&encoder, &pair.config, &pair.host, NULL), DW_OK);
    counts.fail_at = counts.calls;
    counts.only_once = true;
    assert_int_equal(dw_encoder_use_profile(encoder, profile), DW_ERR_NO_MEMORY);
    fill(&random, x);
    assert_int_equal(dw_encode(encoder, keys, &tx, NULL, pair.frame, pair.cap, &pair.len), DW_OK);
    assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
    assert_int_equal(dw_encoder_use_profile(encoder, profile), DW_OK);
    dw_encoder_destroy(encoder);
    assert_int_equal(counts.out_blocks, 0);
    test_pair_close(&pair);
    dw_profile_destroy(profile);
}

RUN_TESTS(NULL, NULL)
