/* SPDX-License-Identifier: Apache-2.0
 * dither_parts.c - sorts dithered codes by what their dither is. */
#include "codecs/dither_parts.h"

#include <string.h>

enum { PADDING = 128 }; /* part 0, and the sign stays */

/* The number of the first element of a segment in its sample, and how many elements it has. */
static uint64_t segment_element(const dw_layout *layout, uint64_t segment, uint64_t *n)
{
    uint64_t row = segment / layout->row_segments, in_row = segment % layout->row_segments;
    *n = in_row + 1 == layout->row_segments ? layout->last_channels : layout->segment_channels;
    return row * layout->c + in_row * layout->segment_channels;
}

static void draw_tile(const dw_layout *layout, const dw_kernels *kernels, uint64_t key,
                      const dw_tile *tile, uint8_t *high)
{
    uint32_t width = tile->elements / tile->segments;
    uint64_t n, first = segment_element(layout, tile->first_segment, &n);
    if (n == width && layout->last_channels == layout->segment_width) { /* there is no padding */
        kernels->dither_bytes(&(dw_dither){key, first}, tile->elements, high);
        return;
    }
    memset(high, PADDING, tile->elements);
    for (uint32_t i = 0; i < tile->segments; i++, high += width) {
        first = segment_element(layout, tile->first_segment + i, &n);
        kernels->dither_bytes(&(dw_dither){key, first}, n, high);
    }
}

void dw_dither_parts_draw(const dw_layout *layout, const dw_kernels *kernels, uint64_t key,
                          uint64_t first_tile, uint64_t tiles, uint8_t *high)
{
    for (uint64_t i = 0; i < tiles; i++) {
        dw_tile tile = dw_layout_tile(layout, first_tile + i);
        draw_tile(layout, kernels, key, &tile, high);
        high += tile.elements;
    }
}

/* The part of a code: by |z| in steps of 1/8. z is at least 0 where the high byte is 128 or more,
 * and the bytes 127 - b and 128 + b stand for the same |z|. */
static uint32_t part_of(uint8_t high)
{
    uint32_t mirrored = high < 128 ? 127u - high : high - 128u;
    return mirrored / 32;
}

/* The other sign of a level is 256 - code, which leaves 128, level 0, as it is. */
static uint8_t turned(uint8_t code, uint8_t high)
{
    return high < 128 ? (uint8_t)(0u - code) : code;
}

void dw_dither_parts_count(const uint8_t *high, uint64_t n, uint32_t *counts)
{
    memset(counts, 0, DW_RANS_PARTS * sizeof *counts);
    for (uint64_t i = 0; i < n; i++) counts[part_of(high[i])]++;
}

/* Where each part begins. */
static void find_starts(uint8_t *parted, const uint32_t *counts, uint8_t **starts)
{
    for (int i = 0; i < DW_RANS_PARTS; parted += counts[i++]) starts[i] = parted;
}

void dw_dither_parts_sort(const uint8_t *high, const uint8_t *codes, uint64_t n,
                          const uint32_t *counts, uint8_t *parted)
{
    uint8_t *next[DW_RANS_PARTS];
    find_starts(parted, counts, next);
    for (uint64_t i = 0; i < n; i++) *next[part_of(high[i])]++ = turned(codes[i], high[i]);
}

void dw_dither_parts_restore(const uint8_t *high, const uint8_t *parted, uint64_t n,
                             const uint32_t *counts, uint8_t *codes)
{
    uint8_t *next[DW_RANS_PARTS];
    find_starts((uint8_t *)(uintptr_t)parted, counts, next);
    for (uint64_t i = 0; i < n; i++) codes[i] = turned(*next[part_of(high[i])]++, high[i]);
}
