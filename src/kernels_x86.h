/* SPDX-License-Identifier: Apache-2.0
 * kernels_x86.h - what the vector kernels of x86-64 share below 256 bits: planes and reductions of 16 codes. */
#ifndef DW_KERNELS_X86_H
#define DW_KERNELS_X86_H

#include <immintrin.h>
#include <string.h>

#include "kernels.h"
#include "layout.h"

#define DW_VECTOR static inline __attribute__((always_inline))

#define DW_PREFETCH(address) _mm_prefetch((const char *)(address), _MM_HINT_T0)

/* The unsigned maximum over columns: four pieces of four lanes each to one lane per piece. */
DW_VECTOR __m128i columns_of_four(const int32_t *quarters)
{
    __m128i a = _mm_load_si128((const void *)quarters), b = _mm_load_si128((const void *)(quarters + 4));
    __m128i c = _mm_load_si128((const void *)(quarters + 8)), d = _mm_load_si128((const void *)(quarters + 12));
    __m128i ab = _mm_max_epu32(_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b));
    __m128i cd = _mm_max_epu32(_mm_unpacklo_epi32(c, d), _mm_unpackhi_epi32(c, d));
    return _mm_max_epu32(_mm_unpacklo_epi64(ab, cd), _mm_unpackhi_epi64(ab, cd));
}

/* Planes of 16 codes. Pairs, then quadruples of codes are joined by multiplying and adding: maddubs sums a + b * 2^width. */
DW_VECTOR void bytes_put4(uint8_t *to, __m128i codes)
{
    __m128i pairs = _mm_maddubs_epi16(codes, _mm_set1_epi16(0x1001));
    _mm_storel_epi64((void *)to, _mm_packus_epi16(pairs, pairs));
}

DW_VECTOR void bytes_put2(uint8_t *to, __m128i codes)
{
    __m128i fours = _mm_madd_epi16(_mm_maddubs_epi16(codes, _mm_set1_epi16(0x0401)), _mm_set1_epi32(0x00100001));
    __m128i words = _mm_packs_epi32(fours, fours);
    int32_t packed = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
    memcpy(to, &packed, sizeof packed);
}

#define BYTES_FIELD(codes, from, width) \
    _mm_and_si128(_mm_srli_epi16(codes, from), _mm_set1_epi8((char)((1 << (width)) - 1)))

/* Bit `from` of every code; what crosses from one byte into the next stays below its top bit. */
#define BYTES_PUT1(to, codes, from)                                                     \
    do {                                                                                \
        uint16_t bits_ = (uint16_t)_mm_movemask_epi8(_mm_slli_epi16(codes, 7 - (from))); \
        memcpy(to, &bits_, sizeof bits_);                                               \
    } while (0)

DW_VECTOR void bytes_put(__m128i codes, uint32_t bits, uint8_t *tile, size_t elements, size_t first)
{
    switch (bits) {
    case 1: BYTES_PUT1(tile + first / 8, codes, 0); return;
    case 2: bytes_put2(tile + first / 4, codes); return;
    case 3:
        bytes_put2(tile + first / 4, BYTES_FIELD(codes, 0, 2));
        BYTES_PUT1(tile + elements / 4 + first / 8, codes, 2);
        return;
    case 4: bytes_put4(tile + first / 2, codes); return;
    case 8: _mm_storeu_si128((void *)(tile + first), codes); return;
    default: bytes_put4(tile + first / 2, BYTES_FIELD(codes, 0, 4));
    }
    if (bits == 5)
        BYTES_PUT1(tile + elements / 2 + first / 8, codes, 4);
    else
        bytes_put2(tile + elements / 2 + first / 4, BYTES_FIELD(codes, 4, 2));
    if (bits == 7) BYTES_PUT1(tile + elements / 4 * 3 + first / 8, codes, 6);
}

/* Eight, four or two bytes of a plane, from anywhere. */
DW_VECTOR int64_t take_word8(const uint8_t *from)
{
    int64_t word;
    memcpy(&word, from, sizeof word);
    return word;
}

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
