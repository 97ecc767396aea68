/* SPDX-License-Identifier: Apache-2.0
 * kernels_avx2.c - the vector kernels with AVX2: a block of 16 lanes is two registers. */
#if !defined(__AVX2__) || !defined(__F16C__) || !defined(__FMA__) || defined(__AVX512F__)
#error "build kernels_avx2.c, and no other file, with -mavx2 -mf16c -mfma"
#endif
#include "kernels/kernels_x86.h"

typedef struct f32x16 {
    __m256 a, b;
} f32x16;
typedef struct i32x16 {
    __m256i a, b;
} i32x16;
typedef i32x16 codes64;
typedef __m256i i64x8;

#define TWICE_F(operation, x, y) ((f32x16){operation((x).a, (y).a), operation((x).b, (y).b)})
#define TWICE_I(operation, x, y) ((i32x16){operation((x).a, (y).a), operation((x).b, (y).b)})
#define SHIFTED(operation, x, n) ((i32x16){operation((x).a, n), operation((x).b, n)})
#define i_shl(x, n)              SHIFTED(_mm256_slli_epi32, x, n)
#define i_shr(x, n)              SHIFTED(_mm256_srli_epi32, x, n)
#define i_sra(x, n)              SHIFTED(_mm256_srai_epi32, x, n)

DW_VECTOR i32x16 f_bits(f32x16 x)
{
    return (i32x16){_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)};
}
DW_VECTOR f32x16 i_float(i32x16 x)
{
    return (f32x16){_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)};
}
DW_VECTOR f32x16 f_set(float value)
{
    return (f32x16){_mm256_set1_ps(value), _mm256_set1_ps(value)};
}
DW_VECTOR f32x16 f_load(const void *from)
{
    return (f32x16){_mm256_loadu_ps(from), _mm256_loadu_ps((const float *)from + 8)};
}
DW_VECTOR void f_store(void *to, f32x16 x)
{
    _mm256_storeu_ps(to, x.a);
    _mm256_storeu_ps((float *)to + 8, x.b);
}
DW_VECTOR f32x16 f_add(f32x16 x, f32x16 y)
{
    return TWICE_F(_mm256_add_ps, x, y);
}
DW_VECTOR f32x16 f_sub(f32x16 x, f32x16 y)
{
    return TWICE_F(_mm256_sub_ps, x, y);
}
/* Adds a register to itself with its lanes exchanged, after the signs of the lanes whose bits are
 * set in `upper` are turned: see kernels_rotate.h. */
#define BUTTERFLY(x, exchanged, upper)                                                             \
    _mm256_add_ps(                                                                                 \
        exchanged,                                                                                 \
        _mm256_xor_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(                                    \
                             _mm256_srlv_epi32(_mm256_set1_epi32(upper),                           \
                                               _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),         \
                             31))))
#define EXCHANGED_BY(x, order) _mm256_permute_ps(x, order)
DW_VECTOR f32x16 f_butterfly1(f32x16 x)
{
    return (f32x16){BUTTERFLY(x.a, EXCHANGED_BY(x.a, 0xb1), 0xaa),
                    BUTTERFLY(x.b, EXCHANGED_BY(x.b, 0xb1), 0xaa)};
}
DW_VECTOR f32x16 f_butterfly2(f32x16 x)
{
    return (f32x16){BUTTERFLY(x.a, EXCHANGED_BY(x.a, 0x4e), 0xcc),
                    BUTTERFLY(x.b, EXCHANGED_BY(x.b, 0x4e), 0xcc)};
}
DW_VECTOR f32x16 f_butterfly4(f32x16 x)
{
    return (f32x16){BUTTERFLY(x.a, _mm256_permute2f128_ps(x.a, x.a, 1), 0xf0),
                    BUTTERFLY(x.b, _mm256_permute2f128_ps(x.b, x.b, 1), 0xf0)};
}
DW_VECTOR f32x16 f_butterfly8(f32x16 x)
{
    return (f32x16){_mm256_add_ps(x.a, x.b), _mm256_sub_ps(x.a, x.b)};
}
DW_VECTOR f32x16 f_mul(f32x16 x, f32x16 y)
{
    return TWICE_F(_mm256_mul_ps, x, y);
}
DW_VECTOR f32x16 f_div(f32x16 x, f32x16 y)
{
    return TWICE_F(_mm256_div_ps, x, y);
}
DW_VECTOR f32x16 f_min(f32x16 x, f32x16 y)
{
    return TWICE_F(_mm256_min_ps, x, y);
}
DW_VECTOR f32x16 f_max(f32x16 x, f32x16 y)
{
    return TWICE_F(_mm256_max_ps, x, y);
}
DW_VECTOR i32x16 f_less(f32x16 x, f32x16 y)
{
    return f_bits(
        (f32x16){_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ)});
}

