/* SPDX-License-Identifier: Apache-2.0
 * test_no_memory.c - lets the n-th allocation fail, for every n: the status is NO_MEMORY, the state
 * is unchanged, nothing leaks, and a second try gives the same bits as a run without failures. */
#include "support/tool.h"

enum { CALLS = 8, N = 3, C = 96 };

typedef struct run {
    dw_config config;
    dw_encoder *encoder;
    dw_decoder *decoder;
    uint8_t frames[CALLS][8192];
    size_t lens[CALLS];
    float ys[CALLS][N * C];
    long failures;
} run;

static void input(int call, float *x, dw_key *keys)
{
    test_random random = {(uint64_t)call + 1};
    test_fill(&random, x, DW_F32, N * C, 1.0f);
    for (uint32_t i = 0; i < N; i++) keys[i] = (dw_key){(uint64_t)(call / 2 * 40 + (int)i), 0};
}

/* Repeats the call until it works. Every failure must be NO_MEMORY and leave the counters as they
 * were. */
static void encode_call(run *r, int call)
{
    float x[N * C];
    dw_key keys[N];
    input(call, x, keys);
    dw_tensor tx = dw_tensor_3d(x, DW_F32, N, 1, C);
    for (;;) {
        dw_counters before = {.struct_size = sizeof before};
        (void)dw_encoder_count(r->encoder, &before);
        dw_status status = dw_encode(r->encoder, keys, &tx, NULL, r->frames[call],
                                     sizeof r->frames[call], &r->lens[call]);
        if (status == DW_OK) return;
        dw_counters after = {.struct_size = sizeof after};
        (void)dw_encoder_count(r->encoder, &after);
        assert_int_equal(status, DW_ERR_NO_MEMORY);
        before.slack_bytes = after.slack_bytes; /* memory that was obtained may be kept */
        assert_memory_equal(&before, &after, sizeof before);
        r->failures++;
    }
}

static void decode_call(run *r, int call)
{
    uint8_t reply[512];
    size_t reply_len;
    float untouched[N * C];
    memset(untouched, 0x77, sizeof untouched);
    memset(r->ys[call], 0x77, sizeof r->ys[call]);
    dw_tensor ty = dw_tensor_3d(r->ys[call], DW_F32, N, 1, C);
    for (;;) {
        dw_counters before = {.struct_size = sizeof before};
        (void)dw_decoder_count(r->decoder, &before);
        dw_status status = dw_decode(r->decoder, r->frames[call], r->lens[call], &ty, NULL, reply,
                                     sizeof reply, &reply_len);
        if (status == DW_OK) break;
        dw_counters after = {.struct_size = sizeof after};
        (void)dw_decoder_count(r->decoder, &after);
        assert_int_equal(status, DW_ERR_NO_MEMORY);
        assert_int_equal(before.keys_held, after.keys_held);
        assert_int_equal(before.state_bytes, after.state_bytes);
        assert_int_equal(before.frames, after.frames);
        assert_memory_equal(r->ys[call], untouched, sizeof untouched);
        r->failures++;
    }
    if (reply_len > 0) /* codecs without prev are not answered */
        assert_int_equal(dw_encoder_take_reply(r->encoder, reply, reply_len), DW_OK);
}

static void whole_run(run *r, const char *config, test_allocator *allocator)
{
    memset(r, 0, sizeof *r);
    assert_int_equal(dw_config_parse(&r->config, config, NULL), DW_OK);
    dw_host host = {.struct_size = sizeof host, .allocator = test_allocator_hooks(allocator)};
    while (dw_encoder_create(&r->encoder, &r->config, &host, NULL) != DW_OK) {
        assert_null(r->encoder);
        r->failures++;
    }
    while (dw_decoder_create(&r->decoder, &r->config, &host, NULL) != DW_OK) {
        assert_null(r->decoder);
        r->failures++;
    }
    for (int call = 0; call < CALLS; call++) {
        encode_call(r, call);
        decode_call(r, call);
        if (call == 3)
            while (dw_encoder_forget(r->encoder, (dw_key){0, 0}) != DW_OK) r->failures++;
    }
    dw_encoder_destroy(r->encoder);
    dw_decoder_destroy(r->decoder);
    assert_int_equal(allocator->out_blocks, 0);
    assert_int_equal(allocator->out_bytes, 0);
}

static void fail_each_allocation(const char *config)
{
    static run whole, broken;
    test_allocator allocator = {.fail_at = -1};
    whole_run(&whole, config, &allocator);
    long calls = allocator.calls;
    assert_true(calls > 6);
    for (long n = 0; n < calls; n++) {
        allocator = (test_allocator){.fail_at = n, .only_once = true};
        whole_run(&broken, config, &allocator);
        assert_int_equal(broken.failures, 1);
        for (int call = 0; call < CALLS; call++) {
            assert_int_equal(whole.lens[call], broken.lens[call]);
            assert_memory_equal(whole.frames[call], broken.frames[call], whole.lens[call]);
            assert_memory_equal(whole.ys[call], broken.ys[call], sizeof whole.ys[call]);
        }
    }
    print_message("%s: %ld allocations failed in turn\n", config, calls);
}

TEST(every_allocation_may_fail_once)
{
    fail_each_allocation("delta:bits=4,incarnation=3");
    fail_each_allocation("delta:bits=4,prev=8,incarnation=3");
    fail_each_allocation("delta:form=step,group=sample,rounding=dither,entropy=rans,incarnation=3");
    fail_each_allocation(
        "delta:form=step,group=sample,rounding=trellis,entropy=rans,incarnation=3");
    fail_each_allocation("tah:tile=16,feedback=ef,incarnation=3");
    fail_each_allocation("lowrank:rank=2,width=12,feedback=ef,incarnation=3");
    fail_each_allocation("blocks:codebook=quantile,feedback=ef,incarnation=3");
}

TEST(without_memory_nothing_is_created)
{
    test_allocator allocator = {.fail_at = 0};
    dw_config config = {.struct_size = sizeof config};
    dw_host host = {.struct_size = sizeof host, .allocator = test_allocator_hooks(&allocator)};
    dw_encoder *encoder = (dw_encoder *)1;
    dw_decoder *decoder = (dw_decoder *)1;
    assert_int_equal(dw_encoder_create(&encoder, &config, &host, NULL), DW_ERR_NO_MEMORY);
    assert_int_equal(dw_decoder_create(&decoder, &config, &host, NULL), DW_ERR_NO_MEMORY);
    assert_null(encoder);
    assert_null(decoder);
}

RUN_TESTS(NULL, NULL)
