/* SPDX-License-Identifier: Apache-2.0
 * kernels.h - the innermost loops: one table of functions per instruction set. kernels_c.c is the
 * specification of all others.
 *
 * A run is a sequence of pieces that are contiguous in memory: pieces of one row, or whole rows
 * without gaps between them. Kernels know nothing of strides, headers and keys. All tables give the
 * same bits for the same run.
 *
 * wide table:
 * | name          | shape            | unit  | meaning                                                    |
 * | channels      |                  |       | elements of the run in memory; only its last piece may be  |
 * |               |                  |       | shorter than the others                                    |
 * | width         |                  |       | elements stored per piece, at most 2048, a multiple of 16  |
 * | x, prev, next | (channels)       |       | prev NULL: the base is +0; next NULL: no state             |
 * | scales        | (pieces) bf16    | bytes | little-endian, inside the frame                            |
 * | choices       |                  | bits  | NULL: no choice; else bit first_piece + i is for piece i   |
 * | codes         |                  | bytes | the tile's planes; the run starts at element `first` of    |
 * |               |                  |       | tile_elements                                              |
 * | row           |                  |       | scale and choice of the whole row, if it has several runs  |
 * | dither        |                  |       | NULL: nearest rounding                                     |
 * | is_far        |                  |       | x and prev are not in the caches: prefetch early           |
 * | rests         |                  |       | next, in f32, becomes what it would be, minus x: the new   |
 * |               |                  |       | residual of error feedback. There are no choices then      |
 * | sum           |                  |       | NULL, or where to add the digest of out                    |
 * | element       |                  |       | the number of the run's first element, for the digest      |
 * | past          |                  |       | out, or next with `rests`, may be stored past the caches;  |
 * |               |                  |       | then the caller calls stream with last = 1 afterwards,     |
 * |               |                  |       | possibly with 0 bytes                                      |
 * | adds, factor  |                  |       | out += factor * value, as the function add does it;        |
 * |               |                  |       | without prev, sum and past                                 |
 *
 * Runs of microscaling have the same fields under other names: their pieces are blocks of 32, whose
 * scales are bytes. There prev is NULL where next is NULL.
 *
 * With a scale per channel a run is a part of one row, and every element has its own choice and
 * scale. These are in a dw_columns, which is computed from the extremes of all rows first.
 *
 * Errors: none; sizes were checked before. Threads: the functions have no state. */
#ifndef DW_KERNELS_H
#define DW_KERNELS_H

#include "arithmetic/mx.h"
#include "arithmetic/quant.h"
#include "arithmetic/step.h"
#include "deltawire/deltawire.h"
#include "kernels/rans_run.h"
#include "kernels/trellis_run.h"

/* The extremes of both candidates for coding a piece: x - base and, where there is a choice, x. */
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

/* Stochastic rounding: the random number of element i of the sample is the 16-bit part i % 8 (low
 * parts first) of the output of Philox4x32-10 with the counter (low half of i / 8, high half of i /
 * 8, 0, 0) and this key, low half first. */
typedef struct dw_dither {
    uint64_t key, element; /* element: the number of the run's first element in its sample */
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
    int is_far, rests, past;
    dw_piece_counts *counts;
} dw_encode_run;

typedef struct dw_decode_run {
    dw_dtype out_dtype, prev_dtype; /* out: prev's dtype with state, y's without */
    uint32_t bits, width, pieces;
    uint64_t channels;
    const void *prev;
    void *out;
    /* Not 0: a poisoned piece gets prev (or +0) in out; 0: it gets NaN. */
    int poison_keeps;
    const uint8_t *scales, *choices, *codes;
    uint64_t first_piece;
    uint32_t tile_elements, first;
    uint64_t *sum, element;
    int past; /* see the table above; not together with sum */
    int adds;
    float factor;
} dw_decode_run;

/* Microscaling: docs/format.md, 3.3 and 5. */
typedef struct dw_mx_encode_run {
    dw_dtype x_dtype, prev_dtype;
    dw_element element;
    uint32_t blocks;
    uint64_t channels;
    const void *x, *prev;
    void *next;
    uint8_t *scales, *choices, *codes; /* scales: one byte per block */
    uint64_t first_piece;
    uint32_t tile_elements, first;
    dw_piece_counts *counts; /* zero: blocks whose largest magnitude is 0 */
} dw_mx_encode_run;

