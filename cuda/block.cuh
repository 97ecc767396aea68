/* SPDX-License-Identifier: Apache-2.0
 * block.cuh - operations of a whole block of threads (finding its part, sums, the end of a part),
 * and of one "eight": eight consecutive elements, the unit that a thread processes.
 *
 * Shared by all kernels. Every barrier and every exchange between lanes must be reached by all
 * threads of the block. */
#ifndef DW_CUDA_BLOCK_CUH
#define DW_CUDA_BLOCK_CUH

#include "arithmetic/pack.h"
#include "arithmetic/quant.h"
#include "message.h"

#define DW_DEVICE static __device__ __forceinline__

/* A thread processes DW_SLOTS eights of a tile, so that the costs of finding the part and the tile,
 * of barriers and of sums are shared. */
enum {
    DW_WARP = 32,
    DW_WARPS = DW_CUDA_THREADS / DW_WARP,
    DW_EIGHT = 8,
    DW_SLOTS = DW_TILE_ELEMENTS / DW_EIGHT / DW_CUDA_THREADS
};
#define DW_ALL_LANES 0xffffffffu

/* The variant of a kernel, beside its dtypes (0: the job's). */
typedef enum dw_variant {
    DW_PLAIN,
    DW_SEARCHES,   /* tiles search for their scales */
    DW_BY_COLUMNS, /* there is a scale per channel */
    DW_ROTATED,    /* blocks of channels are rotated */
    DW_SEARCHES_ROTATED
} dw_variant;

/* The largest size of a tile: 8 bits per element, a scale for every 16 elements, and the room for
 * escaped values, as dw_escapes_bytes. */
enum {
    DW_STAGED_BYTES = DW_TILE_ELEMENTS + 2 * DW_TILE_ELEMENTS / 16 +
                      (4 + 6 * DW_TILE_ELEMENTS / 32 + 15) / 16 * 16
};

/* An escaped value of a tile: the number of its code in the tile, and its bits. */
typedef struct dw_escape {
    uint32_t place, bits;
} dw_escape;

/* Number i of the room of a tile of n codes (codecs/escapes.h); such values lie at even bytes. */
DW_DEVICE dw_escape dw_escape_at(const uint8_t *room, uint32_t n, uint32_t i)
{
    const uint16_t *halves = (const uint16_t *)(room + 4), *value = halves + dw_escapes_most(n);
    dw_escape escape = {halves[i], value[2 * i] | (uint32_t)value[2 * i + 1] << 16};
    return escape;
}

DW_DEVICE void dw_escape_store(uint8_t *room, uint32_t n, uint32_t i, const dw_escape *escape)
{
    uint16_t *halves = (uint16_t *)(room + 4), *value = halves + dw_escapes_most(n);
    halves[i] = (uint16_t)escape->place;
    value[2 * i] = (uint16_t)escape->bits;
    value[2 * i + 1] = (uint16_t)(escape->bits >> 16);
}

/* A constant as a type. A generic lambda that gets such an argument can use it as a parameter of a
 * template. */
template <bool Value> struct dw_constant {
    static const bool value = Value;
};

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

/* x, prev and the new prev are accessed once, so they should not occupy the caches (streaming
 * access). */
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

/* Payloads and their parts are aligned to 16 bytes. The load uses the second-level cache, because
 * other blocks may have written the data. */
DW_DEVICE dw_sixteen dw_payload_load(const uint8_t *from)
{
    uint4 loaded = __ldcg((const uint4 *)from);
    dw_sixteen all = {{loaded.x, loaded.y, loaded.z, loaded.w}};
    return all;
}

/* A cached store, because the frame is sent next. */
DW_DEVICE void dw_payload_store(uint8_t *to, dw_sixteen all)
{
    *(uint4 *)to = make_uint4(all.word[0], all.word[1], all.word[2], all.word[3]);
}

/* ---- Eight elements -------------------------------------------------------------------------- */

typedef struct dw_eight {
    float of[DW_EIGHT];
} dw_eight;

/* A mask of all elements of an eight. */
#define DW_WHOLE_EIGHT ((1u << DW_EIGHT) - 1)

DW_DEVICE uint32_t dw_size_of(dw_dtype dtype)
{
    return dtype == DW_F32 ? 4 : 2;
}

DW_DEVICE float dw_widen(uint32_t bits, dw_dtype dtype)
{
    if (dtype == DW_F32) return dw_float_of(bits);
    return dtype == DW_F16 ? dw_f16_widen((uint16_t)bits) : dw_bf16_widen((uint16_t)bits);
}

/* Whenever a GPU makes a NaN, its bits are 0x7fffffff. Tests that run the kernels on a CPU define
 * this macro so that they are the same there. */