#define f_muladd f_muladd
DW_VECTOR f32x16 f_muladd(f32x16 x, f32x16 y, f32x16 z)
{
    return (f32x16){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}

#define i_nearest(x) ((i32x16){_mm256_cvtps_epi32((x).a), _mm256_cvtps_epi32((x).b)})
#define f_whole(x)   ((f32x16){_mm256_cvtepi32_ps((x).a), _mm256_cvtepi32_ps((x).b)})

DW_VECTOR i32x16 i_set(int32_t value)
{
    return (i32x16){_mm256_set1_epi32(value), _mm256_set1_epi32(value)};
}
DW_VECTOR i32x16 i_load(const void *from)
{
    return (i32x16){_mm256_loadu_si256(from), _mm256_loadu_si256((const __m256i *)from + 1)};
}
DW_VECTOR void i_store(void *to, i32x16 x)
{
    _mm256_storeu_si256(to, x.a);
    _mm256_storeu_si256((__m256i *)to + 1, x.b);
}
DW_VECTOR i32x16 i_add(i32x16 x, i32x16 y)
{
    return TWICE_I(_mm256_add_epi32, x, y);
}
DW_VECTOR i32x16 i_sub(i32x16 x, i32x16 y)
{
    return TWICE_I(_mm256_sub_epi32, x, y);
}
DW_VECTOR i32x16 i_and(i32x16 x, i32x16 y)
{
    return TWICE_I(_mm256_and_si256, x, y);
}
DW_VECTOR i32x16 i_or(i32x16 x, i32x16 y)
{
    return TWICE_I(_mm256_or_si256, x, y);
}
DW_VECTOR i32x16 i_andnot(i32x16 x, i32x16 y)
{
    return TWICE_I(_mm256_andnot_si256, x, y);
}
DW_VECTOR i32x16 i_max(i32x16 x, i32x16 y)
{
    return TWICE_I(_mm256_max_epi32, x, y);
}
DW_VECTOR i32x16 i_max_unsigned(i32x16 x, i32x16 y)
{
    return TWICE_I(_mm256_max_epu32, x, y);
}
DW_VECTOR i32x16 i_greater(i32x16 x, i32x16 y)
{
    return TWICE_I(_mm256_cmpgt_epi32, x, y);
}
DW_VECTOR uint32_t i_signs(i32x16 x)
{
    f32x16 f = i_float(x);
    return (uint32_t)_mm256_movemask_ps(f.a) | (uint32_t)_mm256_movemask_ps(f.b) << 8;
}

/* The pack instruction works within 128-bit halves; the permutation restores the order of the
 * quarters. */
DW_VECTOR void i_store_halves(void *to, i32x16 x)
{
    _mm256_storeu_si256(to, _mm256_permute4x64_epi64(_mm256_packus_epi32(x.a, x.b), 0xd8));
}

DW_VECTOR i32x16 halves_widened(const void *from)
{
    return (i32x16){_mm256_cvtepu16_epi32(_mm_loadu_si128(from)),
                    _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)from + 1))};
}

DW_VECTOR f32x16 widen_bf16(const void *from)
{
    i32x16 halves = halves_widened(from);
    return i_float(i_shl(halves, 16));
}

/* The conversion instruction sets the quiet bit of a NaN, but the format keeps all bits of a NaN.
 * So the bit is cleared again for signalling NaN. */
DW_VECTOR f32x16 widen_f16(const void *from)
{
    f32x16 wide = {_mm256_cvtph_ps(_mm_loadu_si128(from)),
                   _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from + 1))};
    f32x16 nan = {_mm256_cmp_ps(wide.a, wide.a, _CMP_UNORD_Q),
                  _mm256_cmp_ps(wide.b, wide.b, _CMP_UNORD_Q)};
    i32x16 quiet = i_andnot(halves_widened(from), i_set(0x200)), loud = i_shl(quiet, 13);
    return i_float(i_andnot(i_and(loud, f_bits(nan)), f_bits(wide)));
}

