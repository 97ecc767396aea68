/* SPDX-License-Identifier: Apache-2.0
 * kernels_neon_mx.h - the primitives of microscaling with Advanced SIMD.
 *
 * Included by kernels_neon.c after its other primitives. */

DW_VECTOR uint32x4_t shr_each(uint32x4_t x, uint32x4_t n)
{
    return vshlq_u32(x, vnegq_s32(vreinterpretq_s32_u32(n)));
}
DW_VECTOR i32x16 i_shr_each(i32x16 x, i32x16 n)
{
    return PAIRS(i32x16, shr_each, x, n);
}

DW_VECTOR uint32x4_t by_sign(float32x4_t of, uint32x4_t negative, uint32x4_t positive)
{
    return vbslq_u32(vcltzq_s32(vreinterpretq_s32_f32(of)), negative, positive);
}
DW_VECTOR i32x16 i_by_sign(f32x16 of, i32x16 negative, i32x16 positive)
{
    return (i32x16){by_sign(of.a, negative.a, positive.a), by_sign(of.b, negative.b, positive.b),
                    by_sign(of.c, negative.c, positive.c), by_sign(of.d, negative.d, positive.d)};
}

#define codes_of_low_bytes codes_join

DW_VECTOR uint8x16_t without_code(uint8x16_t codes, uint8x16_t which)
{
    return vbicq_u8(codes, vceqq_u8(codes, which));
}
DW_VECTOR codes64 codes_clear(codes64 codes, int which)
{
    return SHIFTED(codes64, without_code, codes, vdupq_n_u8((uint8_t)which));
}

/* 16 words of 16 bits. */
typedef struct h16x16 {
    uint16x8_t a, b;
} h16x16;
#define BOTH(operation, x, y) ((h16x16){operation((x).a, (y).a), operation((x).b, (y).b)})
#define h_shl(x, n)           ((h16x16){vshlq_n_u16((x).a, n), vshlq_n_u16((x).b, n)})
#define h_shr(x, n)           ((h16x16){vshrq_n_u16((x).a, n), vshrq_n_u16((x).b, n)})
#define sra_halves(x, n)      vreinterpretq_u16_s16(vshrq_n_s16(vreinterpretq_s16_u16(x), n))
#define h_sra(x, n)           ((h16x16){sra_halves((x).a, n), sra_halves((x).b, n)})
DW_VECTOR h16x16 h_set(int value)
{
    return (h16x16){vdupq_n_u16((uint16_t)value), vdupq_n_u16((uint16_t)value)};
}
DW_VECTOR h16x16 h_and(h16x16 x, h16x16 y)
{
    return BOTH(vandq_u16, x, y);
}
DW_VECTOR h16x16 h_or(h16x16 x, h16x16 y)
{
    return BOTH(vorrq_u16, x, y);
}
DW_VECTOR h16x16 h_xor(h16x16 x, h16x16 y)
{
    return BOTH(veorq_u16, x, y);
}
DW_VECTOR h16x16 h_min(h16x16 x, h16x16 y)
{
    return BOTH(vminq_u16, x, y);
}
DW_VECTOR h16x16 h_take16(const uint8_t *from)
{
    return (h16x16){load_eight(from), load_eight(from + 16)};
}
DW_VECTOR h16x16 h_take8(const uint8_t *from)
{
    uint8x16_t bytes = vld1q_u8(from);
    return (h16x16){vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes)};
}
DW_VECTOR h16x16 h_take4(const uint8_t *from)
{
    uint8x8_t both = vld1_u8(from), low = vand_u8(both, vdup_n_u8(15)), high = vshr_n_u8(both, 4);
    return (h16x16){vmovl_u8(vzip1_u8(low, high)), vmovl_u8(vzip2_u8(low, high))};
}

DW_VECTOR f32x16 f_of_halves(h16x16 x)
{
    return (f32x16){vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(x.a))),
                    vcvt_high_f32_f16(vreinterpretq_f16_u16(x.a)),
                    vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(x.b))),
                    vcvt_high_f32_f16(vreinterpretq_f16_u16(x.b))};
}

DW_VECTOR void h_in_turns(h16x16 even, h16x16 odd, h16x16 *first, h16x16 *second)
{
    *first = (h16x16){vzip1q_u16(even.a, odd.a), vzip2q_u16(even.a, odd.a)};
    *second = (h16x16){vzip1q_u16(even.b, odd.b), vzip2q_u16(even.b, odd.b)};
}
