/* SPDX-License-Identifier: Apache-2.0
 * step.cuh - the kernels of the form step: measure, encode and decode. A thread block takes tiles
 * in turn, and each of its threads DW_SLOTS eights (groups of eight elements) of a tile.
 *
 * An encoder needs the sum of the squares of all deltas that share a step (squares.cuh). Where a
 * piece lies in one tile, the block that encodes the tile adds up its squares first. Where a
 * sample, or a row of several tiles, shares a step, the kernel of phase CHOOSE runs before, and
 * stores the sum of every tile in `chosen`. (So it does where steps follow from a limit of the
 * error, because then x is measured, too; it stores the step of every piece that lies in one tile.)
 * The sums of a row are then added by every block that encodes one of its tiles. The sums of a
 * sample are added by the last block of phase CHOOSE, which also writes the step into the payload.
 *
 * Values that are too large for a code go to the room behind the codes of their tile, in order. So
 * the threads of a block count them together where any may be so large; few tiles have some.
 *
 * A product and a sum must be rounded separately, never fused. So kernels are compiled with
 * -fmad=false, and tests/cuda/budget.py looks for fused instructions in their PTX. The
 * specification is src/codecs/step.c. */
#ifndef DW_CUDA_STEP_CUH
#define DW_CUDA_STEP_CUH

#include "decode.cuh"
#include "squares.cuh"

/* ---- Phase CHOOSE: where a sample or a row of several tiles shares a step -------------------- */

/* The sums of a sample's tiles are added in windows of DW_WINDOW tiles, which fit into shared
 * memory. No chunk but the last has less than DW_CHUNK_TILES tiles, so a window has tiles of at
 * most DW_WINDOW_CHUNKS chunks. */
enum { DW_WINDOW = 1024, DW_WINDOW_CHUNKS = DW_WINDOW / DW_CHUNK_TILES + 2 };

/* Shared memory for one window. */
typedef struct dw_join_room {
    double sums[DW_WINDOW]; /* the sum of each tile; at last, the peak of each thread */
    /* The sum of each chunk that has tiles in the window, over its tiles up to the window's end. */
    double parts[DW_WINDOW_CHUNKS];
    double carry; /* the sum so far of the chunk that goes on in the next window, or 0 */
} dw_join_room;

typedef struct dw_measure_room {
    union { /* `join` is used when `squares` is not needed any more */
        dw_squares_room squares;
        dw_join_room join;
    };
    dw_cuda_encode_part part;
    bool is_last;
} dw_measure_room;

/* Adds the sums of the window's chunks, in order, to `sum`, that of all chunks before them, and
 * returns the result. goes_on: the last chunk has further tiles in the next window; then its sum so
 * far becomes room->carry and is not added yet. Called by one thread. */
DW_DEVICE double dw_add_parts(dw_join_room *room, uint64_t chunks, bool goes_on, double sum)
{
    room->carry = goes_on ? room->parts[chunks - 1] : 0;
    for (uint64_t k = 0; k < chunks - (goes_on ? 1 : 0); k++) sum += room->parts[k];
    return sum;
}

/* Returns the largest of a non-negative number of every thread, in thread 0. */
DW_DEVICE double dw_block_peak(double mine, double *room)
{
    room[threadIdx.x] = mine;
    for (uint32_t half = DW_CUDA_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half && room[threadIdx.x + half] > room[threadIdx.x])
            room[threadIdx.x] = room[threadIdx.x + half];
    }
    return room[0];
}

/* Returns the sum over all tiles of a sample, in thread 0; other threads get no valid result. As
 * on the CPU, the tiles of each chunk (arithmetic/layout.h) are added in order, and then
 * the sums of the chunks in order. tiles: the sum of every tile. *peak becomes the largest mean of
 * the squares of a tile, in thread 0. */
