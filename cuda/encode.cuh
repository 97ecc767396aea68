/* SPDX-License-Identifier: Apache-2.0
 * encode.cuh - encodes x and prev to a payload and the new prev: a block takes tiles in turn, and a
 * thread DW_SLOTS eights of each, in one pass.
 *
 * Source: docs/format.md, 3 to 5. The specification is src/kernels/kernels_c.c. */
#ifndef DW_CUDA_ENCODE_CUH
#define DW_CUDA_ENCODE_CUH

#include "arithmetic/mx.h"
#include "dither.cuh"
#include "rotate.cuh"
#include "scales.cuh"
#include "weigh.cuh"

/* ---- Codes ----------------------------------------------------------------------------------- */

/* Writes one plane of eight codes: of the first four in `low`, of the others in `high`. */
DW_DEVICE void dw_put_plane(uint32_t low, uint32_t high, uint32_t width, uint8_t *to)
{
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
}

/* Joins four codes of `bits` bits each. If bits is a constant, every code takes one instruction. */
DW_DEVICE uint32_t dw_join_codes(const uint32_t *codes, uint32_t bits)
{
    return codes[0] + (codes[1] << bits) + (codes[2] << 2 * bits) + (codes[3] << 3 * bits);
}

/* Writes eight codes to the planes of a tile with `elements` elements, starting at element
 * `first`. */
DW_DEVICE void dw_put_codes(const uint32_t codes[DW_EIGHT], uint32_t bits, uint8_t *tile,
                            uint32_t elements, uint32_t first)
{
    if (dw_plane_width(bits, 0) == bits) { /* the codes as they are */
        uint32_t low, high;
        if (bits == 4)
            low = dw_join_codes(codes, 4), high = dw_join_codes(codes + 4, 4);
        else if (bits == 2)
            low = dw_join_codes(codes, 2), high = dw_join_codes(codes + 4, 2);
        else
            low = dw_join_codes(codes, bits), high = dw_join_codes(codes + 4, bits);
        dw_put_plane(low, high, bits, tile + first / 8 * bits);
        return;
    }
    for (uint32_t from = 0; from < bits;) {
        uint32_t width = dw_plane_width(bits, from), mask = (1u << width) - 1u, low = 0, high = 0;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            low |= (codes[i] >> from & mask) << (width * i);
            high |= (codes[4 + i] >> from & mask) << (width * i);
        }
        dw_put_plane(low, high, width, tile + elements / 8 * from + first / 8 * width);
        from += width;
    }
}

typedef struct dw_encoding {
    dw_eight delta, base;
    uint32_t codes[DW_EIGHT], next[DW_EIGHT];
} dw_encoding;

/* Step 6 of the encoder for an element that has a scale, two bits or more. As dw_code_of, but
 * without conversions between floats and integers, which run at half the speed or less on a GPU. */
DW_DEVICE int32_t dw_level_of(float delta, float inverse, int32_t half, float dither)
{
    float scaled = delta * inverse;
    int32_t level = (int32_t)(dw_bits_of((scaled + dither) + DW_MAGIC) - DW_MAGIC_BITS);
    return min(max(level, -half), half - 1);
}

/* Computes the code of element i of an eight and returns its level. */
DW_DEVICE float dw_encode_code(dw_encoding *e, uint32_t i, float inverse, uint32_t bits,
                               float dither)
{
    int32_t half = 1 << (bits - 1), level = 0;
    if (bits == 1) {
        e->codes[i] =
            (uint32_t)(inverse == 0.0f ? half : dw_code_of(e->delta.of[i], inverse, half, dither));
        return e->codes[i] ? 1.0f : -1.0f;
    }
    if (inverse != 0.0f) level = dw_level_of(e->delta.of[i], inverse, half, dither);
    e->codes[i] = (uint32_t)(level + half);
    return dw_float_of_level(level);
}

/* Computes the code and the new prev of element i of an eight. chosen: the choice for its piece. */
DW_DEVICE void dw_encode_one(dw_encoding *e, uint32_t i, uint32_t chosen, float inverse,
                             uint32_t bits, float dither, dw_dtype prev_dtype)
{
    uint16_t scale = dw_scale_in(chosen);
    float base = dw_is_direct(chosen) ? 0.0f : e->base.of[i],
          level = dw_encode_code(e, i, inverse, bits, dither);
    float value = base + level * dw_bf16_widen(scale);
    e->next[i] = dw_narrow(dw_scale_is_poisoned(scale) ? e->base.of[i] : value, prev_dtype);
}

