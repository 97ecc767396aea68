/* SPDX-License-Identifier: Apache-2.0
 * mx.cuh - microscaling, encode and decode: a thread block takes tiles of 64 blocks of 32 elements
 * in turn, with four threads for each of these blocks.
 *
 * Source: docs/format.md, 3.3 and 5. Loads, places, codes and digests are those of the quantized
 * form. */
#ifndef DW_CUDA_MX_CUH
#define DW_CUDA_MX_CUH

#include "arithmetic/mx.h"
#include "decode.cuh"
#include "encode.cuh"

/* The first eight of every block of 32 stores its scale and its choice, and counts the block. */
DW_DEVICE void dw_mx_note(const dw_place *place, uint32_t scale, bool direct, bool zero,
                          dw_encode_room *room, dw_found *found)
{
    if (!place->stored || !place->leads) return;
    room->staged[place->segment] = (uint8_t)scale;
    if (direct) atomicOr(&room->choices[place->segment / 32], 1u << place->segment % 32);
    found->direct += direct ? 1u : 0;
    found->zero += zero ? 1u : 0;
    found->poisoned += scale == DW_MX_POISONED ? 1u : 0;
}

/* Computes codes and new prev of eight elements of one block. */
DW_DEVICE void dw_mx_encode_eight(dw_encoding *e, dw_element element, dw_element_facts facts,
                                  uint32_t scale, bool direct, dw_dtype prev_dtype)
{
    bool poisoned = scale == DW_MX_POISONED;
    float inverse = poisoned ? 0.0f : dw_mx_inverse(scale),
          power = poisoned ? 0.0f : dw_mx_power(scale);
    float values[DW_EIGHT];
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) {
        float base = direct ? 0.0f : e->base.of[i];
        e->codes[i] = poisoned ? 0 : dw_mx_code_of(e->delta.of[i], inverse, facts, element);
        values[i] = base + dw_mx_value_of((uint8_t)e->codes[i], facts, element) * power;
    }
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++)
        if (poisoned) values[i] = e->base.of[i];
    dw_narrow_eight(values, prev_dtype, e->next);
}

/* Rotates: whether the layout rotates blocks of channels. */
template <bool Rotates, bool Whole>
DW_DEVICE void dw_mx_encode_tile(const dw_cuda_encode_part *part, uint64_t index, dw_dtype x_dtype,
                                 dw_dtype prev_dtype, dw_encode_room *room,
                                 const dw_prefetch *prefetch, dw_found *found)
{
    const dw_encode_job *job = &part->job;
    const dw_layout *layout = &job->layout;
    const dw_element element = (dw_element)layout->element;
    dw_element_facts facts = dw_element_facts_of(element);
    dw_tile tile = dw_tile_of<Whole>(layout, index);
    dw_eights all;
    dw_load_eights<Whole>(job, &tile, index, x_dtype, prev_dtype, prefetch, &all);
    dw_count_overflows(job, x_dtype, prev_dtype, &all, found);
    if (Rotates) dw_rotate_deltas<false>(job, x_dtype, &all);
    if (threadIdx.x < DW_MOST_PIECES / 32) room->choices[threadIdx.x] = 0;
    dw_pad_tile(layout, &tile, room);
    __syncthreads();
    dw_extremes delta[DW_SLOTS], direct[DW_SLOTS];
#pragma unroll
    for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
        delta[slot] = dw_extremes_of(&all.e[slot].delta);
        direct[slot] = dw_extremes_of(&all.x[slot]);
    }
    dw_join_pieces(room, layout, delta, all.place, 0);
    if (layout->chooses) dw_join_pieces(room, layout, direct, all.place, 1);
#pragma unroll
    for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
        dw_encoding *e = &all.e[slot];
        bool is_direct = layout->chooses && dw_is_direct_better(direct[slot], delta[slot]);
        uint32_t largest = dw_extremes_largest(is_direct ? direct[slot] : delta[slot]),
                 scale = dw_mx_scale_of(largest, facts.top);
#pragma unroll
        for (uint32_t i = 0; i < DW_EIGHT; i++)
            if (is_direct) e->delta.of[i] = all.x[slot].of[i];
        dw_mx_note(&all.place[slot], scale, is_direct, largest == 0, room, found);
        dw_mx_encode_eight(e, element, facts, scale, is_direct, Rotates ? DW_F32 : prev_dtype);
        if (Rotates)
            dw_unrotate_encoded(job, e, &all.held[slot], prev_dtype, scale == DW_MX_POISONED);
        found->state += dw_store_encoded(job, &tile, &all.place[slot], e, prev_dtype, room);
    }
    __syncthreads();
    found->payload += dw_put_tile(job, &tile, room);
    if (layout->chooses) dw_put_choices(job, &tile, index, room);
    if (prev_dtype == DW_F32 && job->keeps_residual) dw_keep_residuals(part, &tile, room, 0);
}