DW_DEVICE double dw_join_tiles(const dw_layout *layout, const double *tiles, dw_join_room *room,
                               double *peak)
{
    uint64_t each = dw_layout_chunk_tiles(layout);
    double all = 0, mine = 0;
    if (threadIdx.x == 0) room->carry = 0;
    for (uint64_t at = 0, end; at < layout->tiles; at = end) {
        end = layout->tiles - at < DW_WINDOW ? layout->tiles : at + DW_WINDOW;
        uint64_t first = at / each, last = (end - 1) / each;
        for (uint64_t i = at + threadIdx.x; i < end; i += DW_CUDA_THREADS) {
            double sum = __ldcg(tiles + i), mean = sum / (double)dw_tile_values(layout, i);
            room->sums[i - at] = sum;
            mine = mean > mine ? mean : mine;
        }
        __syncthreads();
        for (uint64_t k = first + threadIdx.x; k <= last; k += DW_CUDA_THREADS) {
            uint64_t from = k == first ? at : k * each, to = k == last ? end : (k + 1) * each;
            double sum = k == first ? room->carry : 0;
            for (uint64_t i = from; i < to; i++) sum += room->sums[i - at];
            room->parts[k - first] = sum;
        }
        __syncthreads();
        bool goes_on = end < layout->tiles && (last + 1) * each > end;
        if (threadIdx.x == 0) all = dw_add_parts(room, last - first + 1, goes_on, all);
        __syncthreads();
    }
    *peak = dw_block_peak(mine, room->sums);
    return all;
}

/* Computes the step that a whole sample shares, writes it in front of the tiles, and counts it. */
DW_DEVICE void dw_choose_sample_step(const dw_cuda_encode_part *part, dw_join_room *room)
{
    const dw_layout *layout = &part->job.layout;
    double peak, sum = dw_join_tiles(layout, (const double *)part->share.chosen, room, &peak);
    if (threadIdx.x != 0) return;
    dw_squares all = {
        sum, (uint64_t)layout->t * layout->c, sum <= DBL_MAX ? 0 : DW_F32_INFINITY, peak, 0, 0, 0};
    uint16_t step = dw_step_scale(&all, part->job.step);
    dw_sixteen front = {{step, 0, 0, 0}};
    dw_payload_store(part->job.payload + layout->choice_bytes, front);
    if (step == 0) atomicAdd(&part->share.sums->zero, 1ull);
    if (dw_scale_is_poisoned(step)) atomicAdd(&part->share.sums->poisoned, 1ull);
}

/* Returns how many values a segment of a tile has, without padding. */
DW_DEVICE uint32_t dw_segment_values(const dw_layout *layout, const dw_tile *tile, uint32_t segment)
{
    bool is_last =
        (tile->first_segment + segment) % layout->row_segments == layout->row_segments - 1;
    return is_last ? layout->last_channels : layout->segment_channels;
}

/* Stores what was measured of one tile. Where a piece has several tiles there is an array with one
 * element for each tile for each number; else the steps of the tile's pieces are stored. Rotates:
 * whether the layout rotates. */
template <bool Rotates, bool Whole>
DW_DEVICE void dw_step_measure_tile(const dw_cuda_encode_part *part, uint64_t index,
                                    const dw_prefetch *prefetch, dw_squares_room *room)
{
    const dw_encode_job *job = &part->job;
    const dw_layout *layout = &job->layout;
    const bool is_part = layout->by_sample || layout->cut_rows;
    dw_tile tile = dw_tile_of<Whole, true>(layout, index);
    dw_eights all;
    dw_load_eights<Whole>(job, &tile, index, job->x_dtype, job->prev_dtype, prefetch, &all);
    if (Rotates) dw_rotate_deltas<true>(job, job->x_dtype, &all);
    uint32_t pieces = is_part ? 1 : tile.segments,
             n = is_part                ? dw_tile_values(layout, index)
                 : threadIdx.x < pieces ? dw_segment_values(layout, &tile, threadIdx.x)
                                        : 1;
    dw_squares of = dw_measure_pieces(job, room, &all, pieces,
                                      is_part ? tile.elements : layout->segment_width, n);
    if (threadIdx.x >= pieces) return;
    double *to = (double *)part->share.chosen + index;
    if (!is_part) {
        part->share.chosen[tile.first_segment + threadIdx.x] = dw_step_for(job, &of);
        return;
    }
    to[0] = of.sum;
    to[layout->tiles] = of.x_sum;
    to[2 * layout->tiles] = of.least;
}

/* The kernel of phase CHOOSE: measures the tiles of a block. The last block also chooses the step
 * of the sample, if the whole sample shares one. */
