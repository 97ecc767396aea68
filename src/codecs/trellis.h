/* SPDX-License-Identifier: Apache-2.0
 * trellis.h - chooses the codes of a tile along a trellis (arithmetic/trellis.h).
 *
 * A caller loads the values of a tile piece by piece, then finishes the tile, and goes on with the
 * next. The trellis states continue from tile to tile and begin at 0 with each block of the entropy
 * coder, which follows them.
 *
 * wide table:
 * | name    | meaning                                                                               |
 * | scaled  | the values of the tile in steps; NaN where none was loaded: padding                   |
 * | lanes   | sums of their squares, and n: how many were loaded                                    |
 * | states  | of the lanes                                                                          |
 * | frugal  | an error may become larger if that saves more bits than it costs                      |
 * | escapes | the tile has values that are too large; then `scaled` is a NaN of its own |
 *
 * Errors: none. State: only in the struct. Threads: any, each with a struct of its own. */
#ifndef DW_TRELLIS_TILE_H
#define DW_TRELLIS_TILE_H

#include "kernels/kernels.h"

typedef struct dw_trellis_tile {
    _Alignas(64) float scaled[DW_TRELLIS_VALUES];
    double lanes[DW_NORM_LANES];
    uint64_t n;
    uint8_t states[DW_TRELLIS_LANES];
    bool frugal, escapes;
} dw_trellis_tile;

/* Begins a tile; the first one of a block, or a later one. */
void dw_trellis_begin(dw_trellis_tile *tile, bool is_first);

/* What is loaded: n contiguous elements that share a step. prev NULL: the base is 0. */
typedef struct dw_trellis_span {
    const void *x, *prev;
    dw_dtype x_dtype, prev_dtype;
    uint64_t n;
    uint16_t scale; /* poisoned: the elements count as padding */
} dw_trellis_span;

/* Loads elements. at: the place of their first code in the tile, a multiple of DW_NORM_LANES. */
void dw_trellis_load(dw_trellis_tile *tile, const dw_kernels *kernels, const dw_trellis_span *span,
                     uint32_t at);

/* Writes the codes of a tile of so many elements. A value that is too large for a code is like
 * padding for the values behind it; its code is 0 until the caller has stored the value elsewhere.
 */
void dw_trellis_finish(dw_trellis_tile *tile, const dw_kernels *kernels, uint32_t elements,
                       uint8_t *codes);

#endif
