/* SPDX-License-Identifier: Apache-2.0
 * test_codec.c - tensors through encoder and decoder: what becomes of extreme values, lengths of
 * frames, allocations, counters, and tensors that overlap. tests/fuzz compares bits. */
#include <float.h>
#include <math.h>

#include "support/tool.h"

static const char *const configs[] = {
    "raw",
    "raw:f32",
    "raw:bf16",
    "raw:f16",
    "direct:bits=2,scale=signed",
    "direct:bits=3",
    "direct:bits=4,group=32",
    "direct:bits=6,group=128",
    "direct:bits=8,group=row",
    "direct:bits=5,group=16",
    "direct:bits=7,group=256",
    "delta:bits=2,scale=signed",
    "delta:bits=3,group=32",
    "delta:bits=4,prev=bf16",
    "delta:bits=6,prev=f16,group=row",
    "delta:bits=8,key=raw,prev=f32",
    "delta:bits=4,choose=never,replies=never",
    "delta:bits=5,key=bf16",
    "delta:bits=7,key=3,audit=3",
    "delta:bits=2,key=f16,group=256,audit=255",
    "delta:bits=3,group=row,choose=group,scale=signed",
    "mx",
    "mx:element=int8",
    "mx:element=e2m3",
    "delta:form=mx",
    "delta:form=mx,element=e3m2,key=bf16,prev=bf16,audit=3",
    "delta:form=mx,element=e2m3,key=e5m2,prev=f16,choose=never",
    "direct:form=step,group=sample",
    "direct:form=step,group=row,rounding=stochastic",
    "direct:form=step,group=64,rounding=dither",
    "delta:form=step,group=sample,rounding=dither,step=3",
    "delta:form=step,group=row,rounding=dither,prev=bf16,audit=3",
    "delta:form=step,group=16,rounding=stochastic,step=1.8,prev=f16",
    "delta:form=step,group=sample,key=f16,step=0.07",
    "delta:form=step,group=sample,rounding=trellis,entropy=rans,step=0.5",
    "direct:form=step,rounding=trellis,entropy=rans,group=16",
    "delta:form=step,rounding=trellis,entropy=rans,group=row,prev=bf16,audit=3",
    "delta:form=step,group=sample,rounding=stochastic,key_step=0.07,audit=255",
};
enum { N_CONFIGS = sizeof configs / sizeof *configs };

/* prev goes from the largest number to 0 by changes alone, and each step must leave less of it. An
 * infinite step would lead to the largest number of the other sign, and so on without end. */
TEST(delta_converges_after_the_largest_changes)
{
    enum { C = 64, T = 3, VISITS = 48 };
    static const char *const scales[] = {"absmax", "signed", "mse"}, *const groups[] = {"64", "row",
                                                                                        "channel"};
    static float x[T * C];
    for (uint32_t bits = 2; bits <= 8; bits++)
        for (int which = 0; which < 9; which++)
            for (int sign = 0; sign < 3; sign++) {
                char config[96];
                test_pair pair;
                dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, T, C), held;
                dw_key key = {5, 0};
                float before = FLT_MAX;
                snprintf(config, sizeof config, "delta:bits=%u,scale=%s,group=%s,choose=never",
                         (unsigned)bits, scales[which % 3], groups[which / 3]);
                test_pair_open(&pair, config, 1, T, C, DW_F32);
                for (int visit = 0; visit < VISITS; visit++) {
                    for (int i = 0; i < T * C; i++)
                        x[i] = visit       ? 0.0f
                               : sign == 2 ? (i % 2 ? FLT_MAX : -FLT_MAX)
                               : sign      ? FLT_MAX
                                           : -FLT_MAX;
                    test_pair_pass(&pair, &key, &tx, &tx);
                    test_pair_take_reply(&pair);
                    test_pair_in_step(&pair, key);
                    assert_int_equal(dw_encoder_peek(pair.encoder, key, &held), DW_OK);
                    float most = 0;
                    for (int i = 0; i < T * C; i++)
                        most = fmaxf(most, fabsf(((float *)held.data)[i]));
                    if (visit) assert_true(most <= before);
                    before = most;
                }
                assert_true(before < 0x1p100f);
                test_pair_close(&pair);
            }
}

