/* SPDX-License-Identifier: Apache-2.0
 * escapes.c - puts escaped values into the rooms of tiles, and moves them to and from the lists of
 * coded payloads. */
#include "codecs/escapes.h"

#include <string.h>

bool dw_escapes_put(uint8_t *room, uint64_t n, uint32_t place, uint32_t value)
{
    uint32_t count = dw_escapes_count(room, n), most = dw_escapes_most(n);
    if (count == most) return false;
    dw_put(room, count + 1, 4);
    dw_put(room + 4 + 2 * (size_t)count, place, 2);
    dw_put(room + 4 + 2 * (size_t)most + 4 * (size_t)count, value, 4);
    return true;
}

uint64_t dw_escapes_of_block(const dw_layout *layout, const dw_coded_block *block,
                             const uint8_t *plain)
{
    uint64_t count = 0;
    for (uint64_t k = 0; layout->escapes && k < block->tiles; k++) {
        dw_tile tile = dw_layout_tile(layout, block->first_tile + k);
        count += dw_escapes_count(plain + tile.escapes, tile.elements);
    }
    return count;
}

void dw_escapes_gather(const dw_layout *layout, const dw_coded_block *block, const uint8_t *plain,
                       uint8_t *to)
{
    uint32_t first = 0; /* the number of the tile's first code in the block */
    for (uint64_t k = 0; layout->escapes && k < block->tiles; k++) {
        dw_tile tile = dw_layout_tile(layout, block->first_tile + k);
        const uint8_t *room = plain + tile.escapes;
        uint32_t count = dw_escapes_count(room, tile.elements);
        for (uint32_t i = 0; i < count; i++, to += DW_ESCAPE_BYTES) {
            dw_put(to, first + dw_escapes_place(room, i), 2);
            dw_put(to + 2, dw_bits_of(dw_escapes_value(room, tile.elements, i)), 4);
        }
        first += tile.elements;
    }
}

bool dw_escapes_spread(const dw_layout *layout, const dw_coded_block *block, const uint8_t *from,
                       uint64_t bytes, uint8_t *plain)
{
    uint32_t first[DW_BLOCK_TILES + 1] = {0};
    dw_tile tiles[DW_BLOCK_TILES];
    for (uint64_t k = 0; k < block->tiles; k++) {
        tiles[k] = dw_layout_tile(layout, block->first_tile + k);
        first[k + 1] = first[k] + tiles[k].elements;
        memset(plain + tiles[k].escapes, 0, (size_t)dw_escapes_bytes(tiles[k].elements));
    }
    for (; bytes >= DW_ESCAPE_BYTES; bytes -= DW_ESCAPE_BYTES, from += DW_ESCAPE_BYTES) {
        uint32_t place = (uint32_t)dw_get(from, 2), k = 0;
        if (place >= first[block->tiles]) return false;
        while (place >= first[k + 1]) k++;
        if (!dw_escapes_put(plain + tiles[k].escapes, tiles[k].elements, place - first[k],
                            (uint32_t)dw_get(from + 2, 4)))
            return false;
    }
    return bytes == 0;
}