/* The dithers of stochastic rounding; zeros for nearest rounding. */
DW_DEVICE dw_eight dw_rounding_dithers(const dw_encode_job *job, const dw_place *place)
{
    const dw_eight none = {{0}};
    return job->rule.is_stochastic ? dw_dithers(job->rule.dither_key, place->dense, place->n)
                                   : none;
}

/* As dw_encode_one, for the eight elements of a piece that has a scale, with two bits or more.
 * Levels are the last places of floats around DW_MAGIC, which are clamped and decoded as floats. */
DW_DEVICE void dw_encode_scaled(const dw_encode_job *job, const dw_place *place, dw_encoding *e,
                                uint32_t chosen, float inverse, dw_dtype prev_dtype)
{
    uint32_t bits = job->layout.bits;
    float scaled[DW_EIGHT];
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) scaled[i] = e->delta.of[i] * inverse;
    if (job->rule.is_stochastic) {
        dw_eight dithers = dw_dithers(job->rule.dither_key, place->dense, place->n);
#pragma unroll
        for (uint32_t i = 0; i < DW_EIGHT; i++) scaled[i] += dithers.of[i];
    }
    float half = dw_float_of_level(1 << (bits - 1)), scale = dw_bf16_widen(dw_scale_in(chosen)),
          least = DW_MAGIC - half, most = DW_MAGIC + (half - 1.0f), values[DW_EIGHT];
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) {
        float level = dw_clamp(scaled[i] + DW_MAGIC, least, most),
              base = dw_is_direct(chosen) ? 0.0f : e->base.of[i];
        e->codes[i] = dw_bits_of(level) - dw_bits_of(least);
        values[i] = base + (level - DW_MAGIC) * scale;
    }
    dw_narrow_eight(values, prev_dtype, e->next);
}

DW_DEVICE void dw_encode_eight(const dw_encode_job *job, const dw_place *place, dw_encoding *e,
                               uint32_t chosen, dw_dtype prev_dtype)
{
    uint32_t bits = job->layout.bits;
    float inverse = dw_scale_inverse(dw_scale_in(chosen));
    if (inverse != 0.0f && bits > 1) {
        dw_encode_scaled(job, place, e, chosen, inverse, prev_dtype);
        return;
    }
    dw_eight dithers = dw_rounding_dithers(job, place);
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++)
        dw_encode_one(e, i, chosen, inverse, bits, dithers.of[i], prev_dtype);
}

/* ---- A tile ---------------------------------------------------------------------------------- */

/* A thread's part of a tile. */
typedef struct dw_eights {
    dw_place place[DW_SLOTS];
    dw_eight x[DW_SLOTS];
    dw_encoding e[DW_SLOTS];
    /* With a rotation or a profile: prev, or the means; the base of each e is 0 then. */
    dw_eight held[DW_SLOTS];
    uint32_t lists[DW_SLOTS]; /* with a profile: which list of means an eight takes */
} dw_eights;

/* Rotates the deltas of a thread's eights, or divides them by weights, and sets their bases aside,
 * because the form codes such values as if there were no prev. MayWeigh: the form is step, which
 * alone has profiles. */
template <bool MayWeigh>
DW_DEVICE void dw_rotate_deltas(const dw_encode_job *job, dw_dtype x_dtype, dw_eights *all)
{
    const dw_layout *layout = &job->layout;
#pragma unroll
    for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
        dw_encoding *e = &all->e[slot];
        all->lists[slot] = 0;
        if (MayWeigh && layout->weighs)
            all->lists[slot] =
                dw_weigh_eight(job, &all->place[slot], x_dtype, &e->delta, &e->base, &all->x[slot]);
        else
            dw_rotate_eight(&e->delta, layout->rotates);
        all->held[slot] = e->base;
#pragma unroll
        for (uint32_t i = 0; i < DW_EIGHT; i++) e->base.of[i] = 0.0f;
    }
}

/* Makes the new prev of an eight from what its form decodes of a rotated block, which is binary32
 * in e->next. poisoned: whether its piece is. */
DW_DEVICE void dw_unrotate_encoded(const dw_encode_job *job, dw_encoding *e, const dw_eight *held,
                                   dw_dtype prev_dtype, bool poisoned)
{
    if (job->next)
        dw_unrotate_eight(e->next, held, job->layout.rotates, prev_dtype, true, &poisoned);
}

