/* SPDX-License-Identifier: Apache-2.0
 * layout.h - pieces and tiles: where every byte of a quantized payload lies (docs/format.md, 3.2).
 *
 * A pure function of shape, bits and group. All sizes are 64-bit; dw_layout_make alone multiplies, and refuses what
 * does not fit, so that sums and products below it cannot overflow. */
#ifndef DW_LAYOUT_H
#define DW_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DW_TILE_ELEMENTS = 2048, DW_LAYOUT_ROW = 0xffff };

typedef struct dw_layout {
    uint32_t t, c, bits;
    bool chooses;
    uint32_t piece_channels; /* channels of a piece, but for the last of a row */
    uint32_t piece_width;    /* elements stored for it */
    uint32_t last_channels, last_width; /* the last piece of a row */
    uint32_t row_pieces, tile_pieces;
    bool cut_rows;           /* every row is cut into tiles of one piece */
    uint64_t pieces, tiles;
    uint64_t choice_bytes, tile_bytes, payload_bytes;
} dw_layout;

typedef struct dw_tile {
    uint64_t first_piece;
    uint32_t pieces, elements; /* elements stored, padding included */
    uint64_t offset;           /* of its scales, within the payload */
    uint64_t codes;            /* of its codes, within the payload */
    uint64_t bytes;
} dw_tile;

static inline uint64_t dw_round_up(uint64_t value, uint64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

static inline uint64_t dw_scale_bytes(uint64_t pieces)
{
    return dw_round_up(2 * pieces, 16);
}

static inline uint64_t dw_tile_bytes(uint64_t pieces, uint64_t elements, uint32_t bits)
{
    return dw_scale_bytes(pieces) + dw_round_up(elements * bits / 8, 16);
}

static inline void dw_layout_rows(dw_layout *layout, uint32_t c, uint32_t group)
{
    uint32_t whole = group == DW_LAYOUT_ROW ? (c <= DW_TILE_ELEMENTS ? c : DW_TILE_ELEMENTS) : group;
    layout->cut_rows = group == DW_LAYOUT_ROW && c > DW_TILE_ELEMENTS;
    layout->piece_channels = whole;
    layout->piece_width = group == DW_LAYOUT_ROW ? (uint32_t)dw_round_up(whole, 32) : group;
    layout->row_pieces = (uint32_t)(((uint64_t)c + whole - 1) / whole);
    layout->last_channels = c - (layout->row_pieces - 1) * whole;
    layout->last_width =
        layout->cut_rows ? (uint32_t)dw_round_up(layout->last_channels, 32) : layout->piece_width;
    layout->tile_pieces = layout->cut_rows ? 1 : DW_TILE_ELEMENTS / layout->piece_width;
}

/* Bytes of all tiles of one row of a cut layout. */
static inline uint64_t dw_layout_row_bytes(const dw_layout *layout)
{
    return (layout->row_pieces - 1) * layout->tile_bytes + dw_tile_bytes(1, layout->last_width, layout->bits);
}

/* t, c >= 1; bits 1..8; group 16..256 or DW_LAYOUT_ROW. false: the payload would pass 2^62 bytes. */
static inline bool dw_layout_make(dw_layout *layout, uint32_t t, uint32_t c, uint32_t bits, uint32_t group, bool chooses)
{
    *layout = (dw_layout){.t = t, .c = c, .bits = bits, .chooses = chooses};
    dw_layout_rows(layout, c, group);
    layout->pieces = (uint64_t)t * layout->row_pieces;
    if (layout->pieces > UINT64_MAX / 4 / (layout->piece_width + 64u)) return false;
    layout->choice_bytes = chooses ? dw_round_up((layout->pieces + 7) / 8, 16) : 0;
    layout->tile_bytes = dw_tile_bytes(layout->tile_pieces, (uint64_t)layout->tile_pieces * layout->piece_width, bits);
    if (layout->cut_rows) {
        layout->tiles = layout->pieces;
        layout->payload_bytes = layout->choice_bytes + t * dw_layout_row_bytes(layout);
        return true;
    }
    uint64_t full = layout->pieces / layout->tile_pieces, rest = layout->pieces % layout->tile_pieces;
    layout->tiles = full + (rest != 0);
    layout->payload_bytes = layout->choice_bytes + full * layout->tile_bytes;
    if (rest) layout->payload_bytes += dw_tile_bytes(rest, rest * layout->piece_width, bits);
    return true;
}

static inline dw_tile dw_layout_tile(const dw_layout *layout, uint64_t i)
{
    dw_tile tile;
    if (layout->cut_rows) {
        uint64_t row = i / layout->row_pieces, at = i % layout->row_pieces;
        tile.first_piece = i;
        tile.pieces = 1;
        tile.elements = at + 1 == layout->row_pieces ? layout->last_width : layout->piece_width;
        tile.offset = layout->choice_bytes + row * dw_layout_row_bytes(layout) + at * layout->tile_bytes;
    } else {
        tile.first_piece = i * layout->tile_pieces;
        uint64_t left = layout->pieces - tile.first_piece;
        tile.pieces = left < layout->tile_pieces ? (uint32_t)left : layout->tile_pieces;
        tile.elements = tile.pieces * layout->piece_width;
        tile.offset = layout->choice_bytes + i * layout->tile_bytes;
    }
    tile.codes = tile.offset + dw_scale_bytes(tile.pieces);
    tile.bytes = dw_tile_bytes(tile.pieces, tile.elements, layout->bits);
    return tile;
}

#endif