TEST(groups_with_a_useless_base_are_coded_directly)
{
    test_random random = {test_seed()};
    float x[256], y[256];
    test_pair pair;
    dw_key key = {5, 0};
    test_pair_open(&pair, "delta:bits=4,group=64", 1, 1, 256, DW_F32);
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1, 256), ty = dw_tensor_3d(y, DW_F32, 1, 1, 256);
    test_fill(&random, x, DW_F32, 256, 100.0f);
    test_pair_pass(&pair, &key, &tx, &ty);
    for (int i = 64; i < 128; i++)
        x[i] = 0.01f * (float)i; /* prev does not help in this group, but it does in the others */
    test_pair_pass(&pair, &key, &tx, &ty);
    assert_int_equal(test_encoder_counters(pair.encoder).direct_groups, 1);
    assert_int_equal(test_decoder_counters(pair.decoder).direct_groups, 1);
    for (int i = 64; i < 128; i++) assert_true(fabsf(x[i] - y[i]) <= 0.1f);
    test_pair_close(&pair);
}

/* A block of microscaling has a scale of one byte, which alone says that it is poisoned or zero. */
TEST(microscaled_blocks_are_counted)
{
    enum { C = 32 * 5 };
    float x[C], y[C];
    test_pair pair;
    for (int i = 0; i < C; i++) x[i] = i < 32 ? 0.0f : (float)i;
    x[40] = NAN;
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1, C), ty = dw_tensor_3d(y, DW_F32, 1, 1, C);
    test_pair_open(&pair, "mx:element=e4m3", 1, 1, C, DW_F32);
    test_pair_pass(&pair, &(dw_key){1, 0}, &tx, &ty);
    dw_counters sent = test_encoder_counters(pair.encoder),
                taken = test_decoder_counters(pair.decoder);
    assert_int_equal(sent.groups, 5), assert_int_equal(taken.groups, 5);
    assert_int_equal(sent.zero_groups, 1), assert_int_equal(taken.zero_groups, 1);
    assert_int_equal(sent.poisoned_groups, 1), assert_int_equal(taken.poisoned_groups, 1);
    for (int i = 0; i < C; i++) assert_true(isnan(y[i]) == (i / 32 == 1));
    test_pair_close(&pair);
}

TEST(frame_bound_is_exact_for_first_visits)
{
    float x[6 * 200] = {0};
    for (int k = 0; k < N_CONFIGS; k++) {
        test_pair pair;
        dw_key keys[2] = {{1, 0}, {2, 0}};
        dw_tensor tx = dw_tensor_3d(x, DW_F32, 2, 3, 200);
        test_pair_open(&pair, configs[k], 2, 3, 200, DW_F32);
        test_pair_encode(&pair, keys, &tx);
        bool delta = pair.config.codec == DW_CODEC_DELTA,
             key_is_larger = (!delta || pair.config.key != 3) && pair.config.entropy < 2;
        /* The bound includes room to announce two forgotten keys, which this frame does not use. */
        if (key_is_larger) assert_int_equal(pair.len, pair.cap - (delta ? 2 * 16 : 0));
        assert_true(pair.len <= pair.cap);
        test_pair_encode(&pair, keys, &tx);
        assert_true(pair.len <= pair.cap);
        test_pair_close(&pair);
    }
}

static void count_allocations(const char *config)
{
    test_random random = {test_seed()};
    float x[4 * 256], y[4 * 256];
    test_allocator counts = {.fail_at = -1};
    test_pair pair;
    dw_key keys[4] = {{1, 0}, {2, 0}, {3, 0}, {4, 0}};
    test_pair_open(&pair, config, 4, 1, 256, DW_F32);
    dw_encoder_destroy(pair.encoder);
    dw_decoder_destroy(pair.decoder);
    pair.host.allocator = test_allocator_hooks(&counts);
    assert_int_equal(dw_encoder_create(&pair.encoder, &pair.config, &pair.host, NULL), DW_OK);
    assert_int_equal(dw_decoder_create(&pair.decoder, &pair.config, &pair.host, NULL), DW_OK);
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 4, 1, 256), ty = dw_tensor_3d(y, DW_F32, 4, 1, 256);
    long calls = 0;
    for (int epoch = 0; epoch < 20; epoch++) {
        if (epoch == 3) calls = counts.calls;
        test_fill(&random, x, DW_F32, 1024, 1.0f);
        test_pair_pass(&pair, keys, &tx, &ty);
        if (pair.reply_len) test_pair_take_reply(&pair);
    }
    assert_int_equal(counts.calls, calls);
    test_pair_close(&pair);
    assert_int_equal(counts.out_blocks, 0);
    assert_int_equal(counts.out_bytes, 0);
}

