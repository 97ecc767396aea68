/* SPDX-License-Identifier: Apache-2.0
 * choose.cuh - phase CHOOSE: scales that one tile cannot decide alone, for rows of several tiles
 * and for channels. */
#ifndef DW_CUDA_CHOOSE_CUH
#define DW_CUDA_CHOOSE_CUH

#include "encode.cuh"

enum {
    DW_STRIP = 32
    /* Channels per block. The CPU's strips are wider; the bits are the same. */
};

typedef struct dw_choose_room {
    /* Index 0: extremes of x - prev; index 1: extremes of x. Then the place: the channel of a
     * strip, or 0 for a row. */
    uint32_t positive[2][DW_STRIP], negative[2][DW_STRIP];
    float sums[DW_ATTEMPTS][DW_STRIP];
    float lanes[DW_ATTEMPTS][DW_NORM_LANES]; /* of a row */
} dw_choose_room;

/* The rotated values of a row that the threads of a block look at together; a longer row is
 * rotated in several such windows. */
typedef struct dw_window_room {
    float values[DW_TILE_ELEMENTS];
} dw_window_room;

DW_DEVICE void dw_join_one(dw_extremes *to, float value)
{
    uint32_t bits = dw_bits_of(value), magnitude = bits & 0x7fffffffu;
    to->positive = max(to->positive, bits >> 31 ? 0u : magnitude);
    to->negative = max(to->negative, bits >> 31 ? magnitude : 0u);
}

DW_DEVICE float dw_value_at(const void *from, dw_dtype dtype, uint64_t at)
{
    return from ? dw_widen(dw_load_bits(from, dtype, at), dtype) : 0.0f;
}

/* x - prev, or x itself where the choice is direct or there is no prev. */
DW_DEVICE float dw_delta_at(const dw_encode_job *job, uint64_t row, uint64_t column, bool direct)
{
    float x = dw_value_at(job->x, job->x_dtype, row * (uint64_t)job->stride + column);
    return job->prev && !direct
               ? dw_minus(x, dw_value_at(job->prev, job->prev_dtype, row * job->layout.c + column))
               : x;
}

/* Joins the extremes that a thread has found with those of all threads that have the same place.
 * delta: of x - prev; direct: of x. */
DW_DEVICE void dw_share_extremes(dw_choose_room *room, uint32_t place, dw_extremes delta,
                                 dw_extremes direct)
{
    atomicMax(&room->positive[0][place], delta.positive);
    atomicMax(&room->negative[0][place], delta.negative);
    atomicMax(&room->positive[1][place], direct.positive);
    atomicMax(&room->negative[1][place], direct.negative);
}

DW_DEVICE void dw_clear_extremes(dw_choose_room *room)
{
    if (threadIdx.x < DW_STRIP) {
        for (uint32_t which = 0; which < 2; which++)
            room->positive[which][threadIdx.x] = room->negative[which][threadIdx.x] = 0;
    }
    __syncthreads();
}

/* The choice, the extremes and the first scale for a place. */
DW_DEVICE uint32_t dw_first_choice(const dw_choose_room *room, uint32_t place,
                                   const dw_encode_job *job, dw_extremes *extremes)
{
    dw_extremes delta = {room->positive[0][place], room->negative[0][place]};
    dw_extremes direct = {room->positive[1][place], room->negative[1][place]};
    bool is_direct = job->layout.chooses && dw_is_direct_better(direct, delta);
    *extremes = is_direct ? direct : delta;
    uint16_t scale = dw_scale_of(*extremes, job->layout.bits, job->rule.scale != DW_SCALE_ABSMAX);
    return scale | (is_direct ? 0x10000u : 0);
}

/* The best of the attempts, given their sums for a place. */
DW_DEVICE uint32_t dw_better_choice(const dw_choose_room *room, uint32_t place, uint32_t chosen,
                                    const dw_attempts *attempts)
{
    float sums[DW_ATTEMPTS];
    for (uint32_t k = 0; k < DW_ATTEMPTS; k++) sums[k] = room->sums[k][place];
    return (chosen & 0x10000u) | dw_attempts_best(attempts, sums);
}

/* Returns an eight of x - prev, rotated. Past the end of the row x and prev count as zeros. All
 * threads must call it together. */
DW_DEVICE dw_eight dw_rotated_deltas(const dw_encode_job *job, uint64_t row, uint64_t column)
{
    uint32_t n = column < job->layout.c ? DW_EIGHT : 0; /* rows consist of whole eights */
    dw_eight delta = dw_load_eight(job->x, job->x_dtype, row * (uint64_t)job->stride + column, n);
    dw_eight base = dw_load_eight(job->prev, job->prev_dtype, row * job->layout.c + column, n);
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) delta.of[i] = dw_minus(delta.of[i], base.of[i]);
    dw_rotate_eight(&delta, job->layout.rotates);
    return delta;
}

