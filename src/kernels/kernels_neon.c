/* SPDX-License-Identifier: Apache-2.0
 * kernels_neon.c - the vector kernels with Advanced SIMD, which all 64-bit Arm processors have: a
 * block of 16 lanes is four registers. */
#if !defined(__aarch64__) || !defined(__ARM_NEON) || !defined(__ARM_FP)
#error "build kernels_neon.c for 64-bit Arm, with its floating point and vector registers"
#endif
#if defined(__AARCH64EB__)
#error "kernels_neon.c is for little-endian memory: big-endian Arm has the kernels of kernels_c.c"
#endif
#include <arm_neon.h>
#include <string.h>

#include "arithmetic/layout.h"
#include "kernels/kernels.h"

#define DW_VECTOR static inline __attribute__((always_inline))

#define DW_PREFETCH(from, bytes) __builtin_prefetch((const void *)((uintptr_t)(from) + (bytes)))
#define DW_PREFETCH_FAR(from, bytes)                                                               \
    __builtin_prefetch((const void *)((uintptr_t)(from) + (bytes)), 0, 2)

typedef struct f32x16 {
    float32x4_t a, b, c, d;
} f32x16;
typedef struct i32x16 {
    uint32x4_t a, b, c, d;
} i32x16;
typedef struct codes64 {
    uint8x16_t a, b, c, d;
} codes64;
typedef struct i64x8 {
    /* Eight partial sums in four registers, so that additions wait less for each other. */
    uint64x2_t a, b, c, d;
} i64x8;

#define EACH(type, operation, x)                                                                   \
    ((type){operation((x).a), operation((x).b), operation((x).c), operation((x).d)})
#define PAIRS(type, operation, x, y)                                                               \
    ((type){operation((x).a, (y).a), operation((x).b, (y).b), operation((x).c, (y).c),             \
            operation((x).d, (y).d)})
#define SHIFTED(type, operation, x, n)                                                             \
    ((type){operation((x).a, n), operation((x).b, n), operation((x).c, n), operation((x).d, n)})
#define i_shl(x, n) SHIFTED(i32x16, vshlq_n_u32, x, n)
#define i_shr(x, n) SHIFTED(i32x16, vshrq_n_u32, x, n)

/* ---- Floats ---------------------------------------------------------------------------------- */

DW_VECTOR i32x16 f_bits(f32x16 x)
{
    return EACH(i32x16, vreinterpretq_u32_f32, x);
}
DW_VECTOR f32x16 i_float(i32x16 x)
{
    return EACH(f32x16, vreinterpretq_f32_u32, x);
}
DW_VECTOR f32x16 f_set(float value)
{
    float32x4_t all = vdupq_n_f32(value);
    return (f32x16){all, all, all, all};
}
/* Loads bytes: elements need no more alignment than C demands, and vld1q_u8 assumes none. */
DW_VECTOR i32x16 i_load(const void *from)
{
    const uint8_t *bytes = from;
    return (i32x16){
        vreinterpretq_u32_u8(vld1q_u8(bytes)), vreinterpretq_u32_u8(vld1q_u8(bytes + 16)),
        vreinterpretq_u32_u8(vld1q_u8(bytes + 32)), vreinterpretq_u32_u8(vld1q_u8(bytes + 48))};
}
DW_VECTOR void codes_put8(uint8_t *to, codes64 codes)
{
    vst1q_u8(to, codes.a);
    vst1q_u8(to + 16, codes.b);
    vst1q_u8(to + 32, codes.c);
    vst1q_u8(to + 48, codes.d);
}
DW_VECTOR void i_store(void *to, i32x16 x)
{
    codes_put8(to, EACH(codes64, vreinterpretq_u8_u32, x));
}
DW_VECTOR f32x16 f_load(const void *from)
{
    return i_float(i_load(from));
}
DW_VECTOR void f_store(void *to, f32x16 x)
{
    i_store(to, f_bits(x));
}
DW_VECTOR f32x16 f_add(f32x16 x, f32x16 y)
{
    return PAIRS(f32x16, vaddq_f32, x, y);
}
DW_VECTOR f32x16 f_sub(f32x16 x, f32x16 y)
{
    return PAIRS(f32x16, vsubq_f32, x, y);
}
DW_VECTOR f32x16 f_mul(f32x16 x, f32x16 y)
{
    return PAIRS(f32x16, vmulq_f32, x, y);
}
#define f_muladd f_muladd
DW_VECTOR f32x16 f_muladd(f32x16 x, f32x16 y, f32x16 z)
{
    return (f32x16){vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c),
                    vfmaq_f32(z.d, x.d, y.d)};
}
DW_VECTOR f32x16 f_div(f32x16 x, f32x16 y)
{
    return PAIRS(f32x16, vdivq_f32, x, y);
}
/* If one operand is a quiet NaN, these return the other; vminq and vmaxq would return the NaN. */
DW_VECTOR f32x16 f_min(f32x16 x, f32x16 y)
{
    return PAIRS(f32x16, vminnmq_f32, x, y);
}
DW_VECTOR f32x16 f_max(f32x16 x, f32x16 y)
{
    return PAIRS(f32x16, vmaxnmq_f32, x, y);
}
DW_VECTOR i32x16 f_less(f32x16 x, f32x16 y)
{
    return PAIRS(i32x16, vcltq_f32, x, y);
}

