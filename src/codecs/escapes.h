/* SPDX-License-Identifier: Apache-2.0
 * escapes.h - the escaped values of a tile in steps: values that are too large for a code lie as
 * they are in a room behind the codes, with their places (docs/format.md, 3.4). Their codes are
 * 128, that of level 0, so that an entropy coder does not notice them.
 *
 * | name  | shape | meaning                                                                     |
 * | room  |       | dw_escapes_bytes of the tile (arithmetic/layout.h): how many values, in 4   |
 * |       |       | bytes; the places of most of them, 2 bytes each; the values, 4 bytes each   |
 * | n     |       | codes of the tile, padding included                                         |
 * | place |       | the number of a code in its tile                                            |
 *
 * In a coded payload the rooms are left out, and a list of places and values follows the codes of a
 * block.
 *
 * Errors: none; what a payload says is limited to what there is room for. State: none. Threads:
 * any, on different tiles. */
#ifndef DW_ESCAPES_H
#define DW_ESCAPES_H

#include "arithmetic/coded.h"
#include "arithmetic/step.h"
#include "base/bytes.h"

/* How many values the room holds. */
static inline uint32_t dw_escapes_count(const uint8_t *room, uint64_t n)
{
    uint32_t count = (uint32_t)dw_get(room, 4), most = dw_escapes_most(n);
    return count < most ? count : most;
}

/* The place and the value of number i. */
static inline uint32_t dw_escapes_place(const uint8_t *room, uint32_t i)
{
    return (uint32_t)dw_get(room + 4 + 2 * (size_t)i, 2);
}

static inline float dw_escapes_value(const uint8_t *room, uint64_t n, uint32_t i)
{
    return dw_step_escaped(
        (uint32_t)dw_get(room + 4 + 2 * (size_t)dw_escapes_most(n) + 4 * (size_t)i, 4));
}

/* Adds a value, as the bits of a binary32. Returns false if there is no room for it. */
bool dw_escapes_put(uint8_t *room, uint64_t n, uint32_t place, uint32_t value);

/* How many values the tiles of a block have. */
uint64_t dw_escapes_of_block(const dw_layout *layout, const dw_coded_block *block,
                             const uint8_t *plain);

/* Writes the list of a block, of DW_ESCAPE_BYTES for each value. */
void dw_escapes_gather(const dw_layout *layout, const dw_coded_block *block, const uint8_t *plain,
                       uint8_t *to);

/* The inverse: fills the rooms of a block's tiles from a list of `bytes` bytes. Returns false where
 * the list is cut off, has a place outside of the block, or more values than a tile has room for.
 */
bool dw_escapes_spread(const dw_layout *layout, const dw_coded_block *block, const uint8_t *from,
                       uint64_t bytes, uint8_t *plain);

#endif
