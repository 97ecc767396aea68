/* SPDX-License-Identifier: Apache-2.0
 * copies.cuh - expands compact copies of prev, and makes copies compact: a block takes stretches of
 * 2048 elements in turn, and a thread DW_SLOTS eights of each. Two neighbouring lanes have a group.
 *
 * Source: docs/format.md, 5. The specification is src/kernels/kernels_compact_c.h. */
#ifndef DW_CUDA_COPIES_CUH
#define DW_CUDA_COPIES_CUH

#include "arithmetic/compact.h"
#include "decode.cuh"
#include "encode.cuh"

/* An eight of a copy. n: how many of its elements exist; the last group of a copy may have eights
 * without any. */
typedef struct dw_copy_eight {
    uint64_t number;
    uint32_t n;
} dw_copy_eight;

DW_DEVICE dw_copy_eight dw_copy_eight_of(const dw_copies *copies, uint64_t stretch, uint32_t slot)
{
    dw_copy_eight eight;
    eight.number = stretch * (DW_TILE_ELEMENTS / DW_EIGHT) + slot * DW_CUDA_THREADS + threadIdx.x;
    uint64_t first = eight.number * DW_EIGHT,
             left = first < copies->elements ? copies->elements - first : 0;
    eight.n = left < DW_EIGHT ? (uint32_t)left : (uint32_t)DW_EIGHT;
    return eight;
}

DW_DEVICE uint64_t dw_stretches_of(const dw_copies *copies)
{
    return (copies->elements + DW_TILE_ELEMENTS - 1) / DW_TILE_ELEMENTS;
}

/* The scales of a copy begin behind its codes. */
DW_DEVICE uint64_t dw_scales_at(const dw_copies *copies)
{
    return dw_compact_codes_bytes(copies->bits, dw_compact_groups(copies->elements));
}

template <uint32_t Bits>
DW_DEVICE void dw_expand_eight(const dw_copies *copies, const dw_copy_eight *eight)
{
    const uint8_t *held = (const uint8_t *)copies->held;
    uint32_t codes[DW_EIGHT], elements[DW_EIGHT];
    float unit = dw_compact_unit(held[dw_scales_at(copies) + eight->number / 2], Bits);
    dw_get_codes(held + eight->number * Bits, Bits, 0, 0, codes);
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++)
        elements[i] = dw_compact_element((int32_t)codes[i], unit, Bits);
    dw_store_eight(copies->base, DW_BF16, eight->number * DW_EIGHT, eight->n, elements, false);
}

/* All lanes of a warp must take part, because the two of a group exchange their largest elements.
 */
template <uint32_t Bits>
DW_DEVICE void dw_compact_eight(const dw_copies *copies, const dw_copy_eight *eight)
{
    uint8_t *fresh = (uint8_t *)copies->fresh;
    uint64_t groups = dw_compact_groups(copies->elements);
    uint32_t elements[DW_EIGHT], codes[DW_EIGHT], largest = 0;
    dw_load_eight_bits(copies->made, DW_BF16, eight->number * DW_EIGHT, eight->n, elements);
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) largest = max(largest, elements[i] & 0x7fffu);
    largest = max(largest, __shfl_xor_sync(DW_ALL_LANES, largest, 1));
    uint32_t scale = dw_compact_scale(largest, Bits);
    float inverse = dw_compact_inverse(scale, Bits);
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) codes[i] = dw_compact_code(elements[i], inverse, Bits);
    if (eight->number / 2 >= groups) return;
    dw_put_codes(codes, Bits, fresh + eight->number * Bits, 0, 0);
    if (eight->number % 2 == 0) fresh[dw_scales_at(copies) + eight->number / 2] = (uint8_t)scale;
}

/* The kernels of phase EXPAND. */
template <typename Part> DW_DEVICE void dw_expand_copy(const Part *parts, uint32_t n)
{
    uint64_t index;
    const Part *part = parts + dw_find_part(parts, n, DW_CUDA_EXPAND, &index);
    const dw_copies copies = part->job.copies;
    if (!copies.held) return;
    for (; index < dw_stretches_of(&copies); index += part->share.blocks[DW_CUDA_EXPAND]) {
#pragma unroll
        for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
            dw_copy_eight eight = dw_copy_eight_of(&copies, index, slot);
            if (eight.n && copies.bits == 8)
                dw_expand_eight<8>(&copies, &eight);
            else if (eight.n)
                dw_expand_eight<4>(&copies, &eight);
        }
    }
}

/* What the kernels of phase COMPACT do before they end their part, which they return. */
template <typename Part> DW_DEVICE const Part *dw_compact_copy(const Part *parts, uint32_t n)
{
    uint64_t index;
    const Part *part = parts + dw_find_part(parts, n, DW_CUDA_COMPACT, &index);
    const dw_copies copies = part->job.copies;
    for (; copies.fresh && index < dw_stretches_of(&copies);
         index += part->share.blocks[DW_CUDA_COMPACT]) {
#pragma unroll
        for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
            dw_copy_eight eight = dw_copy_eight_of(&copies, index, slot);
            if (copies.bits == 8)
                dw_compact_eight<8>(&copies, &eight);
            else
                dw_compact_eight<4>(&copies, &eight);
        }
    }
    return part;
}

#endif
