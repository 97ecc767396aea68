/* SPDX-License-Identifier: Apache-2.0
 * fuzz.h - what the fuzz targets share: reading decisions from the input, oracles, resealing. */
#ifndef DELTAWIRE_TESTS_FUZZ_H
#define DELTAWIRE_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deltawire/deltawire.h"

/* The target: libFuzzer calls it, and so does replay.c. Ends the process when an oracle fails. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An oracle; stays in release builds. */
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);          \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* The input as a stream of decisions; zeros when it has run out. */
typedef struct fuzz_input {
    const uint8_t *data;
    size_t left;
} fuzz_input;

static inline uint8_t fuzz_byte(fuzz_input *input)
{
    if (input->left == 0) return 0;
    input->left--;
    return *input->data++;
}

static inline uint32_t fuzz_below(fuzz_input *input, uint32_t limit)
{
    uint32_t value = fuzz_byte(input);
    if (limit > 256) value = value << 8 | fuzz_byte(input);
    return value % limit;
}

/* A valid config of any codec; incarnation fixed, so that an input does the same in every run. */
dw_config fuzz_config(fuzz_input *input);

/* n floats: each few decided by the input, from ordinary values to NaN, infinities and subnormals.
 */
void fuzz_floats(fuzz_input *input, float *x, size_t n);

/* The same in another dtype, by truncation: any bits are good bits here. */
void fuzz_tensor_fill(fuzz_input *input, const dw_tensor *x);

/* Writes the digests of format.md anew (payloads, tables, header) wherever the bytes can be read as
 * a frame or reply at all, so that mutations get past them. state_digest and base_chain stay. */
void fuzz_seal_frame(uint8_t *frame, size_t len);
void fuzz_seal_reply(uint8_t *reply, size_t len);

#endif
