/* SPDX-License-Identifier: Apache-2.0
 * place.cuh - where the eights of a tile lie in a tensor and in prev. */
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

#endif
