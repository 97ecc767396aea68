/* SPDX-License-Identifier: Apache-2.0
 * squares.cuh - sums of the squares of deltas, without outliers, from which the form step finds its
 * steps. Sums are made in binary64 and in the order of docs/format.md, 5, because the step depends
 * on how each sum is rounded. A tile with outliers is read from shared memory again.
 *
 * The specification is src/codecs/step.c and arithmetic/step.h. */
#ifndef DW_CUDA_SQUARES_CUH
#define DW_CUDA_SQUARES_CUH

#include "arithmetic/step.h"
#include "encode.cuh"

/* Shared memory for adding up squares: the deltas of a tile in the order of its codes, padding
 * included, and DW_NORM_LANES sums for each of its pieces.
 *
 * | name     | of each piece                                                           |
 * | limits   | above which magnitude values are left out of the next pass              |
 * | before   | the same of the pass before                                             |
 * | left_out | how many values were left out                                           |
 */
typedef struct dw_squares_room {
    __align__(16) float deltas[DW_TILE_ELEMENTS];
    double lanes[DW_TILE_ELEMENTS];
    uint32_t limits[DW_MOST_PIECES], before[DW_MOST_PIECES], left_out[DW_MOST_PIECES];
} dw_squares_room;

/* What is measured of an eight: what is coded or, OfX, x itself. */
template <bool OfX> DW_DEVICE const dw_eight *dw_measured(const dw_eights *all, uint32_t slot)
{
    return OfX ? &all->x[slot] : &all->e[slot].delta;
}

/* Stores the deltas of an eight in shared memory, at its place within the tile. */
DW_DEVICE void dw_share_deltas(dw_squares_room *room, const dw_place *place, const dw_eight *delta)
{
    if (!place->stored) return;
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i += 4) {
        dw_sixteen four = {{dw_bits_of(delta->of[i]), dw_bits_of(delta->of[i + 1]),
                            dw_bits_of(delta->of[i + 2]), dw_bits_of(delta->of[i + 3])}};
        *(dw_sixteen *)(room->deltas + place->first + i) = four;
    }
}

/* Adds up the squares of the first `pieces` pieces, which have `width` elements each, in
 * DW_NORM_LANES sums per piece. (The square of a binary32 is exact in binary64, so here it would
 * not matter if product and sum were fused.) Limited: leaves out and counts values above the limit
 * of their piece; pieces without a limit are skipped. */
template <bool Limited>
DW_DEVICE void dw_add_squares(dw_squares_room *room, uint32_t pieces, uint32_t width)
{
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < pieces * DW_NORM_LANES; i += DW_CUDA_THREADS) {
        const float *deltas = room->deltas + i / DW_NORM_LANES * width;
        uint32_t limit = Limited ? room->limits[i / DW_NORM_LANES] : 0, left_out = 0;
        double sum = 0;
        if (Limited && limit == DW_NO_LIMIT) continue;
        for (uint32_t at = i % DW_NORM_LANES; at < width; at += DW_NORM_LANES) {
            bool above = Limited && (dw_bits_of(deltas[at]) & 0x7fffffffu) > limit;
            double delta = above ? 0.0f : deltas[at];
            sum += delta * delta;
            left_out += above ? 1u : 0;
        }
        room->lanes[i] = sum;
        if (Limited && left_out) atomicAdd(&room->left_out[i / DW_NORM_LANES], left_out);
    }
    __syncthreads();
}

/* Whether a thread's eights have a value that the next pass leaves out and the pass before has
 * kept. */
template <bool OfX>
DW_DEVICE bool dw_has_outlier(const dw_squares_room *room, const dw_eights *all, uint32_t pieces)
{
    bool has = false;
#pragma unroll
    for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
        const dw_place *place = &all->place[slot];
        uint32_t piece = pieces == 1 || !place->stored ? 0 : place->segment,
                 limit = room->limits[piece], before = room->before[piece];
#pragma unroll
        for (uint32_t i = 0; i < DW_EIGHT; i++) {
            uint32_t magnitude = dw_bits_of(dw_measured<OfX>(all, slot)->of[i]) & 0x7fffffffu;
            has = has || (magnitude > limit && magnitude <= before); /* not padding, which is 0 */
        }
    }
    return has;
}

/* Returns the sum of the squares of the bulk of piece number threadIdx.x (arithmetic/step.h); other
 * threads than those of the first `pieces` get no valid result. width: as for dw_add_squares. n:
 * how many values the piece of this thread has, without padding. all: the eights of this thread.
 * *kept becomes the magnitude above which values were left out.
 *
 * A pass that leaves out the same values as the one before finds the same sum, so it does not
 * matter that pieces without further outliers take part as long as any piece has some. */
