/* SPDX-License-Identifier: Apache-2.0
 * pack.h - packs codes into bit planes and unpacks them, in code that C and CUDA share
 * (docs/format.md, 3.2). */
#ifndef DW_PACK_H
#define DW_PACK_H

#include <stddef.h>

#include "arithmetic/half.h"

/* The width of the plane that begins at bit `from` of codes of `bits` bits: the largest power of
 * two that is at most the number of remaining bits. */
DW_INLINE uint32_t dw_plane_width(uint32_t bits, uint32_t from)
{
    uint32_t left = bits - from;
    return left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
}

/* Writes one plane of eight codes: `width` bits of each code, `width` bytes in all. */
DW_INLINE void dw_pack_eight(const uint8_t *codes, uint32_t from, uint32_t width, uint8_t *plane)
{
    uint64_t word = 0;
    uint32_t mask = (1u << width) - 1u;
    for (uint32_t i = 0; i < 8; i++) word |= (uint64_t)(codes[i] >> from & mask) << (width * i);
    for (uint32_t i = 0; i < width; i++) plane[i] = (uint8_t)(word >> (8 * i));
}

DW_INLINE void dw_unpack_eight(const uint8_t *plane, uint32_t from, uint32_t width, uint8_t *codes)
{
    uint64_t word = 0;
    uint32_t mask = (1u << width) - 1u;
    for (uint32_t i = 0; i < width; i++) word |= (uint64_t)plane[i] << (8 * i);
    for (uint32_t i = 0; i < 8; i++)
        codes[i] = (uint8_t)(codes[i] | ((uint32_t)(word >> (width * i)) & mask) << from);
}

/* Packs n codes (a multiple of 8), elements [first, first + n) of a tile of tile_elements, into the
 * planes at `tile`. */
DW_INLINE void dw_pack(const uint8_t *codes, size_t n, uint32_t bits, uint8_t *tile,
                       size_t tile_elements, size_t first)
{
    if (bits == 8) {
        memcpy(tile + first, codes, n);
        return;
    }
    for (uint32_t from = 0; from < bits;) {
        uint32_t width = dw_plane_width(bits, from);
        uint8_t *plane = tile + tile_elements * from / 8 + first * width / 8;
        for (size_t i = 0; i < n; i += 8)
            dw_pack_eight(codes + i, from, width, plane + i / 8 * width);
        from += width;
    }
}

/* The inverse of dw_pack. codes need not be initialized. */
DW_INLINE void dw_unpack(uint8_t *codes, size_t n, uint32_t bits, const uint8_t *tile,
                         size_t tile_elements, size_t first)
{
    if (bits == 8) {
        memcpy(codes, tile + first, n);
        return;
    }
    for (size_t i = 0; i < n; i++) codes[i] = 0;
    for (uint32_t from = 0; from < bits;) {
        uint32_t width = dw_plane_width(bits, from);
        const uint8_t *plane = tile + tile_elements * from / 8 + first * width / 8;
        for (size_t i = 0; i < n; i += 8)
            dw_unpack_eight(plane + i / 8 * width, from, width, codes + i);
        from += width;
    }
}

#endif