TEST(steady_state_allocates_nothing)
{
    count_allocations("delta:bits=4");
    /* Measured before it is encoded. */
    count_allocations("delta:form=step,group=sample,rounding=dither");
    count_allocations("delta:bits=4,transform=hadamard");
    count_allocations("tah:feedback=ef"); /* has memory of its own */
}

/* Three of 8 x 4096 values are past binary16, one is past bfloat16, and 65,504 is in both. */
TEST(values_that_16_bits_cannot_hold_are_counted)
{
    enum { ROWS = 8, CHANNELS = 4096 };
    static const struct {
        const char *config;
        unsigned key, delta; /* how many are counted at first and later visits */
    } cases[] = {{"raw:f16", 3, 3},
                 {"raw:bf16", 1, 1},
                 {"raw:f32", 0, 0},
                 {"raw:f16,feedback=ef", 3, 3},
                 {"topk:keep=0.5,dtype=f16", 3, 3},
                 {"delta:bits=8,key=f16", 3, 0},
                 {"delta:bits=4,prev=f16", 3, 3},
                 {"delta:bits=4,prev=f16,group=channel", 3, 3},
                 {"delta:bits=4,prev=bf16", 1, 1},
                 {"delta:form=mx,prev=f16", 3, 3},
                 {"delta:form=step,group=sample,prev=f16", 3, 3},
                 {"delta:form=step,group=sample", 0, 0},
                 {"direct:bits=8", 0, 0}};
    static float x[ROWS * CHANNELS], y[ROWS * CHANNELS];
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, ROWS, CHANNELS), ty = tx;
    dw_key key = {1, 0};
    ty.data = y;
    for (int i = 0; i < ROWS * CHANNELS; i++) x[i] = (float)(i % 7) - 3;
    x[0] = -65520, x[5] = 65504, x[4099] = 7e4f, x[ROWS * CHANNELS - 1] = -3.4e38f;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        test_pair pair;
        test_pair_open(&pair, cases[k].config, 1, ROWS, CHANNELS, DW_F32);
        for (int visit = 0; visit < 2; visit++) {
            test_pair_pass(&pair, &key, &tx, &ty);
            if (pair.reply_len) test_pair_take_reply(&pair);
            uint64_t counted = test_encoder_counters(pair.encoder).overflowed_values;
            if (counted != cases[k].key + (visit ? cases[k].delta : 0))
                fail_msg("%s, visit %d: %d values are counted", cases[k].config, visit + 1,
                         (int)counted);
        }
        test_pair_close(&pair);
    }
}

/* A y of f16 whose rows have gaps, in which nothing is counted, may be too narrow for x. */
TEST(decoders_count_values_that_a_y_of_f16_cannot_hold)
{
    enum { ROWS = 40, CHANNELS = 200, WIDE = 256 };
    static const char *const texts[] = {"raw:f32", "direct:form=step,step=0.5", "topk:keep=0.01"};
    static float x[ROWS * CHANNELS];
    static uint16_t y[ROWS * WIDE];
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, ROWS, CHANNELS),
              ty = dw_tensor_3d(y, DW_F16, 1, ROWS, CHANNELS);
    ty.stride_t = WIDE;
    for (int i = 0; i < ROWS * CHANNELS; i++) x[i] = (float)(i % 7) - 3;
    x[0] = -65520, x[399] = 7e4f, x[8 * CHANNELS] = 60000, x[ROWS * CHANNELS - 1] = 3e38f;
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        test_pair pair;
        test_pair_open(&pair, texts[k], 1, ROWS, CHANNELS, DW_F32);
        memset(y, 0x7c, sizeof y);
        test_pair_pass(&pair, &(dw_key){1, 0}, &tx, &ty);
        assert_int_equal(test_decoder_counters(pair.decoder).overflowed_values, 3);
        test_pair_close(&pair);
    }
}

/* All rows of a sample are the same but for one of zeros and one with a NaN; one channel is 400
 * times as large as others, and has nearly all of the norm. */