template <bool OfX>
DW_DEVICE double dw_bulk_of(dw_squares_room *room, const dw_eights *all, uint32_t pieces,
                            uint32_t width, uint32_t n, uint32_t *kept)
{
    const uint32_t piece = threadIdx.x, any = DW_F32_INFINITY - 1;
    bool is_mine = piece < pieces, goes_on = is_mine;
    uint32_t left_out = 0, limit = DW_NO_LIMIT;
#pragma unroll
    for (uint32_t slot = 0; slot < DW_SLOTS; slot++)
        dw_share_deltas(room, &all->place[slot], dw_measured<OfX>(all, slot));
    *kept = DW_NO_LIMIT;
    dw_add_squares<false>(room, pieces, width);
    double sum = is_mine ? dw_step_sum(room->lanes + piece * DW_NORM_LANES) : 0;
#pragma unroll 1
    for (int pass = 0; pass < DW_BULK_PASSES; pass++) {
        if (is_mine) {
            room->before[piece] = limit;
            limit = goes_on ? dw_bulk_limit(sum, n - left_out, any) : (uint32_t)DW_NO_LIMIT;
            room->limits[piece] = limit;
            room->left_out[piece] = 0;
        }
        __syncthreads();
        if (!__syncthreads_or(dw_has_outlier<OfX>(room, all, pieces))) break;
        dw_add_squares<true>(room, pieces, width);
        if (!is_mine || limit == DW_NO_LIMIT) continue;
        double less = dw_step_sum(room->lanes + piece * DW_NORM_LANES);
        goes_on = dw_bulk_counts(less, n, room->left_out[piece]);
        if (!goes_on) continue;
        goes_on = dw_bulk_goes_on(sum, less);
        sum = less;
        left_out = room->left_out[piece];
        *kept = limit;
    }
    return is_mine ? dw_bulk_sum(sum, n, left_out) : 0;
}

/* Of what is coded of piece number threadIdx.x, returns the largest magnitude that is not above a
 * limit: that of this piece, above which dw_bulk_of has left values out. */
DW_DEVICE uint32_t dw_largest_kept(dw_squares_room *room, const dw_eights *all, uint32_t pieces,
                                   uint32_t limit)
{
    const bool is_mine = threadIdx.x < pieces;
    __syncthreads();
    if (is_mine) {
        room->limits[threadIdx.x] = limit;
        room->before[threadIdx.x] = 0; /* the largest one so far */
    }
    __syncthreads();
#pragma unroll
    for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
        const dw_place *place = &all->place[slot];
        uint32_t piece = pieces == 1 || !place->stored ? 0 : place->segment, most = 0;
#pragma unroll
        for (uint32_t i = 0; i < DW_EIGHT; i++) {
            uint32_t magnitude = dw_bits_of(all->e[slot].delta.of[i]) & 0x7fffffffu;
            if (magnitude <= room->limits[piece] && magnitude > most) most = magnitude;
        }
        if (place->stored) atomicMax(&room->before[piece], most);
    }
    __syncthreads();
    return is_mine ? room->before[threadIdx.x] : 0;
}

/* Returns what a job needs to know of piece number threadIdx.x to find its step; the parameters are
 * those of dw_bulk_of. A value was NaN or infinite if, and only if, the sum of squares is: it
 * cannot overflow, because the square of the largest binary32 is below 2^256, and binary64 reaches
 * 2^1024. */
DW_DEVICE dw_squares dw_measure_pieces(const dw_encode_job *job, dw_squares_room *room,
                                       const dw_eights *all, uint32_t pieces, uint32_t width,
                                       uint32_t n)
{
    uint32_t limit;
    double sum = dw_bulk_of<false>(room, all, pieces, width, n, &limit), mean = sum / (double)n;
    dw_squares of = {sum, n, sum <= DBL_MAX ? 0 : DW_F32_INFINITY, mean, 0, sum, 0};
    if (!(job->error > 0)) return of;
    of.least = dw_step_of_tile(mean, dw_largest_kept(room, all, pieces, limit));
    if ((job->prev || job->channels.means[0]) && !job->keeps_residual)
        of.x_sum = dw_bulk_of<true>(room, all, pieces, width, n, &limit);
    return of;
}

/* Returns the step that follows from what was measured. */
DW_DEVICE uint16_t dw_step_for(const dw_encode_job *job, const dw_squares *of)
{
    return job->error > 0 ? dw_step_of_error(of, job->error, job->rule.is_stochastic ? 6 : 12)
                          : dw_step_scale(of, job->step);
}

/* How many values a tile has, without padding, where a sample or a row of several tiles shares a
 * step. index: the number of the tile. */
DW_DEVICE uint32_t dw_tile_values(const dw_layout *layout, uint64_t index)
{
    if (layout->cut_rows)
        return (index + 1) % layout->row_segments ? layout->segment_channels
                                                  : layout->last_channels;
    uint64_t left = layout->segments - index * layout->tile_segments;
    uint32_t rows = left < layout->tile_segments ? (uint32_t)left : layout->tile_segments;
    return rows * layout->c;
}

#endif
