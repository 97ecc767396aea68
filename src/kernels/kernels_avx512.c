/* SPDX-License-Identifier: Apache-2.0
 * kernels_avx512.c - the vector kernels with AVX-512: a block of 16 lanes is one register. A second
 * table has those functions that are faster with AVX-512 VBMI2. */
#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512VL__) ||                   \
    !defined(__AVX512DQ__)
#error "build kernels_avx512.c, and no other file, with -mavx512f -mavx512bw -mavx512vl -mavx512dq"
#endif
#include "kernels/kernels_x86.h"

typedef __m512 f32x16;
typedef __m512i i32x16, i64x8, codes64;

#define i_shl(a, n) _mm512_slli_epi32(a, n)
#define i_shr(a, n) _mm512_srli_epi32(a, n)
#define i_sra(a, n) _mm512_srai_epi32(a, n)

DW_VECTOR f32x16 f_set(float value)
{
    return _mm512_set1_ps(value);
}
DW_VECTOR f32x16 f_load(const void *from)
{
    return _mm512_loadu_ps(from);
}
DW_VECTOR void f_store(void *to, f32x16 a)
{
    _mm512_storeu_ps(to, a);
}
DW_VECTOR f32x16 f_add(f32x16 a, f32x16 b)
{
    return _mm512_add_ps(a, b);
}
DW_VECTOR f32x16 f_sub(f32x16 a, f32x16 b)
{
    return _mm512_sub_ps(a, b);
}
/* a + b in the lower lanes and a - b in the upper ones, whose bits are set in `upper`: see
 * kernels_rotate.h. */
#define BUTTERFLY(x, exchanged, upper)                                                             \
    _mm512_add_ps(exchanged, _mm512_mask_xor_ps(x, upper, x, _mm512_set1_ps(-0.0f)))
DW_VECTOR f32x16 f_butterfly1(f32x16 x)
{
    return BUTTERFLY(x, _mm512_permute_ps(x, 0xb1), 0xaaaa);
}
DW_VECTOR f32x16 f_butterfly2(f32x16 x)
{
    return BUTTERFLY(x, _mm512_permute_ps(x, 0x4e), 0xcccc);
}
DW_VECTOR f32x16 f_butterfly4(f32x16 x)
{
    return BUTTERFLY(x, _mm512_shuffle_f32x4(x, x, 0xb1), 0xf0f0);
}
DW_VECTOR f32x16 f_butterfly8(f32x16 x)
{
    return BUTTERFLY(x, _mm512_shuffle_f32x4(x, x, 0x4e), 0xff00);
}
DW_VECTOR f32x16 f_mul(f32x16 a, f32x16 b)
{
    return _mm512_mul_ps(a, b);
}
DW_VECTOR f32x16 f_div(f32x16 a, f32x16 b)
{
    return _mm512_div_ps(a, b);
}
DW_VECTOR f32x16 f_max(f32x16 a, f32x16 b)
{
    return _mm512_max_ps(a, b);
}
DW_VECTOR f32x16 f_min(f32x16 a, f32x16 b)
{
    return _mm512_min_ps(a, b);
}
#define f_muladd  _mm512_fmadd_ps
#define i_nearest _mm512_cvtps_epi32
#define f_whole   _mm512_cvtepi32_ps
/* The smaller magnitude of both, with the sign of the first. */
#define f_clamp(a, largest) _mm512_range_ps(a, _mm512_set1_ps(largest), 2)
DW_VECTOR i32x16 f_bits(f32x16 a)
{
    return _mm512_castps_si512(a);
}
DW_VECTOR i32x16 f_less(f32x16 a, f32x16 b)
{
    return _mm512_movm_epi32(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ));
}

