/* SPDX-License-Identifier: Apache-2.0
 * encode.cuh - x and prev to payload and the new prev: one tile a block, eight elements a thread, in one sweep.
 *
 * Source: docs/format.md, 3 to 5; the specification is src/kernels_c.c. */
#ifndef DW_CUDA_ENCODE_CUH
#define DW_CUDA_ENCODE_CUH

#include <Random123/philox.h>

#include "place.cuh"

/* What a kernel is made for, beside its dtypes; of which 0 stands for that of the job. */
typedef enum dw_variant { DW_PLAIN, DW_SEARCHES, DW_BY_COLUMNS } dw_variant;

enum { DW_STAGED_BYTES = DW_TILE_ELEMENTS + 2 * DW_TILE_ELEMENTS / 16, DW_MOST_PIECES = DW_TILE_ELEMENTS / 16 };

/* What the threads of a block share. */
typedef struct dw_encode_room {
    __align__(16) uint8_t staged[DW_STAGED_BYTES]; /* the tile's bytes */
    dw_found_room found;
    uint32_t choices[DW_MOST_PIECES / 32];
    uint32_t positive[2][DW_MOST_PIECES], negative[2][DW_MOST_PIECES]; /* of rows: x - prev, and x */
    bool is_last;
} dw_encode_room;

typedef struct dw_search_room {
    float squares[DW_TILE_ELEMENTS], lanes[DW_TILE_ELEMENTS], sums[DW_ATTEMPTS][DW_MOST_PIECES];
} dw_search_room;

/* ------------------------------------------------------------------------------------------- scales */

/* As integers with a sign, negative floats are below 0; without one, above all positive ones. */
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

/* Groups lie within a warp, side by side. */
DW_DEVICE dw_extremes dw_join_lanes(dw_extremes mine, uint32_t lanes)
{
    for (uint32_t apart = 1; apart < lanes; apart *= 2) {
        mine.positive = max(mine.positive, __shfl_xor_sync(DW_ALL_LANES, mine.positive, (int)apart));
        mine.negative = max(mine.negative, __shfl_xor_sync(DW_ALL_LANES, mine.negative, (int)apart));
    }
    return mine;
}

/* Rows have any width. which: 0 of x - prev, 1 of x. */
DW_DEVICE dw_extremes dw_join_shared(dw_encode_room *room, dw_extremes mine, const dw_place *place, uint32_t which)
{
    if (threadIdx.x < DW_MOST_PIECES) room->positive[which][threadIdx.x] = room->negative[which][threadIdx.x] = 0;
    __syncthreads();
    if (place->stored) {
        atomicMax(&room->positive[which][place->segment], mine.positive);
        atomicMax(&room->negative[which][place->segment], mine.negative);
    }
    __syncthreads();
    dw_extremes all = {0, 0};
    if (place->stored) {
        all.positive = room->positive[which][place->segment];
        all.negative = room->negative[which][place->segment];
    }
    return all;
}

DW_DEVICE dw_extremes dw_join_piece(dw_encode_room *room, const dw_layout *layout, const dw_eight *values, const dw_place *place,
                                    uint32_t which)
{
    dw_extremes mine = dw_extremes_of(values);
    uint32_t width = layout->segment_width;
    if (width <= DW_WARP * DW_EIGHT && (width & (width - 1)) == 0) return dw_join_lanes(mine, width / DW_EIGHT);
    return dw_join_shared(room, mine, place, which);
}

/* The sums of squares of one attempt, in the order that the specification adds them: 16 sums of every piece, then these. */
DW_DEVICE void dw_add_attempt(dw_search_room *room, const dw_layout *layout, uint32_t pieces, uint32_t k)
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
    for (uint32_t i = threadIdx.x; i < pieces; i += DW_CUDA_THREADS) room->sums[k][i] = dw_lanes_sum(room->lanes + i * DW_NORM_LANES);
    __syncthreads();
}

/* Mean-square search. All threads take part; those whose piece has no scale, or is none, get `found` back. */
DW_DEVICE uint16_t dw_search(dw_search_room *room, const dw_layout *layout, const dw_place *place, uint32_t pieces, const dw_eight *deltas,
                             dw_extremes extremes, uint16_t found)
{
    bool searches = place->stored && !dw_scale_is_flat(found);
    float half = (float)(1u << (layout->bits - 1)), sums[DW_ATTEMPTS];
    dw_attempts attempts;
    if (searches) attempts = dw_attempts_of(extremes, layout->bits);
    for (uint32_t k = 0; k < DW_ATTEMPTS; k++) {
        for (uint32_t i = 0; place->stored && i < DW_EIGHT; i++)
            room->squares[threadIdx.x * DW_EIGHT + i] =
                searches ? dw_attempt_square(deltas->of[i], attempts.inverse[k], -half, half - 1) : 0.0f;
        dw_add_attempt(room, layout, pieces, k);
        sums[k] = place->stored ? room->sums[k][place->segment] : 0.0f;
    }
    return searches ? dw_attempts_best(&attempts, sums) : found;
}

