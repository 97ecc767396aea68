/* SPDX-License-Identifier: Apache-2.0
 * kernels_x86.h - what the vector kernels of x86-64 share below 256 bits: planes and reductions of
 * 16 codes. */
#ifndef DW_KERNELS_X86_H
#define DW_KERNELS_X86_H

#include <immintrin.h>
#include <string.h>

#include "kernels.h"
#include "layout.h"

#define DW_VECTOR static inline __attribute__((always_inline))

/* What lies so many bytes on, which may be outside of everything: no pointer goes there. */
#define DW_PREFETCH(from, bytes)                                                                   \
    _mm_prefetch((const char *)((uintptr_t)(from) + (bytes)), _MM_HINT_T0)
#define DW_PREFETCH_FAR(from, bytes)                                                               \
    _mm_prefetch((const char *)((uintptr_t)(from) + (bytes)), _MM_HINT_T1) /* not into the first   \
                                                                              level */

/* The unsigned maximum over columns: four pieces of four lanes each to one lane per piece. */
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

/* Four or two bytes of a plane, from anywhere. */
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

#endif
