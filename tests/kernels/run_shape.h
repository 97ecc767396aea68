/* SPDX-License-Identifier: Apache-2.0
 * run_shape.h - draws the shape of a run of quantized values at random, and the values in it. */
#ifndef DW_TEST_RUN_SHAPE_H
#define DW_TEST_RUN_SHAPE_H

#include "kernel_rig.h"

typedef struct shape {
    dw_dtype x, prev;
    bool has_prev, has_next, chooses, whole_row, dithers, rests, past, far;
    int hostile; /* 1: also very large and very small values; 2: also x that is not finite */
    dw_scale scale;
    dw_dither dither; /* used if `dithers` is set */
    uint32_t bits, width, pieces, tile_pieces, first;
    uint64_t channels, first_piece;
} shape;

const char *describe(const shape *s); /* valid until the next call */

/* Draws a run somewhere in a tile; the rest of the tile must not be changed. */
shape shape_of(bench *b, dw_dtype x, dw_dtype prev, uint32_t bits, uint32_t width,
               uint64_t channels);

/* A shape without pieces, for kernels on plain elements. The first 600 rounds take every number of
 * elements from 0 to 299, twice each. */
shape stretch_of(bench *b, int round);

size_t choice_bytes_of(const shape *s);
size_t code_bytes_of(const shape *s);

/* Fills x and prev. In most pieces x is near prev, in some equal, in others far away. Some values
 * are mirrored, so that the positive and the negative extreme are equal. */
void fill_run(bench *b, const shape *s, void *x, void *prev);

/* Copies to guarded memory. guarded_prev returns NULL if there is no prev. */
const void *guarded_x(bench *b, const shape *s, const void *x);
const void *guarded_prev(bench *b, const shape *s, const void *prev);

#endif