DW_VECTOR i32x16 i_set(int32_t value)
{
    return _mm512_set1_epi32(value);
}
DW_VECTOR i32x16 i_load(const void *from)
{
    return _mm512_loadu_si512(from);
}
DW_VECTOR void i_store(void *to, i32x16 a)
{
    _mm512_storeu_si512(to, a);
}
DW_VECTOR f32x16 i_float(i32x16 a)
{
    return _mm512_castsi512_ps(a);
}
DW_VECTOR i32x16 i_add(i32x16 a, i32x16 b)
{
    return _mm512_add_epi32(a, b);
}
DW_VECTOR i32x16 i_sub(i32x16 a, i32x16 b)
{
    return _mm512_sub_epi32(a, b);
}
DW_VECTOR i32x16 i_and(i32x16 a, i32x16 b)
{
    return _mm512_and_si512(a, b);
}
DW_VECTOR i32x16 i_or(i32x16 a, i32x16 b)
{
    return _mm512_or_si512(a, b);
}
DW_VECTOR i32x16 i_andnot(i32x16 a, i32x16 b)
{
    return _mm512_andnot_si512(a, b);
}
DW_VECTOR i32x16 i_max(i32x16 a, i32x16 b)
{
    return _mm512_max_epi32(a, b);
}
DW_VECTOR i32x16 i_max_unsigned(i32x16 a, i32x16 b)
{
    return _mm512_max_epu32(a, b);
}
DW_VECTOR i32x16 i_greater(i32x16 a, i32x16 b)
{
    return _mm512_movm_epi32(_mm512_cmpgt_epi32_mask(a, b));
}
#define i_pick(a, b, mask) _mm512_ternarylogic_epi32(mask, a, b, 0xca)
DW_VECTOR uint32_t i_signs(i32x16 a)
{
    return _mm512_movepi32_mask(a);
}
DW_VECTOR void i_store_halves(void *to, i32x16 a)
{
    _mm256_storeu_si256(to, _mm512_cvtepi32_epi16(a));
}

DW_VECTOR f32x16 widen_bf16(const void *from)
{
    return i_float(i_shl(_mm512_cvtepu16_epi32(_mm256_loadu_si256(from)), 16));
}

/* The conversion instruction sets the quiet bit of a NaN, but the format keeps all bits of a NaN.
 * So the bit is cleared again for signalling NaN. */
DW_VECTOR f32x16 widen_f16(const void *from)
{
    __m256i halves = _mm256_loadu_si256(from),
            magnitude = _mm256_and_si256(halves, _mm256_set1_epi16(0x7fff));
    __m256i above_infinity = _mm256_sub_epi16(magnitude, _mm256_set1_epi16(0x7c01));
    __mmask16 loud = _mm256_cmplt_epu16_mask(above_infinity, _mm256_set1_epi16(0x1ff));
    i32x16 wide = f_bits(_mm512_cvtph_ps(halves));
    return i_float(_mm512_mask_and_epi32(wide, loud, wide, i_set(~0x400000)));
}

/* The carry rounds to nearest even, as in dw_bf16_round. */
DW_VECTOR void narrow_bf16(void *to, f32x16 value)
{
    i32x16 bits = f_bits(value), odd = i_and(i_shr(bits, 16), i_set(1));
    i_store_halves(to, i_shr(i_add(i_add(bits, i_set(0x7fff)), odd), 16));
}

