/* SPDX-License-Identifier: Apache-2.0
 * bulk.h - measures the squares of a tile without its outliers, from which the form step finds its
 * steps (arithmetic/step.h, docs/format.md, 5).
 *
 * A caller names the ranges of a tile one after the other, and then measures the tile:
 *
 * | name     | meaning                                                                          |
 * | x_at     | the place of a range in the x of the job                                         |
 * | coded_at | its place in the x of the job whose values are coded. With a rotation these are  |
 * |          | other values (codecs/front.h); otherwise it is the same job and place            |
 * | element  | its place in prev                                                                |
 * | n        | how many elements it has                                                         |
 *
 * Every range begins at a multiple of 16 of the tile's stored elements, so each element is added to
 * the same lane whether or not x has gaps.
 *
 * Errors: none. State: only in the struct. Threads: any, each with a struct of its own. */
#ifndef DW_BULK_H
#define DW_BULK_H

#include "codecs/job.h"

typedef struct dw_bulk_range {
    uint64_t x_at, coded_at, element, n;
} dw_bulk_range;

typedef struct dw_bulk_tile {
    dw_bulk_range of[DW_TILE_ELEMENTS / 16];
    uint32_t count;
    uint64_t n; /* elements of all ranges */
} dw_bulk_tile;

/* Begins a tile without ranges. */
static inline void dw_bulk_begin(dw_bulk_tile *tile)
{
    tile->count = 0;
    tile->n = 0;
}

static inline void dw_bulk_add(dw_bulk_tile *tile, dw_bulk_range more)
{
    tile->of[tile->count++] = more;
    tile->n += more.n;
}

/* Adds what is measured of a tile, unless it has no ranges, and begins the next tile. coded: the
 * job whose values are coded. needs_x: x itself is measured as well. */
void dw_bulk_measure(const dw_encode_job *job, const dw_encode_job *coded, dw_bulk_tile *tile,
                     bool needs_x, dw_squares *to);

#endif
