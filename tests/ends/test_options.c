/* SPDX-License-Identifier: Apache-2.0
 * test_options.c - options of encode and decode that change nothing but the speed, or nothing at
 * all: bypass_caches and only_checks. tests/fuzz/fuzz_decode.c compares every decode with a check.
 */
#include "support/tool.h"

enum { N = 2, MOST = 1 << 16 };

static const dw_key keys[N] = {{7, 0}, {8, 1}};

typedef struct shape {
    uint32_t t, c;
    dw_dtype dtype;
    size_t offset; /* of y from a cache line, in bytes */
} shape;

static const shape shapes[] = {{8, 2048, DW_F32, 0}, {16, 1024, DW_F32, 0}, {4, 4096, DW_BF16, 0},
                               {8, 2048, DW_F16, 0}, {8, 2048, DW_F32, 4},  {8, 2000, DW_F32, 0},
                               {4, 4096, DW_F32, 0}, {3, 100, DW_BF16, 2},  {1, 1, DW_F32, 0}};
static const char *const codecs[] = {"delta:bits=4",
                                     "delta:bits=3,prev=bf16",
                                     "direct:bits=4",
                                     "direct:bits=8",
                                     "direct:bits=4,feedback=ef",
                                     "direct:bits=4,group=row,feedback=ef",
                                     "direct:form=step,group=sample,step=1,feedback=ef",
                                     "delta:bits=2,transform=hadamard",
                                     "mx:element=e2m1,feedback=ef",
                                     "direct:form=step,group=sample,step=1,entropy=rans",
                                     "raw:bf16",
                                     "topk:keep=0.1"};
enum { SHAPES = sizeof shapes / sizeof *shapes, CODECS = sizeof codecs / sizeof *codecs };

/* ---- bypass_caches --------------------------------------------------------------------------- */

static void same_state(const dw_encoder *a, const dw_encoder *b, const shape *s)
{
    for (int i = 0; i < N; i++) {
        dw_tensor left, right;
        dw_status status = dw_encoder_peek(a, keys[i], &left);
        assert_int_equal(dw_encoder_peek(b, keys[i], &right), status);
        if (status != DW_OK) continue;
        assert_memory_equal(left.data, right.data,
                            (size_t)s->t * s->c * dw_dtype_bytes(left.dtype));
    }
}

/* Each codec with every third shape, and each shape with every third codec. */
TEST(stores_past_the_caches_give_the_same_bits)
{
    test_random random = {test_seed()};
    for (int i = 0; i < SHAPES * CODECS; i++) {
        const shape *s = &shapes[i % SHAPES];
        test_pair usual, past;
        if (strstr(codecs[i / SHAPES], "hadamard") && s->c % 256 != 0) continue;
        if ((i / SHAPES + i % SHAPES) % 3 != 0) continue;
        size_t n = (size_t)N * s->t * s->c, bytes = n * dw_dtype_bytes(s->dtype);
        unsigned char *x = aligned_alloc(64, MOST * 4 + 64), *y = aligned_alloc(64, MOST * 4 + 64),
                      *to = aligned_alloc(64, MOST * 4 + 64);
        test_pair_open(&usual, codecs[i / SHAPES], N, s->t, s->c, s->dtype);
        test_pair_open(&past, codecs[i / SHAPES], N, s->t, s->c, s->dtype);
        for (int visit = 0; visit < 3; visit++) {
            test_fill(&random, x, s->dtype, n, 1.0f);
            dw_tensor tx = dw_tensor_3d(x, s->dtype, N, s->t, s->c);
            dw_tensor ty = dw_tensor_3d(y + s->offset, s->dtype, N, s->t, s->c);
            dw_tensor other = dw_tensor_3d(to + s->offset, s->dtype, N, s->t, s->c);
            dw_encode_options encode = {.struct_size = sizeof encode, .bypass_caches = 1};
            dw_decode_options decode = {.struct_size = sizeof decode, .bypass_caches = 1};
            test_pair_pass(&usual, keys, &tx, &ty);
            test_pair_encode_with(&past, keys, &tx, &encode);
            assert_int_equal(
                dw_decode(past.decoder, past.frame, past.len, &other, &decode, NULL, 0, NULL),
                DW_OK);
            assert_int_equal(past.len, usual.len);
            assert_memory_equal(to + s->offset, y + s->offset, bytes);
            same_state(past.encoder, usual.encoder, s);
        }
        test_pair_close(&usual);
        test_pair_close(&past);
        free(x);
        free(y);
        free(to);
    }
}

/* ---- only_checks ----------------------------------------------------------------------------- */

static const dw_decode_options checks = {.struct_size = sizeof checks, .only_checks = 1};