/* Decides scale and choice for the pieces of a thread's eights. Where a choice is direct, deltas
 * become x. */
template <int Variant>
DW_DEVICE void dw_decide(const dw_cuda_encode_part *part, const dw_tile *tile, uint64_t index,
                         dw_encode_room *room, dw_search_room *search, dw_eights *all,
                         uint32_t chosen[DW_SLOTS])
{
    const dw_encode_job *job = &part->job;
    const dw_layout *layout = &job->layout;
    dw_extremes delta[DW_SLOTS], direct[DW_SLOTS];
    dw_searched searched[DW_SLOTS];
    if (!layout->cut_rows) {
#pragma unroll
        for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
            delta[slot] = dw_extremes_of(&all->e[slot].delta);
            direct[slot] = dw_extremes_of(&all->x[slot]);
        }
        dw_join_pieces(room, layout, delta, all->place, 0);
        if (layout->chooses) dw_join_pieces(room, layout, direct, all->place, 1);
    }
#pragma unroll
    for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
        dw_extremes extremes = {0, 0};
        if (layout->cut_rows) {
            chosen[slot] = part->share.chosen[index];
        } else {
            bool is_direct = layout->chooses && dw_is_direct_better(direct[slot], delta[slot]);
            extremes = is_direct ? direct[slot] : delta[slot];
            chosen[slot] = dw_scale_of(extremes, layout->bits, job->rule.scale != DW_SCALE_ABSMAX) |
                           (is_direct ? 0x10000u : 0);
        }
        if (layout->chooses) {
#pragma unroll
            for (uint32_t i = 0; i < DW_EIGHT; i++)
                if (dw_is_direct(chosen[slot])) all->e[slot].delta.of[i] = all->x[slot].of[i];
        }
        searched[slot].deltas = &all->e[slot].delta;
        searched[slot].extremes = extremes;
        searched[slot].chosen = chosen[slot];
    }
    if (Variant != DW_SEARCHES && Variant != DW_SEARCHES_ROTATED) return;
    dw_search(search, layout, all->place, tile->segments, searched);
#pragma unroll
    for (uint32_t slot = 0; slot < DW_SLOTS; slot++) chosen[slot] = searched[slot].chosen;
}

/* Clears the padding behind scales and codes. A room for escaped values is not cleared. */
DW_DEVICE void dw_pad_tile(const dw_layout *layout, const dw_tile *tile, dw_encode_room *room)
{
    uint32_t scales_end = layout->by_channel ? 0 : layout->scale_size * tile->segments,
             codes = (uint32_t)(tile->codes - tile->offset);
    uint32_t codes_end = codes + tile->elements / 8 * layout->bits,
             end = (uint32_t)(tile->escapes - tile->offset);
    if (threadIdx.x < 16 && scales_end + threadIdx.x < codes)
        room->staged[scales_end + threadIdx.x] = 0;
    if (threadIdx.x < 16 && codes_end + threadIdx.x < end)
        room->staged[codes_end + threadIdx.x] = 0;
}

/* The first eight of every piece stores its scale and its choice, and counts the piece. */
DW_DEVICE void dw_note_piece(const dw_cuda_encode_part *part, const dw_tile *tile,
                             const dw_place *place, uint32_t chosen, dw_encode_room *room,
                             dw_found *found)
{
    if (!place->stored || !place->leads) return;
    *(uint16_t *)(room->staged + 2 * place->segment) = dw_scale_in(chosen);
    if (dw_is_direct(chosen) && !part->share.chosen)
        atomicOr(&room->choices[place->segment / 32], 1u << place->segment % 32);
    if (part->share.chosen) part->share.chosen[tile->first_segment + place->segment] = chosen;
    dw_count(found, chosen);
}

/* Encodes with a scale per channel: the scales are decided already, and every element has its
 * own. */
DW_DEVICE void dw_encode_columns(const dw_cuda_encode_part *part, const dw_place *place,
                                 const dw_eight *x, dw_dtype prev_dtype, dw_encoding *e)
{
    const dw_eight dithers = dw_rounding_dithers(&part->job, place);
    const dw_layout *layout = &part->job.layout;
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) {
        uint32_t chosen = i < place->n ? part->share.chosen[place->column + i] : 0;
        if (dw_is_direct(chosen)) e->delta.of[i] = x->of[i];
        dw_encode_one(e, i, chosen, dw_scale_inverse(dw_scale_in(chosen)), layout->bits,
                      dithers.of[i], prev_dtype);
    }
}

