/* SPDX-License-Identifier: Apache-2.0
 * kernels_collect_x86.h - finds values whose magnitude reaches a limit, with AVX2 or AVX-512.
 *
 * Each step stores a whole vector at the end of the list: the values that it found, and behind them
 * values without meaning, which the next step overwrites. So no branch depends on how many were
 * found. The list has room for as many values as were looked at. kernels_collect_c.h has the same
 * in plain C.
 *
 * Included after kernels_simd.h, in the tables for AVX2 and for AVX-512. */
#include "kernels/rans_lanes.h"

#ifdef __AVX512F__
enum { COLLECTED_AT_ONCE = 16 };

/* Moves those of 16 values that reach the limit to `to`, and returns their bits. */
DW_VECTOR uint32_t collect_some(const float *values, uint32_t least, float *to)
{
    __m512i bits = _mm512_loadu_si512((const void *)values);
    __m512i magnitudes = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
    __mmask16 reach = _mm512_cmpge_epu32_mask(magnitudes, _mm512_set1_epi32((int)least));
    _mm512_storeu_si512((void *)to, _mm512_maskz_compress_epi32(reach, bits));
    return reach;
}
#else
enum { COLLECTED_AT_ONCE = 8 };

DW_VECTOR uint32_t collect_some(const float *values, uint32_t least, float *to)
{
    __m256i bits = _mm256_loadu_si256((const void *)values);
    __m256i magnitudes = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
    __m256i above = _mm256_cmpgt_epi32(magnitudes, _mm256_set1_epi32((int)least - 1));
    uint32_t reach = (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(above));
    /* As in part_store (kernels_parts_x86.h). */
    uint32_t count = (uint32_t)_mm_popcnt_u32(reach);
    uint64_t lanes = rans_lanes_of_words[reach] >> (64 - 8 * count) % 64;
    __m256i order = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)lanes));
    _mm256_storeu_si256((void *)to, _mm256_permutevar8x32_epi32(bits, order));
    return reach;
}
#endif

static uint64_t collect(const float *values, uint64_t n, uint32_t least, uint8_t *mask, float *list)
{
    uint64_t found = 0, whole = n / COLLECTED_AT_ONCE * COLLECTED_AT_ONCE;
    for (uint64_t i = 0; i < whole; i += COLLECTED_AT_ONCE) {
        uint32_t reach = collect_some(values + i, least, list + found);
        memcpy(mask + i / 8, &reach, COLLECTED_AT_ONCE / 8);
        found += (uint32_t)_mm_popcnt_u32(reach);
    }
    return found +
           dw_kernels_c.collect(values + whole, n - whole, least, mask + whole / 8, list + found);
}
