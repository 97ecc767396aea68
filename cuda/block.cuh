/* SPDX-License-Identifier: Apache-2.0
 * block.cuh - what a block of threads does together: finds its part, adds up, ends a message; and
 * eight elements, what a thread does at a time.
 *
 * Text for the kernels. Every barrier and every exchange between lanes is reached by all threads of
 * the block. */
#ifndef DW_CUDA_BLOCK_CUH
#define DW_CUDA_BLOCK_CUH

#include "arithmetic/pack.h"
#include "arithmetic/quant.h"
#include "message.h"

#define DW_DEVICE static __device__ __forceinline__

/* A thread has as many eights of a tile as it takes: what they share - the part, the tile,
 * barriers, sums - is paid for once. */
enum {
    DW_WARP = 32,
    DW_WARPS = DW_CUDA_THREADS / DW_WARP,
    DW_EIGHT = 8,
    DW_SLOTS = DW_TILE_ELEMENTS / DW_EIGHT / DW_CUDA_THREADS
};
#define DW_ALL_LANES 0xffffffffu

/* The most bytes of a tile: 8 bits of every element, a scale for every 16. */
enum { DW_STAGED_BYTES = DW_TILE_ELEMENTS + 2 * DW_TILE_ELEMENTS / 16 };

/* ---- Memory ---------------------------------------------------------------------------------- */

typedef struct __align__(16) dw_sixteen
{
    uint32_t word[4];
}
dw_sixteen;

DW_DEVICE bool dw_is_aligned(const void *place, uint32_t bytes)
{
    return ((uintptr_t)place & (bytes - 1)) == 0;
}

/* x, prev and the new prev are touched once, and need not stay in a cache. */
DW_DEVICE dw_sixteen dw_passing_load(const void *from)
{
    uint4 loaded = __ldcs((const uint4 *)from);
    dw_sixteen all = {{loaded.x, loaded.y, loaded.z, loaded.w}};
    return all;
}

DW_DEVICE void dw_passing_store(void *to, dw_sixteen all)
{
    __stcs((uint4 *)to, make_uint4(all.word[0], all.word[1], all.word[2], all.word[3]));
}

/* Payloads begin at multiples of 16 bytes, and so do all of their parts. Through the second-level
 * cache: other blocks may have written. */
DW_DEVICE dw_sixteen dw_payload_load(const uint8_t *from)
{
    uint4 loaded = __ldcg((const uint4 *)from);
    dw_sixteen all = {{loaded.x, loaded.y, loaded.z, loaded.w}};
    return all;
}

/* Into the caches: what carries the frame reads it next. */
DW_DEVICE void dw_payload_store(uint8_t *to, dw_sixteen all)
{
    *(uint4 *)to = make_uint4(all.word[0], all.word[1], all.word[2], all.word[3]);
}

/* ---- Eight elements -------------------------------------------------------------------------- */

typedef struct dw_eight {
    float of[DW_EIGHT];
} dw_eight;

DW_DEVICE uint32_t dw_size_of(dw_dtype dtype)
{
    return dtype == DW_F32 ? 4 : 2;
}

DW_DEVICE float dw_widen(uint32_t bits, dw_dtype dtype)
{
    if (dtype == DW_F32) return dw_float_of(bits);
    return dtype == DW_F16 ? dw_f16_widen((uint16_t)bits) : dw_bf16_widen((uint16_t)bits);
}

/* RN of docs/format.md, as bits. */
DW_DEVICE uint32_t dw_narrow(float value, dw_dtype dtype)
{
    if (dtype == DW_F32) return dw_bits_of(dw_f32_finite(value));
    return dtype == DW_F16 ? dw_f16_finite(value) : dw_bf16_finite(value);
}

DW_DEVICE uint32_t dw_nan_of(dw_dtype dtype)
{
    return dtype == DW_F32 ? DW_F32_NAN : dtype == DW_F16 ? DW_F16_NAN : DW_BF16_NAN;
}

DW_DEVICE uint32_t dw_load_bits(const void *from, dw_dtype dtype, uint64_t at)
{
    return dtype == DW_F32 ? ((const uint32_t *)from)[at] : ((const uint16_t *)from)[at];
}

DW_DEVICE void dw_store_bits(void *to, dw_dtype dtype, uint64_t at, uint32_t bits)
{
    if (dtype == DW_F32)
        ((uint32_t *)to)[at] = bits;
    else
        ((uint16_t *)to)[at] = (uint16_t)bits;
}