template <bool Rotates>
DW_DEVICE void dw_step_measure_tiles(const dw_cuda_encode_part *parts, uint32_t n,
                                     dw_measure_room *room)
{
    uint64_t index;
    const dw_cuda_encode_part *part = dw_load_part(parts, n, DW_CUDA_CHOOSE, &room->part, &index);
    const dw_layout *layout = &part->job.layout;
    const dw_encode_job *job = &part->job;
    const uint64_t whole =
        dw_whole_tiles(&part->share, layout, job->stride, job->x, job->prev, NULL);
    const uint64_t blocks = part->share.blocks[DW_CUDA_CHOOSE];
    const dw_prefetch prefetch = {NULL, DW_NO_TILE};
    for (; index < layout->tiles; index += blocks) {
        if (!Rotates && index < whole)
            dw_step_measure_tile<Rotates, !Rotates>(part, index, &prefetch, &room->squares);
        else
            dw_step_measure_tile<Rotates, false>(part, index, &prefetch, &room->squares);
        __syncthreads(); /* the next tile is measured in the same place */
    }
    if (!layout->by_sample || !dw_is_last_measured(&part->share, DW_CUDA_CHOOSE, &room->is_last))
        return;
    dw_choose_sample_step(part, &room->join);
}

/* ---- Encode ---------------------------------------------------------------------------------- */

/* Shared memory for finding the steps of a tile. */
typedef struct dw_step_room {
    dw_squares_room squares;
    uint16_t steps[DW_MOST_PIECES]; /* the step of each piece, or segment, of the tile */
} dw_step_room;

/* Returns the step that a whole sample shares. It lies in the payload, in front of the tiles: phase
 * CHOOSE has written it there, or the frame contains it. */
DW_DEVICE uint16_t dw_step_of_sample(const dw_layout *layout, const uint8_t *payload)
{
    return *(const uint16_t *)(payload + layout->choice_bytes);
}

/* Returns the step of a row of several tiles, computed from what was measured of them. index: the
 * number of one of these tiles. */
DW_DEVICE uint16_t dw_step_of_row(const dw_cuda_encode_part *part, uint64_t index)
{
    const dw_layout *layout = &part->job.layout;
    const double *tiles =
        (const double *)part->share.chosen + index / layout->row_segments * layout->row_segments;
    dw_squares row = {0};
    for (uint32_t i = 0; i < layout->row_segments; i++) {
        uint32_t n =
            i + 1 < layout->row_segments ? layout->segment_channels : layout->last_channels;
        double sum = __ldcg(tiles + i);
        dw_squares tile = {sum,
                           n,
                           sum <= DBL_MAX ? 0 : DW_F32_INFINITY,
                           sum / (double)n,
                           __ldcg(tiles + 2 * layout->tiles + i),
                           __ldcg(tiles + layout->tiles + i),
                           0};
        dw_squares_add(&row, &tile);
    }
    return dw_step_for(&part->job, &row);
}

/* Finds the steps of a tile's pieces and stores them in room->steps, where all threads can read
 * them afterwards. index: the number of the tile. all: the deltas of this thread. */
DW_DEVICE void dw_find_steps(const dw_cuda_encode_part *part, const dw_tile *tile, uint64_t index,
                             const dw_eights *all, dw_step_room *room)
{
    const dw_layout *layout = &part->job.layout;
    if (layout->by_sample || layout->cut_rows) {
        if (threadIdx.x == 0 && !layout->by_sample) room->steps[0] = dw_step_of_row(part, index);
        for (uint32_t i = threadIdx.x; layout->by_sample && i < tile->segments;
             i += DW_CUDA_THREADS)
            room->steps[i] = dw_step_of_sample(layout, part->job.payload);
        __syncthreads();
        return;
    }
    static_assert(DW_MOST_PIECES <= (uint32_t)DW_CUDA_THREADS,
                  "a thread finds the step of each piece");
    bool is_mine = threadIdx.x < tile->segments;
    if (part->job.error > 0) {
        if (is_mine)
            room->steps[threadIdx.x] =
                (uint16_t)__ldcg(part->share.chosen + tile->first_segment + threadIdx.x);
        __syncthreads();
        return;
    }
    uint32_t n = is_mine ? dw_segment_values(layout, tile, threadIdx.x) : 1, unused;
    double sum =
        dw_bulk_of<false>(&room->squares, all, tile->segments, layout->segment_width, n, &unused);
    dw_squares of = {sum, n, sum <= DBL_MAX ? 0 : DW_F32_INFINITY, sum / (double)n, 0, 0, 0};
    if (is_mine) room->steps[threadIdx.x] = dw_step_scale(&of, part->job.step);
    __syncthreads();
}

/* Returns the same as dw_step_level, but without conversions between floats and integers, which a
 * GPU computes at half the speed or less. */
