/* SPDX-License-Identifier: Apache-2.0
 * run_shape.h - what a run of quantized values looks like, drawn at random, and the values in it.
 */
#ifndef DW_TEST_RUN_SHAPE_H
#define DW_TEST_RUN_SHAPE_H

#include "kernel_rig.h"

typedef struct shape {
    dw_dtype x, prev;
    bool has_prev, has_next, chooses, whole_row, dithers;
    int hostile; /* 1: values at the ends of the numbers; 2: also x that is not finite */
    dw_scale scale;
    dw_dither dither; /* taken where it dithers */
    uint32_t bits, width, pieces, tile_pieces, first;
    uint64_t channels, first_piece;
} shape;

const char *describe(const shape *s); /* good until the next call */

/* A run somewhere in a tile; what follows it in the tile must stay as it is. */
shape shape_of(bench *b, dw_dtype x, dw_dtype prev, uint32_t bits, uint32_t width,
               uint64_t channels);

/* Elements alone, for kernels that know no pieces: in the first 600 rounds every number of them
 * from 0 on, twice. */
shape stretch_of(bench *b, int round);

size_t choice_bytes_of(const shape *s);
size_t code_bytes_of(const shape *s);

/* x near prev in most pieces, equal in some, far away in others; mirrored values, so that signs
 * tie. */
void fill_run(bench *b, const shape *s, void *x, void *prev);

/* Copies in their slots; no prev: NULL. */
const void *guarded_x(bench *b, const shape *s, const void *x);
const void *guarded_prev(bench *b, const shape *s, const void *prev);

#endif
