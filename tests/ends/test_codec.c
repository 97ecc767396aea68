/* SPDX-License-Identifier: Apache-2.0
 * test_codec.c - tensors through encoder and decoder: both ends hold the same bits, and these are
 * correct. */
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

static const struct shape {
    uint32_t n, t, c;
} shapes[] = {{1, 1, 1},    {2, 3, 64},   {3, 5, 100},  {1, 33, 96},
              {1, 2, 2049}, {2, 1, 4128}, {1, 40, 128}, {2, 2, 2048}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static const dw_dtype dtypes[] = {DW_F32, DW_F16, DW_BF16};

/* A tensor with a gap behind each row, so that its strides differ from those of dense rows. */
static dw_tensor strided(void *data, dw_dtype dtype, const struct shape *s, uint32_t gap)
{
    dw_tensor x = dw_tensor_3d(data, dtype, s->n, s->t, s->c);
    x.stride_t = (int64_t)s->c + gap;
    x.stride_n = x.stride_t * s->t;
    return x;
}

static size_t elements(const struct shape *s, uint32_t gap)
{
    return (size_t)s->n * s->t * (s->c + gap);
}

/* The gap behind every row of y must still hold the pattern that it was filled with. */
static void gaps_untouched(const dw_tensor *y, uint32_t gap)
{
    size_t size = dw_dtype_bytes(y->dtype);
    for (size_t row = 0; row < (size_t)y->n * y->t; row++)
        for (size_t i = 0; i < gap * size; i++)
            assert_int_equal(((uint8_t *)y->data)[(row * (size_t)y->stride_t + y->c) * size + i],
                             0xa5);
}

static void run_epochs(const char *config, const struct shape *s, dw_dtype x_dtype,
                       dw_dtype y_dtype, test_random *random)
{
    test_pair pair;
    uint32_t gap = (uint32_t)(test_next(random) % 3);
    size_t n = elements(s, gap);
    void *data = malloc(n * 4), *out = malloc(n * 4);
    dw_key keys[8];
    for (uint32_t i = 0; i < s->n; i++)
        keys[i] = (dw_key){test_next(random), (uint32_t)test_next(random)};
    test_pair_open(&pair, config, s->n, s->t, s->c, x_dtype);
    dw_tensor x = strided(data, x_dtype, s, gap), y = strided(out, y_dtype, s, gap);
    for (int epoch = 0; epoch < 4; epoch++) {
        test_fill(random, data, x_dtype, n, epoch == 3 ? 1e-30f : 3.0f);
        if (epoch == 2) test_spoil(random, data, x_dtype, n, true);
        memset(out, 0xa5, n * 4);
        test_pair_encode(&pair, keys, &x);
        dw_status status = test_pair_decode(&pair, &y);
        if (status) fail_msg("%s: decode: %d %s", config, status, dw_decoder_why(pair.decoder));
        if (pair.reply_len) test_pair_take_reply(&pair);
        gaps_untouched(&y, gap);
        for (uint32_t i = 0; i < s->n; i++) test_pair_in_step(&pair, keys[i]);
    }
    test_pair_close(&pair);
    free(data);
    free(out);
}

static uint32_t share; /* one case in so many is run */

static void both_ends_hold_the_same_bits(void **state)
{
    test_random random = {test_seed()};
    for (int k = 0; k < N_CONFIGS; k++)
        for (int i = 0; i < N_SHAPES; i++)
            for (int j = 0; j < 9; j++)
                if (test_next(&random) % share == 0)
                    run_epochs(configs[k], &shapes[i], dtypes[j / 3], dtypes[j % 3], &random);
}

/* The largest error of a b-bit code is half a step, and a step is at most (1 + 2^-7) * A / L. The
 * result is compared with the input itself. */
static void error_is_at_most_half_a_step(void **state)
{
    test_random random = {test_seed()};
    float x[4 * 256], y[4 * 256];
    for (uint32_t bits = 2; bits <= 8; bits++) {
        char config[64];
        test_pair pair;
        snprintf(config, sizeof config, "direct:bits=%u,group=64,scale=absmax", (unsigned)bits);
        test_pair_open(&pair, config, 1, 4, 256, DW_F32);
        test_fill(&random, x, DW_F32, 1024, 2.0f);
        dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 4, 256), ty = dw_tensor_3d(y, DW_F32, 1, 4, 256);
        test_pair_encode(&pair, &(dw_key){1, 0}, &tx);
        assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
        for (int g = 0; g < 16; g++) {
            float most = 0;
            for (int i = 0; i < 64; i++) most = fmaxf(most, fabsf(x[64 * g + i]));
            float step = most / (float)((1 << (bits - 1)) - 1) * (1 + 0x1p-7f);
            for (int i = 0; i < 64; i++)
                assert_true(fabsf(x[64 * g + i] - y[64 * g + i]) <= 0.5001f * step);
        }
        test_pair_close(&pair);
    }
}