/* The carry rounds to nearest even, as in dw_bf16_round. */
DW_VECTOR void narrow_bf16(void *to, f32x16 value)
{
    i32x16 bits = f_bits(value), upper = i_shr(bits, 16);
    i32x16 sum = i_add(i_add(bits, i_set(0x7fff)), i_and(upper, i_set(1)));
    i_store_halves(to, i_shr(sum, 16));
}

DW_VECTOR void narrow_f16(void *to, f32x16 value)
{
    _mm_storeu_si128(to, _mm256_cvtps_ph(value.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128((__m128i *)to + 1,
                     _mm256_cvtps_ph(value.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

DW_VECTOR void i_store_quarter(int32_t *to, i32x16 x)
{
    __m256i half = _mm256_max_epu32(x.a, x.b);
    _mm_store_si128((void *)to,
                    _mm_max_epu32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
}

DW_VECTOR i32x16 i_columns(const int32_t *quarters)
{
    return (i32x16){
        _mm256_set_m128i(columns_of_four(quarters + 16), columns_of_four(quarters)),
        _mm256_set_m128i(columns_of_four(quarters + 48), columns_of_four(quarters + 32))};
}

/* Packs two blocks of levels into 32 bytes. */
DW_VECTOR __m256i join32(i32x16 x, i32x16 y)
{
    __m256i first = _mm256_packs_epi32(x.a, x.b), second = _mm256_packs_epi32(y.a, y.b);
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(first, second),
                                       _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

#define codes_of_levels codes_of_levels
DW_VECTOR codes64 codes_of_levels(i32x16 l0, i32x16 l1, i32x16 l2, i32x16 l3, int half)
{
    __m256i zero = _mm256_set1_epi8((char)half);
    return (codes64){_mm256_add_epi8(join32(l0, l1), zero), _mm256_add_epi8(join32(l2, l3), zero)};
}

/* The even level becomes the lower byte of a 16-bit word, the odd one the upper byte. The pack
 * instruction saturates to 16 bits, so it does not change such words. */
DW_VECTOR __m256i pair32(i32x16 even, i32x16 odd)
{
    i32x16 both = i_or(i_and(even, i_set(0xff)), i_shl(odd, 8));
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(both.a, both.b), 0xd8);
}

#define codes_of_pairs codes_of_pairs
DW_VECTOR codes64 codes_of_pairs(i32x16 even0, i32x16 odd0, i32x16 even1, i32x16 odd1, int half)
{
    __m256i zero = _mm256_set1_epi8((char)half);
    return (codes64){_mm256_add_epi8(pair32(even0, odd0), zero),
                     _mm256_add_epi8(pair32(even1, odd1), zero)};
}

#define FIELD32(codes, from, width)                                                                \
    _mm256_and_si256(_mm256_srli_epi16(codes, from), _mm256_set1_epi8((char)((1 << (width)) - 1)))
#define codes_field(codes, from, width)                                                            \
    ((codes64){FIELD32((codes).a, from, width), FIELD32((codes).b, from, width)})

DW_VECTOR void codes_put8(uint8_t *to, codes64 codes)
{
    i_store(to, codes);
}

DW_VECTOR void codes_put4(uint8_t *to, codes64 codes)
{
    __m256i factors = _mm256_set1_epi16(0x1001);
    __m256i packed = _mm256_packus_epi16(_mm256_maddubs_epi16(codes.a, factors),
                                         _mm256_maddubs_epi16(codes.b, factors));
    _mm256_storeu_si256((void *)to, _mm256_permute4x64_epi64(packed, 0xd8));
}

DW_VECTOR __m256i fours32(__m256i codes)
{
    return _mm256_madd_epi16(_mm256_maddubs_epi16(codes, _mm256_set1_epi16(0x0401)),
                             _mm256_set1_epi32(0x00100001));
}

DW_VECTOR void codes_put2(uint8_t *to, codes64 codes)
{
    __m256i words = _mm256_packs_epi32(fours32(codes.a), fours32(codes.b));
    __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(words, words),
                                                _mm256_setr_epi32(0, 4, 1, 5, 0, 4, 1, 5));
    _mm_storeu_si128((void *)to, _mm256_castsi256_si128(bytes));
}

#define codes_put1(to, codes, from)                                                                \
    do {                                                                                           \
        uint32_t bits_[2] = {                                                                      \
            (uint32_t)_mm256_movemask_epi8(_mm256_slli_epi16((codes).a, 7 - (from))),              \
            (uint32_t)_mm256_movemask_epi8(_mm256_slli_epi16((codes).b, 7 - (from)))};             \
        memcpy(to, bits_, sizeof bits_);                                                           \
    } while (0)

DW_VECTOR i32x16 i_take8(const uint8_t *from)
{
    return (i32x16){_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)from)),
                    _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(from + 8)))};
}