static dw_status check(const test_pair *pair, const dw_tensor *y)
{
    uint8_t reply[4096];
    size_t reply_len = 1;
    dw_counters before = test_decoder_counters(pair->decoder);
    dw_status status = dw_decode(pair->decoder, pair->frame, pair->len, y, &checks, reply,
                                 sizeof reply, &reply_len);
    dw_counters after = test_decoder_counters(pair->decoder);
    after.busy_ns = before.busy_ns;
    after.slack_bytes = before.slack_bytes;
    assert_int_equal(reply_len, 0);
    assert_memory_equal(&before, &after, sizeof before);
    return status;
}

/* A decode drops a copy that has changed by itself; a check does not even do that. */
TEST(a_check_keeps_a_copy_that_is_damaged)
{
    test_pair pair;
    enum { T = 2, C = 64 };
    float x[N * T * C], y[N * T * C];
    test_random random = {test_seed()};
    dw_tensor tx = dw_tensor_3d(x, DW_F32, N, T, C), ty = dw_tensor_3d(y, DW_F32, N, T, C), held;
    test_pair_open(&pair, "delta:bits=4", N, T, C, DW_F32);
    test_fill(&random, x, DW_F32, N * T * C, 1.0f);
    test_pair_pass(&pair, keys, &tx, &ty);
    test_pair_encode(&pair, keys, &tx); /* x has not changed, so no group is coded directly */
    assert_int_equal(dw_decoder_peek(pair.decoder, keys[0], &held), DW_OK);
    ((float *)held.data)[5] += 1;
    assert_int_equal(check(&pair, &ty), DW_ERR_STATE);
    assert_int_equal(check(&pair, &ty), DW_ERR_STATE);
    assert_int_equal(dw_decoder_peek(pair.decoder, keys[0], &held), DW_OK);
    assert_int_equal(test_pair_decode(&pair, &ty), DW_ERR_STATE);
    assert_int_not_equal(dw_decoder_peek(pair.decoder, keys[0], &held), DW_OK);
    test_pair_close(&pair);
}

/* So whoever has checked several frames can decode all of them. */
TEST(decodes_of_checked_frames_need_no_memory)
{
    for (int i = 0; i < CODECS; i++) {
        test_allocator allocator = {.fail_at = -1};
        test_pair pair;
        enum { T = 40, C = 640 };
        static float x[T * C], y[T * C];
        test_random random = {test_seed()};
        if (strncmp(codecs[i], "delta", 5) == 0) continue; /* with state */
        test_pair_open(&pair, codecs[i], 1, T, C, DW_F32);
        dw_decoder_destroy(pair.decoder);
        pair.host.allocator = test_allocator_hooks(&allocator);
        assert_int_equal(dw_decoder_create(&pair.decoder, &pair.config, &pair.host, NULL), DW_OK);
        dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, T, C), ty = dw_tensor_3d(y, DW_F32, 1, T, C);
        test_fill(&random, x, DW_F32, T * C, 1.0f);
        test_pair_encode(&pair, keys, &tx);
        assert_int_equal(check(&pair, &ty), DW_OK);
        allocator.fail_at = allocator.calls;
        assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
        test_pair_close(&pair);
        assert_int_equal(allocator.out_blocks, 0);
    }
}

/* What the rows of a sample are like in the next test. */
typedef enum rows {
    ORDINARY,   /* normal values */
    SINK,       /* the first row is 400 times as large as others */
    CHANNEL,    /* in every row, one channel is 400 times as large as others */
    UNEQUAL,    /* every row is 1.2 times as large as the one before, but for every 64th */
    FAR,        /* in every row of 4096 channels, some behind the first 2048 are 400 times larger */
    OUTLIERS,   /* 1.3 % of all values are 1000 times as large as others */
    OUT_OF_F16, /* one value is 7e4 */
} rows;

/* dw_counters_misfit names a remedy for each codec that does not fit its tensors, and says nothing
 * about a codec that fits. */
