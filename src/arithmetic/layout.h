/* SPDX-License-Identifier: Apache-2.0
 * layout.h - pieces and tiles: where every byte of a quantized or microscaled payload lies, in code
 * that C and CUDA share (docs/format.md, 3.2 and 3.3).
 *
 * The layout depends only on shape, bits and group. Every row (the channels of one token) is cut
 * into segments, and tiles hold consecutive segments. A piece is the set of values that share one
 * scale. Usually a segment is a piece, and its scale lies in its tile; with a scale per channel
 * (by_channel) each channel is a piece, and the scales lie in front of the tiles. All sizes are
 * 64-bit. dw_layout_make_scaled refuses shapes whose sizes would be too large, so the other
 * functions can add and multiply without checks. */
#ifndef DW_LAYOUT_H
#define DW_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/shared.h"

enum {
    DW_TILE_ELEMENTS = 2048,
    DW_LAYOUT_ROW = 0xffff,
    DW_LAYOUT_CHANNEL = 0xfffe,
    DW_LAYOUT_SAMPLE = 0xfffd
};

typedef struct dw_layout {
    uint32_t t, c, bits;
    uint32_t scale_size; /* bytes of a scale: 2, or 1 for microscaling */
    uint32_t element;    /* the dw_element of microscaling; otherwise 0 */
    bool chooses;
    bool by_channel;                    /* a piece is one channel, of all tokens */
    uint32_t segment_channels;          /* channels of every segment except the last of a row */
    uint32_t segment_width;             /* elements stored for such a segment, padding included */
    uint32_t last_channels, last_width; /* the same of the last segment of a row */
    uint32_t row_segments, tile_segments;
    bool cut_rows; /* a row is longer than a tile: every tile holds one segment */
    uint64_t pieces, segments, tiles;
    uint64_t choice_bytes, scale_bytes; /* bytes in front of the tiles; scale_bytes is 0 unless
                                           by_channel or by_sample */
    uint64_t tile_bytes, payload_bytes;
    bool by_sample;       /* there is one piece, the whole sample */
    bool scales_in_tiles; /* every tile begins with the scales of its pieces */
    bool escapes;         /* form step: tiles have room for escaped values behind their codes */
    bool dithers;         /* form step: the codes have subtractive dither (arithmetic/step.h) */
    bool may_trellis;     /* form step: the codes may follow a trellis (arithmetic/trellis.h) */
    /* Blocks of so many channels are rotated (arithmetic/rotate.h); 0: none are. It divides c, so
       every segment, or as many segments as make a block, and every run hold whole blocks. */
    uint32_t rotates;
    bool weighs; /* form step: values are divided by weights of their channels
                    (arithmetic/profile.h) */
} dw_layout;

typedef struct dw_tile {
    uint64_t first_segment;
    uint32_t segments, elements; /* elements stored, padding included */
    uint64_t offset;             /* where the tile's scales begin, within the payload */
    uint64_t codes;              /* where its codes begin, within the payload */
    uint64_t escapes;            /* where the room for escaped values begins */
    uint64_t bytes;
} dw_tile;

