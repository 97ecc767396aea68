/* SPDX-License-Identifier: Apache-2.0
 * engine.h - where the memory lives: one sample between tensor, payload and prev, on the CPU or a
 * GPU.
 *
 * | name     | shape  | unit  | meaning                                       | owner   |
 * | x, y     | (T, C) |       | stride elements from one token to the next    | caller  |
 * | prev     | (T, C) |       | dense; NULL: there is no base                 | predict |
 * | next     | (T, C) |       | dense, never prev itself; NULL: no state      | predict |
 * | payload  |        | bytes | layout.payload_bytes, or the floats' bytes    | frame   |
 *
 * Quantized payloads are made and read in chunks (layout.h), each by one call, in any order and by
 * any threads: what comes out does not depend on it. Errors: none: whoever calls has checked every
 * size. State: none, prev and next are the caller's. Threads: any, on different chunks or memory;
 * the caller has entered the exact mode (cpu.h) in each. */
#ifndef DW_ENGINE_H
#define DW_ENGINE_H

#include "deltawire/deltawire.h"
#include "layout.h"
#include "mem.h"

typedef struct dw_sums {
    double x_square, delta_square, error_square;
    uint64_t pieces, direct, zero, poisoned;
} dw_sums;

static inline void dw_sums_add(dw_sums *to, const dw_sums *sums)
{
    to->x_square += sums->x_square;
    to->delta_square += sums->delta_square;
    to->error_square += sums->error_square;
    to->pieces += sums->pieces;
    to->direct += sums->direct;
    to->zero += sums->zero;
    to->poisoned += sums->poisoned;
}

/* What a chunk adds to what is known of its sample. The digests' sums have no order; those of
 * squares are joined chunk by chunk. */
typedef struct dw_chunk_result {
    dw_sums sums;
    uint64_t payload_sum, state_sum; /* of the stretches that lie in the chunk, or of its bytes */
} dw_chunk_result;

/* Which stretches of prev the state digest goes over: one in so many. every 0: none. */
typedef struct dw_audit {
    uint32_t every;
    uint64_t sequence;
} dw_audit;

/* How an encoder finds scales and codes: its freedom, which the format does not know of. */
typedef struct dw_rule {
    dw_scale scale;
    int is_stochastic;
    uint64_t dither_key; /* of this sample's visit */
} dw_rule;

typedef struct dw_encode_job {
    dw_layout layout; /* quantized kinds */
    dw_rule rule;
    const void *x;
    dw_dtype x_dtype;
    int64_t stride;
    const void *prev;
    void *next;
    dw_dtype prev_dtype;
    uint8_t *payload;
    dw_audit audit; /* of next */
} dw_encode_job;

typedef struct dw_decode_job {
    dw_layout layout;
    const uint8_t *payload;
    const void *prev;
    void *next; /* with state: only this is written; y comes from emit, after the digest was checked
                 */
    dw_dtype prev_dtype;
    void *y;
    dw_dtype y_dtype;
    int64_t stride;
    dw_audit audit; /* of next */
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
    void (*encode)(const dw_engine *engine, const dw_encode_job *job, uint64_t chunk,
                   dw_chunk_result *result);
    void (*decode)(const dw_engine *engine, const dw_decode_job *job, uint64_t chunk,
                   dw_chunk_result *result); /* to next, or, without state, to y */
    void (*emit)(const dw_engine *engine, const dw_decode_job *job, uint64_t chunk); /* y from next;
                                                                                        NaN where
                                                                                        pieces are
                                                                                        poisoned */
    void (*put_floats)(const dw_float_job *job);               /* tensor to payload */
    void (*take_floats)(const dw_float_job *job, int to_next); /* payload to next, or to tensor */
    /* Sums of digests (docs/format.md, 4): over the bytes [from, from + bytes) of a payload, both
     * multiples of 16; over the audited stretches of prev that end within no chunk; over all
     * audited stretches. */
    uint64_t (*bytes_sum)(const dw_engine *engine, const uint8_t *payload, uint64_t from,
                          uint64_t bytes);
    uint64_t (*seam_sum)(const dw_engine *engine, const dw_layout *layout, const void *prev,
                         dw_dtype dtype, dw_audit audit);
    uint64_t (*state_sum)(const dw_engine *engine, const void *prev, dw_dtype dtype,
                          uint64_t elements, dw_audit audit);
};

/* An engine elsewhere, which works on streams: launch enqueues and returns, and what the jobs tell
 * is read later. All addresses in jobs are ones that it can reach. The sums that done gives are of
 * whole payloads and of all audited stretches; norms are 0. pieces too: the layout knows them.
 *
 * | function | meaning                                                                                                          |
 * | launch   | n jobs, of one frame or of several, by the order of the stream: all of them or none. *captured: the stream only  |
 * |          | records, for later launches of a graph. The launch is in its user's hands until it is closed                     |
 * | reuse    | jobs [first, first + n) of a captured launch become others, without a word to the device. UNSUPPORTED: they would |
 * |          | need other kernels than the captured ones                                                                        |
 * | done     | PENDING until jobs [first, first + n) are done, then what they tell                                              |
 * | share    | one user more, each of whom will close it                                                                        |
 *
 * Errors: NO_MEMORY, LIMIT, UNSUPPORTED, IO, each with a sentence and nothing in flight. Threads:
 * one at a time. */
typedef struct dw_launch dw_launch;

typedef union dw_jobs { /* pointers to n jobs of one kind */
    const dw_encode_job *const *encode;
    const dw_decode_job *const *decode;
} dw_jobs;

typedef struct dw_remote {
    void *context;
    const void *device; /* engines of one device may share a launch */
    dw_store store;
    dw_status (*launch)(void *context, bool encodes, dw_jobs jobs, uint32_t n, void *stream,
                        dw_launch **launch, bool *captured, dw_why *why);
    dw_status (*reuse)(dw_launch *launch, uint32_t first, dw_jobs jobs, uint32_t n, dw_why *why);
    dw_status (*done)(const dw_launch *launch, uint32_t first, uint32_t n,
                      dw_chunk_result *results);
    void (*share)(dw_launch *launch);
    void (*close)(dw_launch *launch);
    void (*release)(void *context); /* by the encoder or decoder that ends; its launches are closed
                                     */
} dw_remote;

/* Right after creation: another engine, which the object will release. UNSUPPORTED, with a
 * sentence: the config needs what it has not. */
dw_status dw_encoder_settle(dw_encoder *encoder, const dw_remote *remote, dw_why *why);
dw_status dw_decoder_settle(dw_decoder *decoder, const dw_remote *remote, dw_why *why);

/* The digest whose sum this is: never 0. */
static inline uint64_t dw_digest_of_sum(uint64_t sum)
{
    sum ^= sum >> 33;
    sum *= UINT64_C(0xC2B2AE3D27D4EB4F);
    sum ^= sum >> 29;
    sum *= UINT64_C(0x165667B19E3779F9);
    sum ^= sum >> 32;
    return sum ? sum : 1;
}

/* kernels NULL: the best that this processor has. */
dw_engine dw_engine_cpu(const struct dw_kernels *kernels);

/* For tests and the benchmark, before the first call: another engine than the best. The bits are
 * the same. */
void dw_encoder_use(dw_encoder *encoder, const dw_engine *engine);
void dw_decoder_use(dw_decoder *decoder, const dw_engine *engine);

#endif
