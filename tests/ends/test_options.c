/* SPDX-License-Identifier: Apache-2.0
 * test_options.c - options of encode and decode that change nothing but the speed, or nothing at
 * all: bypass_caches and only_checks. */
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

static void stores_past_the_caches_give_the_same_bits(void **state)
{
    test_random random = {test_seed()};
    for (int i = 0; i < SHAPES * CODECS; i++) {
        const shape *s = &shapes[i % SHAPES];
        test_pair usual, past;
        if (strstr(codecs[i / SHAPES], "hadamard") && s->c % 256 != 0) continue;
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
            test_pair_encode(&usual, keys, &tx);
            assert_int_equal(test_pair_decode(&usual, &ty), DW_OK);
            assert_int_equal(
                dw_encode_with(past.encoder, keys, &tx, &encode, past.frame, past.cap, &past.len),
                DW_OK);
            assert_int_equal(
                dw_decode_with(past.decoder, past.frame, past.len, &other, &decode, NULL, 0, NULL),
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
    dw_status status = dw_decode_with(pair->decoder, pair->frame, pair->len, y, &checks, reply,
                                      sizeof reply, &reply_len);
    dw_counters after = test_decoder_counters(pair->decoder);
    after.busy_ns = before.busy_ns;
    after.slack_bytes = before.slack_bytes;
    assert_int_equal(reply_len, 0);
    assert_memory_equal(&before, &after, sizeof before);
    return status;
}

static void a_check_says_what_a_decode_returns_and_changes_nothing(void **state)
{
    test_random random = {test_seed()};
    for (int i = 0; i < CODECS * 40; i++) {
        test_pair pair;
        enum { T = 2, C = 256 };
        float x[N * T * C], y[N * T * C], before[N * T * C];
        test_pair_open(&pair, codecs[i % CODECS], N, T, C, DW_F32);
        dw_tensor tx = dw_tensor_3d(x, DW_F32, N, T, C), ty = dw_tensor_3d(y, DW_F32, N, T, C);
        memset(y, 0x41, sizeof y);
        for (int visit = 0; visit < 3; visit++) {
            test_fill(&random, x, DW_F32, N * T * C, 1.0f);
            test_pair_encode(&pair, keys, &tx);
            size_t at = (size_t)(test_next(&random) % pair.len);
            bool spoils = visit == 2;
            if (spoils) pair.frame[at] ^= (uint8_t)(1 + test_next(&random) % 255);
            memcpy(before, y, sizeof y);
            dw_status said = check(&pair, &ty);
            assert_memory_equal(y, before, sizeof y);
            assert_int_equal(check(&pair, &ty), said);
            dw_status status = test_pair_decode(&pair, &ty);
            assert_int_equal(said, status);
            if (status == DW_OK && pair.reply_len > 0) test_pair_feedback(&pair);
            assert_true(status == DW_OK || spoils);
        }
        test_pair_close(&pair);
    }
}

/* A decode drops a copy that has changed by itself; a check does not even do that. */
static void a_check_keeps_a_copy_that_is_damaged(void **state)
{
    test_pair pair;
    enum { T = 2, C = 64 };
    float x[N * T * C], y[N * T * C];
    test_random random = {test_seed()};
    dw_tensor tx = dw_tensor_3d(x, DW_F32, N, T, C), ty = dw_tensor_3d(y, DW_F32, N, T, C), held;
    test_pair_open(&pair, "delta:bits=4", N, T, C, DW_F32);
    test_fill(&random, x, DW_F32, N * T * C, 1.0f);
    test_pair_encode(&pair, keys, &tx);
    assert_int_equal(test_pair_decode(&pair, &ty), DW_OK);
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
static void decodes_of_checked_frames_need_no_memory(void **state)
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
        pair.config.allocator = test_allocator_hooks(&allocator);
        assert_int_equal(dw_decoder_create(&pair.decoder, &pair.config), DW_OK);
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

int main(void)
{
    if (!test_can_run()) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stores_past_the_caches_give_the_same_bits),
        cmocka_unit_test(a_check_says_what_a_decode_returns_and_changes_nothing),
        cmocka_unit_test(a_check_keeps_a_copy_that_is_damaged),
        cmocka_unit_test(decodes_of_checked_frames_need_no_memory),
    };
    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
