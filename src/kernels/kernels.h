/* SPDX-License-Identifier: Apache-2.0
 * kernels.h - the innermost loops, one table per instruction set; kernels_c.c is their
 * specification.
 *
 * A run is a sequence of pieces that lie side by side in memory: pieces of one row, or whole rows
 * that touch. Kernels see no strides, no headers and no keys. Every table gives the same bits for
 * the same run.
 *
 * wide table:
 * | name          | shape            | unit  | meaning                                                    |
 * | channels      |                  |       | elements of the run in memory; only its last piece may be  |
 * |               |                  |       | shorter than the others                                    |
 * | width         |                  |       | elements stored per piece, at most 2048, a multiple of 16  |
 * | x, prev, next | (channels)       |       | prev NULL: base +0; next NULL: no state                    |
 * | scales        | (pieces) bf16    | bytes | little-endian, inside the frame                            |
 * | choices       |                  | bits  | NULL: no choice; else bit first_piece + i is piece i's     |
 * | codes         |                  | bytes | the tile's planes; tile_elements and first place the run   |
 * | row           |                  |       | what the whole row chose, where a row is more than a run   |
 * | dither        |                  |       | NULL: nearest rounding                                     |
 * | is_far        |                  |       | x and prev come from memory, past the caches: ask early    |
 * | sum           |                  |       | NULL, or what the digest of out is added to                |
 * | element       |                  |       | for the digest: as its `first`                             |
 * | past          |                  |       | out may go past the caches: a call of stream that is the   |
 * |               |                  |       | last one must follow, be it of nothing                     |
 *
 * Runs of microscaling are the same, with other names: their pieces are blocks of 32, whose scales
 * are bytes. There prev is NULL where next is.
 *
 * With a scale per channel a run is a stretch of one row, and every element has a choice and a
 * scale of its own, in a dw_columns that was filled from the extremes of all rows.
 *
 * Errors: none; sizes were checked before. Threads: no state at all. */
#ifndef DW_KERNELS_H
#define DW_KERNELS_H

#include "arithmetic/mx.h"
#include "arithmetic/quant.h"
#include "deltawire/deltawire.h"

/* Both candidates of a piece: of x - base and, where there is a choice, of x. */
typedef struct dw_candidates {
    dw_extremes delta, direct;
} dw_candidates;

typedef struct dw_piece_counts {
    uint64_t pieces, direct, zero, poisoned;
} dw_piece_counts;

typedef struct dw_chosen {
    uint16_t scale;
    int direct;
} dw_chosen;

/* Stochastic rounding: element i of the sample takes part i % 8 of the eight 16-bit parts, low ones
 * first, of Philox4x32-10 with the counter (low and high half of i / 8, 0, 0) and this key, low
 * half first. */
typedef struct dw_dither {
    uint64_t key, element; /* element: which one of its sample the run begins with */
} dw_dither;

typedef struct dw_encode_run {
    dw_dtype x_dtype, prev_dtype;
    uint32_t bits, width, pieces;
    dw_scale scale;
    uint64_t channels;
    const void *x, *prev;
    void *next;
    uint8_t *scales, *choices, *codes;
    uint64_t first_piece;
    uint32_t tile_elements, first;
    const dw_chosen *row;
    const dw_dither *dither;
    int is_far;
    dw_piece_counts *counts;
} dw_encode_run;

typedef struct dw_decode_run {
    dw_dtype out_dtype, prev_dtype; /* out: prev's dtype with state, y's without */
    uint32_t bits, width, pieces;
    uint64_t channels;
    const void *prev;
    void *out;
    int poison_keeps; /* a poisoned piece leaves prev (or +0) in out; else NaN */
    const uint8_t *scales, *choices, *codes;
    uint64_t first_piece;
    uint32_t tile_elements, first;
    uint64_t *sum, element;
    int past; /* see the table; only where there is no sum */
} dw_decode_run;

/* Microscaling: docs/format.md, 3.3 and 5. */
typedef struct dw_mx_encode_run {
    dw_dtype x_dtype, prev_dtype;
    dw_element element;
    uint32_t blocks;
    uint64_t channels;
    const void *x, *prev;
    void *next;
    uint8_t *scales, *choices, *codes; /* scales: a byte per block */
    uint64_t first_piece;
    uint32_t tile_elements, first;
    dw_piece_counts *counts; /* zero: of blocks whose largest magnitude is 0 */
} dw_mx_encode_run;

typedef struct dw_mx_decode_run {
    dw_dtype out_dtype, prev_dtype; /* out: prev's dtype with state, y's without */
    dw_element element;
    uint32_t blocks;
    uint64_t channels;
    const void *prev;
    void *out;
    int poison_keeps; /* a poisoned block leaves prev (or +0) in out; else NaN */
    const uint8_t *scales, *choices, *codes;
    uint64_t first_piece;
    uint32_t tile_elements, first;
    uint64_t *sum, element_number; /* as sum and element of a dw_decode_run */
} dw_mx_decode_run;

/* A strip of channels that have a scale each: what the encoder gathers over all rows, then what all
 * rows are coded or decoded with. */
enum { DW_COLUMNS = 256 };

typedef struct dw_columns {
    uint32_t n, stored;             /* channels, and elements stored for them: a multiple of 16 */
    uint32_t base_mask[DW_COLUMNS]; /* 0: direct; else ones */
    uint32_t keep_mask[DW_COLUMNS]; /* ones: poisoned */
    float scale[DW_COLUMNS], inverse[DW_COLUMNS];
} dw_columns;

