/* SPDX-License-Identifier: Apache-2.0
 * tool.h - what tests share: seeded random numbers, hostile values, an encoder with its decoder. */
#ifndef DW_TEST_TOOL_H
#define DW_TEST_TOOL_H

#include <stdio.h>
#include <string.h>

#include "deltawire/deltawire.h"
#include "support/test.h"

/* Checks that a call is refused because of its arguments. */
#define REFUSED(call) assert_int_equal(call, DW_ERR_ARGUMENT)

/* Random numbers that are the same on every machine: splitmix64. */
typedef struct test_random {
    uint64_t state;
} test_random;

uint64_t test_next(test_random *random);
double test_uniform(test_random *random); /* [0, 1) */
float test_normal(test_random *random);

/* The seed of this run: DW_TEST_SEED, or else a fixed number. It is printed, so that a run that
 * failed can be repeated. */
uint64_t test_seed(void);

/* For programs with many cases: --share N on the command line means that only one case in N is run,
 * for emulated processors. Returns N, or 1 without arguments; exits with 2 for other arguments. */
uint32_t test_share(int argc, char **argv);

/* The root of the sum of squares. */
double test_norm(const float *values, size_t n);
/* Fills n elements with random values of a normal distribution whose deviation is `size`. */
void test_fill(test_random *random, void *data, dw_dtype dtype, size_t n, float size);

/* Replaces some elements with -0, subnormals, the largest finite number and numbers with full
 * mantissas, and, if non_finite, with NaN and infinities. */
void test_spoil(test_random *random, void *data, dw_dtype dtype, size_t n, bool non_finite);

float test_get(const void *data, dw_dtype dtype, size_t i);
void test_set(void *data, dw_dtype dtype, size_t i, float value);

/* The counters of an end, as a return value. */
static inline dw_counters test_encoder_counters(const dw_encoder *encoder)
{
    dw_counters counters = {.struct_size = sizeof counters};
    assert_int_equal(dw_encoder_count(encoder, &counters), DW_OK);
    return counters;
}

static inline dw_counters test_decoder_counters(const dw_decoder *decoder)
{
    dw_counters counters = {.struct_size = sizeof counters};
    assert_int_equal(dw_decoder_count(decoder, &counters), DW_OK);
    return counters;
}

/* An encoder and a decoder with the same config, and buffers for frames and replies. All functions
 * fail the test on an unexpected error. A config that names one of the profiles of profiles.h has
 * it; test_pair_open_with gives another. */
typedef struct test_pair {
    dw_config config;
    dw_host host;
    dw_encoder *encoder;
    dw_decoder *decoder;
    uint8_t *frame, *reply;
    size_t cap, len, reply_cap, reply_len;
} test_pair;

void test_pair_open(test_pair *pair, const char *config, uint32_t n, uint32_t t, uint32_t c,
                    dw_dtype dtype);
void test_pair_open_with(test_pair *pair, const char *config, const struct dw_profile *profile,
                         uint32_t n, uint32_t t, uint32_t c, dw_dtype dtype);
void test_pair_close(test_pair *pair);
/* Replace an end by a new one with the pair's config and host, which has no state. */
void test_pair_renew_encoder(test_pair *pair);
void test_pair_renew_decoder(test_pair *pair);
/* Save one key to room, of cap bytes, and set *len to its length. room NULL: only *len is set. */
dw_status test_export_encoder(dw_encoder *encoder, dw_key key, void *room, size_t cap, size_t *len);
dw_status test_export_decoder(dw_decoder *decoder, dw_key key, void *room, size_t cap, size_t *len);
/* Takes what dw_encoder_export gives; context: an encoder. */
dw_status test_import_encoder(void *context, dw_key key, const void *saved, size_t len);
/* Ends made of the text of a config, which must be valid. */
dw_encoder *test_encoder(const char *config);
dw_decoder *test_decoder(const char *config);
void test_pair_encode(test_pair *pair, const dw_key *keys, const dw_tensor *x);
void test_pair_encode_with(test_pair *pair, const dw_key *keys, const dw_tensor *x,
                           const dw_encode_options *options);
/* The encoder refuses x with this status and a sentence that contains `says`. */
void test_pair_refuses(test_pair *pair, const dw_key *keys, const dw_tensor *x, dw_status status,
                       const char *says);
dw_status test_pair_decode(test_pair *pair, const dw_tensor *y);
/* Encodes x and decodes the frame to y, both of which must succeed. */
void test_pair_pass(test_pair *pair, const dw_key *keys, const dw_tensor *x, const dw_tensor *y);
void test_pair_take_reply(test_pair *pair);

/* The payload of the only entry of a pair's frame. bytes: its size; may be NULL. */
uint8_t *test_pair_payload(const test_pair *pair, uint64_t *bytes);

/* Checks that both ends hold the same bits of prev for the key, or both hold nothing. */
void test_pair_in_step(const test_pair *pair, dw_key key);

/* Config texts that are refused with CONFIG, and words of the sentence that says why; and texts
 * that are accepted, with what dw_config_format makes of them. */
typedef struct test_wrong_config {
    const char *text, *says;
} test_wrong_config;

typedef struct test_right_config {
    const char *text, *becomes;
} test_right_config;

void test_configs(const test_wrong_config *wrong, size_t n_wrong, const test_right_config *right,
                  size_t n_right);

/* Tests that are compiled for more than the baseline processor call this first. */
static inline bool test_can_run(void)
{
#ifdef DW_NEEDS_FMA
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return true;
#endif
}

/* An allocator that counts its calls, can fail the n-th one, and knows what has not been
 * released. */
typedef struct test_allocator {
    /* fail_at < 0: no call fails. Otherwise call number fail_at fails, and, unless only_once, all
     * later calls. */
    int64_t calls, fail_at;
    bool only_once;
    size_t out_bytes, out_blocks, most_bytes; /* most_bytes: the largest out_bytes ever */
} test_allocator;

dw_allocator test_allocator_hooks(test_allocator *allocator);

#endif
