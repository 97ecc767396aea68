/* SPDX-License-Identifier: Apache-2.0
 * kernels_compact.h - vector kernels that make copies of prev compact, and expand them
 * (arithmetic/compact.h). A group is a vector.
 *
 * A part of the vector kernels: see kernels_simd.h, which comes before it. */
#include "arithmetic/compact.h"

/* Groups whose scales are computed at once, one in each lane. */
enum { COMPACT_AT_ONCE = LANES * DW_COMPACT_GROUP };

/* Writes 1 / unit of 16 groups, and their scales, from the largest magnitudes of each. */
DW_VECTOR void compact_scales(const int32_t *folds, uint32_t bits, float *inverses, uint8_t *scales)
{
    int32_t of[LANES];
    i32x16 largest, unused;
    extremes_take(folds, &largest, &unused);
    i_store(of, i_shr(largest, 16));
    for (int i = 0; i < LANES; i++) {
        scales[i] = (uint8_t)dw_compact_scale((uint32_t)of[i], bits);
        inverses[i] = dw_compact_inverse(scales[i], bits);
    }
}

DW_VECTOR i32x16 compact_lower(i32x16 a, i32x16 b)
{
    return i_sub(i_add(a, b), i_max(a, b));
}

/* The codes of a group: of 8 bits less 128. */
DW_VECTOR i32x16 compact_codes(f32x16 value, float inverse, uint32_t bits)
{
    f32x16 units = f_mul(value, f_set(inverse));
    if (bits == 8) return i_nearest(f_clamp(units, 127));
    i32x16 sign = i_and(i_shr(f_bits(value), 28), i_set(8));
    units = f_min(i_float(i_and(f_bits(units), i_set(0x7fffffff))), f_set(12));
    i32x16 near = i_nearest(units), middle = i_add(i_nearest(f_mul(units, f_set(0.5f))), i_set(2)),
           far = i_add(i_nearest(f_mul(units, f_set(0.25f))), i_set(4));
    return i_or(sign, compact_lower(compact_lower(near, middle), far));
}

/* n: a multiple of COMPACT_AT_ONCE. */
DW_VECTOR void compact_all(const unsigned char *from, uint64_t n, uint32_t bits, uint8_t *codes,
                           uint8_t *scales)
{
    _Alignas(64) int32_t folds[16 * LANES];
    float inverses[LANES];
    for (uint64_t first = 0; first < n; first += COMPACT_AT_ONCE) {
        for (uint32_t g = 0; g < LANES; g++) {
            i32x16 of = f_bits(load(from, DW_BF16, first + g * DW_COMPACT_GROUP));
            extremes_put(folds, g, i_and(of, i_set(0x7fffffff)), i_set(0));
        }
        compact_scales(folds, bits, inverses, scales + first / DW_COMPACT_GROUP);
        for (uint32_t g = 0; g < LANES; g += 4) {
            i32x16 l[4];
            uint64_t at = first + g * DW_COMPACT_GROUP;
            for (uint32_t k = 0; k < 4; k++)
                l[k] = compact_codes(load(from, DW_BF16, at + k * DW_COMPACT_GROUP),
                                     inverses[g + k], bits);
            codes64 made = codes_of_levels(l[0], l[1], l[2], l[3], bits == 8 ? 128 : 0);
            if (bits == 8)
                codes_put8(codes + at, made);
            else
                codes_put4(codes + at / 2, made);
        }
    }
}

static void compact(const uint16_t *from, uint64_t n, uint32_t bits, uint8_t *codes,
                    uint8_t *scales)
{
    uint64_t whole = n / COMPACT_AT_ONCE * COMPACT_AT_ONCE;
    if (bits == 8)
        compact_all((const unsigned char *)from, whole, 8, codes, scales);
    else
        compact_all((const unsigned char *)from, whole, 4, codes, scales);
    dw_kernels_c.compact(from + whole, n - whole, bits, codes + whole * bits / 8,
                         scales + whole / DW_COMPACT_GROUP);
}

/* The units that codes stand for. */
DW_VECTOR i32x16 compact_units(const uint8_t *codes, uint64_t at, uint32_t bits)
{
    if (bits == 8) return i_sub(i_take8(codes + at), i_set(128));
    i32x16 code = i_take4(codes + at / 2), n = i_and(code, i_set(7)), two = i_add(n, n);
    i32x16 units = i_max(i_max(n, i_sub(two, i_set(4))), i_sub(i_add(two, two), i_set(16)));
    return i_sub(units, i_and(i_greater(code, i_set(7)), i_add(units, units)));
}

/* n: a multiple of a group. */
DW_VECTOR void expand_all(const uint8_t *codes, const uint8_t *scales, uint64_t n, uint32_t bits,
                          unsigned char *to)
{
    for (uint64_t at = 0; at < n; at += DW_COMPACT_GROUP) {
        float unit = dw_compact_unit(scales[at / DW_COMPACT_GROUP], bits);
        store(to, DW_BF16, at, f_mul(f_whole(compact_units(codes, at, bits)), f_set(unit)));
    }
}

static void expand(const uint8_t *codes, const uint8_t *scales, uint64_t n, uint32_t bits,
                   uint16_t *to)
{
    uint64_t whole = n / DW_COMPACT_GROUP * DW_COMPACT_GROUP;
    if (bits == 8)
        expand_all(codes, scales, whole, 8, (unsigned char *)to);
    else
        expand_all(codes, scales, whole, 4, (unsigned char *)to);
    dw_kernels_c.expand(codes + whole * bits / 8, scales + whole / DW_COMPACT_GROUP, n - whole,
                        bits, to + whole);
}
