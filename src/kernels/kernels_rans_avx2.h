/* SPDX-License-Identifier: Apache-2.0
 * kernels_rans_avx2.h - the steps of the entropy coder with AVX2: a vector is eight states. */
#include "kernels/rans_lanes.h"

/* Fields and not an array, which compilers would keep in memory. */
typedef struct rans_group {
    __m256i a, b, c, d;
} rans_group;

DW_VECTOR rans_group rans_take(const uint32_t *states)
{
    const __m256i *from = (const void *)states;
    return (rans_group){_mm256_loadu_si256(from), _mm256_loadu_si256(from + 1),
                        _mm256_loadu_si256(from + 2), _mm256_loadu_si256(from + 3)};
}

DW_VECTOR void rans_give(uint32_t *states, rans_group x)
{
    __m256i *to = (void *)states;
    _mm256_storeu_si256(to, x.a);
    _mm256_storeu_si256(to + 1, x.b);
    _mm256_storeu_si256(to + 2, x.c);
    _mm256_storeu_si256(to + 3, x.d);
}

DW_VECTOR __m256i rans_lanes_of(const uint64_t *table, uint32_t set)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(table + set)));
}

/* Decodes one symbol of each of eight states. index: the entries of `slots` that the states select.
 * Returns these entries. */
DW_VECTOR __m256i rans_step(__m256i *states, __m256i index, const uint32_t *slots,
                            const uint8_t **words)
{
    __m256i x = *states, low = _mm256_set1_epi32(DW_RANS_SLOTS - 1);
    __m256i slot = rans_eight_slots(slots, index);
    __m256i f = _mm256_and_si256(slot, low);
    __m256i rank = _mm256_and_si256(_mm256_srli_epi32(slot, DW_RANS_BITS), low);
    x = _mm256_add_epi32(_mm256_mullo_epi32(f, _mm256_srli_epi32(x, DW_RANS_BITS)), rank);
    __m256i needs = _mm256_cmpeq_epi32(_mm256_srli_epi32(x, 16), _mm256_setzero_si256());
    uint32_t set = (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(needs));
    __m256i next = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)*words));
    next = _mm256_permutevar8x32_epi32(next, rans_lanes_of(rans_words_of_lanes, set));
    *words += 2 * _mm_popcnt_u32(set);
    *states = _mm256_blendv_epi8(x, _mm256_or_si256(_mm256_slli_epi32(x, 16), next), needs);
    return slot;
}

DW_VECTOR __m256i rans_decode_step(__m256i *states, const uint32_t *slots, const uint8_t **words)
{
    __m256i index = _mm256_and_si256(*states, _mm256_set1_epi32(DW_RANS_SLOTS - 1));
    return _mm256_srli_epi32(rans_step(states, index, slots, words), RANS_SYMBOL_AT);
}

/* The same where codes follow a trellis. The table of kind 1 lies behind that of kind 0. */
DW_VECTOR __m256i rans_trellis_step(__m256i *states, __m256i *trellis, const uint32_t *slots,
                                    const uint8_t **words)
{
    __m256i one = _mm256_set1_epi32(1), t = *trellis;
    __m256i index = _mm256_and_si256(*states, _mm256_set1_epi32(DW_RANS_SLOTS - 1));
    __m256i kind = _mm256_srli_epi32(t, 1);
    index = _mm256_or_si256(index, _mm256_slli_epi32(kind, DW_RANS_BITS));
    __m256i slot = rans_step(states, index, slots, words);
    __m256i is_odd = _mm256_srli_epi32(slot, RANS_SYMBOL_AT + 1);
    __m256i low = _mm256_and_si256(_mm256_xor_si256(t, is_odd), one);
    *trellis = _mm256_or_si256(_mm256_slli_epi32(low, 1), kind);
    return _mm256_srli_epi32(slot, RANS_SYMBOL_AT);
}