DW_VECTOR i32x16 i_take4(const uint8_t *from)
{
    __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28), low = _mm256_set1_epi32(15);
    return (i32x16){
        _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(take_word4(from)), shifts), low),
        _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(take_word4(from + 4)), shifts), low)};
}

DW_VECTOR i32x16 i_take2(const uint8_t *from)
{
    __m256i word = _mm256_set1_epi32(take_word4(from)), low = _mm256_set1_epi32(3);
    return (i32x16){
        _mm256_and_si256(_mm256_srlv_epi32(word, _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14)),
                         low),
        _mm256_and_si256(_mm256_srlv_epi32(word, _mm256_setr_epi32(16, 18, 20, 22, 24, 26, 28, 30)),
                         low)};
}

DW_VECTOR i32x16 i_take1(const uint8_t *from)
{
    __m256i word = _mm256_set1_epi32(take_word2(from)), low = _mm256_set1_epi32(1);
    return (i32x16){
        _mm256_and_si256(_mm256_srlv_epi32(word, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)), low),
        _mm256_and_si256(_mm256_srlv_epi32(word, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)),
                         low)};
}

DW_VECTOR i32x16 i_take16(const uint8_t *from)
{
    return halves_widened(from);
}

DW_VECTOR void f_pair_parts(f32x16 x, f32x16 y, f32x16 *even, f32x16 *odd)
{
#define OF_FOUR(a, b, which)                                                                       \
    _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(a, b, which)), 0xd8))
    *even = (f32x16){OF_FOUR(x.a, x.b, 0x88), OF_FOUR(y.a, y.b, 0x88)};
    *odd = (f32x16){OF_FOUR(x.a, x.b, 0xdd), OF_FOUR(y.a, y.b, 0xdd)};
#undef OF_FOUR
}

/* Takes the upper halves and adds one where the lower halves are above a tie, or at a tie beside an
 * odd upper half. */
DW_VECTOR __m256i narrow_pair16(__m256i e, __m256i o)
{
    __m256i upper = _mm256_blend_epi16(_mm256_srli_epi32(e, 16), o, 0xaa),
            lower = _mm256_blend_epi16(e, _mm256_slli_epi32(o, 16), 0xaa);
    __m256i tie = _mm256_adds_epu16(lower, _mm256_and_si256(upper, _mm256_set1_epi16(1)));
    /* True where tie >= 0x8001; all bits set is -1. */
    __m256i up = _mm256_cmpeq_epi16(_mm256_max_epu16(tie, _mm256_set1_epi16(-0x7fff)), tie);
    return _mm256_sub_epi16(upper, up);
}

DW_VECTOR i32x16 narrow_pair(f32x16 even, f32x16 odd)
{
    i32x16 e = f_bits(even), o = f_bits(odd);
    return (i32x16){narrow_pair16(e.a, o.a), narrow_pair16(e.b, o.b)};
}

/* A table of 16 halves: their lower and their upper bytes, both repeated in the two halves of a
 * register. */
typedef struct h_table {
    __m256i lower, upper;
} h_table;

DW_VECTOR h_table h_table_of(const void *halves)
{
    __m256i all = _mm256_loadu_si256(halves), low = _mm256_set1_epi16(0xff);
    __m256i lower = _mm256_and_si256(all, low), upper = _mm256_srli_epi16(all, 8);
    /* order of the quarters: lower 0, upper 0, lower 1, upper 1 */
    __m256i both = _mm256_packus_epi16(lower, upper);
    return (h_table){_mm256_permute4x64_epi64(both, 0x88), _mm256_permute4x64_epi64(both, 0xdd)};
}

/* Looks up 64 codes of 4 bits. The words of 8 codes are first permuted so that two rounds of
 * interleaving within register halves leave them in order. */