DW_DEVICE int32_t dw_step_level_of(float scaled)
{
    int32_t level = (int32_t)(dw_bits_of(scaled + DW_MAGIC) - DW_MAGIC_BITS);
    return dw_step_escapes(scaled) ? -DW_STEP_ZERO : level;
}

/* Returns the same as dw_step_value, but without a conversion. */
DW_DEVICE float dw_step_value_of(int32_t level, float z, float step)
{
    float amount = dw_float_of_level(level) - z;
    return amount * step;
}

/* The dithers of eight values, which are added before values are rounded; zeros for nearest
 * rounding. */
DW_DEVICE dw_eight dw_step_dithers(const dw_encode_job *job, const dw_place *place)
{
    const dw_eight none = {{0}};
    if (job->layout.dithers) return dw_dithers(job->draws_key, place->dense, place->n);
    return job->rule.is_stochastic ? dw_dithers(job->rule.dither_key, place->dense, place->n)
                                   : none;
}

/* Computes the codes and the new values of eight elements of one piece. Values that escape have
 * code 0, that of level -128, until they are stored. Where dithers are subtractive, the decoder
 * subtracts them from the levels, and so must this function for the new values. */
DW_DEVICE void dw_step_encode_eight(const dw_encode_job *job, const dw_place *place, dw_encoding *e,
                                    uint16_t step, float values[DW_EIGHT])
{
    const bool subtracts = job->layout.dithers;
    const dw_eight z = dw_step_dithers(job, place);
    bool poisoned = dw_scale_is_poisoned(step);
    float inverse = dw_step_inverse(step), width = dw_bf16_widen(step);
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) {
        float scaled = dw_step_scaled(e->delta.of[i], inverse, z.of[i]);
        int32_t level = poisoned ? 0 : dw_step_level_of(scaled);
        values[i] = e->base.of[i] + dw_step_value_of(level, subtracts ? z.of[i] : 0.0f, width);
        e->codes[i] = (uint32_t)(level + DW_STEP_ZERO);
    }
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++)
        if (poisoned) values[i] = e->base.of[i];
}

/* ---- Escaped values of an encoder ------------------------------------------------------------ */

/* Clears the room of a tile for escaped values. */
DW_DEVICE void dw_clear_escapes(const dw_tile *tile, dw_encode_room *room)
{
    uint32_t *words = (uint32_t *)(room->staged + (tile->escapes - tile->offset));
    for (uint32_t i = threadIdx.x; i < dw_escapes_bytes(tile->elements) / 4; i += DW_CUDA_THREADS)
        words[i] = 0;
}

/* Whether values of a thread's eights may escape: not unless a delta is 126 steps large, whatever
 * the rounding. The product is exact, or it is infinite and no delta is so large. */
DW_DEVICE bool dw_may_escape(const dw_eights *all, const uint16_t *steps)
{
    bool may = false;
#pragma unroll
    for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
        if (!all->place[slot].stored) continue;
        float least = 126.0f * dw_bf16_widen(steps[all->place[slot].segment]);
#pragma unroll
        for (uint32_t i = 0; i < DW_EIGHT; i++)
            may = may || (fabsf(all->e[slot].delta.of[i]) >= least && least > 0.0f);
    }
    return may;
}

/* How many values of an eight escape. */
DW_DEVICE uint32_t dw_count_escapes(const dw_encode_job *job, const dw_place *place,
                                    const dw_eight *delta, uint16_t step)
{
    const dw_eight z = dw_step_dithers(job, place);
    float inverse = dw_step_inverse(step);
    uint32_t count = 0;
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++)
        count += dw_step_escapes(dw_step_scaled(delta->of[i], inverse, z.of[i])) ? 1u : 0;
    return dw_scale_is_poisoned(step) ? 0 : count;
}

/* Finds how many values of the tile escape in front of each eight of this thread, and stores their
 * number in the room. Returns false, in all threads, where none escape. */
DW_DEVICE bool dw_rank_escapes(const dw_encode_job *job, const dw_tile *tile, const dw_eights *all,
                               const uint16_t *steps, dw_encode_room *room,
                               uint32_t ranks[DW_SLOTS])
{
    uint32_t total = 0, most = dw_escapes_most(tile->elements);
    if (!__syncthreads_or(dw_may_escape(all, steps))) return false;
#pragma unroll
    for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
        const dw_place *place = &all->place[slot];
        uint32_t of_slot, count = 0;
        if (place->stored)
            count = dw_count_escapes(job, place, &all->e[slot].delta, steps[place->segment]);
        ranks[slot] = total + dw_block_scan(count, room->found.scan, &of_slot);
        total += of_slot;
    }
    if (threadIdx.x == 0)
        *(uint32_t *)(room->staged + (tile->escapes - tile->offset)) = total < most ? total : most;
    return total > 0;
}

