/* SPDX-License-Identifier: Apache-2.0
 * place.cuh - where tiles lie in a payload, and their eights in a tensor and in prev; whole tiles.
 */
#ifndef DW_CUDA_PLACE_CUH
#define DW_CUDA_PLACE_CUH

#include "block.cuh"

typedef struct dw_place {
    uint32_t first;         /* number of its first element among those that the tile stores */
    uint32_t stored;        /* whether the tile stores it, possibly as padding */
    uint32_t n;             /* how many of the eight are not padding */
    uint32_t segment;       /* number of its segment within the tile */
    uint32_t leads;         /* whether it is the first eight of its segment */
    uint32_t column;        /* channel of its first element */
    bool is_whole;          /* it has eight elements, at multiples of 16 bytes in every tensor */
    uint64_t dense, tensor; /* index of its first element in prev, and in the tensor */
} dw_place;

/* True where rows without padding follow each other without gaps in prev and in the tensor. */
DW_DEVICE bool dw_rows_touch(const dw_layout *layout, int64_t stride)
{
    return !layout->cut_rows && layout->last_channels == layout->segment_width &&
           stride == (int64_t)layout->c;
}

/* Finds this thread's eight of a slot. The eights of a tile belong to the threads in turn: the
 * first to thread 0, the second to thread 1, and so on; the next slot continues behind those of the
 * last thread. */
DW_DEVICE dw_place dw_place_of(const dw_layout *layout, const dw_tile *tile, int64_t stride,
                               uint32_t slot)
{
    dw_place place;
    uint32_t first = (slot * DW_CUDA_THREADS + threadIdx.x) * DW_EIGHT,
             width = layout->cut_rows ? tile->elements : layout->segment_width;
    place.first = first;
    place.is_whole = false;
    place.stored = first < tile->elements;
    if ((width & (width - 1)) == 0)
        place.segment = first >> (31 - __clz((int)width)), place.leads = (first & (width - 1)) == 0;
    else
        place.segment = first / width, place.leads = place.segment * width == first;
    if (dw_rows_touch(layout, stride) && !layout->by_channel) {
        place.n = place.stored ? DW_EIGHT : 0;
        place.dense = place.tensor = tile->first_segment * width + first;
        place.column = 0;
        return place;
    }
    uint64_t row = tile->first_segment / layout->row_segments;
    uint32_t segment = (uint32_t)(tile->first_segment % layout->row_segments) + place.segment;
    uint32_t rows = segment / layout->row_segments, in_row = segment - rows * layout->row_segments,
             within = first - place.segment * width;
    uint32_t channels =
        in_row + 1 == layout->row_segments ? layout->last_channels : layout->segment_channels;
    uint32_t left = place.stored && within < channels ? channels - within : 0;
    row += rows;
    place.n = left < DW_EIGHT ? left : (uint32_t)DW_EIGHT;
    place.column = in_row * layout->segment_channels + within;
    place.dense = row * layout->c + place.column;
    place.tensor = row * (uint64_t)stride + place.column;
    return place;
}

/* ---- Whole tiles -----------------------------------------------------------------------------
 *
 * A tile is whole if it has DW_TILE_ELEMENTS elements without padding and gaps, and begins at a
 * multiple of 16 bytes in every tensor. Most tiles are. There is separate code for them, which has
 * fewer branches: between the loads of a thread, a branch makes it wait for one load before it
 * issues the next one. */

/* Returns how many of the first tiles are whole. x, prev, next: the tensors, or NULL. The answer is
 * 0 if prev lies in the host's memory, because prefetching over the bus takes twice as long as
 * loading.
 */
DW_DEVICE uint64_t dw_whole_tiles(const dw_cuda_share *share, const dw_layout *layout,
                                  int64_t stride, const void *x, const void *prev, const void *next)
{
    bool aligned = (((uintptr_t)x | (uintptr_t)prev | (uintptr_t)next) & 15) == 0,
         touches = layout->last_channels == layout->segment_width && stride == (int64_t)layout->c;
    if ((share->prev_on_host && prev) || !aligned || !touches || layout->by_channel ||
        layout->rotates || layout->weighs ||
        layout->tile_segments * layout->segment_width != DW_TILE_ELEMENTS)
        return 0;
    return layout->segments / layout->tile_segments;
}

/* As dw_layout_tile. Escapes: whether tiles have room for escaped values. */
template <bool Whole, bool Escapes = false>
DW_DEVICE dw_tile dw_tile_of(const dw_layout *layout, uint64_t index)
{
    if (!Whole) return dw_layout_tile(layout, index);
    dw_tile tile;
    tile.first_segment = index * layout->tile_segments;
    tile.segments = layout->tile_segments;
    tile.elements = DW_TILE_ELEMENTS;
    tile.offset = layout->choice_bytes + layout->scale_bytes + index * layout->tile_bytes;
    tile.bytes = layout->tile_bytes;
    tile.escapes = tile.offset + tile.bytes - (Escapes ? dw_escapes_bytes(DW_TILE_ELEMENTS) : 0);
    tile.codes = tile.escapes - DW_TILE_ELEMENTS / 8 * layout->bits;
    return tile;
}

/* As dw_place_of. index: the number of the tile. */
template <bool Whole>
DW_DEVICE dw_place dw_place_in(const dw_layout *layout, const dw_tile *tile, uint64_t index,
                               int64_t stride, uint32_t slot)
{
    if (!Whole) return dw_place_of(layout, tile, stride, slot);
    dw_place place;
    uint32_t width = layout->segment_width; /* a power of two, because it divides the tile */
    place.first = (slot * DW_CUDA_THREADS + threadIdx.x) * DW_EIGHT;
    place.stored = 1;
    place.n = DW_EIGHT;
    place.segment = place.first >> (31 - __clz((int)width));
    place.leads = (place.first & (width - 1)) == 0;
    place.column = 0;
    place.is_whole = true;
    place.dense = place.tensor = index * DW_TILE_ELEMENTS + place.first;
    return place;
}

/* Finds the places of all eights of a thread. */
template <bool Whole>
DW_DEVICE void dw_find_places(const dw_layout *layout, const dw_tile *tile, uint64_t index,
                              int64_t stride, dw_place places[DW_SLOTS])
{
#pragma unroll
    for (uint32_t slot = 0; slot < DW_SLOTS; slot++)
        places[slot] = dw_place_in<Whole>(layout, tile, index, stride, slot);
}

#endif
