/* SPDX-License-Identifier: Apache-2.0
 * sample.h - what check_cuda.c, check_cuda_step.c and others share: random samples, and
 * comparisons of the kernels of cuda/, executed on the CPU, with a specification.
 *
 * A kernel processes a message of SAMPLE_PARTS equal samples, so that indices of parts matter, too.
 * Errors: a failed check fails the running test. Threads: one. */
#ifndef DW_TEST_SAMPLE_H
#define DW_TEST_SAMPLE_H

#include "codecs/plan.h"
#include "support/tool.h"

enum { SAMPLE_PARTS = 2 };

/* The input of an encoder or decoder, apart from the payload. Counts of elements:
 *
 * | name   | meaning                                                                             |
 * | offset | in x and y: elements from an aligned address to the first token                     |
 * | dense  | in prev: all elements                                                               |
 * | tensor | in x and y: all elements, with the offset and the gaps between tokens               |
 */
typedef struct sample {
    dw_dtype x_dtype, prev_dtype, y_dtype;
    bool has_prev, has_state, with_y, is_stochastic;
    bool keeps_residual;  /* encoders: next is what is left of x + prev */
    dw_channels channels; /* of a profile; weights NULL: none */
    bool is_sync;         /* floats: the entry carries prev itself, so x is the new prev */
    dw_scale scale;       /* for the form quantized */
    int64_t stride;
    size_t offset, dense, tensor;
    dw_audit audit;
    dw_plan plan; /* form, params, layout, payload_bytes, t and c are set by the check */
    uint64_t dither_key, draws_key;
    unsigned char *x, *prev;
} sample;

/* What an encoder or decoder writes, and what it reports. */
typedef struct output {
    uint8_t *payload;
    unsigned char *next, *y;
    uint64_t payload_sum, state_sum, direct, zero, poisoned, escaped, overflowed;
} output;

/* Encodes or decodes a sample by the specification. */
typedef void sample_work(const sample *s, output *out);

/* The random numbers of a test. */
extern test_random sample_source;

/* Returns a random number that is less than n. */
uint32_t sample_below(uint32_t n);

/* Returns memory of random contents, aligned to 64 bytes. */
unsigned char *sample_allocate(size_t bytes);

/* Returns the address of an element. */
void *sample_at(const unsigned char *base, dw_dtype dtype, size_t element);

/* Returns a sample of t tokens with c channels, with everything drawn but its plan and its values.
 */
sample sample_draw(uint32_t t, uint32_t c, bool has_state);

/* Allocates x and prev, and fills them with normally distributed values of random size. spoils: x
 * gets some unusual values, which may be NaN or infinite. */
void sample_fill(sample *s, bool spoils);

/* Makes some values of x outliers: single ones, all of a few rows, several of one tile, or some
 * that differ from prev by about as many steps as a code can say. */
void sample_add_outliers(sample *s);

/* Makes one delta in 2048 about 127 steps large, if the whole sample shares the step; whether it is
 * escaped may depend on its dither. */
void sample_add_at_the_limit(sample *s);

/* Makes the rooms for escaped values of a random payload of steps hold a few of them, or none. */
void sample_make_rooms_ordinary(const sample *s, uint8_t *payload);

void sample_free(sample *s);

/* Returns memory for the outputs of a sample, of random contents or with those of `like`. */
output output_make(const sample *s, const output *like);

/* Computes payload_sum and state_sum of what was written, as the specification has them. */
void output_digest(const sample *s, output *out);

/* Returns the job of encoding or decoding a sample, without members for the host's engine. */
dw_encode_job sample_encode_job(const sample *s, const output *out);
dw_decode_job sample_decode_job(const sample *s, const output *out);

/* The form of the sample's plan on the CPU, with the C kernels. */
sample_work sample_spec_encode, sample_spec_decode;

/* Compares the kernels that encode or decode a sample with a specification. expected: holds what is
 * to be decoded, or written over, and is freed. The specification runs on it, the kernels run on
 * copies of it, and then all that both have written and reported must be equal.
 *
 * family: what the names of the kernels begin with, "dw", "dw_mx", "dw_step" or "dw_floats".
 * backwards: blocks and threads run from the last to the first. */
typedef void sample_comparison(const sample *s, const char *family, output *expected,
                               sample_work *spec, bool backwards);
sample_comparison sample_compare_encode, sample_compare_decode;

#endif