typedef struct dw_mx_decode_run {
    dw_dtype out_dtype, prev_dtype; /* out: prev's dtype with state, y's without */
    dw_element element;
    uint32_t blocks;
    uint64_t channels;
    const void *prev;
    void *out;
    /* Not 0: a poisoned block gets prev (or +0) in out; 0: it gets NaN. */
    int poison_keeps;
    const uint8_t *scales, *choices, *codes;
    uint64_t first_piece;
    uint32_t tile_elements, first;
    uint64_t *sum, element_number; /* like sum and element of a dw_decode_run */
} dw_mx_decode_run;

/* What the kernels of the form step work on (docs/format.md, 3.4 and 5): n contiguous elements of
 * one piece. */
typedef struct dw_step_run {
    dw_dtype x_dtype, prev_dtype; /* x_dtype: in a decoder that of out */
    uint64_t n;                   /* at most 2048 */
    uint32_t stored; /* encode: codes written, at least n and at most 2048. Padding gets code 128 */
    /* The step, a finite bf16. 0: all codes stand for a change of 0. Negative only in a decoder. */
    uint16_t scale;
    dw_rounding rounding; /* decode: DW_ROUNDING_DITHER or any other */
    const void *x, *prev; /* prev NULL: the base is +0 */
    void *next;           /* encode: NULL: no state. It has prev_dtype, also where prev is NULL */
    void *out;            /* decode */
    uint8_t *codes;       /* one byte per element */
    dw_dither dither;     /* key and number of the first element, as for stochastic rounding */
    uint64_t escapes;     /* encode adds: how many values dw_step_escapes */
    /* encode, with nearest rounding: values of up to so many steps get level 0. 0: no dead zone */
    float zone;
} dw_step_run;

/* A strip of channels with a scale each: the encoder gathers extremes over all rows first; then all
 * rows are coded or decoded with the resulting scales. */
enum { DW_COLUMNS = 256 };

typedef struct dw_columns {
    uint32_t n, stored; /* number of channels; elements stored for them, a multiple of 16 */
    uint32_t base_mask[DW_COLUMNS]; /* 0: direct; else all bits set */
    uint32_t keep_mask[DW_COLUMNS]; /* all bits set: poisoned */
    float scale[DW_COLUMNS], inverse[DW_COLUMNS];
} dw_columns;

/* Extremes of every column; positive[i] and negative[i] as in dw_extremes. */
typedef struct dw_column_extremes {
    uint32_t delta_positive[DW_COLUMNS], delta_negative[DW_COLUMNS], direct_positive[DW_COLUMNS],
        direct_negative[DW_COLUMNS];
} dw_column_extremes;

/* Data of the mean-square search for every column. */
typedef struct dw_column_squares {
    float inverse[DW_ATTEMPTS][DW_COLUMNS], sum[DW_ATTEMPTS][DW_COLUMNS];
} dw_column_squares;

/* One row of a strip. out: the new prev, or y; NULL where an encoder keeps no state. */
typedef struct dw_column_run {
    dw_dtype x_dtype, prev_dtype; /* x_dtype: in a decoder without state, the dtype of out */
    uint32_t bits;
    const dw_columns *columns;
    const void *x, *prev;
    void *out;
    uint8_t *codes;
    uint32_t tile_elements, first;
    int poison_keeps;
    const dw_dither *dither;
} dw_column_run;