/* ---- Integers -------------------------------------------------------------------------------- */

/* Lanes are unsigned; operations that depend on the sign reinterpret them. */
DW_VECTOR uint32x4_t max_signed(uint32x4_t x, uint32x4_t y)
{
    return vreinterpretq_u32_s32(vmaxq_s32(vreinterpretq_s32_u32(x), vreinterpretq_s32_u32(y)));
}
DW_VECTOR uint32x4_t greater_signed(uint32x4_t x, uint32x4_t y)
{
    return vcgtq_s32(vreinterpretq_s32_u32(x), vreinterpretq_s32_u32(y));
}
DW_VECTOR uint32x4_t without(uint32x4_t mask, uint32x4_t x)
{
    return vbicq_u32(x, mask);
}
#define shr_signed(x, n) vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(x), n))
#define i_sra(x, n)      SHIFTED(i32x16, shr_signed, x, n)

DW_VECTOR i32x16 i_set(int32_t value)
{
    uint32x4_t all = vdupq_n_u32((uint32_t)value);
    return (i32x16){all, all, all, all};
}
#define nearest_signed(x) vreinterpretq_u32_s32(vcvtnq_s32_f32(x))
#define whole_signed(x)   vcvtq_f32_s32(vreinterpretq_s32_u32(x))
#define i_nearest         i_nearest
DW_VECTOR i32x16 i_nearest(f32x16 x)
{
    return EACH(i32x16, nearest_signed, x);
}
DW_VECTOR f32x16 f_whole(i32x16 x)
{
    return EACH(f32x16, whole_signed, x);
}

DW_VECTOR i32x16 i_add(i32x16 x, i32x16 y)
{
    return PAIRS(i32x16, vaddq_u32, x, y);
}
DW_VECTOR i32x16 i_sub(i32x16 x, i32x16 y)
{
    return PAIRS(i32x16, vsubq_u32, x, y);
}
DW_VECTOR i32x16 i_and(i32x16 x, i32x16 y)
{
    return PAIRS(i32x16, vandq_u32, x, y);
}
DW_VECTOR i32x16 i_or(i32x16 x, i32x16 y)
{
    return PAIRS(i32x16, vorrq_u32, x, y);
}
DW_VECTOR i32x16 i_andnot(i32x16 x, i32x16 y)
{
    return PAIRS(i32x16, without, x, y);
}
DW_VECTOR i32x16 i_max(i32x16 x, i32x16 y)
{
    return PAIRS(i32x16, max_signed, x, y);
}
DW_VECTOR i32x16 i_max_unsigned(i32x16 x, i32x16 y)
{
    return PAIRS(i32x16, vmaxq_u32, x, y);
}
DW_VECTOR i32x16 i_greater(i32x16 x, i32x16 y)
{
    return PAIRS(i32x16, greater_signed, x, y);
}

/* The low halves of the lanes, eight per register. */
DW_VECTOR uint16x8_t halves_of(uint32x4_t x, uint32x4_t y)
{
    return vuzp1q_u16(vreinterpretq_u16_u32(x), vreinterpretq_u16_u32(y));
}