static size_t frame_of(const char *config, const dw_tensor *x, uint8_t *frame, size_t cap)
{
    test_pair pair;
    test_pair_open(&pair, config, 1, x->t, x->c, x->dtype);
    test_pair_encode(&pair, &(dw_key){1, 0}, x);
    size_t len = pair.len;
    assert_true(len <= cap);
    memcpy(frame, pair.frame, len);
    test_pair_close(&pair);
    return len;
}

static void the_default_scale_is_the_one_that_suits_the_bits(void **state)
{
    test_random random = {test_seed()};
    float x[256];
    test_fill(&random, x, DW_F32, 256, 1.0f);
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1, 256);
    for (uint32_t bits = 1; bits <= 8; bits++)
        for (int stochastic = 0; stochastic < 2; stochastic++) {
            char plain[96], explicit[160];
            uint8_t frames[2][1024];
            const char *rounding = stochastic ? "stochastic" : "nearest";
            const char *scale = stochastic ? "absmax" : bits == 1 ? "mse" : "signed";
            snprintf(plain, sizeof plain, "direct:bits=%u,incarnation=7,rounding=%s",
                     (unsigned)bits, rounding);
            snprintf(explicit, sizeof explicit, "%s,scale=%s", plain, scale);
            size_t len = frame_of(plain, &tx, frames[0], sizeof frames[0]);
            assert_int_equal(len, frame_of(explicit, &tx, frames[1], sizeof frames[1]));
            assert_memory_equal(frames[0], frames[1], len);
        }
}

static void signed_scale_puts_the_extreme_on_the_last_level(void **state)
{
    float x[64] = {0}, y[64];
    for (int sign = -1; sign <= 1; sign += 2) {
        test_pair pair;
        test_pair_open(&pair, "direct:bits=2,scale=signed", 1, 1, 64, DW_F32);
        for (int i = 0; i < 64; i++)
            x[i] = (float)sign * (i == 7       ? 2.0f
                                  : i % 3 == 0 ? 1.0f
                                  : i % 3 == 1 ? -1.0f
                                               : 0.0f) +
                   0.0f; /* 0, not -0 */
        dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1, 64), ty = dw_tensor_3d(y, DW_F32, 1, 1, 64);
        test_pair_encode(&pair, &(dw_key){1, 0}, &tx);
        assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
        assert_memory_equal(x, y, sizeof x); /* there are four levels, and each x is one of them */
        test_pair_close(&pair);
    }
}

/* The main property of AQ-SGD: while x does not change, the copies approach it epoch by epoch. */
static void delta_converges_where_direct_does_not(void **state)
{
    test_random random = {test_seed()};
    float x[1024], y[1024];
    double error[4] = {0};
    static const char *const kinds[4] = {"delta:bits=2,scale=signed", "direct:bits=2,scale=signed",
                                         "delta:form=mx,element=e2m1", "mx:element=e2m1"};
    test_fill(&random, x, DW_F32, 1024, 1.0f);
    for (int k = 0; k < 4; k++) {
        test_pair pair;
        test_pair_open(&pair, kinds[k], 1, 8, 128, DW_F32);
        dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 8, 128), ty = dw_tensor_3d(y, DW_F32, 1, 8, 128);
        for (int epoch = 0; epoch < 8; epoch++) {
            test_pair_encode(&pair, &(dw_key){9, 0}, &tx);
            assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
        }
        for (int i = 0; i < 1024; i++) error[k] += pow((double)x[i] - (double)y[i], 2);
        test_pair_close(&pair);
    }
    assert_true(error[0] < 1e-4 * error[1]);
    assert_true(error[2] < 1e-4 * error[3]);
}