/* The extremes of the rotated values of a row that this thread computes. */
DW_DEVICE dw_extremes dw_rotated_extremes(const dw_encode_job *job, uint64_t row)
{
    dw_extremes all = {0, 0};
    for (uint64_t from = 0; from < job->layout.c; from += DW_EIGHT * DW_CUDA_THREADS) {
        dw_eight delta = dw_rotated_deltas(job, row, from + DW_EIGHT * threadIdx.x);
        dw_extremes found = dw_extremes_of(&delta);
        all.positive = max(all.positive, found.positive);
        all.negative = max(all.negative, found.negative);
    }
    return all;
}

/* Stores the next rotated values of a row in the window, for all threads. Returns their number. */
DW_DEVICE uint32_t dw_share_rotated(const dw_encode_job *job, uint64_t row, uint64_t from,
                                    dw_window_room *window)
{
    uint64_t left = job->layout.c - from;
    __syncthreads();
    for (uint32_t at = DW_EIGHT * threadIdx.x; at < DW_TILE_ELEMENTS;
         at += DW_EIGHT * DW_CUDA_THREADS) {
        dw_eight delta = dw_rotated_deltas(job, row, from + at);
        for (uint32_t i = 0; i < DW_EIGHT; i++) window->values[at + i] = delta.of[i];
    }
    __syncthreads();
    return left < DW_TILE_ELEMENTS ? (uint32_t)left : (uint32_t)DW_TILE_ELEMENTS;
}

/* Returns this thread's sum for an attempt and a lane: that of every 16th value of a row. window:
 * not NULL where values are rotated; then all threads must call it. */
DW_DEVICE float dw_row_lane(const dw_encode_job *job, uint64_t row, dw_window_room *window,
                            uint32_t chosen, float inverse, uint32_t lane)
{
    const dw_layout *layout = &job->layout;
    float half = (float)(1u << (layout->bits - 1)), sum = 0;
    if (!window) {
        for (uint64_t i = lane; i < layout->c; i += DW_NORM_LANES)
            sum += dw_attempt_square(dw_delta_at(job, row, i, dw_is_direct(chosen)), inverse, -half,
                                     half - 1);
        return sum;
    }
    for (uint64_t from = 0; from < layout->c; from += DW_TILE_ELEMENTS) {
        uint32_t n = dw_share_rotated(job, row, from, window);
        for (uint32_t i = lane; i < n; i += DW_NORM_LANES)
            sum += dw_attempt_square(window->values[i], inverse, -half, half - 1);
    }
    return sum;
}

/* Searches for the scale of a row. For every attempt 16 sums are computed, each in order by one
 * thread; then one thread adds them in order. */
DW_DEVICE uint32_t dw_search_row(const dw_encode_job *job, uint64_t row, dw_choose_room *room,
                                 dw_window_room *window, uint32_t chosen, dw_extremes extremes)
{
    dw_attempts attempts = dw_attempts_of(extremes, job->layout.bits);
    uint32_t k = threadIdx.x / DW_NORM_LANES, lane = threadIdx.x % DW_NORM_LANES;
    if (window || k < DW_ATTEMPTS) {
        float sum =
            dw_row_lane(job, row, window, chosen, attempts.inverse[k < DW_ATTEMPTS ? k : 0], lane);
        if (k < DW_ATTEMPTS) room->lanes[k][lane] = sum;
    }
    __syncthreads();
    if (threadIdx.x < DW_ATTEMPTS)
        room->sums[threadIdx.x][0] = dw_lanes_sum(room->lanes[threadIdx.x]);
    __syncthreads();
    return dw_better_choice(room, 0, chosen, &attempts);
}

/* window: NULL where values are not rotated. */
DW_DEVICE void dw_choose_row(const dw_cuda_encode_part *part, uint64_t row, dw_choose_room *room,
                             dw_window_room *window)
{
    const dw_encode_job *job = &part->job;
    const dw_layout *layout = &job->layout;
    dw_extremes delta = {0, 0}, direct = {0, 0}, extremes;
    dw_clear_extremes(room);
    if (window) delta = dw_rotated_extremes(job, row);
    for (uint64_t i = threadIdx.x; !window && i < layout->c; i += DW_CUDA_THREADS) {
        dw_join_one(&delta, dw_delta_at(job, row, i, false));
        dw_join_one(&direct, dw_value_at(job->x, job->x_dtype, row * (uint64_t)job->stride + i));
    }
    dw_share_extremes(room, 0, delta, direct);
    __syncthreads();
    uint32_t chosen = dw_first_choice(room, 0, job, &extremes);
    if (job->rule.scale == DW_SCALE_MSE && !dw_scale_is_flat(dw_scale_in(chosen)))
        chosen = dw_search_row(job, row, room, window, chosen, extremes);
    for (uint64_t i = threadIdx.x; i < layout->row_segments; i += DW_CUDA_THREADS)
        part->share.chosen[row * layout->row_segments + i] = chosen;
}