#ifndef DW_MADE_BY_GPU
#define DW_MADE_BY_GPU(value) (value)
#endif

DW_DEVICE float dw_minus(float x, float base)
{
    return DW_MADE_BY_GPU(x - base);
}

/* x - base as CPUs compute it: where x is NaN, its bits, made quiet. */
DW_DEVICE float dw_minus_keeping_nan(float x, float base)
{
    uint32_t bits = dw_bits_of(x);
    bool is_nan = (bits & 0x7fffffffu) > DW_F32_INFINITY;
    return is_nan ? dw_float_of(bits | 0x00400000u) : dw_minus(x, base);
}

/* Clamps a value, which is not NaN, to the range from least to most. */
DW_DEVICE float dw_clamp(float value, float least, float most)
{
    return fminf(fmaxf(value, least), most);
}

/* RN of docs/format.md; returns bits. */
DW_DEVICE uint32_t dw_narrow(float value, dw_dtype dtype)
{
    if (dtype == DW_F32) return dw_bits_of(dw_f32_finite(value));
    return dtype == DW_F16 ? dw_f16_finite(value) : dw_bf16_finite(value);
}

/* RN of two numbers that are not NaN, to 16 bits each: the second one in the upper half. Numbers
 * that are too large are rounded to infinity, whose bits are those of the largest number plus one;
 * the minimum brings them back. */
DW_DEVICE uint32_t dw_narrow_pair(float lower, float upper, dw_dtype dtype)
{
#ifdef __CUDA_ARCH__
    uint32_t pair, largest = dtype == DW_F16 ? 0x7bff7bffu : 0x7f7f7f7fu;
    if (dtype == DW_F16)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(upper), "f"(lower));
    else
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(upper), "f"(lower));
    return (pair & 0x80008000u) | __vminu2(pair & 0x7fff7fffu, largest);
#else
    return dw_narrow(lower, dtype) | dw_narrow(upper, dtype) << 16;
#endif
}

/* RN of eight numbers that are not NaN; returns bits. */
DW_DEVICE void dw_narrow_eight(const float values[DW_EIGHT], dw_dtype dtype,
                               uint32_t bits[DW_EIGHT])
{
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i += 2) {
        if (dtype == DW_F32) {
            bits[i] = dw_bits_of(dw_clamp(values[i], -FLT_MAX, FLT_MAX));
            bits[i + 1] = dw_bits_of(dw_clamp(values[i + 1], -FLT_MAX, FLT_MAX));
        } else {
            uint32_t pair = dw_narrow_pair(values[i], values[i + 1], dtype);
            bits[i] = pair & 0xffffu;
            bits[i + 1] = pair >> 16;
        }
    }
}

DW_DEVICE uint32_t dw_nan_of(dw_dtype dtype)
{
    return dtype == DW_F32 ? DW_F32_NAN : dtype == DW_F16 ? DW_F16_NAN : DW_BF16_NAN;
}

/* RN of eight decoded values of one piece; returns a mask of poisoned ones. held: prev. keeps: a
 * poisoned piece keeps it; otherwise it becomes NaN. */
DW_DEVICE uint32_t dw_narrow_piece(const dw_eight *values, const dw_eight *held, bool poisoned,
                                   bool keeps, dw_dtype dtype, uint32_t bits[DW_EIGHT])
{
    if (!poisoned) {
        dw_narrow_eight(values->of, dtype, bits);
        return 0;
    }
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++)
        bits[i] = keeps ? dw_narrow(held->of[i], dtype) : dw_nan_of(dtype);
    return DW_WHOLE_EIGHT;
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

/* Loads n of the eight elements at `at` as bits. The others are +0, and all are where `from` is
 * NULL. */
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