/* prev goes from the largest number to 0 by changes alone, and each step must leave less of it. An
 * infinite step would lead to the largest number of the other sign, and so on without end. */
static void delta_converges_after_the_largest_changes(void **state)
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
                    test_pair_encode(&pair, &key, &tx);
                    assert_int_equal(test_pair_decode(&pair, &tx), DW_OK);
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

static void poisoned_values_do_not_reach_prev(void **state)
{
    test_random random = {test_seed()};
    float x[256], y[256], before[256];
    test_pair pair;
    dw_key key = {5, 0};
    test_pair_open(&pair, "delta:bits=8,group=64,key=8", 1, 1, 256, DW_F32);
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1, 256), ty = dw_tensor_3d(y, DW_F32, 1, 1, 256),
              prev;
    for (int epoch = 0; epoch < 3; epoch++) {
        test_fill(&random, x, DW_F32, 256, 1.0f);
        if (epoch == 1) x[70] = NAN;
        test_pair_encode(&pair, &key, &tx);
        if (epoch == 1) memcpy(before, y, sizeof before);
        assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
        for (int i = 0; i < 256; i++) {
            bool poisoned = epoch == 1 && i / 64 == 1;
            assert_int_equal(isnan(y[i]) != 0, poisoned);
            if (!poisoned) assert_true(fabsf(x[i] - y[i]) < 0.1f);
        }
        if (epoch != 1) continue;
        assert_int_equal(dw_decoder_peek(pair.decoder, key, &prev), DW_OK);
        assert_memory_equal((float *)prev.data + 64, before + 64, 64 * sizeof(float));
    }
    assert_int_equal(test_encoder_counters(pair.encoder).poisoned_groups, 1);
    assert_int_equal(test_decoder_counters(pair.decoder).poisoned_groups, 1);
    test_pair_close(&pair);
}

static void groups_with_a_useless_base_are_coded_directly(void **state)
{
    test_random random = {test_seed()};
    float x[256], y[256];
    test_pair pair;
    dw_key key = {5, 0};
    test_pair_open(&pair, "delta:bits=4,group=64", 1, 1, 256, DW_F32);
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1, 256), ty = dw_tensor_3d(y, DW_F32, 1, 1, 256);
    test_fill(&random, x, DW_F32, 256, 100.0f);
    test_pair_encode(&pair, &key, &tx);
    assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
    for (int i = 64; i < 128; i++)
        x[i] = 0.01f * (float)i; /* prev does not help in this group, but it does in the others */
    test_pair_encode(&pair, &key, &tx);
    assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
    assert_int_equal(test_encoder_counters(pair.encoder).direct_groups, 1);
    assert_int_equal(test_decoder_counters(pair.decoder).direct_groups, 1);
    for (int i = 64; i < 128; i++) assert_true(fabsf(x[i] - y[i]) <= 0.1f);
    test_pair_close(&pair);
}

static void raw_passes_every_bit(void **state)
{
    test_random random = {test_seed()};
    uint32_t x[300], y[300];
    test_pair pair;
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < 300; i++) x[i] = (uint32_t)test_next(&random);
        test_pair_open(&pair, "raw", 1, 3, 100, dtypes[k]);
        dw_tensor tx = dw_tensor_3d(x, dtypes[k], 1, 3, 100),
                  ty = dw_tensor_3d(y, dtypes[k], 1, 3, 100);
        test_pair_encode(&pair, &(dw_key){1, 0}, &tx);
        assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
        assert_memory_equal(x, y, 300 * dw_dtype_bytes(dtypes[k]));
        test_pair_close(&pair);
    }
}