/* Searches for the scales of a strip: for each channel and attempt one thread adds the tokens in
 * order. */
DW_DEVICE void dw_search_strip(const dw_encode_job *job, uint64_t channel, dw_choose_room *room,
                               uint32_t chosen, const dw_attempts *attempts)
{
    uint32_t k = threadIdx.x / DW_STRIP;
    float half = (float)(1u << (job->layout.bits - 1)), sum = 0;
    if (k < DW_ATTEMPTS && channel < job->layout.c && !dw_scale_is_flat(dw_scale_in(chosen))) {
        for (uint64_t t = 0; t < job->layout.t; t++)
            sum += dw_attempt_square(dw_delta_at(job, t, channel, dw_is_direct(chosen)),
                                     attempts->inverse[k], -half, half - 1);
        room->sums[k][threadIdx.x % DW_STRIP] = sum;
    }
    __syncthreads();
}

/* Writes a channel's scale in front of the tiles, and zeros behind the last one, and adds its
 * counts to the part's sums. */
DW_DEVICE void dw_note_channel(const dw_cuda_encode_part *part, uint64_t channel, uint32_t chosen)
{
    const dw_layout *layout = &part->job.layout;
    uint8_t *scales = part->job.payload + layout->choice_bytes;
    uint16_t scale = dw_scale_in(chosen);
    part->share.chosen[channel] = chosen;
    scales[2 * channel] = (uint8_t)scale;
    scales[2 * channel + 1] = (uint8_t)(scale >> 8);
    if (dw_is_direct(chosen)) atomicAdd(&part->share.sums->direct, 1ull);
    if (scale == 0) atomicAdd(&part->share.sums->zero, 1ull);
    if (dw_scale_is_poisoned(scale)) atomicAdd(&part->share.sums->poisoned, 1ull);
    for (uint64_t at = 2 * channel + 2; channel + 1 == layout->c && at < layout->scale_bytes; at++)
        scales[at] = 0;
}

DW_DEVICE void dw_choose_strip(const dw_cuda_encode_part *part, uint64_t strip,
                               dw_choose_room *room)
{
    const dw_encode_job *job = &part->job;
    uint32_t place = threadIdx.x % DW_STRIP;
    uint64_t channel = strip * DW_STRIP + place;
    dw_extremes delta = {0, 0}, direct = {0, 0}, extremes;
    dw_clear_extremes(room);
    for (uint64_t t = threadIdx.x / DW_STRIP; channel < job->layout.c && t < job->layout.t;
         t += DW_CUDA_THREADS / DW_STRIP) {
        dw_join_one(&delta, dw_delta_at(job, t, channel, false));
        dw_join_one(&direct,
                    dw_value_at(job->x, job->x_dtype, t * (uint64_t)job->stride + channel));
    }
    dw_share_extremes(room, place, delta, direct);
    __syncthreads();
    uint32_t chosen = dw_first_choice(room, place, job, &extremes);
    if (job->rule.scale == DW_SCALE_MSE) {
        dw_attempts attempts;
        bool searches = !dw_scale_is_flat(dw_scale_in(chosen));
        if (searches) attempts = dw_attempts_of(extremes, job->layout.bits);
        dw_search_strip(job, channel, room, chosen, &attempts);
        if (searches) chosen = dw_better_choice(room, place, chosen, &attempts);
    }
    if (threadIdx.x < DW_STRIP && channel < job->layout.c) dw_note_channel(part, channel, chosen);
}

DW_DEVICE void dw_choose_part(const dw_cuda_encode_part *parts, uint32_t n, dw_choose_room *room)
{
    uint64_t block;
    const dw_cuda_encode_part *part = parts + dw_find_part(parts, n, DW_CUDA_CHOOSE, &block);
    if (part->job.layout.by_channel)
        dw_choose_strip(part, block, room);
    else
        dw_choose_row(part, block, room, NULL);
}

DW_DEVICE void dw_choose_rotated(const dw_cuda_encode_part *parts, uint32_t n, dw_choose_room *room,
                                 dw_window_room *window)
{
    uint64_t row;
    const dw_cuda_encode_part *part = parts + dw_find_part(parts, n, DW_CUDA_CHOOSE, &row);
    dw_choose_row(part, row, room, window);
}

#endif