DW_VECTOR void narrow_f16(void *to, f32x16 value)
{
    _mm256_storeu_si256(to, _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* Reduces the extremes of a piece to 8 lanes each, and stores them: first the positive ones, then
 * the negative ones. Flipping the sign bit of the negative extremes makes them magnitudes, so the
 * signed maximum is right for both. A lane below 0 stands for no value of this sign. */
#define extremes_put extremes_put
DW_VECTOR void extremes_put(int32_t *folds, uint32_t piece, __m512i positive, __m512i negative)
{
    __m512i turned = _mm512_xor_si512(negative, _mm512_set1_epi32(INT32_MIN));
    __m512i low = _mm512_shuffle_i64x2(positive, turned, 0x44),
            high = _mm512_shuffle_i64x2(positive, turned, 0xee);
    _mm512_store_si512(folds + 16 * piece, _mm512_max_epi32(low, high));
}

/* Reduces the extremes of pieces i and i + 4 to four lanes each. Order of the result: positive and
 * negative extremes of piece i, then positive and negative extremes of piece i + 4. */
DW_VECTOR __m512i fold_two(const int32_t *folds, int i)
{
    __m512i a = _mm512_load_si512(folds + 16 * i), b = _mm512_load_si512(folds + 16 * (i + 4));
    return _mm512_max_epi32(_mm512_shuffle_i64x2(a, b, 0x88), _mm512_shuffle_i64x2(a, b, 0xdd));
}

/* Reduces the extremes of pieces i to i + 7 to one lane each. Order of the result: 4 positive and 4
 * negative extremes of the first four pieces, then the same of the other four. */
DW_VECTOR __m512i fold_eight(const int32_t *folds, int i)
{
    __m512i a = fold_two(folds, i), b = fold_two(folds, i + 1), c = fold_two(folds, i + 2),
            d = fold_two(folds, i + 3);
    __m512i ab = _mm512_max_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    __m512i cd = _mm512_max_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    return _mm512_max_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

DW_VECTOR void extremes_take(const int32_t *folds, __m512i *positive, __m512i *negative)
{
    __m512i low = fold_eight(folds, 0), high = fold_eight(folds, 8), none = _mm512_setzero_si512();
    *positive = _mm512_max_epi32(_mm512_shuffle_i64x2(low, high, 0x88), none);
    *negative = _mm512_max_epi32(_mm512_shuffle_i64x2(low, high, 0xdd), none);
}

/* The pack instructions work within quarters of a register: quarter k of the result holds elements
 * 4k to 4k+3 of each block. */
#define codes_of_levels codes_of_levels
DW_VECTOR codes64 codes_of_levels(i32x16 a, i32x16 b, i32x16 c, i32x16 d, int half)
{
    __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i levels = _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
    return _mm512_permutexvar_epi32(order, _mm512_add_epi8(levels, _mm512_set1_epi8((char)half)));
}

/* The even level becomes the lower byte of a 16-bit word, the odd one the upper byte. The pack
 * instruction saturates to 16 bits, so it does not change such words. */
#define codes_of_pairs codes_of_pairs
DW_VECTOR codes64 codes_of_pairs(i32x16 even0, i32x16 odd0, i32x16 even1, i32x16 odd1, int half)
{
    __m512i low = _mm512_set1_epi32(0xff), order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    __m512i first = i_pick(even0, i_shl(odd0, 8), low), second = i_pick(even1, i_shl(odd1, 8), low);
    __m512i levels = _mm512_permutexvar_epi64(order, _mm512_packs_epi32(first, second));
    return _mm512_add_epi8(levels, _mm512_set1_epi8((char)half));
}

#define codes_field(codes, from, width)                                                            \
    _mm512_and_si512(_mm512_srli_epi16(codes, from), _mm512_set1_epi8((char)((1 << (width)) - 1)))

DW_VECTOR void codes_put8(uint8_t *to, codes64 codes)
{
    _mm512_storeu_si512(to, codes);
}

DW_VECTOR void codes_put4(uint8_t *to, codes64 codes)
{
    __m512i pairs = _mm512_maddubs_epi16(codes, _mm512_set1_epi16(0x1001));
    _mm256_storeu_si256((void *)to, _mm512_cvtepi16_epi8(pairs));
}

DW_VECTOR void codes_put2(uint8_t *to, codes64 codes)
{
    __m512i pairs = _mm512_maddubs_epi16(codes, _mm512_set1_epi16(0x0401));
    _mm_storeu_si128((void *)to,
                     _mm512_cvtepi32_epi8(_mm512_madd_epi16(pairs, _mm512_set1_epi32(0x00100001))));
}

#define codes_put1(to, codes, from)                                                                \
    do {                                                                                           \
        uint64_t bits_ = _mm512_movepi8_mask(_mm512_slli_epi16(codes, 7 - (from)));                \
        memcpy(to, &bits_, sizeof bits_);                                                          \
    } while (0)

DW_VECTOR i32x16 i_take8(const uint8_t *from)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)from));
}

/* Every byte is widened to 64 bits. A copy shifted by 28 places puts its high nibble at the bottom
 * of the upper lane. */
DW_VECTOR i32x16 i_take4(const uint8_t *from)
{
    __m512i bytes = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const void *)from));
    return i_and(i_or(bytes, _mm512_slli_epi64(bytes, 28)), i_set(15));
}