/* Stores the escaped values of an eight in the room, as long as it is not full, and sets codes and
 * new values of their elements. Returns how many it has stored. Stored is x itself, or what is
 * coded of it where values are rotated, or prev is a residual. rank: how many values of the tile
 * escape in front of this eight. */
template <bool Rotates>
DW_DEVICE uint32_t dw_put_escapes(const dw_encode_job *job, const dw_tile *tile,
                                  const dw_place *place, dw_encoding *e, dw_dtype x_dtype,
                                  uint32_t rank, dw_encode_room *room, float values[DW_EIGHT])
{
    const uint32_t most = dw_escapes_most(tile->elements), first = rank;
    const bool is_delta = Rotates || job->keeps_residual;
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) {
        if (e->codes[i] != 0 || rank >= most) continue;
        float value = e->delta.of[i], base = e->base.of[i];
        e->codes[i] = DW_STEP_ZERO;
        if (!is_delta) value = dw_widen(dw_load_bits(job->x, x_dtype, place->tensor + i), x_dtype);
        dw_escape escape = {place->first + i, dw_bits_of(value)};
        dw_escape_store(room->staged + (tile->escapes - tile->offset), tile->elements, rank++,
                        &escape);
        values[i] = is_delta ? base + value : value;
    }
    return rank - first;
}

/* ---- A tile of an encoder -------------------------------------------------------------------- */

/* Stages the step of a piece for the tile's bytes, and counts the piece. list: which means its row
 * takes, which the sign says. Does nothing if this eight is not the first of its piece, or if the
 * step lies in front of the tiles. */
DW_DEVICE void dw_note_step(const dw_layout *layout, const dw_place *place, uint16_t step,
                            uint32_t list, dw_encode_room *room, dw_found *found)
{
    if (layout->by_sample || !place->stored || !place->leads) return;
    uint16_t sign = list && !dw_scale_is_poisoned(step) ? (uint16_t)DW_PROFILE_SIGN : 0;
    *(uint16_t *)(room->staged + 2 * place->segment) = step | sign;
    dw_count(found, step);
}

/* Makes the new prev of an eight from what is decoded of it, which is binary32 in e->next, with a
 * profile. base: prev, or the means. */
DW_DEVICE void dw_unweigh_encoded(const dw_encode_job *job, const dw_place *place, dw_encoding *e,
                                  const dw_eight *base, dw_dtype prev_dtype, bool poisoned)
{
    const dw_eight none = {{0}};
    if (job->next)
        dw_unweigh_eight(&job->channels, (uint32_t)(place->dense % job->layout.c), place->n, base,
                         job->prev ? base : &none, prev_dtype, true, poisoned, e->next);
}

/* Rotates: whether values are rotated, or divided by weights, before they are coded. */
template <bool Rotates, bool Whole>
DW_DEVICE void dw_step_encode_tile(const dw_cuda_encode_part *part, uint64_t index,
                                   dw_dtype x_dtype, dw_dtype prev_dtype, dw_encode_room *room,
                                   dw_step_room *steps, const dw_prefetch *prefetch,
                                   dw_found *found)
{
    const dw_encode_job *job = &part->job;
    const dw_layout *layout = &job->layout;
    dw_tile tile = dw_tile_of<Whole, true>(layout, index);
    dw_eights all;
    uint32_t ranks[DW_SLOTS];
    dw_load_eights<Whole>(job, &tile, index, x_dtype, prev_dtype, prefetch, &all);
    dw_count_overflows(job, x_dtype, prev_dtype, &all, found);
    if (Rotates) dw_rotate_deltas<true>(job, x_dtype, &all);
    dw_pad_tile(layout, &tile, room);
    dw_clear_escapes(&tile, room);
    dw_find_steps(part, &tile, index, &all, steps);
    const bool escapes = dw_rank_escapes(job, &tile, &all, steps->steps, room, ranks);
#pragma unroll
    for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
        const dw_place *place = &all.place[slot];
        dw_encoding *e = &all.e[slot];
        uint16_t step = place->stored ? steps->steps[place->segment] : 0;
        float values[DW_EIGHT];
        dw_note_step(layout, place, step, Rotates ? all.lists[slot] : 0, room, found);
        dw_step_encode_eight(job, place, e, step, values);
        if (escapes)
            found->escaped +=
                dw_put_escapes<Rotates>(job, &tile, place, e, x_dtype, ranks[slot], room, values);
        dw_narrow_eight(values, Rotates ? DW_F32 : prev_dtype, e->next);
        if (Rotates && layout->weighs)
            dw_unweigh_encoded(job, place, e, &all.held[slot], prev_dtype,
                               dw_scale_is_poisoned(step));
        else if (Rotates)
            dw_unrotate_encoded(job, e, &all.held[slot], prev_dtype, dw_scale_is_poisoned(step));
        found->state += dw_store_encoded(job, &tile, place, e, prev_dtype, room);
    }
    __syncthreads();
    found->payload += dw_put_tile(job, &tile, room);
    if (prev_dtype == DW_F32 && job->keeps_residual)
        dw_keep_residuals(part, &tile, room, steps->steps[0]);
}

