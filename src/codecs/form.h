/* SPDX-License-Identifier: Apache-2.0
 * form.h - a form is a way to turn values into bytes: one table row, and one file with the
 * functions that the row names.
 *
 * A payload is written and read in chunks, one call for each, in any order and by any threads; the
 * result does not depend on that. The caller has checked all sizes and entered the exact
 * floating-point mode (common/cpu.h).
 *
 * | function     | meaning                                                                        |
 * | plan         | computes what depends on the shape: layout, sizes, chunks. Errors: LIMIT (too  |
 * |              | large) and SHAPE (a shape that the form cannot code), with a sentence; why may |
 * |              | be NULL                                                                        |
 * | check        | step 8 of docs/format.md, 2: NULL, or what is wrong with a payload whose       |
 * |              | digest is right. NULL in the row: every payload of the right size can be       |
 * |              | decoded                                                                        |
 * | measure      | adds up in *result what choose_scale needs to know of a chunk of x             |
 * | choose_scale | once, after measure of all chunks and before encode of the first: writes what  |
 * |              | they share into the payload. Both NULL: every chunk can be encoded by itself   |
 * | encode       | a chunk of x into its part of the payload and, with state, of next             |
 * | decode       | a chunk of the payload into next; without state into y                         |
 * | write_output | next into y, with state; NaN where values are poisoned                         |
 * | encoded,     | add to a sample's joined results what its chunks did not cover: digests of     |
 * | decoded      | bytes and stretches outside of or across chunks. NULL: nothing                 |
 * | count        | adds what a payload says to the decoder's counters. NULL: nothing              |
 * | contracts    | by how much the error is smaller than what is coded. config: with defaults     |
 * |              | filled in                                                                      |
 *
 * Errors: only those named above. State: none; prev and next belong to the caller. Threads: any, on
 * different chunks or memory. */
#ifndef DW_FORM_H
#define DW_FORM_H

#include "codecs/contraction.h"
#include "codecs/job.h"

typedef struct dw_plan dw_plan;
typedef struct dw_form_params dw_form_params;

/* Scratch memory is divided into areas. A chunk uses one area while it runs: of the shared areas,
 * which come first, the lowest that is free, so that chunks that run one after the other use memory
 * that is in the caches. While all shared areas are in use, it uses an area of its own, which lies
 * behind them. */
enum { DW_SHARED_AREAS = 32 };

/* The number of areas for an entry of so many chunks. */
DW_INLINE uint64_t dw_areas(uint64_t chunks)
{
    return chunks <= DW_SHARED_AREAS ? chunks : DW_SHARED_AREAS + chunks;
}

/* A stage behind a form, which recodes its payload without loss. The form then works with the plain
 * payload, which is not in the frame (codecs/job.h).
 *
 * wide table:
 * | function | meaning                                                                             |
 * | plan     | after the form's: sets the sizes of a plan. Errors: as above                         |
 * | encode   | after the form's, for the same chunk: recodes it. area: the number of an area of    |
 * |          | scratch memory that no other chunk uses meanwhile                                    |
 * | join     | when all chunks are done: completes the payload, sets payload_bytes and payload_sum |
 * | prepare  | step 8 of docs/format.md, 2, before any chunk: NULL, or what is wrong with a payload |
 * |          | whose digest is right                                                               |
 * | decode   | before the form's, for the same chunk: makes its plain payload; like prepare        |
 * | sentence | what is wrong with a payload, from the number that a device has reported            |
 *
 * encode_on_device and decode_on_device name kernels (cuda/message.h).
 *
 * Errors: only those named above. State: none. Threads: encode and decode any, on different
 * chunks. */
typedef struct dw_stage {
    uint8_t wire;
    dw_status (*plan)(dw_plan *plan, dw_why *why);
    void (*encode)(const dw_encode_job *job, uint64_t chunk, uint64_t area);
    void (*join)(const dw_encode_job *job, dw_chunk_result *result);
    const char *(*prepare)(const dw_decode_job *job);
    const char *(*decode)(const dw_decode_job *job, uint64_t chunk, uint64_t area);
    const char *(*sentence)(uint32_t fault);
    const char *encode_on_device, *decode_on_device;
} dw_stage;

extern const dw_stage dw_stage_indices, dw_stage_rans;

/* The kernels of a form on a device, named as in cuda/message.h without the dtypes at the end, or
 * _rotated in their place. */
typedef struct dw_device_kernels {
    const char *encode;
    /* Runs before `encode` where several tiles share a scale, which therefore cannot be found from
     * one tile alone: in rows of several tiles, channels and samples. NULL: the form has no such
     * layouts. */
    const char *choose;
    const char *encode_search; /* for tiles that search for their scales; NULL: no search */
    const char *decode;        /* with state */
    const char *decode_direct; /* without state */
    /* For layouts with a scale per channel; NULL where the form has none. */
    const char *encode_columns, *decode_columns, *decode_direct_columns;
    /* A block of these kernels works on a stretch of the state digest and adds it up itself. */
    bool blocks_are_stretches;
    /* A thread block of `choose` works on one tile, and stores its sum of squares. */
    bool chooses_by_tile;
} dw_device_kernels;

typedef struct dw_form {
    dw_form_name wire; /* its number in frames */
    const char *name;
    bool has_codes; /* its payloads have tiles of codes, which an entropy coder can compress */
    dw_status (*plan)(dw_plan *plan, dw_why *why);
    const char *(*check)(const dw_plan *plan, const uint8_t *payload, uint64_t bytes);
    void (*measure)(const dw_encode_job *job, uint64_t chunk, dw_chunk_result *result);
    void (*choose_scale)(const dw_encode_job *job, const dw_chunk_result *joined);
    void (*encode)(const dw_encode_job *job, uint64_t chunk, dw_chunk_result *result);
    void (*decode)(const dw_decode_job *job, uint64_t chunk, dw_chunk_result *result);
    void (*write_output)(const dw_decode_job *job, uint64_t chunk);
    void (*encoded)(const dw_encode_job *job, dw_chunk_result *result);
    void (*decoded)(const dw_decode_job *job, dw_chunk_result *result);
    void (*count)(const dw_decode_job *job, dw_counters *counters);
    dw_contraction (*contracts)(const dw_form_params *params, const dw_config *config);
    const dw_device_kernels *device; /* NULL: no kernels; creating an encoder or decoder on a device
                                        is UNSUPPORTED */
} dw_form;

extern const dw_form dw_form_blocks, dw_form_floats, dw_form_lowrank, dw_form_mx, dw_form_quantized,
    dw_form_skip, dw_form_sparse, dw_form_step, dw_form_tah;

#endif