/* The low bytes of the lanes. */
DW_VECTOR uint8x16_t bytes_of_lanes(i32x16 x)
{
    return vuzp1q_u8(vreinterpretq_u8_u16(halves_of(x.a, x.b)),
                     vreinterpretq_u8_u16(halves_of(x.c, x.d)));
}

/* Tests one bit of every byte. If it is set, byte i of the result is 1 << i % 8, otherwise 0. So
 * the sum over each half of the result is one byte of a mask of 16 bits, in which the bit of the
 * first byte is the lowest. tests: the tested bit, repeated in all bytes. */
DW_VECTOR uint8x16_t bit_of_bytes(uint8x16_t bytes, uint8x16_t tests)
{
    static const uint8_t places[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    return vandq_u8(vtstq_u8(bytes, tests), vld1q_u8(places));
}

DW_VECTOR uint32_t i_signs(i32x16 x)
{
    i32x16 top = i_shr(x, 31);
    uint8x16_t bits = bit_of_bytes(bytes_of_lanes(top), vdupq_n_u8(1));
    return vaddv_u8(vget_low_u8(bits)) | (uint32_t)vaddv_u8(vget_high_u8(bits)) << 8;
}

/* ---- Halves ---------------------------------------------------------------------------------- */

DW_VECTOR uint16x8_t load_eight(const void *from)
{
    return vreinterpretq_u16_u8(vld1q_u8(from));
}
DW_VECTOR void store_eight(void *to, uint16x8_t halves)
{
    vst1q_u8(to, vreinterpretq_u8_u16(halves));
}

DW_VECTOR void i_store_halves(void *to, i32x16 x)
{
    store_eight(to, halves_of(x.a, x.b));
    store_eight((uint8_t *)to + 16, halves_of(x.c, x.d));
}

DW_VECTOR i32x16 halves_widened(uint16x8_t low, uint16x8_t high)
{
    return (i32x16){vmovl_u16(vget_low_u16(low)), vmovl_high_u16(low),
                    vmovl_u16(vget_low_u16(high)), vmovl_high_u16(high)};
}

DW_VECTOR i32x16 i_take16(const uint8_t *from)
{
    return halves_widened(load_eight(from), load_eight(from + 16));
}

DW_VECTOR f32x16 widen_bf16(const void *from)
{
    uint16x8_t low = load_eight(from), high = load_eight((const uint8_t *)from + 16);
    return i_float((i32x16){vshll_n_u16(vget_low_u16(low), 16), vshll_high_n_u16(low, 16),
                            vshll_n_u16(vget_low_u16(high), 16), vshll_high_n_u16(high, 16)});
}

/* The conversion instruction sets the quiet bit of a NaN, but the format keeps all bits of a NaN.
 * So the bit is cleared again for signalling NaN. */
DW_VECTOR f32x16 widen_f16(const void *from)
{
    uint16x8_t low = load_eight(from), high = load_eight((const uint8_t *)from + 16);
    f32x16 wide = {vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(low))),
                   vcvt_high_f32_f16(vreinterpretq_f16_u16(low)),
                   vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(high))),
                   vcvt_high_f32_f16(vreinterpretq_f16_u16(high))};
    i32x16 number = PAIRS(i32x16, vceqq_f32, wide, wide);
    i32x16 loud = i_shl(i_andnot(halves_widened(low, high), i_set(0x200)), 13);
    return i_float(i_andnot(i_andnot(number, loud), f_bits(wide)));
}

/* The carry rounds to nearest even, as in dw_bf16_round: the upper half of the sum is the bf16. */
DW_VECTOR uint32x4_t bf16_sum(uint32x4_t bits)
{
    uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    return vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
}

DW_VECTOR uint16x8_t upper_halves(uint32x4_t x, uint32x4_t y)
{
    return vuzp2q_u16(vreinterpretq_u16_u32(x), vreinterpretq_u16_u32(y));
}

DW_VECTOR void narrow_bf16(void *to, f32x16 value)
{
    i32x16 bits = f_bits(value), sum = EACH(i32x16, bf16_sum, bits);
    store_eight(to, upper_halves(sum.a, sum.b));
    store_eight((uint8_t *)to + 16, upper_halves(sum.c, sum.d));
}