/* is_whole: it is known that n is eight and that the place is aligned. */
DW_DEVICE void dw_store_eight(void *to, dw_dtype dtype, uint64_t at, uint32_t n,
                              const uint32_t bits[DW_EIGHT], bool is_whole)
{
    uint8_t *place = (uint8_t *)to + at * dw_size_of(dtype);
    if (is_whole || (n == DW_EIGHT && dw_is_aligned(place, 16))) {
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

/* 1.5 * 2^23: the last places of its sum with a small number are that number rounded to the nearest
 * integer, ties to even. */
#define DW_MAGIC      12582912.0f
#define DW_MAGIC_BITS 0x4b400000u

/* Converts an integer to a float, 0 to +0; |level| < 2^22. */
DW_DEVICE float dw_float_of_level(int32_t level)
{
    return dw_float_of(DW_MAGIC_BITS + (uint32_t)level) - DW_MAGIC;
}

/* ---- Digests (docs/format.md, 4) ------------------------------------------------------------- */

#define DW_DIGEST_KEY 0x9E3779B1u

/* The digest of word number `place` (even) and the next one. */
DW_DEVICE uint64_t dw_digest_pair(uint32_t low, uint32_t high, uint32_t place)
{
    return (uint64_t)(low + DW_DIGEST_KEY * (place + 1)) *
           (uint32_t)(high + DW_DIGEST_KEY * (place + 2));
}

/* The digest of sixteen bytes of a payload, from byte `at` on. */
DW_DEVICE uint64_t dw_digest_sixteen(dw_sixteen all, uint64_t at)
{
    uint32_t place = (uint32_t)(at / 4);
    return dw_digest_pair(all.word[0], all.word[1], place) +
           dw_digest_pair(all.word[2], all.word[3], place + 2);
}

/* The digest of four consecutive elements of prev; `at` is the number of the first, a multiple of
 * 4. */
DW_DEVICE uint64_t dw_digest_four(const uint32_t bits[4], dw_dtype dtype, uint64_t at)
{
    if (dtype != DW_F32)
        return dw_digest_pair(bits[0] | bits[1] << 16, bits[2] | bits[3] << 16, (uint32_t)(at / 2));
    return dw_digest_pair(bits[0], bits[1], (uint32_t)at) +
           dw_digest_pair(bits[2], bits[3], (uint32_t)at + 2);
}

/* The digest of those of n (0, 4 or 8) elements of a new prev that are audited. */
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

/* Returns the part of a launch that a block works on; *block: the block's number within it. */
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

/* Finds the part of a block, copies it to shared memory, and returns the copy. Its fields are
 * needed often, and the first-level cache does not keep them, because every block that ends empties
 * it with a fence. */
template <typename Part>
DW_DEVICE const Part *dw_load_part(const Part *parts, uint32_t n, dw_cuda_phase phase, Part *room,
                                   uint64_t *block)
{
    const uint32_t *from = (const uint32_t *)(parts + dw_find_part(parts, n, phase, block));
    uint32_t *to = (uint32_t *)room;
    for (uint32_t i = threadIdx.x; i < sizeof(Part) / sizeof *from; i += DW_CUDA_THREADS)
        to[i] = from[i];
    __syncthreads();
    return room;
}

/* Adds a number of every thread; the result is valid in thread 0. The warp sums are exact, because
 * each adds 32 numbers of at most 22 bits. room: one word per warp. */
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

/* Returns the sum of the numbers of all threads in front of this one. *all becomes the sum of all.
 * room: one word per warp. */
DW_DEVICE uint32_t dw_block_scan(uint32_t mine, uint32_t *room, uint32_t *all)
{
    uint32_t sum = mine, before = 0, lane = threadIdx.x % DW_WARP, warp = threadIdx.x / DW_WARP;
#pragma unroll
    for (uint32_t apart = 1; apart < DW_WARP; apart *= 2) {
        uint32_t other = __shfl_up_sync(DW_ALL_LANES, sum, apart);
        sum += lane >= apart ? other : 0;
    }
    if (lane == DW_WARP - 1) room[warp] = sum;
    __syncthreads();
    *all = 0;
    for (uint32_t i = 0; i < DW_WARPS; i++) {
        before += i < warp ? room[i] : 0;
        *all += room[i];
    }
    __syncthreads(); /* now room may be used again */
    return before + sum - mine;
}

/* The choice for a piece, packed: scale | direct << 16. */
DW_DEVICE uint16_t dw_scale_in(uint32_t chosen)
{
    return (uint16_t)chosen;
}

DW_DEVICE bool dw_is_direct(uint32_t chosen)
{
    return chosen >> 16 != 0;
}

/* What a thread, or a block, has found in its tiles. payload, state: its parts of the digests.
 * direct, zero, poisoned: how many such pieces. escaped, overflowed: how many such values. */
typedef struct dw_found {
    uint64_t payload, state;
    uint32_t direct, zero, poisoned, escaped, overflowed;
} dw_found;

DW_DEVICE void dw_count(dw_found *found, uint32_t chosen)
{
    uint16_t scale = dw_scale_in(chosen);
    found->direct += dw_is_direct(chosen) ? 1u : 0;
    found->zero += scale == 0 ? 1u : 0;
    found->poisoned += dw_scale_is_poisoned(scale) ? 1u : 0;
}

/* Shared memory for joining the results of a block's threads. scan: for dw_block_scan. */
typedef struct dw_found_room {
    uint64_t sums[2][DW_WARPS];
    uint32_t scan[DW_WARPS];
} dw_found_room;

/* Adds a number of every thread of a warp to a sum. */
DW_DEVICE void dw_add_warp(unsigned long long *sum, uint32_t mine)
{
    uint32_t all = __reduce_add_sync(DW_ALL_LANES, mine);
    if (all && threadIdx.x % DW_WARP == 0) atomicAdd(sum, (unsigned long long)all);
}

/* Adds what the threads of a block have found to the sums of its part. */
DW_DEVICE void dw_add_block(dw_cuda_sums *sums, const dw_found *found, dw_found_room *room)
{
    dw_add_warp(&sums->direct, found->direct);
    dw_add_warp(&sums->zero, found->zero);
    dw_add_warp(&sums->poisoned, found->poisoned);
    dw_add_warp(&sums->escaped, found->escaped);
    dw_add_warp(&sums->overflowed, found->overflowed);
    uint64_t payload = dw_block_sum(found->payload, room->sums[0]),
             state = dw_block_sum(found->state, room->sums[1]);
    if (threadIdx.x != 0) return;
    if (payload) atomicAdd(&sums->payload, (unsigned long long)payload);
    if (state) atomicAdd(&sums->state, (unsigned long long)state);
}

/* The digest of the bytes in front of the tiles, which other blocks have written. */
DW_DEVICE uint64_t dw_front_sum(const dw_layout *layout, const uint8_t *payload)
{
    uint64_t sum = 0, end = layout->choice_bytes + layout->scale_bytes;
    for (uint64_t at = 16 * (uint64_t)threadIdx.x; at < end; at += 16 * DW_CUDA_THREADS)
        sum += dw_digest_sixteen(dw_payload_load(payload + at), at);
    return sum;
}

/* True, in every thread, for the last of so many blocks of a part to finish. It then sees all
 * writes of the other blocks. So does the host, once it sees the report: frames and prev may lie in
 * host memory. */
DW_DEVICE bool dw_is_last_of(const dw_cuda_share *share, uint64_t blocks, bool *room)
{
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) *room = atomicAdd(&share->sums->arrived, 1ull) + 1 == blocks;
    __syncthreads();
    if (*room) __threadfence();
    return *room;
}

/* The same for the blocks of the phases TILES, AUDIT and COMPACT. */
DW_DEVICE bool dw_is_last(const dw_cuda_share *share, bool *room)
{
    return dw_is_last_of(share,
                         share->blocks[DW_CUDA_TILES] + share->blocks[DW_CUDA_AUDIT] +
                             share->blocks[DW_CUDA_COMPACT],
                         room);
}

/* Returns true, in all threads, if this block is the last one of its part to finish phase CHOOSE,
 * or the encoder's phase CODE. It then sees the writes of the other blocks. A fence for the device
 * is enough, because the host does not read what these phases write. */
DW_DEVICE bool dw_is_last_measured(const dw_cuda_share *share, dw_cuda_phase phase, bool *room)
{
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        *room = atomicAdd(&share->sums->measured, 1ull) + 1 == share->blocks[phase];
        if (*room) share->sums->measured = 0;
    }
    __syncthreads();
    if (*room) __threadfence();
    return *room;
}