/* ------------------------------------------------------------------------------------------- codes */

/* The dithers of eight elements of the sample from `at` on; none for those behind the nth. Elements that do not begin with a counter's eight take
 * parts of two; they are moved into place by steps, since registers have no index. */
DW_DEVICE dw_eight dw_dithers(uint64_t dither_key, uint64_t at, uint32_t n)
{
    philox4x32_key_t key = {{(uint32_t)dither_key, (uint32_t)(dither_key >> 32)}};
    uint64_t counter = at / DW_EIGHT;
    uint32_t skipped = (uint32_t)(at % DW_EIGHT), words[DW_EIGHT];
#pragma unroll
    for (uint32_t call = 0; call < 2; call++, counter++) {
        philox4x32_ctr_t count = {{(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0}}, made = {{0, 0, 0, 0}};
        if (call == 0 || skipped) made = philox4x32_R(10, count, key);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) words[4 * call + i] = made.v[i];
    }
#pragma unroll
    for (uint32_t i = 0; i < 6; i++) words[i] = skipped & 4 ? words[i + 2] : words[i];
#pragma unroll
    for (uint32_t i = 0; i < 5; i++) words[i] = skipped & 2 ? words[i + 1] : words[i];
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) words[i] = skipped & 1 ? words[i] >> 16 | words[i + 1] << 16 : words[i];
    dw_eight dithers;
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++)
        dithers.of[i] = dw_dither_of((uint16_t)(i < n ? words[i / 2] >> (16 * (i % 2)) & 0xffffu : DW_DITHER_NONE));
    return dithers;
}

/* Eight codes into the planes of a tile of so many elements, whose codes begin at `codes`: element 8 * thread on. */
DW_DEVICE void dw_put_codes(const uint32_t codes[DW_EIGHT], uint32_t bits, uint8_t *tile, uint32_t elements)
{
    uint32_t first = threadIdx.x * DW_EIGHT;
    for (uint32_t from = 0; from < bits;) {
        uint32_t width = dw_plane_width(bits, from), mask = (1u << width) - 1u, low = 0, high = 0;
        uint8_t *to = tile + elements / 8 * from + first / 8 * width;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            low |= (codes[i] >> from & mask) << (width * i);
            high |= (codes[4 + i] >> from & mask) << (width * i);
        }
        if (width == 8) {
            ((uint32_t *)to)[0] = low;
            ((uint32_t *)to)[1] = high;
        } else if (width == 4) {
            *(uint32_t *)to = low | high << 16;
        } else if (width == 2) {
            *(uint16_t *)to = (uint16_t)(low | high << 8);
        } else {
            *to = (uint8_t)(low | high << 4);
        }
        from += width;
    }
}

typedef struct dw_encoding {
    dw_eight delta, base;
    uint32_t codes[DW_EIGHT], next[DW_EIGHT];
} dw_encoding;

/* The level of an element that has a scale, two bits and more: step 6 of the encoder as dw_code_of has it, without conversions between floats and
 * integers, which a multiprocessor does at half its speed or less. */
DW_DEVICE int32_t dw_level_of(float delta, float inverse, int32_t half, float dither)
{
    float scaled = delta * inverse;
    int32_t level = (int32_t)(dw_bits_of((scaled + dither) + DW_MAGIC) - DW_MAGIC_BITS);
    return min(max(level, -half), half - 1);
}

/* Code of element i of eight, whose piece chose `chosen`; its level comes back. */
DW_DEVICE float dw_encode_code(dw_encoding *e, uint32_t i, float inverse, uint32_t bits, float dither)
{
    int32_t half = 1 << (bits - 1), level = 0;
    if (bits == 1) {
        e->codes[i] = (uint32_t)(inverse == 0.0f ? half : dw_code_of(e->delta.of[i], inverse, half, dither));
        return e->codes[i] ? 1.0f : -1.0f;
    }
    if (inverse != 0.0f) level = dw_level_of(e->delta.of[i], inverse, half, dither);
    e->codes[i] = (uint32_t)(level + half);
    return dw_float_of_level(level);
}

