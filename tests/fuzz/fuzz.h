/* SPDX-License-Identifier: Apache-2.0
 * fuzz.h - what the fuzz targets share: decisions read from the input, checks, new digests. */
#ifndef DELTAWIRE_TESTS_FUZZ_H
#define DELTAWIRE_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deltawire/deltawire.h"

/* The target: libFuzzer and replay.c call it. It ends the process when a check fails. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A check that is also made in release builds. */
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);          \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* The input as a stream of decisions; after its end it gives zeros. */
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

static inline uint64_t fuzz_bytes(fuzz_input *input, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value = value << 8 | fuzz_byte(input);
    return value;
}

/* Random numbers that are the same on every machine: splitmix64. */
static inline uint64_t fuzz_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* A valid config of any codec, made from the library's own table of options: every word of every
 * option is possible, and numbers at and between the limits. The incarnation is never random, so
 * that an input does the same in every run. */
dw_config fuzz_config(fuzz_input *input);

/* The extents of one sample: mostly some hundred elements, sometimes a row that is cut into
 * segments (more than 2048 channels) or more tokens than a tile has segments. At most FUZZ_ELEMENTS
 * elements. */
enum { FUZZ_ELEMENTS = 9000 };
void fuzz_shape(fuzz_input *input, uint32_t *t, uint32_t *c);

/* Changes a config so that it can code tensors of this shape. */
void fuzz_fit(dw_config *config, uint32_t t, uint32_t c);
/* Changes the extents to ones that the config can code, of at most as many elements. */
void fuzz_fit_shape(const dw_config *config, uint32_t *t, uint32_t *c);

/* A tensor of these extents, of any dtype and with any gaps between rows and samples. Its data is
 * NULL; the caller must allocate fuzz_tensor_bytes, which is the exact size. */
dw_tensor fuzz_tensor(fuzz_input *input, uint32_t n, uint32_t t, uint32_t c);
size_t fuzz_tensor_bytes(const dw_tensor *x);

/* Fills n floats. A few bytes of the input decide what they are like: ordinary values, NaN,
 * infinities, subnormals and so on. */
void fuzz_floats(fuzz_input *input, float *x, size_t n);

/* The same for a tensor of any dtype. Floats are truncated to it; any bits will do. */
void fuzz_tensor_fill(fuzz_input *input, const dw_tensor *x);

/* Encodes x with dw_encode. If the option error=abs refuses the values of x, they are replaced by
 * zeros, which it never refuses, and encoded again. */
dw_status fuzz_encode(dw_encoder *encoder, const dw_key *keys, const dw_tensor *x, void *frame,
                      size_t cap, size_t *len);

/* Memory for encoders and decoders. Large blocks are kept from one input to the next, because
 * mapping, poisoning and unmapping them would take longer than everything else that an input does.
 * Free blocks are poisoned under AddressSanitizer. */
dw_allocator fuzz_allocator(void);
const dw_host *fuzz_host(void); /* with it */

/* Computes the digests of docs/format.md (payloads, tables, header) again, if the bytes can be read
 * as a frame or reply at all, so that changed bytes get past these checks. state_digest and
 * base_chain are not changed. */
void fuzz_seal_frame(uint8_t *frame, size_t len);
void fuzz_seal_reply(uint8_t *reply, size_t len);

#endif