/* n of the eight elements from `at` on, as bits; the others, and all of no memory, are +0. */
DW_DEVICE void dw_load_eight_bits(const void *from, dw_dtype dtype, uint64_t at, uint32_t n,
                                  uint32_t bits[DW_EIGHT])
{
    const uint8_t *place = from ? (const uint8_t *)from + at * dw_size_of(dtype) : NULL;
    if (place && n == DW_EIGHT && dw_is_aligned(place, 16)) {
        dw_sixteen first = dw_passing_load(place);
        dw_sixteen second = dtype == DW_F32 ? dw_passing_load(place + 16) : first;
#pragma unroll
        for (uint32_t i = 0; i < DW_EIGHT; i++)
            bits[i] = dtype == DW_F32 ? (i < 4 ? first.word[i % 4] : second.word[i % 4])
                                      : first.word[i / 2] >> (16 * (i % 2)) & 0xffffu;
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++)
        bits[i] = from && i < n ? dw_load_bits(from, dtype, at + i) : 0;
}

DW_DEVICE dw_eight dw_load_eight(const void *from, dw_dtype dtype, uint64_t at, uint32_t n)
{
    uint32_t bits[DW_EIGHT];
    dw_eight loaded;
    dw_load_eight_bits(from, dtype, at, n, bits);
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) loaded.of[i] = dw_widen(bits[i], dtype);
    return loaded;
}

DW_DEVICE void dw_store_eight(void *to, dw_dtype dtype, uint64_t at, uint32_t n,
                              const uint32_t bits[DW_EIGHT])
{
    uint8_t *place = (uint8_t *)to + at * dw_size_of(dtype);
    if (n == DW_EIGHT && dw_is_aligned(place, 16)) {
        dw_sixteen words[2];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            words[0].word[i] = dtype == DW_F32 ? bits[i] : bits[2 * i] | bits[2 * i + 1] << 16;
            words[1].word[i] = bits[4 + i];
        }
        dw_passing_store(place, words[0]);
        if (dtype == DW_F32) dw_passing_store(place + 16, words[1]);
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++)
        if (i < n) dw_store_bits(to, dtype, at + i, bits[i]);
}

/* 1.5 * 2^23: in its sum with a small number the last places are that number's nearest integer,
 * ties to even. */
#define DW_MAGIC      12582912.0f
#define DW_MAGIC_BITS 0x4b400000u

/* An integer as a float, +0 for 0; |level| < 2^22. */
DW_DEVICE float dw_float_of_level(int32_t level)
{
    return dw_float_of(DW_MAGIC_BITS + (uint32_t)level) - DW_MAGIC;
}

/* ---- Digests (docs/format.md, 4) ------------------------------------------------------------- */

#define DW_DIGEST_KEY 0x9E3779B1u

/* Words `place` (even) and the next one. */
DW_DEVICE uint64_t dw_digest_pair(uint32_t low, uint32_t high, uint32_t place)
{
    return (uint64_t)(low + DW_DIGEST_KEY * (place + 1)) *
           (uint32_t)(high + DW_DIGEST_KEY * (place + 2));
}

/* Sixteen bytes of a payload, from byte `at` on. */
DW_DEVICE uint64_t dw_digest_sixteen(dw_sixteen all, uint64_t at)
{
    uint32_t place = (uint32_t)(at / 4);
    return dw_digest_pair(all.word[0], all.word[1], place) +
           dw_digest_pair(all.word[2], all.word[3], place + 2);
}

/* Four neighbouring elements of prev; `at`, a multiple of 4, is the first. */
DW_DEVICE uint64_t dw_digest_four(const uint32_t bits[4], dw_dtype dtype, uint64_t at)
{
    if (dtype != DW_F32)
        return dw_digest_pair(bits[0] | bits[1] << 16, bits[2] | bits[3] << 16, (uint32_t)(at / 2));
    return dw_digest_pair(bits[0], bits[1], (uint32_t)at) +
           dw_digest_pair(bits[2], bits[3], (uint32_t)at + 2);
}

/* The audited ones of n (0, 4 or 8) elements of a new prev. */
DW_DEVICE uint64_t dw_audit_eight(dw_audit audit, const uint32_t bits[DW_EIGHT], dw_dtype dtype,
                                  uint64_t at, uint32_t n)
{
    uint64_t sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i += 4) {
        bool audited = audit.every == 1 || (at + i) / DW_TILE_ELEMENTS % audit.every == audit.phase;
        if (i < n && audited) sum += dw_digest_four(bits + i, dtype, at + i);
    }
    return sum;
}

/* ---- Together -------------------------------------------------------------------------------- */

/* Which part of a launch a block works for, and the block's number in it. */
template <typename Part>
DW_DEVICE uint32_t dw_find_part(const Part *parts, uint32_t n, dw_cuda_phase phase, uint64_t *block)
{
    uint32_t low = 0, high = n;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (parts[middle].share.first[phase] <= blockIdx.x)
            low = middle;
        else
            high = middle;
    }
    *block = blockIdx.x - parts[low].share.first[phase];
    return low;
}

/* The sum of a number of every thread's, for thread 0: exact, in parts whose sums of 32 fit a word.
 * room: one per warp. */
