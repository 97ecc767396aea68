/* SPDX-License-Identifier: Apache-2.0
 * place.cuh - where the eights of a tile lie in a tensor and in prev; whole tiles, and how they are
 * asked for ahead. */
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
 * Most tiles are whole: they have DW_TILE_ELEMENTS elements, without padding or gaps, aligned in
 * every tensor. For these there is code without the branches that other tiles need. It matters most
 * that a thread issues all its loads before it waits for the first of them, which branches between
 * loads and uses prevent. */

/* How many of the first tiles are whole. x, prev, next: the tensors, or NULL. Where prev lies in
 * the host's memory, none counts as whole: over the bus, loads to shared memory take twice as long.
 */
DW_DEVICE uint64_t dw_whole_tiles(const dw_cuda_share *share, const dw_layout *layout,
                                  int64_t stride, const void *x, const void *prev, const void *next)
{
    bool aligned = (((uintptr_t)x | (uintptr_t)prev | (uintptr_t)next) & 15) == 0,
         touches = layout->last_channels == layout->segment_width && stride == (int64_t)layout->c;
    if ((share->is_far && prev) || !aligned || !touches || layout->by_channel || layout->rotates ||
        layout->tile_segments * layout->segment_width != DW_TILE_ELEMENTS)
        return 0;
    return layout->segments / layout->tile_segments;
}

/* As dw_layout_tile. */
template <bool Whole> DW_DEVICE dw_tile dw_tile_of(const dw_layout *layout, uint64_t index)
{
    if (!Whole) return dw_layout_tile(layout, index);
    dw_tile tile;
    tile.first_segment = index * layout->tile_segments;
    tile.segments = layout->tile_segments;
    tile.elements = DW_TILE_ELEMENTS;
    tile.offset = layout->choice_bytes + layout->scale_bytes + index * layout->tile_bytes;
    tile.bytes = layout->tile_bytes;
    tile.codes = tile.offset + tile.bytes - DW_TILE_ELEMENTS / 8 * layout->bits;
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

/* The bits of an eight of a whole tile; 16-bit dtypes need one half only. */
typedef struct dw_raw_eight {
    dw_sixteen half[2];
} dw_raw_eight;

/* Issues the loads. tensor: NULL gives zeros. */
DW_DEVICE dw_raw_eight dw_fetch_eight(const void *tensor, dw_dtype dtype, uint64_t at)
{
    dw_raw_eight raw = {{{{0, 0, 0, 0}}, {{0, 0, 0, 0}}}};
    if (!tensor) return raw;
    const uint8_t *place = (const uint8_t *)tensor + at * dw_size_of(dtype);
    raw.half[0] = dw_passing_load(place);
    if (dtype == DW_F32) raw.half[1] = dw_passing_load(place + 16);
    return raw;
}

DW_DEVICE dw_eight dw_widen_raw(const dw_raw_eight *raw, dw_dtype dtype)
{
    dw_eight values;
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) {
        uint32_t pair = raw->half[0].word[i / 2];
        if (dtype == DW_F32)
            values.of[i] = dw_float_of(raw->half[i / 4].word[i % 4]);
        else if (dtype == DW_BF16)
            values.of[i] = dw_float_of(i % 2 ? pair & 0xffff0000u : pair << 16);
        else
            values.of[i] = dw_f16_widen((uint16_t)(pair >> (16 * (i % 2))));
    }
    return values;
}

/* ---- Ahead -----------------------------------------------------------------------------------
 *
 * While a block processes a whole tile of 16-bit numbers, the next one is on the way from memory to
 * shared memory. Every thread asks for what it needs itself, so it has to wait for nobody else.
 * With f32, where the sixteens that the threads of a warp ask for together do not touch, plain
 * loads are faster. */

/* What a block asks for ahead. memory: in shared memory, aligned to 16 bytes, DW_AHEAD_SIXTEENS for
 * each tensor; NULL: nothing is asked for ahead. next: the tile to ask for next, or DW_NO_TILE. */