DW_VECTOR i32x16 i_take2(const uint8_t *from)
{
    __m512i shifts = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return i_and(_mm512_srlv_epi32(i_set(take_word4(from)), shifts), i_set(3));
}

DW_VECTOR i32x16 i_take1(const uint8_t *from)
{
    __m512i shifts = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return i_and(_mm512_srlv_epi32(i_set(take_word2(from)), shifts), i_set(1));
}

#define f_lookup(table, indices) _mm512_permutexvar_ps(indices, table)

/* Loads two words of eight codes, each into eight lanes, with two loads and no permutation. */
DW_VECTOR i32x16 i_loose4(const uint8_t *from)
{
    __m512i shifts = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    __m512i words = _mm512_broadcastd_epi32(_mm_loadu_si32(from));
    return _mm512_srlv_epi32(_mm512_mask_broadcastd_epi32(words, 0xff00, _mm_loadu_si32(from + 4)),
                             shifts);
}

DW_VECTOR i32x16 i_loose2(const uint8_t *from)
{
    __m512i shifts = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return _mm512_srlv_epi32(i_set(take_word4(from)), shifts);
}

DW_VECTOR i32x16 i_loose1(const uint8_t *from)
{
    __m512i shifts = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_srlv_epi32(i_set(take_word2(from)), shifts);
}

DW_VECTOR i32x16 i_take16(const uint8_t *from)
{
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)from));
}

DW_VECTOR void f_pair_parts(f32x16 a, f32x16 b, f32x16 *even, f32x16 *odd)
{
    __m512i evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    *even = _mm512_permutex2var_ps(a, evens, b);
    *odd = _mm512_permutex2var_ps(a, _mm512_add_epi32(evens, _mm512_set1_epi32(1)), b);
}

/* Takes the upper halves and adds one where the lower halves are above a tie, or at a tie beside an
 * odd upper half. */
DW_VECTOR i32x16 narrow_pair(f32x16 even, f32x16 odd)
{
    const __mmask32 odds = 0xaaaaaaaa;
    __m512i e = f_bits(even), o = f_bits(odd), one = _mm512_set1_epi16(1);
    __m512i upper = _mm512_mask_blend_epi16(odds, i_shr(e, 16), o),
            lower = _mm512_mask_blend_epi16(odds, e, i_shl(o, 16));
    __m512i tie = _mm512_adds_epu16(lower, i_and(upper, one));
    __mmask32 up = _mm512_cmpgt_epu16_mask(tie, _mm512_set1_epi16(-0x8000));
    return _mm512_mask_sub_epi16(upper, up, upper, _mm512_set1_epi16(-1));
}

typedef __m512i w64;
DW_VECTOR w64 w_shr32(w64 a)
{
    return _mm512_shuffle_epi32(a, (_MM_PERM_ENUM)0xf5);
} /* A shuffle instead of a shift leaves the shift's port to sums and products. */

DW_VECTOR i64x8 i_no_products(void)
{
    return _mm512_setzero_si512();
}

DW_VECTOR i64x8 i_pair_products(i64x8 sum, i32x16 a)
{
    return _mm512_add_epi64(sum, _mm512_mul_epu32(a, w_shr32(a)));
}

DW_VECTOR uint64_t i_sum_products(i64x8 sum)
{
    uint64_t total = 0, lanes[8];
    _mm512_storeu_si512(lanes, sum);
    for (int i = 0; i < 8; i++) total += lanes[i];
    return total;
}

/* Philox: one counter per 64-bit lane. */
enum { W_LANES = 8, SIDES = 4 };
DW_VECTOR w64 w_set(uint32_t value)
{
    return _mm512_set1_epi64(value);
}
DW_VECTOR w64 w_fill(const uint64_t *value)
{
    return _mm512_set1_epi64((long long)*value);
}
DW_VECTOR w64 w_count(uint64_t first)
{
    return _mm512_add_epi64(_mm512_set1_epi64((int64_t)first),
                            _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
}
DW_VECTOR w64 w_mul(w64 a, w64 b)
{
    return _mm512_mul_epu32(a, b);
}
DW_VECTOR w64 w_xor3(w64 a, w64 b, w64 c)
{
    return _mm512_ternarylogic_epi64(a, b, c, 0x96);
}
DW_VECTOR w64 w_join(w64 low, w64 high)
{
    return _mm512_mask_blend_epi32(0xaaaa, low, _mm512_shuffle_epi32(high, (_MM_PERM_ENUM)0xa0));
}
DW_VECTOR void w_store_turns(void *to, w64 a, w64 b)
{
    __m512i low = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11),
            high = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
    _mm512_storeu_si512(to, _mm512_permutex2var_epi64(a, low, b));
    _mm512_storeu_si512((char *)to + 64, _mm512_permutex2var_epi64(a, high, b));
}

