/* SPDX-License-Identifier: Apache-2.0
 * kernels_parts_x86.h - sorts dithered codes into their parts, and restores their order, with AVX2.
 *
 * 32 codes are looked at together. They are then moved in groups of eight: for each part, one
 * shuffle gathers those of the eight that belong to it. rans_run.h says what parts are;
 * kernels_rans_c.h has the same functions in plain C.
 *
 * Included after kernels_rans_x86.h, in the tables for AVX2 and for AVX-512. */
#include "kernels/rans_lanes.h"

/* The parts of 32 codes. */
typedef struct part_sets {
    __m256i negative;      /* a byte per code: all its bits are set where the dither is negative */
    __m256i part;          /* a byte per code: the number of its part */
    uint32_t of[DW_PARTS]; /* bit i of of[p] is set where code i belongs to part p */
} part_sets;

/* Returns the parts of the 32 codes whose random numbers have these high bytes. */
DW_VECTOR part_sets part_sets_of(const uint8_t *high)
{
    part_sets sets;
    __m256i h = _mm256_loadu_si256((const void *)high);
    sets.negative = _mm256_cmpgt_epi8(h, _mm256_set1_epi8(-1));
    __m256i mirrored =
        _mm256_xor_si256(h, _mm256_xor_si256(sets.negative, _mm256_set1_epi8((char)0x80)));
    sets.part = _mm256_and_si256(_mm256_srli_epi16(mirrored, 5), _mm256_set1_epi8(3));
    for (int p = 0; p < DW_PARTS; p++)
        sets.of[p] =
            (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(sets.part, _mm256_set1_epi8((char)p)));
    return sets;
}

/* Changes the sign of the levels whose dither is negative: see part_turned in kernels_rans_c.h. */
DW_VECTOR __m256i part_turn(__m256i codes, __m256i negative)
{
    return _mm256_sub_epi8(_mm256_xor_si256(codes, negative), negative);
}

static void count_parts(const uint8_t *high, uint64_t n, uint32_t counts[DW_PARTS])
{
    uint64_t whole = n / 32 * 32;
    dw_kernels_c.count_parts(high + whole, n - whole, counts);
    for (uint64_t i = 0; i < whole; i += 32) {
        part_sets sets = part_sets_of(high + i);
        for (int p = 0; p < DW_PARTS; p++) counts[p] += (uint32_t)_mm_popcnt_u32(sets.of[p]);
    }
}

/* Stores at *next those of eight codes whose bits are set in `set`, in order, and moves *next
 * behind them. Up to 8 bytes are written; those behind *next have no meaning. */
DW_VECTOR void part_store(__m128i codes, uint32_t set, uint8_t **next)
{
    uint32_t count = (uint32_t)_mm_popcnt_u32(set);
    /* The table has the lanes of a set in the last of its eight bytes, so they are shifted to the
     * first. An empty set has no lanes, and then the shift by 64 % 64 = 0 does no harm. */
    uint64_t lanes = rans_lanes_of_words[set] >> (64 - 8 * count) % 64;
    __m128i chosen = _mm_shuffle_epi8(codes, _mm_cvtsi64_si128((long long)lanes));
    _mm_storel_epi64((void *)*next, chosen);
    *next += count;
}

static void sort_parts(const uint8_t *high, const uint8_t *codes, uint64_t n,
                       uint8_t *next[DW_PARTS])
{
    uint64_t whole = n / 32 * 32;
    uint8_t *to[DW_PARTS] = {next[0], next[1], next[2], next[3]};
    for (uint64_t i = 0; i < whole; i += 32) {
        part_sets sets = part_sets_of(high + i);
        uint8_t turned[32];
        __m256i some = _mm256_loadu_si256((const void *)(codes + i));
        _mm256_storeu_si256((void *)turned, part_turn(some, sets.negative));
        for (int k = 0; k < 32; k += 8) {
            __m128i eight = _mm_loadl_epi64((const void *)(turned + k));
            for (int p = 0; p < DW_PARTS; p++) part_store(eight, sets.of[p] >> k & 255, &to[p]);
        }
    }
    memcpy(next, to, sizeof to);
    dw_kernels_c.sort_parts(high + whole, codes + whole, n - whole, next);
}

/* Loads the next codes of a part from *next into those of eight lanes whose bits are set in `set`,
 * and moves *next behind them. The other lanes have no meaning. */
DW_VECTOR __m128i part_load(const uint8_t **next, uint32_t set)
{
    __m128i some = _mm_loadl_epi64((const void *)*next);
    *next += _mm_popcnt_u32(set);
    return _mm_shuffle_epi8(some, _mm_cvtsi64_si128((long long)rans_words_of_lanes[set]));
}

static void restore_parts(const uint8_t *high, const uint8_t *next[DW_PARTS], uint64_t n,
                          uint8_t *codes)
{
    uint64_t whole = n / 32 * 32;
    const uint8_t *from[DW_PARTS] = {next[0], next[1], next[2], next[3]};
    for (uint64_t i = 0; i < whole; i += 32) {
        part_sets sets = part_sets_of(high + i);
        uint8_t of[DW_PARTS][32];
        __m256i some = _mm256_setzero_si256();
        for (int k = 0; k < 32; k += 8)
            for (int p = 0; p < DW_PARTS; p++)
                _mm_storel_epi64((void *)(of[p] + k), part_load(&from[p], sets.of[p] >> k & 255));
        for (int p = 0; p < DW_PARTS; p++) {
            __m256i belongs = _mm256_cmpeq_epi8(sets.part, _mm256_set1_epi8((char)p));
            __m256i all = _mm256_loadu_si256((const void *)of[p]);
            some = _mm256_or_si256(some, _mm256_and_si256(all, belongs));
        }
        _mm256_storeu_si256((void *)(codes + i), part_turn(some, sets.negative));
    }
    memcpy(next, from, sizeof from);
    dw_kernels_c.restore_parts(high + whole, next, n - whole, codes + whole);
}