/* Copies the staged bytes to the payload, sixteen at a time. Returns the digest of those that this
 * thread copied. */
DW_DEVICE uint64_t dw_put_tile(const dw_encode_job *job, const dw_tile *tile,
                               const dw_encode_room *room)
{
    uint64_t sum = 0;
    for (uint32_t at = 16 * threadIdx.x; at < tile->bytes; at += 16 * DW_CUDA_THREADS) {
        dw_sixteen all = *(const dw_sixteen *)(room->staged + at);
        dw_payload_store(job->payload + tile->offset + at, all);
        sum += dw_digest_sixteen(all, tile->offset + at);
    }
    return sum;
}

/* Writes the choice bits of a tile that has whole bytes of them; the last tile also clears their
 * padding. */
DW_DEVICE void dw_put_choices(const dw_encode_job *job, const dw_tile *tile, uint64_t index,
                              const dw_encode_room *room)
{
    const dw_layout *layout = &job->layout;
    uint64_t first = tile->first_segment / 8, end = first + (tile->segments + 7) / 8;
    uint64_t last = index + 1 == layout->tiles ? layout->choice_bytes : end;
    for (uint64_t at = first + threadIdx.x; at < last; at += DW_CUDA_THREADS) {
        uint32_t i = (uint32_t)(at - first);
        job->payload[at] = at < end ? (uint8_t)(room->choices[i / 4] >> (8 * (i % 4))) : 0;
    }
}

/* Collects choice bits where a byte has bits of several blocks' pieces. */
DW_DEVICE void dw_gather_choices(const dw_cuda_encode_part *part)
{
    const dw_layout *layout = &part->job.layout;
    for (uint64_t at = threadIdx.x;
         layout->chooses && part->share.chosen && at < layout->choice_bytes;
         at += DW_CUDA_THREADS) {
        uint32_t byte = 0;
        for (uint32_t i = 0; i < 8; i++) {
            uint64_t piece = 8 * at + i;
            if (piece < layout->pieces && dw_is_direct(__ldcg(part->share.chosen + piece)))
                byte |= 1u << i;
        }
        part->job.payload[at] = (uint8_t)byte;
    }
    __threadfence();
    __syncthreads();
}

DW_DEVICE void dw_end_encode(const dw_cuda_encode_part *part, const dw_found *found,
                             dw_encode_room *room)
{
    dw_add_block(part->share.sums, found, &room->found);
    if (!dw_is_last(&part->share, &room->is_last)) return;
    dw_gather_choices(part);
    uint64_t front =
        dw_block_sum(dw_front_sum(&part->job.layout, part->job.payload), room->found.sums[0]);
    if (threadIdx.x == 0) dw_report_tiles(&part->share, front);
}

/* Finds the eights of a thread and loads x, prev as their base, and the deltas x - prev. index: the
 * number of the tile. */
template <bool Whole>
DW_DEVICE void dw_load_eights(const dw_encode_job *job, const dw_tile *tile, uint64_t index,
                              dw_dtype x_dtype, dw_dtype prev_dtype, const dw_prefetch *prefetch,
                              dw_eights *all)
{
    dw_eight base[DW_SLOTS];
    dw_find_places<Whole>(&job->layout, tile, index, job->stride, all->place);
    dw_load_two<Whole>(job->x, x_dtype, job->prev, prev_dtype, all->place, prefetch, all->x, base);
#pragma unroll
    for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
        all->e[slot].base = base[slot];
#pragma unroll
        for (uint32_t i = 0; i < DW_EIGHT; i++)
            all->e[slot].delta.of[i] = dw_minus(all->x[slot].of[i], base[slot].of[i]);
    }
}

/* Counts the values of x that overflow in prev. */
DW_DEVICE void dw_count_overflows(const dw_encode_job *job, dw_dtype x_dtype, dw_dtype prev_dtype,
                                  const dw_eights *all, dw_found *found)
{
    const dw_dtype to = dw_narrows_to(x_dtype, prev_dtype, (dw_dtype)0);
    if (to == DW_F32 || dw_kept_dtype(job, prev_dtype) == DW_F32) return;
#pragma unroll
    for (uint32_t slot = 0; slot < DW_SLOTS; slot++)
#pragma unroll
        for (uint32_t i = 0; i < DW_EIGHT; i++)
            found->overflowed += dw_overflows(all->x[slot].of[i], to == DW_F16);
}

