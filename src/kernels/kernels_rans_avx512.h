/* SPDX-License-Identifier: Apache-2.0
 * kernels_rans_avx512.h - the steps of the entropy coder with AVX-512: a vector is sixteen
 * states. */
typedef struct rans_group {
    __m512i a, b;
} rans_group;

DW_VECTOR rans_group rans_take(const uint32_t *states)
{
    return (rans_group){_mm512_loadu_si512((const void *)states),
                        _mm512_loadu_si512((const void *)(states + 16))};
}

DW_VECTOR void rans_give(uint32_t *states, rans_group x)
{
    _mm512_storeu_si512((void *)states, x.a);
    _mm512_storeu_si512((void *)(states + 16), x.b);
}

/* Decodes one symbol of each of sixteen states. index: the entries of `slots` that the states
 * select. Returns these entries. */
DW_VECTOR __m512i rans_step(__m512i *states, __m512i index, const uint32_t *slots,
                            const uint8_t **words)
{
    __m512i x = *states, low = _mm512_set1_epi32(DW_RANS_SLOTS - 1);
    __m256i first = rans_eight_slots(slots, _mm512_castsi512_si256(index)),
            second = rans_eight_slots(slots, _mm512_extracti64x4_epi64(index, 1));
    __m512i slot = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
    __m512i f = _mm512_and_si512(slot, low);
    __m512i rank = _mm512_and_si512(_mm512_srli_epi32(slot, DW_RANS_BITS), low);
    x = _mm512_add_epi32(_mm512_mullo_epi32(f, _mm512_srli_epi32(x, DW_RANS_BITS)), rank);
    __mmask16 needs = _mm512_cmplt_epu32_mask(x, _mm512_set1_epi32(DW_RANS_LOWEST));
    __m512i next = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)*words));
    next = _mm512_maskz_expand_epi32(needs, next);
    *words += 2 * _mm_popcnt_u32(needs);
    *states = _mm512_mask_or_epi32(x, needs, _mm512_slli_epi32(x, 16), next);
    return slot;
}

/* Returns the symbols as bytes. */
DW_VECTOR __m128i rans_decode_step(__m512i *states, const uint32_t *slots, const uint8_t **words)
{
    __m512i index = _mm512_and_si512(*states, _mm512_set1_epi32(DW_RANS_SLOTS - 1));
    return _mm512_cvtepi32_epi8(
        _mm512_srli_epi32(rans_step(states, index, slots, words), RANS_SYMBOL_AT));
}

/* The same where codes follow a trellis. The table of kind 1 lies behind that of kind 0. */
DW_VECTOR __m128i rans_trellis_step(__m512i *states, __m512i *trellis, const uint32_t *slots,
                                    const uint8_t **words)
{
    __m512i one = _mm512_set1_epi32(1), t = *trellis;
    __m512i index = _mm512_and_si512(*states, _mm512_set1_epi32(DW_RANS_SLOTS - 1));
    __m512i kind = _mm512_srli_epi32(t, 1);
    index = _mm512_or_si512(index, _mm512_slli_epi32(kind, DW_RANS_BITS));
    __m512i slot = rans_step(states, index, slots, words);
    __m512i is_odd = _mm512_srli_epi32(slot, RANS_SYMBOL_AT + 1);
    __m512i low = _mm512_and_si512(_mm512_xor_si512(t, is_odd), one);
    *trellis = _mm512_or_si512(_mm512_slli_epi32(low, 1), kind);
    return _mm512_cvtepi32_epi8(_mm512_srli_epi32(slot, RANS_SYMBOL_AT));
}

DW_VECTOR __m256i rans_trellis_group(rans_group *x, rans_group *trellis, const uint32_t *slots,
                                     const uint8_t **words)
{
    __m128i a = rans_trellis_step(&x->a, &trellis->a, slots, words),
            b = rans_trellis_step(&x->b, &trellis->b, slots, words);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
}

DW_VECTOR __m256i rans_decode_group(rans_group *x, const uint32_t *slots, const uint8_t **words)
{
    __m128i a = rans_decode_step(&x->a, slots, words), b = rans_decode_step(&x->b, slots, words);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
}

/* Encodes one symbol of each of sixteen states. */
DW_VECTOR __m512i rans_encode_step(__m512i x, const uint8_t *s, const uint64_t *entries,
                                   uint8_t **end)
{
    __m512i halves[2];
    for (int i = 0; i < 2; i++) { /* entries 0, 1, 4, 5, 8, 9, 12, 13; then the others */
        __m256i lower =
                    rans_four_entries(entries, s[2 * i], s[2 * i + 1], s[2 * i + 4], s[2 * i + 5]),
                upper = rans_four_entries(entries, s[2 * i + 8], s[2 * i + 9], s[2 * i + 12],
                                          s[2 * i + 13]);
        halves[i] = _mm512_inserti64x4(_mm512_castsi256_si512(lower), upper, 1);
    }
    __m512 first = _mm512_castsi512_ps(halves[0]), second = _mm512_castsi512_ps(halves[1]);
    __m512i inverse = _mm512_castps_si512(_mm512_shuffle_ps(first, second, 0x88)),
            rest = _mm512_castps_si512(_mm512_shuffle_ps(first, second, 0xdd));
    __m512i low = _mm512_set1_epi32(DW_RANS_SLOTS - 1), missing = _mm512_and_si512(rest, low);
    __mmask16 full =
        _mm512_cmpgt_epi32_mask(_mm512_add_epi32(_mm512_srli_epi32(x, 20), missing), low);
    int count = _mm_popcnt_u32(full);
    /* Moves the words of the full lanes, in order, to the end of the vector. What lies in front of
     * them has no meaning. */
    __m512i order =
        _mm512_add_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                         _mm512_set1_epi32(count));
    __m512i words = _mm512_permutexvar_epi32(order, _mm512_maskz_compress_epi32(full, x));
    _mm256_storeu_si256((void *)(*end - 32), _mm512_cvtepi32_epi16(words));
    *end -= 2 * count;
    x = _mm512_mask_srli_epi32(x, full, x, 16);
    __m512i more = _mm512_add_epi32(x, _mm512_srli_epi32(rest, RANS_MORE_AT));
    __m512i even = _mm512_mul_epu32(more, inverse),
            odd = _mm512_mul_epu32(_mm512_srli_epi64(more, 32), _mm512_srli_epi64(inverse, 32));
    __m512i high = _mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), 0xaaaa, odd);
    __m512i shift = _mm512_and_si512(_mm512_srli_epi32(rest, RANS_SHIFT_AT), _mm512_set1_epi32(15));
    __m512i start = _mm512_and_si512(_mm512_srli_epi32(rest, DW_RANS_BITS), low);
    return _mm512_add_epi32(_mm512_add_epi32(x, start),
                            _mm512_mullo_epi32(_mm512_srlv_epi32(high, shift), missing));
}

DW_VECTOR void rans_encode_group(rans_group *x, __m256i symbols, const uint64_t *entries,
                                 uint8_t **end)
{
    uint8_t s[DW_RANS_STATES];
    _mm256_storeu_si256((void *)s, symbols);
    x->b = rans_encode_step(x->b, s + 16, entries, end);
    x->a = rans_encode_step(x->a, s, entries, end);
}