/* The instruction rounds as FPCR says: to nearest even, because every entry point sets FPCR
 * (cpu.h). */
DW_VECTOR void narrow_f16(void *to, f32x16 value)
{
    store_eight(to, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(value.a), value.b)));
    store_eight((uint8_t *)to + 16,
                vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(value.c), value.d)));
}

/* Rounds both to bf16. The odd element's result stays in the upper half of the word, and the even
 * element's is inserted into the lower half. */
DW_VECTOR uint32x4_t narrow_pair4(uint32x4_t even, uint32x4_t odd)
{
    return vsriq_n_u32(bf16_sum(odd), bf16_sum(even), 16);
}

DW_VECTOR i32x16 narrow_pair(f32x16 even, f32x16 odd)
{
    i32x16 e = f_bits(even), o = f_bits(odd);
    return PAIRS(i32x16, narrow_pair4, e, o);
}

/* ---- Reductions ------------------------------------------------------------------------------ */

DW_VECTOR void i_store_quarter(int32_t *to, i32x16 x)
{
    vst1q_u32((uint32_t *)to, vmaxq_u32(vmaxq_u32(x.a, x.b), vmaxq_u32(x.c, x.d)));
}

DW_VECTOR uint32x4_t columns_of_four(const int32_t *quarters)
{
    const uint32_t *from = (const uint32_t *)quarters;
    return vpmaxq_u32(vpmaxq_u32(vld1q_u32(from), vld1q_u32(from + 4)),
                      vpmaxq_u32(vld1q_u32(from + 8), vld1q_u32(from + 12)));
}

DW_VECTOR i32x16 i_columns(const int32_t *quarters)
{
    return (i32x16){columns_of_four(quarters), columns_of_four(quarters + 16),
                    columns_of_four(quarters + 32), columns_of_four(quarters + 48)};
}

DW_VECTOR i64x8 i_no_products(void)
{
    uint64x2_t none = vdupq_n_u64(0);
    return (i64x8){none, none, none, none};
}

DW_VECTOR i64x8 i_pair_products(i64x8 sum, i32x16 x)
{
    uint32x4_t even = vuzp1q_u32(x.a, x.b), odd = vuzp2q_u32(x.a, x.b), more = vuzp1q_u32(x.c, x.d),
               most = vuzp2q_u32(x.c, x.d);
    return (i64x8){vmlal_u32(sum.a, vget_low_u32(even), vget_low_u32(odd)),
                   vmlal_high_u32(sum.b, even, odd),
                   vmlal_u32(sum.c, vget_low_u32(more), vget_low_u32(most)),
                   vmlal_high_u32(sum.d, more, most)};
}

DW_VECTOR uint64_t i_sum_products(i64x8 sum)
{
    return vaddvq_u64(vaddq_u64(vaddq_u64(sum.a, sum.b), vaddq_u64(sum.c, sum.d)));
}

/* ---- Planes of bits -------------------------------------------------------------------------- */

DW_VECTOR codes64 codes_join(i32x16 c0, i32x16 c1, i32x16 c2, i32x16 c3)
{
    return (codes64){bytes_of_lanes(c0), bytes_of_lanes(c1), bytes_of_lanes(c2),
                     bytes_of_lanes(c3)};
}

/* Bits [from, from + width) of every byte. */
DW_VECTOR uint8x16_t field(uint8x16_t codes, int from, int width)
{
    return vandq_u8(vshlq_u8(codes, vdupq_n_s8((int8_t)-from)),
                    vdupq_n_u8((uint8_t)((1 << width) - 1)));
}

DW_VECTOR codes64 codes_field(codes64 codes, int from, int width)
{
    return (codes64){field(codes.a, from, width), field(codes.b, from, width),
                     field(codes.c, from, width), field(codes.d, from, width)};
}

