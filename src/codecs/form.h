/* SPDX-License-Identifier: Apache-2.0
 * form.h - a form is how values become bytes: one row, and one file with the functions it names.
 *
 * A payload is made and read in chunks, each by one call, in any order and by any threads; what
 * comes out does not depend on it. Whoever calls has checked every size and entered the exact mode
 * (base/cpu.h).
 *
 * wide table:
 * | function | meaning                                                                             |
 * | plan     | fills in what the plan says of a shape: layout, sizes, chunks. false: too large      |
 * | check    | step 8 of docs/format.md, 2: NULL, or what is wrong with a payload whose digest is   |
 * |          | right. NULL in the row: every payload of the right size can be decoded              |
 * | encode   | chunk of x to its part of the payload, and of next where there is state             |
 * | decode   | chunk of the payload to next; without state to y                                    |
 * | emit     | y from next, where there is state; NaN where values are poisoned                    |
 * | encoded, | what the chunks of a sample leave out of its digests and sums, added when all are    |
 * | decoded  | joined. NULL: nothing                                                               |
 * | count    | what a decoder's counters learn from a payload. NULL: nothing                       |
 *
 * Errors: none but those. State: none, prev and next are the caller's. Threads: any, on different
 * chunks or memory. */
#ifndef DW_FORM_H
#define DW_FORM_H

#include "codecs/job.h"

typedef struct dw_plan dw_plan;

/* Whatever stands in front of a form (a transform) or behind it (an entropy coder). None is there
 * yet; docs/format.md, 3.5 keeps their numbers. */
typedef struct dw_stage {
    uint8_t wire;
    const char *name;
} dw_stage;

/* The kernels of a form on a device: families of them, by their names in cuda/message.h without the
 * dtypes at the end. */
typedef struct dw_device_kernels {
    const char *encode;
    const char *encode_search; /* where a tile searches for its scales; NULL: it never does */
    const char *decode;        /* with state */
    const char *decode_direct; /* without */
    /* Layouts with a scale per channel; NULL where the form has none. */
    const char *encode_columns, *decode_columns, *decode_direct_columns;
    bool blocks_are_stretches; /* of the state digest, which these kernels then add up themselves */
} dw_device_kernels;

typedef struct dw_form {
    dw_form_name wire; /* its number in frames */
    const char *name;
    bool draws; /* decode needs the generator that both ends share, so the seed travels */
    bool (*plan)(dw_plan *plan);
    const char *(*check)(const dw_plan *plan, const uint8_t *payload, uint64_t bytes);
    void (*encode)(const dw_encode_job *job, uint64_t chunk, dw_chunk_result *result);
    void (*decode)(const dw_decode_job *job, uint64_t chunk, dw_chunk_result *result);
    void (*emit)(const dw_decode_job *job, uint64_t chunk);
    void (*encoded)(const dw_encode_job *job, dw_chunk_result *result);
    void (*decoded)(const dw_decode_job *job, dw_chunk_result *result);
    void (*count)(const dw_decode_job *job, dw_counters *counters);
    const dw_device_kernels *device; /* NULL: there are none, UNSUPPORTED at create */
} dw_form;

extern const dw_form dw_form_floats, dw_form_mx, dw_form_quantized, dw_form_skip;

#endif