/* A block of microscaling has a scale of one byte, which alone says that it is poisoned or zero. */
static void microscaled_blocks_are_counted(void **state)
{
    enum { C = 32 * 5 };
    float x[C], y[C];
    test_pair pair;
    for (int i = 0; i < C; i++) x[i] = i < 32 ? 0.0f : (float)i;
    x[40] = NAN;
    dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, 1, C), ty = dw_tensor_3d(y, DW_F32, 1, 1, C);
    test_pair_open(&pair, "mx:element=e4m3", 1, 1, C, DW_F32);
    test_pair_encode(&pair, &(dw_key){1, 0}, &tx);
    assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
    dw_counters sent = test_encoder_counters(pair.encoder),
                taken = test_decoder_counters(pair.decoder);
    assert_int_equal(sent.groups, 5), assert_int_equal(taken.groups, 5);
    assert_int_equal(sent.zero_groups, 1), assert_int_equal(taken.zero_groups, 1);
    assert_int_equal(sent.poisoned_groups, 1), assert_int_equal(taken.poisoned_groups, 1);
    for (int i = 0; i < C; i++) assert_true(isnan(y[i]) == (i / 32 == 1));
    test_pair_close(&pair);
}

static void frame_bound_is_exact_for_first_visits(void **state)
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
        test_pair_encode(&pair, keys, &tx);
        assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
        if (pair.reply_len) test_pair_take_reply(&pair);
    }
    assert_int_equal(counts.calls, calls);
    test_pair_close(&pair);
    assert_int_equal(counts.out_blocks, 0);
    assert_int_equal(counts.out_bytes, 0);
}

static void steady_state_allocates_nothing(void **state)
{
    count_allocations("delta:bits=4");
    /* Measured before it is encoded. */
    count_allocations("delta:form=step,group=sample,rounding=dither");
    count_allocations("delta:bits=4,transform=hadamard");
    count_allocations("tah:feedback=ef"); /* has memory of its own */
}

/* Three of 8 x 4096 values are past binary16, one is past bfloat16, and 65,504 is in both. */
static void values_that_16_bits_cannot_hold_are_counted(void **state)
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
            test_pair_encode(&pair, &key, &tx);
            assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
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
static void decoders_count_values_that_a_y_of_f16_cannot_hold(void **state)
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
        test_pair_encode(&pair, &(dw_key){1, 0}, &tx);
        assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
        assert_int_equal(test_decoder_counters(pair.decoder).overflowed_values, 3);
        test_pair_close(&pair);
    }
}

/* All rows of a sample are the same but for one of zeros and one with a NaN; one channel is 400
 * times as large as others, and has nearly all of the norm. */
static void errors_of_rows_are_counted_with_and_without_the_largest_values(void **state)
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
        test_pair_encode(&pair, &key, &tx);
        assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
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

static void y_whose_samples_overlap_is_refused(void **state)
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

static void tensors_that_overlap_the_frame_are_refused(void **state)
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

int main(int argc, char **argv)
{
    share = test_share(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ends_hold_the_same_bits),
        cmocka_unit_test(error_is_at_most_half_a_step),
        cmocka_unit_test(the_default_scale_is_the_one_that_suits_the_bits),
        cmocka_unit_test(signed_scale_puts_the_extreme_on_the_last_level),
        cmocka_unit_test(delta_converges_where_direct_does_not),
        cmocka_unit_test(delta_converges_after_the_largest_changes),
        cmocka_unit_test(poisoned_values_do_not_reach_prev),
        cmocka_unit_test(groups_with_a_useless_base_are_coded_directly),
        cmocka_unit_test(raw_passes_every_bit),
        cmocka_unit_test(microscaled_blocks_are_counted),
        cmocka_unit_test(frame_bound_is_exact_for_first_visits),
        cmocka_unit_test(steady_state_allocates_nothing),
        cmocka_unit_test(values_that_16_bits_cannot_hold_are_counted),
        cmocka_unit_test(decoders_count_values_that_a_y_of_f16_cannot_hold),
        cmocka_unit_test(errors_of_rows_are_counted_with_and_without_the_largest_values),
        cmocka_unit_test(y_whose_samples_overlap_is_refused),
        cmocka_unit_test(tensors_that_overlap_the_frame_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