typedef struct dw_ahead {
    dw_sixteen *memory;
    uint64_t next;
} dw_ahead;
#define DW_NO_TILE UINT64_MAX

/* The eights of one tile: each thread has a sixteen of each slot. */
enum { DW_AHEAD_SIXTEENS = DW_SLOTS * DW_CUDA_THREADS };

/* Copies sixteen bytes to shared memory; they are there after dw_wait_ahead in the same thread. */
DW_DEVICE void dw_copy_ahead(void *to, const void *from)
{
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(to)), "l"(__cvta_generic_to_global(from))
                 : "memory");
#else
    *(dw_sixteen *)to = *(const dw_sixteen *)from;
#endif
}

DW_DEVICE void dw_wait_ahead(void)
{
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_all;" : : : "memory");
#endif
}

/* Asks for this thread's eights of a tensor, or of prev; nothing where it is NULL. which: 0 for the
 * tensor, 1 for prev. */
DW_DEVICE void dw_ask_eights(const dw_ahead *ahead, uint32_t which, const void *tensor,
                             uint64_t tile)
{
    if (!ahead->memory || !tensor || tile == DW_NO_TILE) return;
    const dw_sixteen *from = (const dw_sixteen *)tensor + tile * (DW_TILE_ELEMENTS / DW_EIGHT);
#pragma unroll
    for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
        uint32_t mine = slot * DW_CUDA_THREADS + threadIdx.x;
        dw_copy_ahead(ahead->memory + which * DW_AHEAD_SIXTEENS + mine, from + mine);
    }
}

/* The bits of one of the eights of a whole tile: asked for ahead, or loaded now. */
DW_DEVICE dw_raw_eight dw_raw_of(const dw_ahead *ahead, uint32_t which, const void *tensor,
                                 dw_dtype dtype, uint64_t at, uint32_t slot)
{
    if (!ahead->memory || !tensor) return dw_fetch_eight(tensor, dtype, at);
    dw_raw_eight raw;
    raw.half[0] = raw.half[1] =
        ahead->memory[which * DW_AHEAD_SIXTEENS + slot * DW_CUDA_THREADS + threadIdx.x];
    return raw;
}

/* Loads the eights of a thread from a tensor and from prev, which may be NULL, and give zeros then.
 * Those of a whole tile were asked for ahead, where that is done; now those of the next tile are.
 */
template <bool Whole>
DW_DEVICE void dw_load_two(const void *tensor, dw_dtype dtype, const void *prev,
                           dw_dtype prev_dtype, const dw_place places[DW_SLOTS],
                           const dw_ahead *ahead, dw_eight of_tensor[DW_SLOTS],
                           dw_eight of_prev[DW_SLOTS])
{
    dw_raw_eight raw[DW_SLOTS], raw_prev[DW_SLOTS];
    if (Whole && ahead->memory) dw_wait_ahead();
#pragma unroll
    for (uint32_t slot = 0; Whole && slot < DW_SLOTS; slot++) {
        raw[slot] = dw_raw_of(ahead, 0, tensor, dtype, places[slot].tensor, slot);
        raw_prev[slot] = dw_raw_of(ahead, 1, prev, prev_dtype, places[slot].dense, slot);
    }
#pragma unroll
    for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
        const dw_place *place = &places[slot];
        if (Whole) {
            of_tensor[slot] = dw_widen_raw(&raw[slot], dtype);
            of_prev[slot] = dw_widen_raw(&raw_prev[slot], prev_dtype);
        } else {
            of_tensor[slot] = dw_load_eight(tensor, dtype, place->tensor, place->n);
            of_prev[slot] = dw_load_eight(prev, prev_dtype, place->dense, place->n);
        }
    }
    if (!Whole) return;
    dw_ask_eights(ahead, 0, tensor, ahead->next);
    dw_ask_eights(ahead, 1, prev, ahead->next);
}

#endif
