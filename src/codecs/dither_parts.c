/* SPDX-License-Identifier: Apache-2.0
 * dither_parts.c - sorts dithered codes into parts by their dither, and restores their order. */
#include "codecs/dither_parts.h"

#include <string.h>

/* Returns the number of a segment's first element within the sample. *n becomes the number of its
 * elements, without padding. */
static uint64_t segment_element(const dw_layout *layout, uint64_t segment, uint64_t *n)
{
    uint64_t row = segment / layout->row_segments, in_row = segment % layout->row_segments;
    *n = in_row + 1 == layout->row_segments ? layout->last_channels : layout->segment_channels;
    return row * layout->c + in_row * layout->segment_channels;
}

/* Writes the high bytes for one tile, as dw_dither_parts_draw does for many. */
static void draw_tile(const dw_layout *layout, const dw_kernels *kernels, uint64_t key,
                      const dw_tile *tile, uint8_t *high)
{
    uint32_t width = tile->elements / tile->segments;
    uint64_t n, first = segment_element(layout, tile->first_segment, &n);
    if (n == width && layout->last_channels == layout->segment_width) { /* there is no padding */
        kernels->dither_bytes(&(dw_dither){key, first}, tile->elements, high);
        return;
    }
    memset(high, DW_PART_PADDING, tile->elements);
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

/* Sets starts[i] to the place in `parted` where part i begins. */
static void find_starts(uint8_t *parted, const uint32_t *counts, uint8_t **starts)
{
    for (int i = 0; i < DW_PARTS; parted += counts[i++] + DW_PART_GAP) starts[i] = parted;
}

void dw_dither_parts_sort(const dw_kernels *kernels, const uint8_t *high, const uint8_t *codes,
                          uint64_t n, const uint32_t *counts, uint8_t *parted)
{
    uint8_t *next[DW_PARTS];
    find_starts(parted, counts, next);
    kernels->sort_parts(high, codes, n, next);
}

void dw_dither_parts_restore(const dw_kernels *kernels, const uint8_t *high, const uint8_t *parted,
                             uint64_t n, const uint32_t *counts, uint8_t *codes)
{
    uint8_t *starts[DW_PARTS];
    find_starts((uint8_t *)(uintptr_t)parted, counts, starts);
    const uint8_t *next[DW_PARTS] = {starts[0], starts[1], starts[2], starts[3]};
    kernels->restore_parts(high, next, n, codes);
}
