/* SPDX-License-Identifier: Apache-2.0
 * test_room.c - the quota limits the memory that both ends take from their allocators, whatever the
 * lengths of the samples. */
#include "support/tool.h"

enum { KEYS = 60, LENGTHS = 40, MIB = 1 << 20 };

typedef struct ends {
    test_allocator encoder_counts, decoder_counts;
    dw_encoder *encoder;
    dw_decoder *decoder;
    void *x, *y, *frame;
    size_t cap;
} ends;

static void open_ends(ends *e, const char *text, uint32_t most_t, uint32_t c)
{
    dw_config config;
    memset(e, 0, sizeof *e);
    e->encoder_counts.fail_at = e->decoder_counts.fail_at = -1;
    assert_int_equal(dw_config_parse(&config, text, NULL), DW_OK);
    dw_tensor x = dw_tensor_3d(e, DW_BF16, 1, most_t, c);
    e->cap = dw_frame_bound(&config, &x);
    dw_host host = {.struct_size = sizeof host,
                    .allocator = test_allocator_hooks(&e->encoder_counts)};
    assert_int_equal(dw_encoder_create(&e->encoder, &config, &host, NULL), DW_OK);
    host.allocator = test_allocator_hooks(&e->decoder_counts);
    assert_int_equal(dw_decoder_create(&e->decoder, &config, &host, NULL), DW_OK);
    e->x = calloc((size_t)most_t * c, 2);
    e->y = malloc((size_t)most_t * c * 2);
    e->frame = malloc(e->cap);
}

static void close_ends(ends *e)
{
    dw_encoder_destroy(e->encoder);
    dw_decoder_destroy(e->decoder);
    assert_int_equal(e->encoder_counts.out_blocks + e->decoder_counts.out_blocks, 0);
    free(e->x);
    free(e->y);
    free(e->frame);
}

static void visit(ends *e, dw_key key, uint32_t t, uint32_t c)
{
    uint8_t reply[256];
    size_t len, reply_len;
    dw_tensor x = dw_tensor_3d(e->x, DW_BF16, 1, t, c), y = dw_tensor_3d(e->y, DW_BF16, 1, t, c);
    assert_int_equal(dw_encode(e->encoder, &key, &x, NULL, e->frame, e->cap, &len), DW_OK);
    assert_int_equal(
        dw_decode(e->decoder, e->frame, len, &y, NULL, reply, sizeof reply, &reply_len), DW_OK);
    if (reply_len) assert_int_equal(dw_encoder_take_reply(e->encoder, reply, reply_len), DW_OK);
}

/* state_bytes and slack_bytes together are all memory that an end takes, except what does not grow
 * with the number of keys: the object itself, and plans and results of the last frame. */
static void check_counters(dw_counters counters, const test_allocator *counts)
{
    uint64_t said = counters.state_bytes + counters.slack_bytes;
    assert_true(said <= counts->out_bytes && said + (64 << 10) >= counts->out_bytes);
}

/* Every key takes all lengths one after another, different keys in a different order. At any time
 * the copies in use fill at most the quota, rounded up by a sixteenth, and one new copy. An end may
 * take twice that, and in addition one chunk and what objects, frames and tables need. */
static void walk(const char *config, uint64_t quota, uint32_t t, uint32_t c)
{
    uint64_t largest = (uint64_t)t * LENGTHS * c * 2, in_use = (quota + largest) / 16 * 17;
    uint64_t most = 2 * in_use + 3 * MIB;
    ends e;
    open_ends(&e, config, t * LENGTHS, c);
    for (uint32_t round = 0; round < LENGTHS; round++)
        for (uint32_t i = 0; i < KEYS; i++)
            visit(&e, (dw_key){i, 0}, t * (1 + (round * (i % 3 + 1) + i) % LENGTHS), c);
    print_message("%s: at most %zu and %zu KiB, in use %llu and %llu KiB\n", config,
                  e.encoder_counts.most_bytes >> 10, e.decoder_counts.most_bytes >> 10,
                  (unsigned long long)test_encoder_counters(e.encoder).state_bytes >> 10,
                  (unsigned long long)test_decoder_counters(e.decoder).state_bytes >> 10);
    assert_true(e.encoder_counts.most_bytes <= most);
    assert_true(e.decoder_counts.most_bytes <= most);
    check_counters(test_encoder_counters(e.encoder), &e.encoder_counts);
    check_counters(test_decoder_counters(e.decoder), &e.decoder_counts);
    close_ends(&e);
}

TEST(the_quota_bounds_memory)
{
    walk("delta:bits=4,quota_bytes=33554432", 32 * MIB, 12, 512); /* up to 480 KiB a copy */
    walk("delta:bits=4,quota_bytes=33554432", 32 * MIB, 3, 128);  /* up to 30 KiB */
    walk("delta:bits=4,quota_bytes=67108864", 64 * MIB, 64, 512); /* up to 2.5 MiB */
}

/* With this many keys even the table of the keys is large. */
TEST(counters_include_all_memory)
{
    enum { MANY = 10000 };
    ends e;
    open_ends(&e, "delta:bits=4", 1, 32);
    for (uint32_t i = 0; i < MANY; i++) visit(&e, (dw_key){i, 0}, 1, 32);
    check_counters(test_encoder_counters(e.encoder), &e.encoder_counts);
    check_counters(test_decoder_counters(e.decoder), &e.decoder_counts);
    close_ends(&e);
}

/* The memory of forgotten keys goes back to the allocator, and is not only kept for other keys. */
TEST(forgotten_keys_give_memory_back)
{
    ends e;
    open_ends(&e, "delta:bits=4", 256, 512);
    for (uint32_t i = 0; i < KEYS; i++) visit(&e, (dw_key){i, 0}, 256, 512);
    assert_true(e.decoder_counts.out_bytes > KEYS * 256 * 512 * 2);
    for (uint32_t i = 1; i < KEYS; i++)
        assert_int_equal(dw_encoder_forget(e.encoder, (dw_key){i, 0}), DW_OK);
    for (int i = 0; i < 800; i++) visit(&e, (dw_key){0, 0}, 256, 512);
    assert_true(e.encoder_counts.out_bytes < 6 * MIB);
    assert_true(e.decoder_counts.out_bytes < 6 * MIB);
    close_ends(&e);
}

RUN_TESTS(NULL, NULL)