/* Returns a mask of the elements of an eight whose channels are poisoned. */
DW_DEVICE uint32_t dw_poisoned_columns(const dw_cuda_encode_part *part, const dw_place *place)
{
    uint32_t mask = 0;
    for (uint32_t i = 0; i < place->n; i++)
        if (dw_scale_is_poisoned(dw_scale_in(part->share.chosen[place->column + i])))
            mask |= 1u << i;
    return mask;
}

/* Whether the scale of a segment in the staged tile says that it is poisoned. */
DW_DEVICE bool dw_poisoned_segment(const dw_layout *layout, const dw_encode_room *room,
                                   uint32_t segment)
{
    return layout->scale_size == 1
               ? room->staged[segment] == DW_MX_POISONED
               : dw_scale_is_poisoned(*(const uint16_t *)(room->staged + 2 * segment));
}

/* Returns a mask of the poisoned elements of an eight, from the scales in the staged tile.
 * of_sample: the step of the sample, if it has one for all. */
DW_DEVICE uint32_t dw_poisoned_eight(const dw_cuda_encode_part *part, const dw_place *place,
                                     const dw_encode_room *room, uint16_t of_sample)
{
    const dw_layout *layout = &part->job.layout;
    if (layout->by_channel) return dw_poisoned_columns(part, place);
    if (layout->by_sample) return dw_scale_is_poisoned(of_sample) ? DW_WHOLE_EIGHT : 0;
    /* A rotated block may have several segments. Then each of them poisons all others. */
    uint32_t width = layout->segment_channels,
             shared = layout->rotates > width ? layout->rotates / width : 1,
             first = place->segment / shared * shared;
    for (uint32_t i = first; i < first + shared; i++)
        if (dw_poisoned_segment(layout, room, i)) return DW_WHOLE_EIGHT;
    return 0;
}

/* Completes the residuals of a thread's eights, in which next is prev + y so far. It loads what it
 * needs again, so that encodes without feedback need no registers for it. */
DW_DEVICE void dw_keep_residuals(const dw_cuda_encode_part *part, const dw_tile *tile,
                                 const dw_encode_room *room, uint16_t of_sample)
{
    const dw_encode_job *job = &part->job;
#pragma unroll 1
    for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
        dw_place place = dw_place_of(&job->layout, tile, job->stride, slot);
        if (!place.n) continue;
        uint32_t next[DW_EIGHT], poisoned = dw_poisoned_eight(part, &place, room, of_sample);
        dw_eight x = dw_load_eight(job->x, job->x_dtype, place.tensor, place.n);
        dw_load_eight_bits(job->next, DW_F32, place.dense, place.n, next);
#pragma unroll
        for (uint32_t i = 0; i < DW_EIGHT; i++)
            if (!(poisoned >> i & 1))
                next[i] = dw_bits_of(dw_residual_of(dw_float_of(next[i]), x.of[i]));
        dw_store_eight(job->next, DW_F32, place.dense, place.n, next, false);
    }
}

/* Writes the codes of an eight to the staged tile and its new prev to memory. Returns its part of
 * the state digest. */
DW_DEVICE uint64_t dw_store_encoded(const dw_encode_job *job, const dw_tile *tile,
                                    const dw_place *place, const dw_encoding *e,
                                    dw_dtype prev_dtype, dw_encode_room *room)
{
    const dw_layout *layout = &job->layout;
    if (place->stored)
        dw_put_codes(e->codes, layout->bits, room->staged + (tile->codes - tile->offset),
                     tile->elements, place->first);
    if (!job->next || !place->n) return 0;
    dw_store_eight(job->next, prev_dtype, place->dense, place->n, e->next, place->is_whole);
    if (!job->audit.every || layout->c % 4 != 0) return 0;
    return dw_audit_eight(job->audit, e->next, prev_dtype, place->dense, place->n);
}