DW_DEVICE uint64_t dw_taken(unsigned long long *sum)
{
    return atomicExch(sum, 0ull);
}

/* Writes the report for the host and clears the sums. payload: the digest of the payload in the
 * frame. payload_bytes: its size, where it was coded or moved; else 0. */
DW_DEVICE void dw_report_part(const dw_cuda_share *share, uint64_t payload, uint64_t payload_bytes)
{
    dw_cuda_sums *sums = share->sums;
    volatile dw_cuda_report *report = share->report;
    (void)dw_taken(&sums->payload);
    (void)dw_taken(&sums->coded);
    report->payload = payload;
    report->payload_bytes = payload_bytes;
    report->bad = dw_taken(&sums->bad);
    report->state = dw_taken(&sums->state);
    report->direct = dw_taken(&sums->direct);
    report->zero = dw_taken(&sums->zero);
    report->poisoned = dw_taken(&sums->poisoned);
    report->escaped = dw_taken(&sums->escaped);
    report->overflowed = dw_taken(&sums->overflowed);
    (void)dw_taken(&sums->arrived);
    __threadfence_system();
    report->serial = share->serial;
}

/* Called by one thread of the last block of the phases TILES, AUDIT and COMPACT. front: the digest
 * of the bytes in front of the tiles. Where the payload is coded or moved afterwards, the last
 * block of phase JOIN reports. */
DW_DEVICE void dw_report_tiles(const dw_cuda_share *share, uint64_t front)
{
    if (share->frame)
        (void)dw_taken(&share->sums->arrived);
    else
        dw_report_part(share, dw_taken(&share->sums->payload) + front, 0);
}

#endif