/* XType, PrevType: the dtypes of x and prev; 0: the job says which. */
template <int XType, int PrevType, bool Rotates>
DW_DEVICE void dw_step_encode_tiles(const dw_cuda_encode_part *parts, uint32_t n,
                                    dw_encode_room *room, dw_sixteen *memory, dw_step_room *steps)
{
    dw_for_tiles<XType, PrevType>(
        parts, n, room, memory,
        [&](const dw_cuda_encode_part *part, uint64_t index, dw_dtype x, dw_dtype prev,
            const dw_prefetch *prefetch, dw_found *found, auto whole) {
            dw_step_encode_tile<Rotates, whole.value>(part, index, x, prev, room, steps, prefetch,
                                                      found);
        });
}

/* ---- Decode ---------------------------------------------------------------------------------- */

/* Returns the step of an eight in a decoder: that of the sample, or that of its piece, which lies
 * in the staged tile. */
DW_DEVICE uint16_t dw_step_at(const dw_decode_job *job, const dw_place *place,
                              const dw_decode_room *room)
{
    if (job->layout.by_sample) return dw_step_of_sample(&job->layout, job->payload);
    uint16_t step = *(const uint16_t *)(room->staged + 2 * place->segment);
    return job->layout.weighs ? step & (uint16_t)~DW_PROFILE_SIGN : step;
}

/* The base of an eight with a profile: prev, or the means of which the sign of its step tells. */
DW_DEVICE dw_eight dw_weighed_base(const dw_decode_job *job, const dw_place *place,
                                   const dw_eight *held, const dw_decode_room *room)
{
    dw_eight base = *held;
    uint16_t step = *(const uint16_t *)(room->staged + 2 * place->segment);
    const float *means = dw_means_at(&job->channels, (step & DW_PROFILE_SIGN) != 0,
                                     (uint32_t)(place->dense % job->layout.c));
    if (job->prev || !means) return base;
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++)
        if (i < place->n) base.of[i] = means[i];
    return base;
}

/* How many escaped values there are in the room of a tile whose bytes lie in shared memory. */
DW_DEVICE uint32_t dw_escapes_of(const dw_tile *tile, const dw_decode_room *room)
{
    uint32_t count = *(const uint32_t *)(room->staged + (tile->escapes - tile->offset)),
             most = dw_escapes_most(tile->elements);
    return count < most ? count : most;
}

/* Replaces the values of escaped elements of an eight. count: as above. */
DW_DEVICE void dw_take_escapes(const dw_tile *tile, const dw_place *place, uint32_t count,
                               const dw_decode_room *room, dw_eight *value)
{
    for (uint32_t k = 0; k < count; k++) {
        dw_escape escape =
            dw_escape_at(room->staged + (tile->escapes - tile->offset), tile->elements, k);
        uint32_t at = escape.place - place->first;
#pragma unroll
        for (uint32_t i = 0; i < DW_EIGHT; i++)
            if (at == i) value->of[i] = dw_step_escaped(escape.bits);
    }
}

/* Computes the new prev of eight elements, or y where there is no state, as bits of dtype. held:
 * the old prev. keeps: poisoned pieces keep it; otherwise they become NaN. escapes: how many
 * escaped values the tile has. Returns a mask of poisoned elements. */