/* XType, PrevType: the dtypes of x and prev; 0: the job says which. */
template <int XType, int PrevType, bool Rotates>
DW_DEVICE void dw_mx_encode_tiles(const dw_cuda_encode_part *parts, uint32_t n,
                                  dw_encode_room *room, dw_sixteen *memory)
{
    dw_for_tiles<XType, PrevType>(
        parts, n, room, memory,
        [&](const dw_cuda_encode_part *part, uint64_t index, dw_dtype x, dw_dtype prev,
            const dw_prefetch *prefetch, dw_found *found, auto whole) {
            dw_mx_encode_tile<Rotates, whole.value>(part, index, x, prev, room, prefetch, found);
        });
}

/* Computes the new prev of eight elements, or y, as bits; like dw_reconstruct_eight. */
DW_DEVICE uint32_t dw_mx_reconstruct_eight(const dw_cuda_decode_part *part, const dw_tile *tile,
                                           const dw_place *place, const dw_eight *held,
                                           dw_dtype dtype, bool keeps, const dw_decode_room *room,
                                           uint32_t out[DW_EIGHT])
{
    const dw_decode_job *job = &part->job;
    const dw_element element = (dw_element)job->layout.element;
    dw_element_facts facts = dw_element_facts_of(element);
    uint64_t piece = tile->first_segment + place->segment;
    uint32_t codes[DW_EIGHT], scale = room->staged[place->segment];
    bool poisoned = scale == DW_MX_POISONED,
         direct = job->layout.chooses && (job->payload[piece / 8] >> piece % 8 & 1);
    float power = poisoned ? 0.0f : dw_mx_power(scale);
    dw_get_codes(room->staged + (tile->codes - tile->offset), facts.bits, tile->elements,
                 place->first, codes);
    dw_eight values;
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) {
        float base = direct ? 0.0f : held->of[i];
        values.of[i] = base + dw_mx_value_of((uint8_t)codes[i], facts, element) * power;
    }
    return dw_narrow_piece(&values, held, poisoned, keeps, dtype, out);
}

/* Decodes an eight and stores it. Returns its part of the state digest. */
template <bool HasState, bool Rotates>
DW_DEVICE uint64_t dw_mx_store_decoded(const dw_cuda_decode_part *part, const dw_tile *tile,
                                       const dw_place *place, const dw_eight *held, dw_dtype dtype,
                                       const dw_decode_room *room)
{
    return dw_store_reconstructed<HasState, Rotates>(
        &part->job, place, held, dtype,
        [&](const dw_eight *base, dw_dtype made, bool keeps, uint32_t *bits) {
            return dw_mx_reconstruct_eight(part, tile, place, base, made, keeps, room, bits);
        });
}

/* Rotates: whether the layout rotates blocks of channels. A decoder counts blocks of scale 0 as
 * zero. */
template <bool HasState, bool Rotates, bool Whole>
DW_DEVICE void dw_mx_decode_tile(const dw_cuda_decode_part *part, uint64_t index, dw_dtype dtype,
                                 dw_decode_room *room, const dw_prefetch *prefetch, dw_found *found)
{
    const dw_decode_job *job = &part->job;
    const dw_layout *layout = &job->layout;
    dw_tile tile = dw_tile_of<Whole>(layout, index);
    dw_held_eights all;
    dw_load_held<HasState, Whole>(job, &tile, index, dtype, prefetch, &all);
    found->payload += dw_take_tile<Whole>(job, &tile, prefetch, room);
    __syncthreads();
#pragma unroll
    for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
        const dw_place *place = &all.place[slot];
        if (place->stored && place->leads) {
            uint64_t piece = tile.first_segment + place->segment;
            uint32_t scale = room->staged[place->segment];
            if (layout->chooses) found->direct += job->payload[piece / 8] >> piece % 8 & 1;
            found->zero += scale == 0 ? 1u : 0;
            found->poisoned += scale == DW_MX_POISONED ? 1u : 0;
        }
        found->state += dw_mx_store_decoded<HasState, Rotates>(part, &tile, place, &all.held[slot],
                                                               dtype, room);
    }
}

/* Type: prev's dtype with state, y's dtype without; 0: the job says which. */
template <int Type, bool HasState, bool Rotates>
DW_DEVICE void dw_mx_decode_tiles(const dw_cuda_decode_part *parts, uint32_t n,
                                  dw_decode_room *room, dw_sixteen *memory)
{
    dw_for_decoded_tiles<Type, HasState>(
        parts, n, room, memory,
        [&](const dw_cuda_decode_part *part, uint64_t index, dw_dtype dtype,
            const dw_prefetch *prefetch, dw_found *found, auto whole) {
            dw_mx_decode_tile<HasState, Rotates, whole.value>(part, index, dtype, room, prefetch,
                                                              found);
        });
}

#endif
