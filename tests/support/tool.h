/* SPDX-License-Identifier: Apache-2.0
 * tool.h - what tests share: seeded numbers, hostile values, codec pairs. */
#ifndef DW_TEST_TOOL_H
#define DW_TEST_TOOL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "deltawire/deltawire.h"

/* Random numbers that are the same on every machine: splitmix64. */
typedef struct test_random {
    uint64_t state;
} test_random;

uint64_t test_next(test_random *random);
double test_uniform(test_random *random); /* [0, 1) */
float test_normal(test_random *random);

/* The seed of this run: DW_TEST_SEED, or a fixed one; printed, so that a failure can be run
 * again. */
uint64_t test_seed(void);

/* For programs with many cases: the N of --share N, by which only one case in N is run on emulated
 * processors; 1 without arguments. Exits with 2 for other arguments. */
uint32_t test_share(int argc, char **argv);

/* n*t*c elements of a dtype; values drawn normally with the given size. */
void test_fill(test_random *random, void *data, dw_dtype dtype, size_t n, float size);

/* Overwrites some with NaN, infinities, -0, subnormals, the largest finite, full mantissas. */
void test_spoil(test_random *random, void *data, dw_dtype dtype, size_t n, bool non_finite);

float test_get(const void *data, dw_dtype dtype, size_t i);
void test_set(void *data, dw_dtype dtype, size_t i, float value);

/* The counters as a value. */
static inline dw_counters test_encoder_counters(const dw_encoder *encoder)
{
    dw_counters counters = {.struct_size = sizeof counters};
    assert_int_equal(dw_encoder_counters(encoder, &counters), DW_OK);
    return counters;
}

static inline dw_counters test_decoder_counters(const dw_decoder *decoder)
{
    dw_counters counters = {.struct_size = sizeof counters};
    assert_int_equal(dw_decoder_counters(decoder, &counters), DW_OK);
    return counters;
}

/* Encoder and decoder of one config text, and room for frames; everything asserts. */
typedef struct test_pair {
    dw_config config;
    dw_encoder *encoder;
    dw_decoder *decoder;
    uint8_t *frame, *reply;
    size_t cap, len, reply_cap, reply_len;
} test_pair;

void test_pair_open(test_pair *pair, const char *config, uint32_t n, uint32_t t, uint32_t c,
                    dw_dtype dtype);
void test_pair_close(test_pair *pair);
void test_pair_encode(test_pair *pair, const dw_key *keys, const dw_tensor *x);
dw_status test_pair_decode(test_pair *pair, const dw_tensor *y);
void test_pair_feedback(test_pair *pair);

/* Both ends hold the same bits of prev for the key (or both hold nothing). */
void test_pair_in_step(const test_pair *pair, dw_key key);

/* To be called first by tests that are compiled for more than the baseline processor. */
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
    /* fail_at < 0: never; else every call from that one on, or that one alone. */
    int64_t calls, fail_at;
    bool only_once;
    size_t out_bytes, out_blocks, most_bytes; /* most_bytes: at once, ever */
} test_allocator;

dw_allocator test_allocator_hooks(test_allocator *allocator);

#endif