DW_DEVICE uint32_t dw_step_reconstruct_eight(const dw_decode_job *job, const dw_tile *tile,
                                             const dw_place *place, const dw_eight *held,
                                             dw_dtype dtype, bool keeps, const dw_decode_room *room,
                                             uint32_t escapes, uint32_t out[DW_EIGHT])
{
    uint32_t codes[DW_EIGHT];
    uint16_t step = dw_step_at(job, place, room);
    bool poisoned = dw_scale_is_poisoned(step);
    float width = dw_bf16_widen(step);
    dw_eight z = {{0}};
    if (job->layout.dithers) z = dw_dithers(job->draws_key, place->dense, place->n);
    dw_get_codes(room->staged + (tile->codes - tile->offset), 8, tile->elements, place->first,
                 codes);
    dw_eight value;
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++)
        value.of[i] =
            held->of[i] + dw_step_value_of((int32_t)codes[i] - DW_STEP_ZERO, z.of[i], width);
    if (escapes) dw_take_escapes(tile, place, escapes, room, &value);
    return dw_narrow_piece(&value, held, poisoned, keeps, dtype, out);
}

/* Decodes an eight and stores the new prev and y, or y alone where there is no state. Returns the
 * part of the state digest that belongs to this eight. */
template <bool HasState, bool Rotates>
DW_DEVICE uint64_t dw_step_store_decoded(const dw_decode_job *job, const dw_tile *tile,
                                         const dw_place *place, const dw_eight *held,
                                         dw_dtype dtype, const dw_decode_room *room,
                                         uint32_t escapes)
{
    if (Rotates && job->layout.weighs) {
        const dw_eight none = {{0}};
        uint32_t bits[DW_EIGHT] = {0};
        if (!place->n) return 0;
        uint32_t poisoned =
            dw_step_reconstruct_eight(job, tile, place, &none, DW_F32, true, room, escapes, bits);
        dw_eight base = dw_weighed_base(job, place, held, room);
        dw_unweigh_eight(&job->channels, (uint32_t)(place->dense % job->layout.c), place->n, &base,
                         held, dtype, HasState, poisoned != 0, bits);
        return dw_store_values<HasState>(job, place, bits, dtype, poisoned);
    }
    return dw_store_reconstructed<HasState, Rotates>(
        job, place, held, dtype,
        [&](const dw_eight *base, dw_dtype made, bool keeps, uint32_t *bits) {
            return dw_step_reconstruct_eight(job, tile, place, base, made, keeps, room, escapes,
                                             bits);
        });
}

/* Rotates: whether the layout rotates blocks of channels. */
template <bool HasState, bool Rotates, bool Whole>
DW_DEVICE void dw_step_decode_tile(const dw_decode_job *job, uint64_t index, dw_dtype dtype,
                                   dw_decode_room *room, const dw_prefetch *prefetch,
                                   dw_found *found)
{
    const dw_layout *layout = &job->layout;
    dw_tile tile = dw_tile_of<Whole, true>(layout, index);
    dw_held_eights all;
    dw_load_held<HasState, Whole>(job, &tile, index, dtype, prefetch, &all);
    found->payload += dw_take_tile<Whole>(job, &tile, prefetch, room);
    __syncthreads();
    const uint32_t escapes = dw_escapes_of(&tile, room);
#pragma unroll
    for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
        const dw_place *place = &all.place[slot];
        bool is_first =
            layout->by_sample ? index == 0 && place->first == 0 : place->stored && place->leads;
        if (is_first) dw_count(found, dw_step_at(job, place, room));
        found->state += dw_step_store_decoded<HasState, Rotates>(job, &tile, place, &all.held[slot],
                                                                 dtype, room, escapes);
    }
}

/* Type: prev's dtype with state, y's dtype without; 0: the job says which. */
template <int Type, bool HasState, bool Rotates>
DW_DEVICE void dw_step_decode_tiles(const dw_cuda_decode_part *parts, uint32_t n,
                                    dw_decode_room *room, dw_sixteen *memory)
{
    dw_for_decoded_tiles<Type, HasState>(
        parts, n, room, memory,
        [&](const dw_cuda_decode_part *part, uint64_t index, dw_dtype dtype,
            const dw_prefetch *prefetch, dw_found *found, auto whole) {
            dw_step_decode_tile<HasState, Rotates, whole.value>(&part->job, index, dtype, room,
                                                                prefetch, found);
        });
}

#endif
