/* SPDX-License-Identifier: Apache-2.0
 * load.cuh - loads what a thread processes, groups of eight neighbouring elements (an "eight"
 * each), from a tensor and from prev. Whole tiles of 16-bit numbers are prefetched: while a block
 * processes a tile, its next one is copied to shared memory.
 *
 * Every thread prefetches only what it uses itself, so it does not have to wait for others. Tiles
 * of f32 are not prefetched: each thread needs 32 bytes there, of which one copy takes 16, so the
 * copies of neighbouring threads do not touch, and an encode took 30 % longer. */
#ifndef DW_CUDA_LOAD_CUH
#define DW_CUDA_LOAD_CUH

#include "place.cuh"

/* ---- Prefetching ----------------------------------------------------------------------------- */

/* memory: in shared memory, DW_PREFETCH_SIXTEENS for each tensor; NULL: nothing is prefetched.
 * next: the number of the tile to prefetch, or DW_NO_TILE. */
typedef struct dw_prefetch {
    dw_sixteen *memory;
    uint64_t next;
} dw_prefetch;
#define DW_NO_TILE UINT64_MAX

/* The eights of one tile of 16-bit numbers: sixteen bytes in each slot of each thread. */
enum { DW_PREFETCH_SIXTEENS = DW_SLOTS * DW_CUDA_THREADS };

/* Starts to copy sixteen bytes to shared memory. They have arrived when dw_wait_for_copies returns
 * in the same thread. */
DW_DEVICE void dw_copy_async(void *to, const void *from)
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

DW_DEVICE void dw_wait_for_copies(void)
{
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_all;" : : : "memory");
#endif
}

/* Starts to copy this thread's eights of a tile. which: 0 for prev, 1 for the tensor. Does nothing
 * if the tensor is NULL, or the tile DW_NO_TILE. */
DW_DEVICE void dw_prefetch_eights(const dw_prefetch *prefetch, uint32_t which, const void *tensor,
                                  uint64_t tile)
{
    if (!prefetch->memory || !tensor || tile == DW_NO_TILE) return;
    const dw_sixteen *from = (const dw_sixteen *)tensor + tile * (DW_TILE_ELEMENTS / DW_EIGHT);
#pragma unroll
    for (uint32_t slot = 0; slot < DW_SLOTS; slot++) {
        uint32_t mine = slot * DW_CUDA_THREADS + threadIdx.x;
        dw_copy_async(prefetch->memory + which * DW_PREFETCH_SIXTEENS + mine, from + mine);
    }
}

/* The same for a tensor and prev. */
DW_DEVICE void dw_prefetch_two(const dw_prefetch *prefetch, const void *tensor, const void *prev,
                               uint64_t tile)
{
    dw_prefetch_eights(prefetch, 1, tensor, tile);
    dw_prefetch_eights(prefetch, 0, prev, tile);
}

/* ---- The eights of a thread ------------------------------------------------------------------ */

/* The bits of an eight of a whole tile; of 16-bit dtypes they fill one half. */
typedef struct dw_raw_eight {
    dw_sixteen half[2];
} dw_raw_eight;

/* Loads an eight of a whole tile: from shared memory if it was prefetched. The bits may be used
 * much later; the thread waits for them then. tensor: NULL gives zeros. at: the index of its first
 * element. */
DW_DEVICE dw_raw_eight dw_load_raw(const dw_prefetch *prefetch, uint32_t which, const void *tensor,
                                   dw_dtype dtype, uint64_t at, uint32_t slot)
{
    dw_raw_eight raw = {{{{0, 0, 0, 0}}, {{0, 0, 0, 0}}}};
    if (!tensor) return raw;
    if (prefetch->memory) {
        uint32_t mine = slot * DW_CUDA_THREADS + threadIdx.x;
        raw.half[0] = prefetch->memory[which * DW_PREFETCH_SIXTEENS + mine];
        return raw;
    }
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

/* Loads the eights of a thread from a tensor and from prev, which may be NULL and then give zeros.
 * If the tile is whole, all loads are issued before the first result is used, and the next tile is
 * prefetched. */
template <bool Whole>
DW_DEVICE void dw_load_two(const void *tensor, dw_dtype dtype, const void *prev,
                           dw_dtype prev_dtype, const dw_place places[DW_SLOTS],
                           const dw_prefetch *prefetch, dw_eight of_tensor[DW_SLOTS],
                           dw_eight of_prev[DW_SLOTS])
{
    dw_raw_eight raw[DW_SLOTS], raw_prev[DW_SLOTS];
    if (Whole && prefetch->memory) dw_wait_for_copies();
#pragma unroll
    for (uint32_t slot = 0; Whole && slot < DW_SLOTS; slot++) {
        raw[slot] = dw_load_raw(prefetch, 1, tensor, dtype, places[slot].tensor, slot);
        raw_prev[slot] = dw_load_raw(prefetch, 0, prev, prev_dtype, places[slot].dense, slot);
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
    if (Whole) dw_prefetch_two(prefetch, tensor, prev, prefetch->next);
}

#endif