/* Codes and new prev of element i of eight, whose piece chose `chosen`. */
DW_DEVICE void dw_encode_one(dw_encoding *e, uint32_t i, uint32_t chosen, float inverse, uint32_t bits, float dither, dw_dtype prev_dtype)
{
    uint16_t scale = dw_scale_in(chosen);
    float base = dw_is_direct(chosen) ? 0.0f : e->base.of[i], level = dw_encode_code(e, i, inverse, bits, dither);
    float value = base + level * dw_bf16_widen(scale);
    e->next[i] = dw_narrow(dw_scale_is_poisoned(scale) ? e->base.of[i] : value, prev_dtype);
}

/* ------------------------------------------------------------------------------------------- a tile */

/* Scale and choice of a thread's piece. e->delta follows the choice. */
template <int Variant>
DW_DEVICE uint32_t dw_decide(const dw_cuda_encode_part *part, const dw_tile *tile, const dw_place *place, uint64_t index, dw_encode_room *room,
                             dw_search_room *search, const dw_eight *x, dw_encoding *e)
{
    const dw_encode_job *job = &part->job;
    const dw_layout *layout = &job->layout;
    uint32_t chosen;
    if (layout->cut_rows) {
        chosen = part->share.chosen[index];
    } else {
        dw_extremes delta = dw_join_piece(room, layout, &e->delta, place, 0), direct = {0, 0};
        if (layout->chooses) direct = dw_join_piece(room, layout, x, place, 1);
        bool is_direct = layout->chooses && dw_extremes_largest(direct) < dw_extremes_largest(delta);
        dw_extremes extremes = is_direct ? direct : delta;
        uint16_t scale = dw_scale_of(extremes, layout->bits, job->rule.scale != DW_SCALE_ABSMAX);
        chosen = is_direct ? 0x10000u : 0;
        if (Variant == DW_SEARCHES) scale = dw_search(search, layout, place, tile->segments, is_direct ? x : &e->delta, extremes, scale);
        chosen |= scale;
    }
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++)
        if (dw_is_direct(chosen)) e->delta.of[i] = x->of[i];
    return chosen;
}

/* The first thread of every piece writes its scale down, and its choice; what pads scales and codes is zero. */
DW_DEVICE uint32_t dw_note_piece(const dw_cuda_encode_part *part, const dw_tile *tile, const dw_place *place, uint32_t chosen,
                                 dw_encode_room *room)
{
    const dw_layout *layout = &part->job.layout;
    uint32_t scales_end = 2 * tile->segments, codes = (uint32_t)(tile->codes - tile->offset), bytes = (uint32_t)tile->bytes;
    uint32_t codes_end = codes + tile->elements / 8 * layout->bits;
    if (threadIdx.x < 16 && scales_end + threadIdx.x < codes) room->staged[scales_end + threadIdx.x] = 0;
    if (threadIdx.x < 16 && codes_end + threadIdx.x < bytes) room->staged[codes_end + threadIdx.x] = 0;
    if (!place->stored || !place->leads) return 0;
    uint16_t scale = dw_scale_in(chosen);
    *(uint16_t *)(room->staged + 2 * place->segment) = scale;
    if (dw_is_direct(chosen) && !part->share.chosen) atomicOr(&room->choices[place->segment / 32], 1u << place->segment % 32);
    if (part->share.chosen) part->share.chosen[tile->first_segment + place->segment] = chosen;
    return dw_count_of(chosen);
}

/* With a scale per channel nothing is left to decide, and every element has a piece of its own. */
DW_DEVICE void dw_encode_columns(const dw_cuda_encode_part *part, const dw_place *place, const dw_eight *x, const dw_eight *dithers,
                                 dw_dtype prev_dtype, dw_encoding *e)
{
    const dw_layout *layout = &part->job.layout;
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) {
        uint32_t chosen = i < place->n ? part->share.chosen[place->column + i] : 0;
        if (dw_is_direct(chosen)) e->delta.of[i] = x->of[i];
        dw_encode_one(e, i, chosen, dw_scale_inverse(dw_scale_in(chosen)), layout->bits, dithers->of[i], prev_dtype);
    }
}

/* The staged bytes into the payload; the digest's sum of a thread's sixteen. */
DW_DEVICE uint64_t dw_put_tile(const dw_encode_job *job, const dw_tile *tile, const dw_encode_room *room)
{
    uint32_t at = 16 * threadIdx.x;
    if (at >= tile->bytes) return 0;
    dw_sixteen all = *(const dw_sixteen *)(room->staged + at);
    dw_payload_store(job->payload + tile->offset + at, all);
    return dw_digest_sixteen(all, tile->offset + at);
}