/* Join neighbouring bytes of 4 (or 2) used bits each: 32 bytes become 16 with twice as many. */
DW_VECTOR uint8x16_t join4(uint8x16_t x, uint8x16_t y)
{
    return vsliq_n_u8(vuzp1q_u8(x, y), vuzp2q_u8(x, y), 4);
}
DW_VECTOR uint8x16_t join2(uint8x16_t x, uint8x16_t y)
{
    return vsliq_n_u8(vuzp1q_u8(x, y), vuzp2q_u8(x, y), 2);
}

DW_VECTOR void codes_put4(uint8_t *to, codes64 codes)
{
    vst1q_u8(to, join4(codes.a, codes.b));
    vst1q_u8(to + 16, join4(codes.c, codes.d));
}

DW_VECTOR void codes_put2(uint8_t *to, codes64 codes)
{
    vst1q_u8(to, join4(join2(codes.a, codes.b), join2(codes.c, codes.d)));
}

DW_VECTOR void codes_put1(uint8_t *to, codes64 codes, int from)
{
    uint8x16_t tests = vdupq_n_u8((uint8_t)(1 << from));
    uint8x16_t ab = vpaddq_u8(bit_of_bytes(codes.a, tests), bit_of_bytes(codes.b, tests));
    uint8x16_t cd = vpaddq_u8(bit_of_bytes(codes.c, tests), bit_of_bytes(codes.d, tests));
    uint8x16_t all = vpaddq_u8(ab, cd);
    vst1_u8(to, vget_low_u8(vpaddq_u8(all, all)));
}

DW_VECTOR i32x16 bytes_widened(uint8x16_t bytes)
{
    return halves_widened(vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes));
}

DW_VECTOR i32x16 i_take8(const uint8_t *from)
{
    return bytes_widened(vld1q_u8(from));
}

DW_VECTOR i32x16 i_take4(const uint8_t *from)
{
    uint8x8_t pairs = vld1_u8(from), low = vand_u8(pairs, vdup_n_u8(15)),
              high = vshr_n_u8(pairs, 4);
    return bytes_widened(vcombine_u8(vzip1_u8(low, high), vzip2_u8(low, high)));
}

/* Repeats every byte of the plane once for each element in it, then shifts each copy down by its
 * element's position. */
DW_VECTOR i32x16 i_take2(const uint8_t *from)
{
    static const uint8_t bytes[16] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
    static const int8_t places[16] = {0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6, 0, -2, -4, -6};
    uint32_t word;
    memcpy(&word, from, sizeof word);
    uint8x16_t spread = vqtbl1q_u8(vreinterpretq_u8_u32(vdupq_n_u32(word)), vld1q_u8(bytes));
    return bytes_widened(vandq_u8(vshlq_u8(spread, vld1q_s8(places)), vdupq_n_u8(3)));
}

DW_VECTOR i32x16 i_take1(const uint8_t *from)
{
    static const int8_t places[16] = {0, -1, -2, -3, -4, -5, -6, -7, 0, -1, -2, -3, -4, -5, -6, -7};
    uint8x16_t spread = vcombine_u8(vdup_n_u8(from[0]), vdup_n_u8(from[1]));
    return bytes_widened(vandq_u8(vshlq_u8(spread, vld1q_s8(places)), vdupq_n_u8(1)));
}

/* ---- Past the caches, and binary64 ----------------------------------------------------------- */

/* Normal stores, which go through the caches: the non-temporal stores of Arm would need explicit
 * barriers. Normal stores need none, so i_stream_end does nothing. */
DW_VECTOR void i_stream(void *to, i32x16 x)
{
    i_store(to, x);
}
DW_VECTOR void i_stream_end(void) {}

typedef struct f64x16 {
    float64x2_t part[8];
} f64x16;

DW_VECTOR f64x16 d_none(void)
{
    f64x16 none;
    for (int i = 0; i < 8; i++) none.part[i] = vdupq_n_f64(0);
    return none;
}

/* The square of a binary32 is exact in binary64, so fused or not there is one rounding. */
DW_VECTOR void d_add_four(float64x2_t *sums, float32x4_t x)
{
    float64x2_t low = vcvt_f64_f32(vget_low_f32(x)), high = vcvt_high_f64_f32(x);
    sums[0] = vfmaq_f64(sums[0], low, low);
    sums[1] = vfmaq_f64(sums[1], high, high);
}