/* Extremes by column; positive[i] and negative[i] as in dw_extremes. */
typedef struct dw_column_extremes {
    uint32_t delta_positive[DW_COLUMNS], delta_negative[DW_COLUMNS], direct_positive[DW_COLUMNS],
        direct_negative[DW_COLUMNS];
} dw_column_extremes;

/* Mean-square search by column. */
typedef struct dw_column_squares {
    float inverse[DW_ATTEMPTS][DW_COLUMNS], sum[DW_ATTEMPTS][DW_COLUMNS];
} dw_column_squares;

/* One row of a strip. out: the new prev, or y; NULL where an encoder keeps no state. */
typedef struct dw_column_run {
    dw_dtype x_dtype, prev_dtype; /* x: of out in a decoder without state */
    uint32_t bits;
    const dw_columns *columns;
    const void *x, *prev;
    void *out;
    uint8_t *codes;
    uint32_t tile_elements, first;
    int poison_keeps;
    const dw_dither *dither;
} dw_column_run;

/* Squares for the counters, over n elements that lie side by side. base NULL: +0. */
typedef struct dw_norms_run {
    const void *x, *base, *back; /* back: the reconstruction */
    dw_dtype x_dtype, base_dtype, back_dtype;
    uint64_t n;
} dw_norms_run;

#define DW_NORM_LIMIT                                                                              \
    0x7e967699u /* 1e38: where x, x - base or x - back is not below it, the element is left out */

typedef struct dw_norms {
    double x, delta, error;
} dw_norms;

typedef struct dw_kernels {
    const char *name; /* "c", "avx2", ... */
    void (*encode)(const dw_encode_run *run);
    void (*decode)(const dw_decode_run *run);
    /* The extremes of n elements, joined with what *candidates holds; for rows of several runs. */
    void (*extremes)(const void *x, dw_dtype x_dtype, const void *prev, dw_dtype prev_dtype,
                     uint64_t n, dw_candidates *candidates);
    /* The squares of what each attempt would lose of x - prev, added to sums: element i to
     * sums[attempt][i % DW_NORM_LANES]; for rows of several runs. */
    void (*squares)(const void *x, dw_dtype x_dtype, const void *prev, dw_dtype prev_dtype,
                    uint64_t n, uint32_t bits, const dw_attempts *attempts,
                    float sums[DW_ATTEMPTS][DW_NORM_LANES]);
    /* One row of a strip: its extremes joined, its squares added, its codes and new prev, the way
     * back. */
    void (*column_extremes)(const dw_column_run *run, dw_column_extremes *extremes);
    void (*column_squares)(const dw_column_run *run, dw_column_squares *squares);
    void (*encode_columns)(const dw_column_run *run);
    void (*decode_columns)(const dw_column_run *run);
    /* RN of docs/format.md: from finite values to finite values. Same dtypes copy. */
    void (*convert)(const void *from, dw_dtype from_dtype, void *to, dw_dtype to_dtype, uint64_t n);
    /* The sum of docs/format.md, 4, over n elements of prev; the first of them is its element
     * number `first`, a multiple of 4. */
    uint64_t (*digest)(const void *elements, dw_dtype dtype, uint64_t first, uint64_t n);
    /* The same sum over a payload's bytes, whose words are little-endian everywhere; from and n are
     * multiples of 16. */
    uint64_t (*digest_bytes)(const uint8_t *payload, uint64_t from, uint64_t n);
    /* Copies past the caches where that is possible; to begins on a line of 64 bytes. last: and all
     * that went past them is seen by other threads as early as whatever is stored next. */
    void (*stream)(void *to, const void *from, uint64_t bytes, int last);
    /* Adds sums of squares in binary64: DW_NORM_LANES of them, element i into sum i %
     * DW_NORM_LANES, then these in order. */
    void (*norms)(const dw_norms_run *run, dw_norms *norms);
    /* to[i] += factor * from[i], in three steps that are rounded to nearest even each: the product
     * in binary32, its sum with to[i] widened in binary32, and the sum once to to's dtype, too
     * large becomes infinite. A sum that is NaN becomes 0x7fc00000, 0x7e00 or 0x7fc0, whatever made
     * it: processors do not agree on the sign and the fraction of a NaN. from and to do not
     * overlap. */
    void (*add)(const float *from, float factor, void *to, dw_dtype to_dtype, uint64_t n);
    void (*mx_encode)(const dw_mx_encode_run *run);
    void (*mx_decode)(const dw_mx_decode_run *run);
} dw_kernels;

extern const dw_kernels dw_kernels_c;
#ifdef DW_HAVE_X86_KERNELS /* src/meson.build defines it where their libraries are built */
extern const dw_kernels dw_kernels_avx2, dw_kernels_avx512;
#endif
#ifdef DW_HAVE_NEON_KERNELS
extern const dw_kernels dw_kernels_neon;
#endif

/* The best table for this processor among those that need no feature (DW_CPU_... of cpu.h) beyond
 * `allowed`. It is asked once per encoder or decoder, which keeps the answer. */
const dw_kernels *dw_kernels_choose(uint32_t allowed);

/* A table by its name; NULL where this build has none, or this processor cannot run it. */
const dw_kernels *dw_kernels_find(const char *name);

#endif
