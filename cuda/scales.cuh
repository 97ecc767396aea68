/* SPDX-License-Identifier: Apache-2.0
 * scales.cuh - the extremes of the pieces of a tile, and the search for the scales with the least
 * error; and the shared memory of a block that encodes.
 *
 * Source: docs/format.md, 5. The specification is src/kernels/kernels_c.c. */
#ifndef DW_CUDA_SCALES_CUH
#define DW_CUDA_SCALES_CUH

#include "load.cuh"

enum { DW_MOST_PIECES = DW_TILE_ELEMENTS / 16 };

/* The shared memory of a block. */
typedef struct dw_encode_room {
    __align__(16) uint8_t staged[DW_STAGED_BYTES]; /* the tile's bytes */
    dw_cuda_encode_part part;
    dw_found_room found;
    uint32_t choices[DW_MOST_PIECES / 32];
    /* For rows: extremes of x - prev, and of x. */
    uint32_t positive[2][DW_MOST_PIECES], negative[2][DW_MOST_PIECES];
    bool is_last;
} dw_encode_room;

typedef struct dw_search_room {
    float squares[DW_TILE_ELEMENTS], lanes[DW_TILE_ELEMENTS], sums[DW_ATTEMPTS][DW_MOST_PIECES];
} dw_search_room;

/* As signed integers negative floats are below 0; as unsigned ones they are above all positive
 * floats. */
DW_DEVICE dw_extremes dw_extremes_of(const dw_eight *values)
{
    int32_t positive = 0;
    uint32_t negative = 0;
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) {
        positive = max(positive, (int32_t)dw_bits_of(values->of[i]));
        negative = max(negative, dw_bits_of(values->of[i]));
    }
    dw_extremes found = {(uint32_t)positive, negative >> 31 ? negative & 0x7fffffffu : 0};
    return found;
}

/* Joins the extremes of groups, whose lanes are adjacent within a warp. The exchanges of all slots
 * are under way at the same time. */
DW_DEVICE void dw_join_lanes(dw_extremes found[DW_SLOTS], uint32_t lanes)
{
    for (uint32_t apart = 1; apart < lanes; apart *= 2) {
        dw_extremes other[DW_SLOTS];
#pragma unroll
        for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
            other[slot].positive = __shfl_xor_sync(DW_ALL_LANES, found[slot].positive, (int)apart);
            other[slot].negative = __shfl_xor_sync(DW_ALL_LANES, found[slot].negative, (int)apart);
        }
#pragma unroll
        for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
            found[slot].positive = max(found[slot].positive, other[slot].positive);
            found[slot].negative = max(found[slot].negative, other[slot].negative);
        }
    }
}

/* Joins the extremes of pieces of any width. which: 0 for x - prev, 1 for x. */
DW_DEVICE void dw_join_shared(dw_encode_room *room, dw_extremes found[DW_SLOTS],
                              const dw_place *places, uint32_t which)
{
    for (uint32_t i = threadIdx.x; i < DW_MOST_PIECES; i += DW_CUDA_THREADS)
        room->positive[which][i] = room->negative[which][i] = 0;
    __syncthreads();
#pragma unroll
    for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
        if (!places[slot].stored) continue;
        atomicMax(&room->positive[which][places[slot].segment], found[slot].positive);
        atomicMax(&room->negative[which][places[slot].segment], found[slot].negative);
    }
    __syncthreads();
#pragma unroll
    for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
        if (!places[slot].stored) continue;
        found[slot].positive = room->positive[which][places[slot].segment];
        found[slot].negative = room->negative[which][places[slot].segment];
    }
}

/* Replaces the extremes of a thread's eights by those of their pieces. */
DW_DEVICE void dw_join_pieces(dw_encode_room *room, const dw_layout *layout,
                              dw_extremes found[DW_SLOTS], const dw_place *places, uint32_t which)
{
    uint32_t width = layout->segment_width;
    if (width > DW_WARP * DW_EIGHT || (width & (width - 1)) != 0) {
        dw_join_shared(room, found, places, which);
        return;
    }
    dw_join_lanes(found, width / DW_EIGHT);
}

/* Adds the squares of one attempt in the order of the specification: 16 sums for every piece, then
 * the sum of these. */
DW_DEVICE void dw_add_attempt(dw_search_room *room, const dw_layout *layout, uint32_t pieces,
                              uint32_t k)
{
    uint32_t width = layout->segment_width;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < pieces * DW_NORM_LANES; i += DW_CUDA_THREADS) {
        const float *squares = room->squares + i / DW_NORM_LANES * width;
        float sum = 0;
        for (uint32_t at = i % DW_NORM_LANES; at < width; at += DW_NORM_LANES) sum += squares[at];
        room->lanes[i] = sum;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < pieces; i += DW_CUDA_THREADS)
        room->sums[k][i] = dw_lanes_sum(room->lanes + i * DW_NORM_LANES);
    __syncthreads();
}

/* The data of a search for one slot. */
typedef struct dw_searched {
    const dw_eight *deltas;
    dw_extremes extremes;
    uint32_t chosen; /* scale | direct << 16 */
} dw_searched;

DW_DEVICE bool dw_searches(const dw_place *place, const dw_searched *slot)
{
    return place->stored && !dw_scale_is_flat(dw_scale_in(slot->chosen));
}

/* The mean-square search. All threads take part; slots without a piece, or whose piece has no
 * scale, keep their choice. */
DW_DEVICE void dw_search(dw_search_room *room, const dw_layout *layout, const dw_place *places,
                         uint32_t pieces, dw_searched slots[DW_SLOTS])
{
    float half = (float)(1u << (layout->bits - 1)), sums[DW_SLOTS][DW_ATTEMPTS];
    dw_attempts attempts[DW_SLOTS];
#pragma unroll
    for (uint32_t slot = 0; slot < DW_SLOTS; slot++)
        if (dw_searches(&places[slot], &slots[slot]))
            attempts[slot] = dw_attempts_of(slots[slot].extremes, layout->bits);
#pragma unroll
    for (uint32_t k = 0; k < DW_ATTEMPTS; k++) {
#pragma unroll
        for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
            bool searches = dw_searches(&places[slot], &slots[slot]);
            for (uint32_t i = 0; places[slot].stored && i < DW_EIGHT; i++)
                room->squares[places[slot].first + i] =
                    searches ? dw_attempt_square(slots[slot].deltas->of[i],
                                                 attempts[slot].inverse[k], -half, half - 1)
                             : 0.0f;
        }
        dw_add_attempt(room, layout, pieces, k);
#pragma unroll
        for (uint32_t slot = 0; slot < DW_SLOTS; slot++)
            sums[slot][k] = places[slot].stored ? room->sums[k][places[slot].segment] : 0.0f;
    }
#pragma unroll
    for (uint32_t slot = 0; slot < DW_SLOTS; slot++)
        if (dw_searches(&places[slot], &slots[slot]))
            slots[slot].chosen =
                (slots[slot].chosen & 0x10000u) | dw_attempts_best(&attempts[slot], sums[slot]);
}

#endif
