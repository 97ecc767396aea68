/* SPDX-License-Identifier: Apache-2.0
 * coded.h - where the groups of an entropy-coded payload lie, in code that C and CUDA share
 * (docs/format.md, 3.8). A *block* here is what the format calls a group: up to 16 tiles, which are
 * coded together.
 *
 * Errors: none. State: none. */
#ifndef DW_CODED_H
#define DW_CODED_H

#include "arithmetic/layout.h"

enum { DW_BLOCK_TILES = 16, DW_SIZE_BYTES = 4 };

/* The parts of a coded payload: a copy of what is in front of the tiles, the size of every block,
 * and the blocks. blocks: how many there are. blocks_at: where the first of them begins. */
typedef struct dw_coded {
    uint64_t front, blocks, blocks_at;
} dw_coded;

DW_INLINE uint64_t dw_blocks_of(uint64_t tiles)
{
    return (tiles + DW_BLOCK_TILES - 1) / DW_BLOCK_TILES;
}

/* How many blocks every chunk but the last has. */
DW_INLINE uint64_t dw_chunk_blocks(const dw_layout *layout)
{
    return dw_blocks_of(dw_layout_chunk_tiles(layout));
}

DW_INLINE dw_coded dw_coded_of(const dw_layout *layout)
{
    uint64_t each = dw_layout_chunk_tiles(layout), whole = layout->tiles / each;
    dw_coded coded;
    coded.front = layout->choice_bytes + layout->scale_bytes;
    coded.blocks = whole * dw_blocks_of(each) + dw_blocks_of(layout->tiles % each);
    coded.blocks_at = coded.front + dw_round_up(DW_SIZE_BYTES * coded.blocks, 16);
    return coded;
}

/* A block. from, bytes: where it lies in the plain payload, and its size there. scales: how many of
 * these bytes are scales. codes: the number of its codes, padding included. */
typedef struct dw_coded_block {
    uint64_t number, first_tile, tiles;
    uint64_t from, bytes, scales, codes;
} dw_coded_block;

/* The block of this number, counted through the payload. */
DW_INLINE dw_coded_block dw_coded_block_of(const dw_layout *layout, uint64_t number)
{
    uint64_t each = dw_chunk_blocks(layout), chunk = number / each;
    dw_chunk all = dw_layout_chunk(layout, chunk);
    uint64_t skipped = number % each * DW_BLOCK_TILES, left = all.tiles - skipped;
    dw_coded_block b = {0, 0, 0, 0, 0, 0, 0};
    b.number = number;
    b.first_tile = all.first_tile + skipped;
    b.tiles = left < DW_BLOCK_TILES ? left : (uint64_t)DW_BLOCK_TILES;
    for (uint64_t k = 0; k < b.tiles; k++) {
        dw_tile tile = dw_layout_tile(layout, b.first_tile + k);
        if (k == 0) b.from = tile.offset;
        b.bytes = tile.offset + tile.bytes - b.from;
        b.scales += tile.codes - tile.offset;
        b.codes += tile.elements;
    }
    return b;
}

/* Returns whether blocks are bare: whether their bytes in the plain payload are nothing but their
 * codes, one per byte. */
DW_INLINE bool dw_blocks_are_bare(const dw_layout *layout)
{
    return layout->bits == 8 && !layout->scales_in_tiles && !layout->escapes;
}

/* Returns how many codes the largest block has. No chunk has more tiles than the first chunk, and
 * no tile has more codes than the first tile. */
DW_INLINE uint64_t dw_block_most_codes(const dw_layout *layout)
{
    uint64_t tiles = dw_layout_chunk(layout, 0).tiles;
    tiles = tiles < DW_BLOCK_TILES ? tiles : (uint64_t)DW_BLOCK_TILES;
    return tiles * dw_layout_tile(layout, 0).elements;
}

#endif