TEST(errors_of_rows_are_counted_with_and_without_the_largest_values)
{
    enum { ROWS = 96, MOST = 576, SPIKE = 57 };
    static const char *const texts[] = {"direct:form=step,step=0.5", "direct:bits=8,group=row",
                                        "delta:form=step,step=0.5,key_step=0.5,prev=bf16"};
    static float x[ROWS * MOST], y[ROWS * MOST];
    dw_key key = {1, 0};
    for (size_t k = 0; k < 2 * sizeof texts / sizeof *texts; k++) {
        int channels = k % 2 ? 64 : MOST; /* a tile has several rows of 64 in one run */
        dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, ROWS, (uint32_t)channels), ty = tx;
        ty.data = y;
        test_random random = {k};
        test_pair pair;
        test_fill(&random, x, DW_F32, (size_t)channels, 1);
        x[SPIKE] = 400;
        for (int row = 1; row < ROWS; row++)
            memcpy(x + row * channels, x, (size_t)channels * sizeof *x);
        memset(x, 0, (size_t)channels * sizeof *x);
        x[(ROWS - 1) * channels + 5] = NAN;
        test_pair_open(&pair, texts[k / 2], 1, ROWS, (uint32_t)channels, DW_F32);
        test_pair_pass(&pair, &key, &tx, &ty);
        double all = 0, off = 0, bulk = 0, off_bulk = 0;
        for (int i = channels; i < 2 * channels; i++) {
            double value = (double)x[i] * x[i], error = pow((double)x[i] - y[i], 2);
            all += value, off += error;
            if (i != channels + SPIKE) bulk += value, off_bulk += error;
        }
        dw_counters found = test_encoder_counters(pair.encoder);
        double rows = (double)found.measured_rows;
        assert_true(rows >= 2 && rows <= ROWS - 2);
        assert_true(fabs(found.row_error_sum / rows - sqrt(off / all)) < 1e-6);
        assert_true(fabs(found.row_error_largest - sqrt(off / all)) < 1e-6);
        assert_true(fabs(found.bulk_error_sum / rows - sqrt(off_bulk / bulk)) < 1e-6);
        assert_true(found.bulk_error_sum > 10 * found.row_error_sum);
        test_pair_close(&pair);
    }
}

TEST(y_whose_samples_overlap_is_refused)
{
    float x[256] = {1}, y[256];
    test_pair pair;
    dw_key keys[2] = {{1, 0}, {2, 0}};
    test_pair_open(&pair, "direct:bits=8", 2, 2, 64, DW_F32);
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 2, 2, 64), ty = dw_tensor_3d(y, DW_F32, 2, 2, 64);
    test_pair_encode(&pair, keys, &tx);
    ty.stride_n = 0;
    assert_int_equal(test_pair_decode(&pair, &ty), DW_ERR_ARGUMENT);
    ty.stride_n = 64; /* the samples alternate token by token: (T, N, C) */
    ty.stride_t = 128;
    assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
    ty.data = (char *)y + 2;
    ty.n = 1;
    assert_int_equal(test_pair_decode(&pair, &ty), DW_ERR_ARGUMENT);
    test_pair_close(&pair);
}

TEST(tensors_that_overlap_the_frame_are_refused)
{
    static _Alignas(16) uint8_t memory[4096];
    float apart[128], y[128];
    test_pair pair;
    dw_key key = {1, 0};
    size_t len;
    test_pair_open(&pair, "direct:bits=8", 1, 2, 64, DW_F32);
    dw_tensor x = dw_tensor_3d(memory, DW_F32, 1, 2, 64),
              tx = dw_tensor_3d(apart, DW_F32, 1, 2, 64), ty = dw_tensor_3d(y, DW_F32, 1, 2, 64);
    dw_encode_options options = {.struct_size = sizeof options, .reconstruction = &x};
    test_random random = {1};
    test_fill(&random, memory, DW_F32, 128, 1.0f);
    test_fill(&random, apart, DW_F32, 128, 1.0f);
    test_pair_encode(&pair, &key, &tx);
    for (size_t at = 0; at <= 512; at += 508) { /* the last byte of x, and the first one behind it
                                                 */
        bool meets = at < 512;
        assert_int_equal(
            dw_encode(pair.encoder, &key, &x, NULL, memory + at, sizeof memory - at, &len),
            meets ? DW_ERR_ARGUMENT : DW_OK);
        if (meets) assert_non_null(strstr(dw_encoder_why(pair.encoder), "overlap"));
        assert_int_equal(
            dw_encode(pair.encoder, &key, &tx, &options, memory + at, sizeof memory - at, &len),
            meets ? DW_ERR_ARGUMENT : DW_OK);
        memcpy(memory + at, pair.frame, pair.len);
        assert_int_equal(dw_decode(pair.decoder, memory + at, pair.len, &x, NULL, NULL, 0, NULL),
                         meets ? DW_ERR_ARGUMENT : DW_OK);
        assert_int_equal(dw_decode(pair.decoder, memory + at, pair.len, &ty, NULL, NULL, 0, NULL),
                         DW_OK);
    }
    test_pair_close(&pair);
}

RUN_TESTS(NULL, NULL)