DW_INLINE uint64_t dw_round_up(uint64_t value, uint64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* Bytes of the scales of so many pieces, padding included. */
DW_INLINE uint64_t dw_layout_scales_bytes(const dw_layout *layout, uint64_t pieces)
{
    return dw_round_up(layout->scale_size * pieces, 16);
}

DW_INLINE void dw_layout_rows(dw_layout *layout, uint32_t c, uint32_t group)
{
    bool whole_rows = group == DW_LAYOUT_ROW || layout->by_channel || layout->by_sample;
    uint32_t whole = whole_rows ? (c <= DW_TILE_ELEMENTS ? c : (uint32_t)DW_TILE_ELEMENTS) : group;
    layout->cut_rows = whole_rows && c > DW_TILE_ELEMENTS;
    layout->segment_channels = whole;
    layout->segment_width = whole_rows ? (uint32_t)dw_round_up(whole, 32) : group;
    layout->row_segments = (uint32_t)(((uint64_t)c + whole - 1) / whole);
    layout->last_channels = c - (layout->row_segments - 1) * whole;
    layout->last_width =
        layout->cut_rows ? (uint32_t)dw_round_up(layout->last_channels, 32) : layout->segment_width;
    layout->tile_segments = layout->cut_rows ? 1 : DW_TILE_ELEMENTS / layout->segment_width;
}

/* How many escaped values a tile of so many elements has room for. It is more than an encoder can
 * make (arithmetic/step.h, DW_STEP_LEAST). */
DW_INLINE uint32_t dw_escapes_most(uint64_t elements)
{
    return (uint32_t)((elements + 31) / 32);
}

enum { DW_ESCAPE_BYTES = 6 }; /* a place and a value in the list of a coded block */

/* Bytes of that room: their number, 4 bytes; their places, 2 bytes each; and the values, 4 bytes
 * each. */
DW_INLINE uint64_t dw_escapes_bytes(uint64_t elements)
{
    return dw_round_up(4 + 6 * (uint64_t)dw_escapes_most(elements), 16);
}

/* Bytes of a tile with so many segments and elements. Its scales are included unless they lie in
 * front of all tiles. */
DW_INLINE uint64_t dw_layout_tile_bytes(const dw_layout *layout, uint64_t segments,
                                        uint64_t elements)
{
    return dw_layout_scales_bytes(layout, layout->scales_in_tiles ? segments : 0) +
           dw_round_up(elements * layout->bits / 8, 16) +
           (layout->escapes ? dw_escapes_bytes(elements) : 0);
}

/* Bytes of all tiles of one row, where rows are cut. */
DW_INLINE uint64_t dw_layout_row_bytes(const dw_layout *layout)
{
    return (layout->row_segments - 1) * layout->tile_bytes +
           dw_layout_tile_bytes(layout, 1, layout->last_width);
}

/* As dw_layout_make, with scales of scale_size bytes, 1 or 2, and with room for escaped values. */
DW_INLINE bool dw_layout_make_scaled(dw_layout *layout, uint32_t t, uint32_t c, uint32_t bits,
                                     uint32_t group, uint32_t scale_size, bool chooses,
                                     bool escapes)
{
    memset(layout, 0, sizeof *layout);
    layout->escapes = escapes;
    layout->scale_size = scale_size;
    layout->t = t;
    layout->c = c;
    layout->bits = bits;
    layout->chooses = chooses;
    layout->by_channel = group == DW_LAYOUT_CHANNEL;
    layout->by_sample = group == DW_LAYOUT_SAMPLE;
    layout->scales_in_tiles = !layout->by_channel && !layout->by_sample;
    dw_layout_rows(layout, c, group);
    layout->segments = (uint64_t)t * layout->row_segments;
    layout->pieces = layout->by_channel ? c : layout->by_sample ? 1 : layout->segments;
    if (layout->segments > UINT64_MAX / 4 / (layout->segment_width + 512u)) return false;
    layout->choice_bytes = chooses ? dw_round_up((layout->pieces + 7) / 8, 16) : 0;
    layout->scale_bytes =
        layout->scales_in_tiles ? 0 : dw_layout_scales_bytes(layout, layout->pieces);
    layout->tile_bytes = dw_layout_tile_bytes(
        layout, layout->tile_segments, (uint64_t)layout->tile_segments * layout->segment_width);
    uint64_t front = layout->choice_bytes + layout->scale_bytes;
    if (layout->cut_rows) {
        layout->tiles = layout->segments;
        layout->payload_bytes = front + t * dw_layout_row_bytes(layout);
        return true;
    }
    uint64_t full = layout->segments / layout->tile_segments,
             rest = layout->segments % layout->tile_segments;
    layout->tiles = full + (rest != 0);
    layout->payload_bytes = front + full * layout->tile_bytes;
    if (rest)
        layout->payload_bytes += dw_layout_tile_bytes(layout, rest, rest * layout->segment_width);
    return true;
}

/* The layout of a quantized payload. t, c >= 1; bits 1..8; group 16..256, DW_LAYOUT_ROW or
 * DW_LAYOUT_CHANNEL. Returns false where the payload could exceed 2^62 bytes. */
DW_INLINE bool dw_layout_make(dw_layout *layout, uint32_t t, uint32_t c, uint32_t bits,
                              uint32_t group, bool chooses)
{
    return dw_layout_make_scaled(layout, t, c, bits, group, 2, chooses, false);
}

/* The layout of a microscaled payload: pieces are blocks of 32 channels with a scale of one byte.
 * element: a dw_element with `bits` bits (arithmetic/mx.h). */
DW_INLINE bool dw_layout_make_mx(dw_layout *layout, uint32_t t, uint32_t c, uint32_t element,
                                 uint32_t bits, bool chooses)
{
    bool made = dw_layout_make_scaled(layout, t, c, bits, 32, 1, chooses, false);
    layout->element = element;
    return made;
}

/* The layout of codes of one step, which take 8 bits. group: 16..256, DW_LAYOUT_ROW or
 * DW_LAYOUT_SAMPLE. */
DW_INLINE bool dw_layout_make_step(dw_layout *layout, uint32_t t, uint32_t c, uint32_t group,
                                   bool dithers)
{
    bool made = dw_layout_make_scaled(layout, t, c, 8, group, 2, false, true);
    layout->dithers = dithers;
    layout->may_trellis = !dithers;
    return made;
}

DW_INLINE dw_tile dw_layout_tile(const dw_layout *layout, uint64_t i)
{
    dw_tile tile;
    uint64_t front = layout->choice_bytes + layout->scale_bytes;
    if (layout->cut_rows) {
        uint64_t row = i / layout->row_segments, at = i % layout->row_segments;
        tile.first_segment = i;
        tile.segments = 1;
        tile.elements = at + 1 == layout->row_segments ? layout->last_width : layout->segment_width;
        tile.offset = front + row * dw_layout_row_bytes(layout) + at * layout->tile_bytes;
    } else {
        tile.first_segment = i * layout->tile_segments;
        uint64_t left = layout->segments - tile.first_segment;
        tile.segments = left < layout->tile_segments ? (uint32_t)left : layout->tile_segments;
        tile.elements = tile.segments * layout->segment_width;
        tile.offset = front + i * layout->tile_bytes;
    }
    bool has_scales = layout->scales_in_tiles;
    tile.codes = tile.offset + (has_scales ? dw_layout_scales_bytes(layout, tile.segments) : 0);
    tile.escapes = tile.codes + dw_round_up((uint64_t)tile.elements * layout->bits / 8, 16);
    tile.bytes = dw_layout_tile_bytes(layout, tile.segments, tile.elements);
    return tile;
}

/* The offset of a piece's scale within the payload. */
DW_INLINE uint64_t dw_layout_scale(const dw_layout *layout, uint64_t piece)
{
    if (!layout->scales_in_tiles) return layout->choice_bytes + layout->scale_size * piece;
    return dw_layout_tile(layout, piece / layout->tile_segments).offset +
           layout->scale_size * (piece % layout->tile_segments);
}

/* ---------------------------------------------------------------------------------------------
 * Chunks: the units of work that threads share. They are cut the same way for any number of
 * threads. A chunk is a run of tiles whose choice bits fill whole bytes; with by_channel it is a
 * strip of channels over all tokens. */
enum { DW_CHUNK_TILES = 16, DW_CHUNK_ROWS = 8, DW_STRIP_CHANNELS = 256 };

typedef struct dw_chunk {
    uint64_t first_tile, tiles;       /* not used with by_channel */
    uint64_t first_element, elements; /* the elements of prev that these tiles cover */
    uint32_t first_channel, channels; /* used with by_channel */
} dw_chunk;

DW_INLINE uint64_t dw_layout_chunk_tiles(const dw_layout *layout)
{
    return layout->cut_rows ? (uint64_t)DW_CHUNK_ROWS * layout->row_segments
                            : (uint64_t)DW_CHUNK_TILES;
}

DW_INLINE uint64_t dw_layout_chunks(const dw_layout *layout)
{
    if (layout->by_channel)
        return ((uint64_t)layout->c + DW_STRIP_CHANNELS - 1) / DW_STRIP_CHANNELS;
    uint64_t each = dw_layout_chunk_tiles(layout);
    return (layout->tiles + each - 1) / each;
}

/* How many bytes at the start of a payload are not covered by the chunks' digests. The caller
 * digests them separately. */
DW_INLINE uint64_t dw_layout_undigested(const dw_layout *layout)
{
    return layout->by_channel ? layout->payload_bytes : layout->choice_bytes + layout->scale_bytes;
}

/* The index in prev of a tile's first element; for the index behind the last tile, the number of
 * all elements. */
DW_INLINE uint64_t dw_layout_element(const dw_layout *layout, uint64_t tile)
{
    uint64_t segment = tile * layout->tile_segments;
    if (segment >= layout->segments) return (uint64_t)layout->t * layout->c;
    return segment / layout->row_segments * layout->c +
           segment % layout->row_segments * layout->segment_channels;
}

DW_INLINE dw_chunk dw_layout_chunk(const dw_layout *layout, uint64_t i)
{
    dw_chunk chunk = {0};
    if (layout->by_channel) {
        chunk.first_channel = (uint32_t)i * DW_STRIP_CHANNELS;
        uint32_t left = layout->c - chunk.first_channel;
        chunk.channels = left < DW_STRIP_CHANNELS ? left : (uint32_t)DW_STRIP_CHANNELS;
        return chunk;
    }
    uint64_t each = dw_layout_chunk_tiles(layout);
    chunk.first_tile = i * each;
    uint64_t left = layout->tiles - chunk.first_tile;
    chunk.tiles = left < each ? left : each;
    chunk.first_element = dw_layout_element(layout, chunk.first_tile);
    chunk.elements =
        dw_layout_element(layout, chunk.first_tile + chunk.tiles) - chunk.first_element;
    return chunk;
}

#endif