TEST(counters_tell_which_codec_does_not_fit)
{
    enum { ROWS = 512, CHANNELS = 576, VALUES = ROWS * CHANNELS };
    static const struct {
        const char *config;
        rows rows;
        dw_tensor_kind kind;
        const char *remedy; /* NULL: it fits */
    } cases[] = {
        {"direct:form=step,step=0.5", SINK, DW_ACTIVATIONS, NULL},
        {"direct:form=step,step=0.5,group=sample", ORDINARY, DW_ACTIVATIONS, NULL},
        {"direct:form=step,step=0.5,group=sample", SINK, DW_ACTIVATIONS, "leave out group=sample"},
        {"delta:form=step,group=sample", SINK, DW_ACTIVATIONS, "leave out group=sample"},
        {"direct:form=step", ORDINARY, DW_ACTIVATIONS, "smaller step"},
        {"direct:bits=4", ORDINARY, DW_ACTIVATIONS, NULL},
        {"direct:bits=2", ORDINARY, DW_ACTIVATIONS, "mx"},
        {"direct:bits=8,group=row", CHANNEL, DW_ACTIVATIONS, "mx"},
        {"mx", CHANNEL, DW_ACTIVATIONS, NULL},
        {"direct:bits=4,group=row", FAR, DW_ACTIVATIONS, "mx"},
        {"direct:bits=4,group=256", FAR, DW_ACTIVATIONS, "mx"},
        {"direct:form=step,step=0.5,rounding=trellis,entropy=rans", ORDINARY, DW_GRADIENTS, NULL},
        {"direct:form=step,step=6,rounding=stochastic", ORDINARY, DW_GRADIENTS, NULL},
        {"direct:form=step,deadzone=1", ORDINARY, DW_GRADIENTS, NULL},
        {"direct:form=step,error=0.001", ORDINARY, DW_GRADIENTS, NULL},
        {"delta:form=step,error=0.05,key_error=0.3", ORDINARY, DW_GRADIENTS, NULL},
        {"delta:form=step,step=0.1,key_step=1", ORDINARY, DW_GRADIENTS, NULL},
        {"direct:form=step,step=2,rounding=dither", UNEQUAL, DW_GRADIENTS, NULL},
        {"direct:form=step,step=2,rounding=dither,group=sample", ORDINARY, DW_GRADIENTS, NULL},
        {"direct:form=step,step=2,rounding=dither,group=sample", UNEQUAL, DW_GRADIENTS, "group"},
        {"direct:form=step,step=0.5", OUTLIERS, DW_GRADIENTS, "larger step"},
        {"direct:bits=2", ORDINARY, DW_GRADIENTS, NULL},
        {"blocks:codebook=quantile", ORDINARY, DW_ACTIVATIONS, NULL},
        {"blocks:codebook=quantile", CHANNEL, DW_ACTIVATIONS, "mx"},
        {"blocks", CHANNEL, DW_ACTIVATIONS, NULL},
        {"blocks:codebook=quantile,feedback=none", CHANNEL, DW_ACTIVATIONS, "mx"},
        {"raw:f16", OUT_OF_F16, DW_GRADIENTS, "bf16"},
        {"raw:bf16", OUT_OF_F16, DW_GRADIENTS, NULL},
        {"delta:prev=f16", OUT_OF_F16, DW_ACTIVATIONS, "bf16"}};
    static float x[VALUES];
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        test_random random = {k};
        test_pair pair;
        dw_config config;
        dw_why why = {{0}, 0};
        float size = 1;
        uint32_t c = cases[k].rows == FAR ? 4096 : CHANNELS;
        dw_tensor tx = dw_tensor_3d(x, DW_F32, 1, VALUES / c, c);
        for (int i = 0; i < VALUES; i++) {
            bool is_large = (cases[k].rows == SINK && i < CHANNELS) ||
                            (cases[k].rows == CHANNEL && i % CHANNELS == 9) ||
                            (cases[k].rows == FAR && i % 4096 >= 2048 && i % 256 == 9);
            if (cases[k].rows == UNEQUAL && i % CHANNELS == 0)
                size = i % (64 * CHANNELS) ? size * 1.2f : 1;
            x[i] = test_normal(&random) * size * (is_large ? 400 : 1);
            if (cases[k].rows == OUTLIERS && i % 77 == 5) x[i] = 1000;
        }
        if (cases[k].rows == OUT_OF_F16) x[77] = 7e4f;
        test_pair_open(&pair, cases[k].config, 1, VALUES / c, c, DW_F32);
        test_pair_encode(&pair, &(dw_key){1, 0}, &tx);
        dw_counters counters = test_encoder_counters(pair.encoder);
        assert_int_equal(dw_config_parse(&config, cases[k].config, NULL), DW_OK);
        int found = dw_counters_misfit(&counters, &config, cases[k].kind, &why);
        if (found != (cases[k].remedy != NULL) || !strstr(why.text, found ? cases[k].remedy : ""))
            fail_msg("%s, rows of kind %d: \"%s\"", cases[k].config, (int)cases[k].rows, why.text);
        test_pair_close(&pair);
    }
}

TEST(nothing_is_said_of_counters_that_cannot_be_read)
{
    const dw_config no_config = {.struct_size = sizeof no_config, .codec = (dw_codec)99};
    const dw_counters unsized = {.overflowed_values = 1};
    dw_counters counters = {.struct_size = sizeof counters, .overflowed_values = 1};
    dw_config config;
    assert_int_equal(dw_config_parse(&config, "delta:bits=4", NULL), DW_OK);
    assert_int_equal(dw_counters_misfit(&counters, &config, DW_ACTIVATIONS, NULL), 1);
    assert_int_equal(dw_counters_misfit(NULL, &config, DW_ACTIVATIONS, NULL), 0);
    assert_int_equal(dw_counters_misfit(&unsized, &config, DW_ACTIVATIONS, NULL), 0);
    assert_int_equal(dw_counters_misfit(&counters, NULL, DW_ACTIVATIONS, NULL), 0);
    assert_int_equal(dw_counters_misfit(&counters, &no_config, DW_ACTIVATIONS, NULL), 0);
}

int main(void)
{
    if (!test_can_run()) return 77;
    return test_run(NULL, NULL);
}