DW_VECTOR f64x16 d_add_square(f64x16 sum, f32x16 x)
{
    d_add_four(sum.part, x.a);
    d_add_four(sum.part + 2, x.b);
    d_add_four(sum.part + 4, x.c);
    d_add_four(sum.part + 6, x.d);
    return sum;
}

DW_VECTOR void d_store(double *to, f64x16 x)
{
    for (int i = 0; i < 8; i++) vst1q_f64(to + 2 * i, x.part[i]);
}

/* ---- Philox ---------------------------------------------------------------------------------- */

/* One counter per 64-bit lane; four registers in parallel, because each round depends on the one
 * before. */
typedef i64x8 w64;
enum { W_LANES = 8, SIDES = 1 };

DW_VECTOR w64 w_set(uint32_t value)
{
    uint64x2_t all = vdupq_n_u64(value);
    return (w64){all, all, all, all};
}

DW_VECTOR w64 w_fill(const uint64_t *value)
{
    uint64x2_t all = vld1q_dup_u64(value);
    return (w64){all, all, all, all};
}

DW_VECTOR w64 w_count(uint64_t first)
{
    uint64x2_t a = vcombine_u64(vcreate_u64(first), vcreate_u64(first + 1)), two = vdupq_n_u64(2);
    uint64x2_t b = vaddq_u64(a, two), c = vaddq_u64(b, two);
    return (w64){a, b, c, vaddq_u64(c, two)};
}

DW_VECTOR uint64x2_t mul_low(uint64x2_t x, uint64x2_t y)
{
    return vmull_u32(vmovn_u64(x), vmovn_u64(y));
}
DW_VECTOR uint64x2_t join_low(uint64x2_t low, uint64x2_t high)
{
    return vsliq_n_u64(low, high, 32);
}
DW_VECTOR w64 w_mul(w64 x, w64 y)
{
    return PAIRS(w64, mul_low, x, y);
}
DW_VECTOR w64 w_shr32(w64 x)
{
    return SHIFTED(w64, vshrq_n_u64, x, 32);
}
DW_VECTOR w64 w_xor3(w64 x, w64 y, w64 z)
{
    w64 two = PAIRS(w64, veorq_u64, x, y);
    return PAIRS(w64, veorq_u64, two, z);
}
DW_VECTOR w64 w_join(w64 low, w64 high)
{
    return PAIRS(w64, join_low, low, high);
}

DW_VECTOR void w_store_turns(void *to, w64 x, w64 y)
{
    w64 first = {vzip1q_u64(x.a, y.a), vzip2q_u64(x.a, y.a), vzip1q_u64(x.b, y.b),
                 vzip2q_u64(x.b, y.b)};
    w64 second = {vzip1q_u64(x.c, y.c), vzip2q_u64(x.c, y.c), vzip1q_u64(x.d, y.d),
                  vzip2q_u64(x.d, y.d)};
    codes_put8(to, EACH(codes64, vreinterpretq_u8_u64, first));
    codes_put8((uint8_t *)to + 64, EACH(codes64, vreinterpretq_u8_u64, second));
}

/* these includes depend on this order */
#include "kernels/kernels_neon_mx.h"

#include "kernels/kernels_simd.h"

#include "kernels/kernels_dither.h"

#include "kernels/kernels_decode.h"
#include "kernels/kernels_encode.h"
#include "kernels/kernels_finish.h"

#include "kernels/kernels_columns.h"
#include "kernels/kernels_compact.h"
#include "kernels/kernels_mx_decode.h"
#include "kernels/kernels_mx_encode.h"
#include "kernels/kernels_step.h"
#include "kernels/kernels_trellis.h"
#include "kernels/kernels_weigh.h"

/* The entropy coder has no vector kernels here yet. They would need to look up each lane in a large
 * table, and to store selected lanes side by side; Advanced SIMD has no instructions for either. */
static void histogram(const uint8_t *codes, uint64_t n, uint32_t counts[256])
{
    dw_kernels_c.histogram(codes, n, counts);
}

#include "kernels/kernels_neon_c.h"

#include "kernels/kernels_table.h"

const dw_kernels dw_kernels_neon = DW_KERNELS("neon", count_parts, sort_parts, restore_parts);