DW_VECTOR void i_stream(void *to, i32x16 a)
{
    _mm512_stream_si512(to, a);
}
DW_VECTOR void i_stream_end(void)
{
    _mm_sfence();
}

typedef struct f64x16 {
    __m512d a, b;
} f64x16;

DW_VECTOR f64x16 d_none(void)
{
    return (f64x16){_mm512_setzero_pd(), _mm512_setzero_pd()};
}

DW_VECTOR f64x16 d_add_square(f64x16 sum, f32x16 x)
{
    __m512d a = _mm512_cvtps_pd(_mm512_castps512_ps256(x)),
            b = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
    return (f64x16){_mm512_add_pd(sum.a, _mm512_mul_pd(a, a)),
                    _mm512_add_pd(sum.b, _mm512_mul_pd(b, b))};
}

DW_VECTOR void d_store(double *to, f64x16 x)
{
    _mm512_storeu_pd(to, x.a);
    _mm512_storeu_pd(to + 8, x.b);
}

/* Microscaling. */
DW_VECTOR i32x16 i_shr_each(i32x16 a, i32x16 n)
{
    return _mm512_srlv_epi32(a, n);
}

DW_VECTOR i32x16 i_by_sign(f32x16 of, i32x16 negative, i32x16 positive)
{
    return _mm512_mask_mov_epi32(positive, _mm512_movepi32_mask(f_bits(of)), negative);
}

DW_VECTOR codes64 codes_of_low_bytes(i32x16 a, i32x16 b, i32x16 c, i32x16 d)
{
    __m512i low = _mm512_set1_epi32(0xff),
            order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i first = _mm512_packus_epi32(i_and(a, low), i_and(b, low)),
            second = _mm512_packus_epi32(i_and(c, low), i_and(d, low));
    return _mm512_permutexvar_epi32(order, _mm512_packus_epi16(first, second));
}

/* The even lane becomes the lower word of 32 bits, the odd lane the upper. */
DW_VECTOR codes64 codes_of_low_byte_pairs(i32x16 even0, i32x16 odd0, i32x16 even1, i32x16 odd1)
{
    __m512i lower = _mm512_set1_epi32(0xffff), low = _mm512_set1_epi16(0xff),
            order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    __m512i first = i_pick(even0, i_shl(odd0, 16), lower),
            second = i_pick(even1, i_shl(odd1, 16), lower);
    return _mm512_permutexvar_epi64(order,
                                    _mm512_packus_epi16(i_and(first, low), i_and(second, low)));
}

DW_VECTOR codes64 codes_clear(codes64 codes, int which)
{
    __mmask64 kept = _mm512_cmpneq_epi8_mask(codes, _mm512_set1_epi8((char)which));
    return _mm512_maskz_mov_epi8(kept, codes);
}

DW_VECTOR f32x16 f_of_halves(h16x16 a)
{
    return _mm512_cvtph_ps(a);
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
#include "kernels/kernels_parts_vbmi2.h"
#include "kernels/kernels_parts_x86.h"
#include "kernels/kernels_rans_x86.h"
#include "kernels/kernels_rotate.h"
#include "kernels/kernels_step.h"
#include "kernels/kernels_trellis.h"
#include "kernels/kernels_weigh.h"

#include "kernels/kernels_table.h"

const dw_kernels dw_kernels_avx512 = DW_KERNELS("avx512", count_parts, sort_parts, restore_parts);
const dw_kernels dw_kernels_vbmi2 =
    DW_KERNELS("vbmi2", count_parts_64, sort_parts_64, restore_parts_64);
