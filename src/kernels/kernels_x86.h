/* SPDX-License-Identifier: Apache-2.0
 * kernels_x86.h - primitives that the vector kernels for AVX2 and AVX-512 share. */
#ifndef DW_KERNELS_X86_H
#define DW_KERNELS_X86_H

#include <immintrin.h>
#include <string.h>

#include "arithmetic/layout.h"
#include "kernels/kernels.h"

#define DW_VECTOR static inline __attribute__((always_inline))

/* Prefetches the address `bytes` bytes behind `from`. It is computed as an integer, because it may
 * lie outside of any object. */
#define DW_PREFETCH(from, bytes)                                                                   \
    _mm_prefetch((const char *)((uintptr_t)(from) + (bytes)), _MM_HINT_T0)
#define DW_PREFETCH_FAR(from, bytes)                                                               \
    _mm_prefetch((const char *)((uintptr_t)(from) + (bytes)), _MM_HINT_T1) /* not into the         \
                                                                              first-level cache */

/* The unsigned maximum over columns: reduces four pieces of four lanes each to one lane per
 * piece. */
DW_VECTOR __m128i columns_of_four(const int32_t *quarters)
{
    __m128i a = _mm_load_si128((const void *)quarters),
            b = _mm_load_si128((const void *)(quarters + 4));
    __m128i c = _mm_load_si128((const void *)(quarters + 8)),
            d = _mm_load_si128((const void *)(quarters + 12));
    __m128i ab = _mm_max_epu32(_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b));
    __m128i cd = _mm_max_epu32(_mm_unpacklo_epi32(c, d), _mm_unpackhi_epi32(c, d));
    return _mm_max_epu32(_mm_unpacklo_epi64(ab, cd), _mm_unpackhi_epi64(ab, cd));
}

/* Loads four or two bytes of a plane, without alignment. */
DW_VECTOR int32_t take_word4(const uint8_t *from)
{
    int32_t word;
    memcpy(&word, from, sizeof word);
    return word;
}

DW_VECTOR int32_t take_word2(const uint8_t *from)
{
    uint16_t word;
    memcpy(&word, from, sizeof word);
    return word;
}

/* Microscaling works on 16 words of 16 bits. They fill one 256-bit register, with AVX2 and AVX-512
 * alike. */
typedef __m256i h16x16;
#define h_shl(a, n) _mm256_slli_epi16(a, n)
#define h_shr(a, n) _mm256_srli_epi16(a, n)
#define h_sra(a, n) _mm256_srai_epi16(a, n)
DW_VECTOR h16x16 h_set(int value)
{
    return _mm256_set1_epi16((short)value);
}
DW_VECTOR h16x16 h_and(h16x16 a, h16x16 b)
{
    return _mm256_and_si256(a, b);
}
DW_VECTOR h16x16 h_or(h16x16 a, h16x16 b)
{
    return _mm256_or_si256(a, b);
}
DW_VECTOR h16x16 h_xor(h16x16 a, h16x16 b)
{
    return _mm256_xor_si256(a, b);
}
DW_VECTOR h16x16 h_min(h16x16 a, h16x16 b)
{
    return _mm256_min_epi16(a, b);
}
DW_VECTOR h16x16 h_take16(const uint8_t *from)
{
    return _mm256_loadu_si256((const void *)from);
}
DW_VECTOR h16x16 h_take8(const uint8_t *from)
{
    return _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)from));
}

/* Every byte is widened to 32 bits. A copy shifted by 12 places puts its high nibble at the bottom
 * of the upper word. */
DW_VECTOR h16x16 h_take4(const uint8_t *from)
{
    __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)from));
    return _mm256_and_si256(_mm256_or_si256(bytes, _mm256_slli_epi32(bytes, 12)),
                            _mm256_set1_epi16(15));
}

#endif
