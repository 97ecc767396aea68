/* SPDX-License-Identifier: Apache-2.0
 * engine.h - where the memory lives: one sample between tensor, payload and prev, on the CPU or (later) a GPU.
 *
 * | name     | shape  | unit  | meaning                                       | owner   |
 * | x, y     | (T, C) |       | stride elements from one token to the next    | caller  |
 * | prev     | (T, C) |       | dense; NULL: there is no base                 | predict |
 * | next     | (T, C) |       | dense, never prev itself; NULL: no state      | predict |
 * | payload  |        | bytes | layout.payload_bytes, or the floats' bytes    | frame   |
 *
 * Errors: none: whoever calls has checked every size. State: none, prev and next are the caller's. Threads: any, on
 * different memory. */
#ifndef DW_ENGINE_H
#define DW_ENGINE_H

#include "deltawire/deltawire.h"
#include "layout.h"

typedef struct dw_sums {
    double x_square, delta_square, error_square;
    uint64_t pieces, direct, zero, poisoned;
} dw_sums;

/* The state digest of next, taken while it is still in the cache. into NULL: none. */
typedef struct dw_audit {
    uint32_t every; /* over one stretch in so many; >= 1 */
    uint64_t sequence;
    uint64_t *into;
} dw_audit;

typedef struct dw_encode_job {
    dw_layout layout; /* quantized kinds */
    int is_signed;
    const void *x;
    dw_dtype x_dtype;
    int64_t stride;
    const void *prev;
    void *next;
    dw_dtype prev_dtype;
    uint8_t *payload;
    dw_sums *sums; /* added to */
    dw_audit audit;
} dw_encode_job;

typedef struct dw_decode_job {
    dw_layout layout;
    const uint8_t *payload;
    const void *prev;
    void *next; /* with state: only this is written; y comes from emit, after the digest was checked */
    dw_dtype prev_dtype;
    void *y;
    dw_dtype y_dtype;
    int64_t stride;
    dw_audit audit; /* with state */
} dw_decode_job;

/* A payload of floats: form is its dtype; bytes is its size, zeros at its end included. */
typedef struct dw_float_job {
    uint32_t t, c;
    dw_dtype form;
    int exact; /* kind RAW: IEEE conversion, NaN and infinities pass; else RN and NaN */
    uint8_t *payload;
    uint64_t bytes;
    void *tensor; /* x or y */
    dw_dtype dtype;
    int64_t stride;
    void *next;
    dw_dtype prev_dtype;
    dw_sums *sums;
} dw_float_job;

/* What an encoder or decoder chose once, when it was made. */
typedef struct dw_engine dw_engine;
struct dw_engine {
    const char *name;
    const struct dw_kernels *kernels; /* the CPU's instruction set; NULL in an engine elsewhere */
    void (*encode)(const dw_engine *engine, const dw_encode_job *job);
    void (*decode)(const dw_engine *engine, const dw_decode_job *job); /* to next, or, without state, to y */
    void (*emit)(const dw_engine *engine, const dw_decode_job *job);   /* y from next; NaN where the payload's pieces are poisoned */
    void (*put_floats)(const dw_float_job *job);                       /* tensor to payload */
    void (*take_floats)(const dw_float_job *job, int to_next);         /* payload to next, or to tensor */
    uint64_t (*digest)(const dw_engine *engine, const void *prev, dw_dtype dtype, uint64_t elements, uint32_t every,
                       uint64_t sequence);
};

/* kernels NULL: the best that this processor has. */
dw_engine dw_engine_cpu(const struct dw_kernels *kernels);

/* For tests and the benchmark, before the first call: another engine than the best. The bits are the same. */
void dw_encoder_use(dw_encoder *encoder, const dw_engine *engine);
void dw_decoder_use(dw_decoder *decoder, const dw_engine *engine);

#endif