#define h_lookup h_lookup
DW_VECTOR void h_lookup(h_table table, const uint8_t *codes, i32x16 *first, i32x16 *second)
{
    __m256i all = _mm256_permutevar8x32_epi32(_mm256_loadu_si256((const void *)codes),
                                              _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7)),
            low = _mm256_set1_epi8(15);
    __m256i even = _mm256_and_si256(all, low),
            odd = _mm256_and_si256(_mm256_srli_epi16(all, 4), low);
    __m256i a = _mm256_unpacklo_epi8(even, odd), b = _mm256_unpackhi_epi8(even, odd);
    __m256i a0 = _mm256_shuffle_epi8(table.lower, a), a1 = _mm256_shuffle_epi8(table.upper, a),
            b0 = _mm256_shuffle_epi8(table.lower, b), b1 = _mm256_shuffle_epi8(table.upper, b);
    *first = (i32x16){_mm256_unpacklo_epi8(a0, a1), _mm256_unpackhi_epi8(a0, a1)};
    *second = (i32x16){_mm256_unpacklo_epi8(b0, b1), _mm256_unpackhi_epi8(b0, b1)};
}

DW_VECTOR i64x8 i_no_products(void)
{
    return _mm256_setzero_si256();
}

DW_VECTOR i64x8 i_pair_products(i64x8 sum, i32x16 x)
{
    __m256i a = _mm256_mul_epu32(x.a, _mm256_srli_epi64(x.a, 32)),
            b = _mm256_mul_epu32(x.b, _mm256_srli_epi64(x.b, 32));
    return _mm256_add_epi64(sum, _mm256_add_epi64(a, b));
}

DW_VECTOR uint64_t i_sum_products(i64x8 sum)
{
    uint64_t total = 0, lanes[4];
    _mm256_storeu_si256((void *)lanes, sum);
    for (int i = 0; i < 4; i++) total += lanes[i];
    return total;
}

/* Philox: one counter per 64-bit lane. */
typedef __m256i w64;
enum { W_LANES = 4, SIDES = 2 };
DW_VECTOR w64 w_set(uint32_t value)
{
    return _mm256_set1_epi64x(value);
}
DW_VECTOR w64 w_fill(const uint64_t *value)
{
    return _mm256_set1_epi64x((long long)*value);
}
DW_VECTOR w64 w_count(uint64_t first)
{
    return _mm256_add_epi64(_mm256_set1_epi64x((int64_t)first), _mm256_setr_epi64x(0, 1, 2, 3));
}
DW_VECTOR w64 w_mul(w64 a, w64 b)
{
    return _mm256_mul_epu32(a, b);
}
DW_VECTOR w64 w_shr32(w64 a)
{
    return _mm256_shuffle_epi32(a, 0xf5);
} /* A shuffle instead of a shift leaves the shift's port to the products. The upper half of each
     lane is then not 0, but it is not used. */