/* Whole bytes of choice bits, and behind those of the last tile the zeros. */
DW_DEVICE void dw_put_choices(const dw_encode_job *job, const dw_tile *tile, uint64_t index, const dw_encode_room *room)
{
    const dw_layout *layout = &job->layout;
    uint64_t first = tile->first_segment / 8, end = first + (tile->segments + 7) / 8;
    uint64_t last = index + 1 == layout->tiles ? layout->choice_bytes : end;
    for (uint64_t at = first + threadIdx.x; at < last; at += DW_CUDA_THREADS) {
        uint32_t i = (uint32_t)(at - first);
        job->payload[at] = at < end ? (uint8_t)(room->choices[i / 4] >> (8 * (i % 4))) : 0;
    }
}

/* Choice bits of pieces that share bytes with other blocks' pieces. */
DW_DEVICE void dw_gather_choices(const dw_cuda_encode_part *part)
{
    const dw_layout *layout = &part->job.layout;
    for (uint64_t at = threadIdx.x; layout->chooses && part->share.chosen && at < layout->choice_bytes; at += DW_CUDA_THREADS) {
        uint32_t byte = 0;
        for (uint32_t i = 0; i < 8; i++) {
            uint64_t piece = 8 * at + i;
            if (piece < layout->pieces && dw_is_direct(__ldcg(part->share.chosen + piece))) byte |= 1u << i;
        }
        part->job.payload[at] = (uint8_t)byte;
    }
    __threadfence();
    __syncthreads();
}

DW_DEVICE void dw_end_encode(const dw_cuda_encode_part *part, dw_encode_room *room)
{
    if (!dw_is_last(&part->share, &room->is_last)) return;
    dw_gather_choices(part);
    uint64_t front = dw_block_sum(dw_front_sum(&part->job.layout, part->job.payload), room->found.sums[0]);
    if (threadIdx.x == 0) dw_report_part(&part->share, front);
}

template <int XType, int PrevType, int Variant>
DW_DEVICE void dw_encode_tile(const dw_cuda_encode_part *parts, uint32_t n, dw_encode_room *room, dw_search_room *search)
{
    uint64_t index;
    const dw_cuda_encode_part *part = parts + dw_find_part(parts, n, DW_CUDA_TILES, &index);
    const dw_encode_job *job = &part->job;
    const dw_layout *layout = &job->layout;
    const dw_dtype x_dtype = XType ? (dw_dtype)XType : job->x_dtype, prev_dtype = PrevType ? (dw_dtype)PrevType : job->prev_dtype;
    dw_tile tile = dw_layout_tile(layout, index);
    dw_place place = dw_place_of(layout, &tile, job->stride);
    dw_eight x = dw_load_eight(job->x, x_dtype, place.tensor, place.n), dithers;
    dw_encoding e;
    e.base = dw_load_eight(job->prev, prev_dtype, place.dense, place.n);
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) {
        e.delta.of[i] = x.of[i] - e.base.of[i];
        dithers.of[i] = 0.0f;
    }
    if (threadIdx.x < DW_MOST_PIECES / 32) room->choices[threadIdx.x] = 0;
    if (job->rule.is_stochastic) dithers = dw_dithers(job->rule.dither_key, place.dense, place.n);
    __syncthreads();
    uint32_t counts = 0;
    if (Variant == DW_BY_COLUMNS) {
        uint32_t codes_end = tile.elements / 8 * layout->bits;
        if (threadIdx.x < 16 && codes_end + threadIdx.x < (uint32_t)tile.bytes) room->staged[codes_end + threadIdx.x] = 0;
        dw_encode_columns(part, &place, &x, &dithers, prev_dtype, &e);
    } else {
        uint32_t chosen = dw_decide<Variant>(part, &tile, &place, index, room, search, &x, &e);
        float inverse = dw_scale_inverse(dw_scale_in(chosen));
        counts = dw_note_piece(part, &tile, &place, chosen, room);
#pragma unroll
        for (uint32_t i = 0; i < DW_EIGHT; i++) dw_encode_one(&e, i, chosen, inverse, layout->bits, dithers.of[i], prev_dtype);
    }
    if (place.stored) dw_put_codes(e.codes, layout->bits, room->staged + (tile.codes - tile.offset), tile.elements);
    uint64_t state = 0;
    if (job->next && place.n) {
        dw_store_eight(job->next, prev_dtype, place.dense, place.n, e.next);
        if (job->audit.every && layout->c % 4 == 0) state = dw_audit_eight(job->audit, e.next, prev_dtype, place.dense, place.n);
    }
    __syncthreads();
    uint64_t payload = dw_put_tile(job, &tile, room);
    if (Variant != DW_BY_COLUMNS && layout->chooses && !part->share.chosen) dw_put_choices(job, &tile, index, room);
    dw_add_block(part->share.sums, payload, state, counts, &room->found);
    dw_end_encode(part, room);
}

#endif