template <int Variant, bool Whole>
DW_DEVICE void dw_encode_tile(const dw_cuda_encode_part *part, uint64_t index, dw_dtype x_dtype,
                              dw_dtype prev_dtype, dw_encode_room *room, dw_search_room *search,
                              const dw_prefetch *prefetch, dw_found *found)
{
    uint32_t chosen[DW_SLOTS];
    const bool rotates = Variant == DW_ROTATED || Variant == DW_SEARCHES_ROTATED;
    const dw_encode_job *job = &part->job;
    const dw_layout *layout = &job->layout;
    dw_tile tile = dw_tile_of<Whole>(layout, index);
    dw_eights all;
    dw_load_eights<Whole>(job, &tile, index, x_dtype, prev_dtype, prefetch, &all);
    dw_count_overflows(job, x_dtype, prev_dtype, &all, found);
    if (rotates) dw_rotate_deltas<false>(job, x_dtype, &all);
    if (threadIdx.x < DW_MOST_PIECES / 32) room->choices[threadIdx.x] = 0;
    dw_pad_tile(layout, &tile, room);
    __syncthreads();
    if (Variant != DW_BY_COLUMNS)
        dw_decide<Variant>(part, &tile, index, room, search, &all, chosen);
#pragma unroll
    for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
        dw_encoding *e = &all.e[slot];
        if (Variant == DW_BY_COLUMNS) {
            dw_encode_columns(part, &all.place[slot], &all.x[slot], prev_dtype, e);
        } else {
            dw_note_piece(part, &tile, &all.place[slot], chosen[slot], room, found);
            dw_encode_eight(job, &all.place[slot], e, chosen[slot], rotates ? DW_F32 : prev_dtype);
            if (rotates)
                dw_unrotate_encoded(job, e, &all.held[slot], prev_dtype,
                                    dw_scale_is_poisoned(dw_scale_in(chosen[slot])));
        }
        found->state += dw_store_encoded(job, &tile, &all.place[slot], e, prev_dtype, room);
    }
    __syncthreads();
    found->payload += dw_put_tile(job, &tile, room);
    if (Variant != DW_BY_COLUMNS && layout->chooses && !part->share.chosen)
        dw_put_choices(job, &tile, index, room);
    if (prev_dtype == DW_F32 && job->keeps_residual) dw_keep_residuals(part, &tile, room, 0);
}

/* Encodes the tiles of a block, each with encode(part, index, x_dtype, prev_dtype, prefetch, found,
 * whole), where whole.value says whether the tile is whole. memory: that of dw_prefetch, or NULL.
 * XType, PrevType: the dtypes of x and prev; 0: the job says which. */
template <int XType, int PrevType, typename Encode>
DW_DEVICE void dw_for_tiles(const dw_cuda_encode_part *parts, uint32_t n, dw_encode_room *room,
                            dw_sixteen *memory, Encode encode)
{
    uint64_t index;
    dw_found found = {0};
    const dw_cuda_encode_part *part = dw_load_part(parts, n, DW_CUDA_TILES, &room->part, &index);
    const dw_encode_job *job = &part->job;
    const dw_dtype x_dtype = XType ? (dw_dtype)XType : job->x_dtype,
                   prev_dtype = PrevType ? (dw_dtype)PrevType : job->prev_dtype;
    const uint64_t whole =
        dw_whole_tiles(&part->share, &job->layout, job->stride, job->x, job->prev, job->next);
    const uint64_t blocks = part->share.blocks[DW_CUDA_TILES];
    dw_prefetch prefetch = {memory, DW_NO_TILE};
    if (XType && index < whole) dw_prefetch_two(&prefetch, job->x, job->prev, index);
    for (; index < job->layout.tiles; index += blocks) {
        prefetch.next = index + blocks < whole ? index + blocks : DW_NO_TILE;
        if (XType && index < whole)
            encode(part, index, x_dtype, prev_dtype, &prefetch, &found, dw_constant<XType != 0>());
        else
            encode(part, index, x_dtype, prev_dtype, &prefetch, &found, dw_constant<false>());
        __syncthreads(); /* the next tile is staged in the same place */
    }
    dw_end_encode(part, &found, room);
}

template <int XType, int PrevType, int Variant>
DW_DEVICE void dw_encode_tiles(const dw_cuda_encode_part *parts, uint32_t n, dw_encode_room *room,
                               dw_sixteen *memory, dw_search_room *search)
{
    dw_for_tiles<XType, PrevType>(
        parts, n, room, memory,
        [&](const dw_cuda_encode_part *part, uint64_t index, dw_dtype x, dw_dtype prev,
            const dw_prefetch *prefetch, dw_found *found, auto whole) {
            dw_encode_tile<Variant, whole.value>(part, index, x, prev, room, search, prefetch,
                                                 found);
        });
}

#endif