/* Sums of squares for the counters, over n contiguous elements. base NULL: +0. */
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
    /* Joins the extremes of n elements with those in *candidates; for rows that consist of several
     * runs. */
    void (*extremes)(const void *x, dw_dtype x_dtype, const void *prev, dw_dtype prev_dtype,
                     uint64_t n, dw_candidates *candidates);
    /* For each attempt, adds the squared errors (dw_attempt_square) that x - prev would have with
     * the scale of the attempt. That of element i is added to sums[attempt][i % DW_NORM_LANES]. For
     * rows that consist of several runs. */
    void (*squares)(const void *x, dw_dtype x_dtype, const void *prev, dw_dtype prev_dtype,
                    uint64_t n, uint32_t bits, const dw_attempts *attempts,
                    float sums[DW_ATTEMPTS][DW_NORM_LANES]);
    /* Each works on one row of a strip. column_extremes updates the extremes of every column.
     * column_squares adds the squared errors of every attempt. encode_columns writes the codes and
     * the new prev. decode_columns decodes the row. */
    void (*column_extremes)(const dw_column_run *run, dw_column_extremes *extremes);
    void (*column_squares)(const dw_column_run *run, dw_column_squares *squares);
    void (*encode_columns)(const dw_column_run *run);
    void (*decode_columns)(const dw_column_run *run);
    /* RN of docs/format.md for finite values. The same dtype on both sides is a copy. */
    void (*convert)(const void *from, dw_dtype from_dtype, void *to, dw_dtype to_dtype, uint64_t n);
    /* The sum from which a state digest is made, over n elements of prev: S of docs/format.md, 4,
     * before the final mixing (dw_digest_of_sum). first: the index in prev of the first of these
     * elements, a multiple of 4. */
    uint64_t (*digest)(const void *elements, dw_dtype dtype, uint64_t first, uint64_t n);
    /* The same sum over the bytes of a payload, whose words are always little-endian. from and n
     * are multiples of 16. */
    uint64_t (*digest_bytes)(const uint8_t *payload, uint64_t from, uint64_t n);
    /* Copies with stores that bypass the caches, if the instruction set has such stores. `to` is
     * aligned to 64 bytes. last: ends with a barrier. After it, other threads see these stores, and
     * all earlier ones that bypassed the caches, in the same order as normal stores. */
    void (*stream)(void *to, const void *from, uint64_t bytes, int last);
    /* Adds sums of squares in binary64: element i to sum i % DW_NORM_LANES, then these sums in
     * order. */
    void (*norms)(const dw_norms_run *run, dw_norms *norms);
    /* to[i] += factor * from[i] in three steps, each rounded to nearest even: the product in
     * binary32, its sum with to[i] in binary32, and the conversion to to's dtype, where overflow
     * gives infinity. A NaN becomes 0x7fc00000, 0x7e00 or 0x7fc0, whatever its origin, because
     * processors differ in the sign and payload of the NaN they produce. from and to must not
     * overlap. */
    void (*add)(const float *from, float factor, void *to, dw_dtype to_dtype, uint64_t n);
    /* from[i] = dw_residual_of(from[i], x[i]) (arithmetic/quant.h). */
    void (*subtract)(const void *x, dw_dtype x_dtype, float *from, uint64_t n);
    void (*mx_encode)(const dw_mx_encode_run *run);
    void (*mx_decode)(const dw_mx_decode_run *run);
    /* Adds the squares of x - prev, exact products in binary64, in order: element i to lanes[i %
     * DW_NORM_LANES]. *largest becomes the largest of its old value and of the magnitudes bits(x -
     * prev) & 0x7fffffff; a NaN counts as infinite (dw_step_unify_nan). Elements whose magnitude is
     * above `limit` are left out of both; returns how many. DW_NO_LIMIT: none is. Any n. */
    uint64_t (*step_squares)(const void *x, dw_dtype x_dtype, const void *prev, dw_dtype prev_dtype,
                             uint64_t n, uint32_t limit, double lanes[DW_NORM_LANES],
                             uint32_t *largest);
    /* Elements that escape, and those of which x - prev is NaN or infinite, get code 0 and are
     * counted; callers do not code a piece that has one of the latter. */
    void (*step_encode)(dw_step_run *run);
    void (*step_decode)(const dw_step_run *run);
    /* Writes the high bytes of the 16-bit random numbers of n elements, at most 2048. dither: the
     * key and the number of the first element. */
    void (*dither_bytes)(const dw_dither *dither, uint64_t n, uint8_t *to);
    /* Parts of dithered codes (rans_run.h has the parameters). count_parts writes how many of n
     * codes belong to each part. sort_parts sorts the codes into their parts. restore_parts puts
     * sorted codes back into the order of the payload. */
    void (*count_parts)(const uint8_t *high, uint64_t n, uint32_t counts[DW_PARTS]);
    void (*sort_parts)(const uint8_t *high, const uint8_t *codes, uint64_t n,
                       uint8_t *next[DW_PARTS]);
    void (*restore_parts)(const uint8_t *high, const uint8_t *next[DW_PARTS], uint64_t n,
                          uint8_t *codes);
    /* The entropy coder (rans_run.h). histogram writes how often each code occurs. */
    void (*histogram)(const uint8_t *codes, uint64_t n, uint32_t counts[256]);
    /* Each returns how many words it wrote or read. A result above run->most or run->count means
     * that it stopped early, because there was no room for more words, or because words were
     * missing. */
    uint64_t (*rans_encode)(const dw_rans_encode_run *run);
    uint64_t (*rans_decode)(const dw_rans_decode_run *run);
    /* The same for codes that follow a trellis. */
    uint64_t (*rans_decode_trellis)(const dw_rans_trellis_run *run);
    /* Trellis-coded quantization (trellis_run.h). trellis_encode finds the codes of up to 64 rows.
     * trellis_marks writes the marks of n codes that follow a trellis; states (32) are those in
     * front of the first code, and become those behind the last one. */
    void (*trellis_encode)(dw_trellis_run *run);
    void (*trellis_marks)(const uint8_t *codes, uint64_t n, uint8_t *states, uint8_t *marks);
    /* The rotation of blocks of `width` values, which is 16, 64 or 256, or 1: then nothing is
     * rotated (arithmetic/rotate.h). n: a multiple of the width. rotate writes x - prev, rotated;
     * prev NULL: x. Where an element is NaN, which NaN it is depends on the processor. unrotate
     * writes RN(prev + v), where v is `from`, rotated; from is finite, and prev NULL is +0. No
     * memory may overlap. */
    void (*rotate)(const void *x, dw_dtype x_dtype, const void *prev, dw_dtype prev_dtype,
                   uint64_t n, uint32_t width, float *to);
    void (*unrotate)(const float *from, uint64_t n, uint32_t width, const void *prev,
                     dw_dtype prev_dtype, void *to, dw_dtype to_dtype);
    /* Divides by weights of channels (arithmetic/profile.h). weigh writes (x - base) * inverses,
     * each operation rounded; base NULL: x * inverses. Where an element is NaN, which NaN it is
     * depends on the processor. unweigh writes RN(base + from * weights), where the product is
     * rounded first; base NULL is +0. Any n. No memory may overlap. */
    void (*weigh)(const void *x, dw_dtype x_dtype, const void *base, dw_dtype base_dtype,
                  const float *inverses, uint64_t n, float *to);
    void (*unweigh)(const float *from, const float *weights, const void *base, dw_dtype base_dtype,
                    uint64_t n, void *to, dw_dtype to_dtype);
    /* Finds the values whose magnitude, bits & 0x7fffffff, is `least` or more; least is at most
     * 2^31 - 1. Value i has bit i % 8 of mask[i / 8], which is set if it was found; all other bits
     * of these bytes are cleared. The values that were found are written to list one behind the
     * other, and their number is returned. list has room for n values, and those behind the ones
     * that were found may be overwritten. */
    uint64_t (*collect)(const float *values, uint64_t n, uint32_t least, uint8_t *mask,
                        float *list);
    /* Copies of prev in few bits (arithmetic/compact.h). compact writes codes and scales of n
     * bfloat16 numbers; expand writes the numbers. bits: 8 or 4. The first element begins a group,
     * and a last group that is not whole is padded with zeros. */
    void (*compact)(const uint16_t *from, uint64_t n, uint32_t bits, uint8_t *codes,
                    uint8_t *scales);
    void (*expand)(const uint8_t *codes, const uint8_t *scales, uint64_t n, uint32_t bits,
                   uint16_t *to);
} dw_kernels;

extern const dw_kernels dw_kernels_c;
#ifdef DW_HAVE_X86_KERNELS /* defined by src/kernels/meson.build where these kernels are built */
extern const dw_kernels dw_kernels_avx2, dw_kernels_avx512, dw_kernels_vbmi2;
#endif
#ifdef DW_HAVE_NEON_KERNELS
extern const dw_kernels dw_kernels_neon;
#endif

/* The best table for this processor that needs no features (DW_CPU_... of cpu.h) other than
 * `allowed`. Called once per encoder or decoder. */
const dw_kernels *dw_kernels_choose(uint32_t allowed);

/* The table with this name; NULL where this build lacks it or this processor cannot run it. */
const dw_kernels *dw_kernels_find(const char *name);

#endif