DW_VECTOR w64 w_xor3(w64 a, w64 b, w64 c)
{
    return _mm256_xor_si256(_mm256_xor_si256(a, b), c);
}
DW_VECTOR w64 w_join(w64 low, w64 high)
{
    return _mm256_blend_epi32(low, _mm256_shuffle_epi32(high, 0xa0), 0xaa);
}
DW_VECTOR void w_store_turns(void *to, w64 a, w64 b)
{
    __m256i even = _mm256_unpacklo_epi64(a, b), odd = _mm256_unpackhi_epi64(a, b);
    _mm256_storeu_si256(to, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256((__m256i *)to + 1, _mm256_permute2x128_si256(even, odd, 0x31));
}

DW_VECTOR void i_stream(void *to, i32x16 x)
{
    _mm256_stream_si256(to, x.a);
    _mm256_stream_si256((__m256i *)to + 1, x.b);
}
DW_VECTOR void i_stream_end(void)
{
    _mm_sfence();
}

typedef struct f64x16 {
    __m256d part[4];
} f64x16;

DW_VECTOR f64x16 d_none(void)
{
    return (f64x16){
        {_mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd()}};
}

DW_VECTOR __m256d d_add_four(__m256d sum, __m128 x)
{
    __m256d wide = _mm256_cvtps_pd(x);
    return _mm256_add_pd(sum, _mm256_mul_pd(wide, wide));
}

DW_VECTOR f64x16 d_add_square(f64x16 sum, f32x16 x)
{
    return (f64x16){{d_add_four(sum.part[0], _mm256_castps256_ps128(x.a)),
                     d_add_four(sum.part[1], _mm256_extractf128_ps(x.a, 1)),
                     d_add_four(sum.part[2], _mm256_castps256_ps128(x.b)),
                     d_add_four(sum.part[3], _mm256_extractf128_ps(x.b, 1))}};
}

DW_VECTOR void d_store(double *to, f64x16 x)
{
    for (int i = 0; i < 4; i++) _mm256_storeu_pd(to + 4 * i, x.part[i]);
}

/* Microscaling. */
DW_VECTOR i32x16 i_shr_each(i32x16 x, i32x16 n)
{
    return TWICE_I(_mm256_srlv_epi32, x, n);
}

DW_VECTOR i32x16 i_by_sign(f32x16 of, i32x16 negative, i32x16 positive)
{
    f32x16 yes = i_float(negative), no = i_float(positive);
    return f_bits(
        (f32x16){_mm256_blendv_ps(no.a, yes.a, of.a), _mm256_blendv_ps(no.b, yes.b, of.b)});
}

DW_VECTOR __m256i low_bytes32(i32x16 x, i32x16 y)
{
    __m256i low = _mm256_set1_epi32(0xff);
    __m256i first = _mm256_packus_epi32(_mm256_and_si256(x.a, low), _mm256_and_si256(x.b, low));
    __m256i second = _mm256_packus_epi32(_mm256_and_si256(y.a, low), _mm256_and_si256(y.b, low));
    return _mm256_permutevar8x32_epi32(_mm256_packus_epi16(first, second),
                                       _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

DW_VECTOR codes64 codes_of_low_bytes(i32x16 c0, i32x16 c1, i32x16 c2, i32x16 c3)
{
    return (codes64){low_bytes32(c0, c1), low_bytes32(c2, c3)};
}

/* The even lane becomes the lower word of 32 bits, the odd lane the upper. */
DW_VECTOR __m256i low_byte_pairs32(i32x16 even, i32x16 odd)
{
    __m256i low = _mm256_set1_epi16(0xff);
    __m256i a = _mm256_blend_epi16(even.a, _mm256_slli_epi32(odd.a, 16), 0xaa),
            b = _mm256_blend_epi16(even.b, _mm256_slli_epi32(odd.b, 16), 0xaa);
    return _mm256_permute4x64_epi64(
        _mm256_packus_epi16(_mm256_and_si256(a, low), _mm256_and_si256(b, low)), 0xd8);
}

DW_VECTOR codes64 codes_of_low_byte_pairs(i32x16 even0, i32x16 odd0, i32x16 even1, i32x16 odd1)
{
    return (codes64){low_byte_pairs32(even0, odd0), low_byte_pairs32(even1, odd1)};
}

DW_VECTOR codes64 codes_clear(codes64 codes, int which)
{
    __m256i all = _mm256_set1_epi8((char)which);
    return (codes64){_mm256_andnot_si256(_mm256_cmpeq_epi8(codes.a, all), codes.a),
                     _mm256_andnot_si256(_mm256_cmpeq_epi8(codes.b, all), codes.b)};
}

DW_VECTOR f32x16 f_of_halves(h16x16 x)
{
    return (f32x16){_mm256_cvtph_ps(_mm256_castsi256_si128(x)),
                    _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1))};
}

DW_VECTOR void h_in_turns(h16x16 even, h16x16 odd, h16x16 *first, h16x16 *second)
{
    __m256i low = _mm256_unpacklo_epi16(even, odd), high = _mm256_unpackhi_epi16(even, odd);
    *first = _mm256_permute2x128_si256(low, high, 0x20);
    *second = _mm256_permute2x128_si256(low, high, 0x31);
}

/* these includes depend on this order */
#include "kernels/kernels_simd.h"

#include "kernels/kernels_dither.h"

#include "kernels/kernels_decode.h"
#include "kernels/kernels_encode.h"
#include "kernels/kernels_finish.h"

#include "kernels/kernels_collect_x86.h"
#include "kernels/kernels_columns.h"
#include "kernels/kernels_compact.h"
#include "kernels/kernels_mx_decode.h"
#include "kernels/kernels_mx_encode.h"
#include "kernels/kernels_parts_x86.h"
#include "kernels/kernels_rans_x86.h"
#include "kernels/kernels_rotate.h"
#include "kernels/kernels_step.h"
#include "kernels/kernels_trellis.h"
#include "kernels/kernels_weigh.h"

#include "kernels/kernels_table.h"

const dw_kernels dw_kernels_avx2 = DW_KERNELS("avx2", count_parts, sort_parts, restore_parts);