DW_DEVICE uint64_t dw_block_sum(uint64_t mine, uint64_t *room)
{
    uint64_t sum = __reduce_add_sync(DW_ALL_LANES, (uint32_t)mine & 0x3fffffu);
    sum += (uint64_t)__reduce_add_sync(DW_ALL_LANES, (uint32_t)(mine >> 22) & 0x3fffffu) << 22;
    sum += (uint64_t)__reduce_add_sync(DW_ALL_LANES, (uint32_t)(mine >> 44)) << 44;
    if (threadIdx.x % DW_WARP == 0) room[threadIdx.x / DW_WARP] = sum;
    __syncthreads();
    uint64_t all = 0;
    for (uint32_t warp = 0; threadIdx.x == 0 && warp < DW_WARPS; warp++) all += room[warp];
    return all;
}

/* What a piece chose: scale | direct << 16. */
DW_DEVICE uint16_t dw_scale_in(uint32_t chosen)
{
    return (uint16_t)chosen;
}

DW_DEVICE bool dw_is_direct(uint32_t chosen)
{
    return chosen >> 16 != 0;
}

/* A piece, as it is counted: direct, of scale 0, poisoned; a block's pieces fit ten bits each. */
DW_DEVICE uint32_t dw_count_of(uint32_t chosen)
{
    uint16_t scale = dw_scale_in(chosen);
    return (dw_is_direct(chosen) ? 1u : 0) | (scale == 0 ? 1u << 10 : 0) |
           (dw_scale_is_poisoned(scale) ? 1u << 20 : 0);
}

/* Where a block's threads join what they found. */
typedef struct dw_found_room {
    uint64_t sums[2][DW_WARPS];
    uint32_t counts[DW_WARPS];
} dw_found_room;

/* What a block found, to what its part knows. counts: as dw_count_of, added. */
DW_DEVICE void dw_add_block(dw_cuda_sums *sums, uint64_t payload, uint64_t state, uint32_t counts,
                            dw_found_room *room)
{
    uint32_t warp_counts = __reduce_add_sync(DW_ALL_LANES, counts);
    if (threadIdx.x % DW_WARP == 0) room->counts[threadIdx.x / DW_WARP] = warp_counts;
    payload = dw_block_sum(payload, room->sums[0]);
    state = dw_block_sum(state, room->sums[1]);
    if (threadIdx.x != 0) return;
    uint32_t all = 0;
    for (uint32_t warp = 0; warp < DW_WARPS; warp++) all += room->counts[warp];
    if (payload) atomicAdd(&sums->payload, (unsigned long long)payload);
    if (state) atomicAdd(&sums->state, (unsigned long long)state);
    if (all & 0x3ffu) atomicAdd(&sums->direct, (unsigned long long)(all & 0x3ffu));
    if (all >> 10 & 0x3ffu) atomicAdd(&sums->zero, (unsigned long long)(all >> 10 & 0x3ffu));
    if (all >> 20) atomicAdd(&sums->poisoned, (unsigned long long)(all >> 20));
}

/* The digest's sum over the bytes in front of the tiles, which other blocks have written. */
DW_DEVICE uint64_t dw_front_sum(const dw_layout *layout, const uint8_t *payload)
{
    uint64_t sum = 0, end = layout->choice_bytes + layout->scale_bytes;
    for (uint64_t at = 16 * (uint64_t)threadIdx.x; at < end; at += 16 * DW_CUDA_THREADS)
        sum += dw_digest_sixteen(dw_payload_load(payload + at), at);
    return sum;
}

/* True for every thread of the block that comes last of all blocks of a part; all that the others
 * wrote is seen then, by the host too: frames and prev may lie in its memory, and it reads them as
 * soon as it sees the report. */
DW_DEVICE bool dw_is_last(const dw_cuda_share *share, bool *room)
{
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0)
        *room = atomicAdd(&share->sums->arrived, 1ull) + 1 ==
                share->blocks[DW_CUDA_TILES] + share->blocks[DW_CUDA_AUDIT];
    __syncthreads();
    if (*room) __threadfence();
    return *room;
}

DW_DEVICE uint64_t dw_taken(unsigned long long *sum)
{
    return atomicExch(sum, 0ull);
}

/* Tells the host. front: the sum over the bytes in front of the tiles. */
DW_DEVICE void dw_report_part(const dw_cuda_share *share, uint64_t front)
{
    dw_cuda_sums *sums = share->sums;
    volatile dw_cuda_report *report = share->report;
    report->payload = dw_taken(&sums->payload) + front;
    report->state = dw_taken(&sums->state);
    report->direct = dw_taken(&sums->direct);
    report->zero = dw_taken(&sums->zero);
    report->poisoned = dw_taken(&sums->poisoned);
    (void)dw_taken(&sums->arrived);
    __threadfence_system();
    report->serial = share->serial;
}

#endif