/* Joins the symbols of 32 states, eight in each vector, to bytes in order. */
DW_VECTOR __m256i rans_bytes(__m256i a, __m256i b, __m256i c, __m256i d)
{
    __m256i all = _mm256_packus_epi16(_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d));
    return _mm256_permutevar8x32_epi32(all, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

DW_VECTOR __m256i rans_trellis_group(rans_group *x, rans_group *trellis, const uint32_t *slots,
                                     const uint8_t **words)
{
    __m256i a = rans_trellis_step(&x->a, &trellis->a, slots, words),
            b = rans_trellis_step(&x->b, &trellis->b, slots, words),
            c = rans_trellis_step(&x->c, &trellis->c, slots, words),
            d = rans_trellis_step(&x->d, &trellis->d, slots, words);
    return rans_bytes(a, b, c, d);
}

/* Returns the symbols as bytes. */
DW_VECTOR __m256i rans_decode_group(rans_group *x, const uint32_t *slots, const uint8_t **words)
{
    __m256i a = rans_decode_step(&x->a, slots, words), b = rans_decode_step(&x->b, slots, words),
            c = rans_decode_step(&x->c, slots, words), d = rans_decode_step(&x->d, slots, words);
    return rans_bytes(a, b, c, d);
}

/* Encodes one symbol of each of eight states. */
DW_VECTOR __m256i rans_encode_step(__m256i x, const uint8_t *s, const uint64_t *entries,
                                   uint8_t **end)
{
    __m256 first = _mm256_castsi256_ps(rans_four_entries(entries, s[0], s[1], s[4], s[5])),
           second = _mm256_castsi256_ps(rans_four_entries(entries, s[2], s[3], s[6], s[7]));
    __m256i inverse = _mm256_castps_si256(_mm256_shuffle_ps(first, second, 0x88)),
            rest = _mm256_castps_si256(_mm256_shuffle_ps(first, second, 0xdd));
    __m256i low = _mm256_set1_epi32(DW_RANS_SLOTS - 1), missing = _mm256_and_si256(rest, low);
    __m256i full = _mm256_cmpgt_epi32(_mm256_add_epi32(_mm256_srli_epi32(x, 20), missing), low);
    uint32_t set = (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(full));
    __m256i words = _mm256_permutevar8x32_epi32(_mm256_and_si256(x, _mm256_set1_epi32(0xffff)),
                                                rans_lanes_of(rans_lanes_of_words, set));
    _mm_storeu_si128((void *)(*end - 16), _mm_packus_epi32(_mm256_castsi256_si128(words),
                                                           _mm256_extracti128_si256(words, 1)));
    *end -= 2 * _mm_popcnt_u32(set);
    x = _mm256_blendv_epi8(x, _mm256_srli_epi32(x, 16), full);
    __m256i more = _mm256_add_epi32(x, _mm256_srli_epi32(rest, RANS_MORE_AT));
    __m256i even = _mm256_mul_epu32(more, inverse),
            odd = _mm256_mul_epu32(_mm256_srli_epi64(more, 32), _mm256_srli_epi64(inverse, 32));
    __m256i shift = _mm256_and_si256(_mm256_srli_epi32(rest, RANS_SHIFT_AT), _mm256_set1_epi32(15));
    __m256i quotient =
        _mm256_srlv_epi32(_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa), shift);
    __m256i start = _mm256_and_si256(_mm256_srli_epi32(rest, DW_RANS_BITS), low);
    return _mm256_add_epi32(_mm256_add_epi32(x, start), _mm256_mullo_epi32(quotient, missing));
}

DW_VECTOR void rans_encode_group(rans_group *x, __m256i symbols, const uint64_t *entries,
                                 uint8_t **end)
{
    uint8_t s[DW_RANS_STATES];
    _mm256_storeu_si256((void *)s, symbols);
    x->d = rans_encode_step(x->d, s + 24, entries, end);
    x->c = rans_encode_step(x->c, s + 16, entries, end);
    x->b = rans_encode_step(x->b, s + 8, entries, end);
    x->a = rans_encode_step(x->a, s, entries, end);
}
