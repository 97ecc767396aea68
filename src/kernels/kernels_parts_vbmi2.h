/* SPDX-License-Identifier: Apache-2.0
 * kernels_parts_vbmi2.h - sorts dithered codes into their parts, and restores their order, with
 * AVX-512 VBMI2, which compresses and expands bytes.
 *
 * 64 codes are processed together: one instruction for each part gathers those that belong to it.
 * rans_run.h says what parts are; kernels_rans_c.h has the same functions in plain C.
 *
 * Included by kernels_avx512.c, whose other functions do not need VBMI2. */
#define DW_VBMI2 __attribute__((target("avx512vbmi2")))

enum { PARTED_AT_ONCE = 64 };

/* The parts of 64 codes. */
typedef struct part_masks {
    __mmask64 negative;     /* bit i is set where the dither of code i is negative */
    __mmask64 of[DW_PARTS]; /* bit i of of[p] is set where code i belongs to part p */
} part_masks;

/* Returns the parts of the 64 codes whose random numbers have these high bytes. */
DW_VECTOR part_masks part_masks_of(const uint8_t *high)
{
    part_masks masks;
    __m512i h = _mm512_loadu_si512((const void *)high);
    masks.negative = ~_mm512_movepi8_mask(h);
    /* Bits 5 and 6 of the high byte, and of its complement where the dither is negative, are the
     * number of the part: see dw_part_of. */
    __mmask64 lower = _mm512_test_epi8_mask(h, _mm512_set1_epi8(0x20)) ^ masks.negative,
              upper = _mm512_test_epi8_mask(h, _mm512_set1_epi8(0x40)) ^ masks.negative;
    masks.of[0] = ~(lower | upper);
    masks.of[1] = lower & ~upper;
    masks.of[2] = upper & ~lower;
    masks.of[3] = lower & upper;
    return masks;
}

DW_VECTOR uint32_t part_count(__mmask64 mask)
{
    return (uint32_t)_mm_popcnt_u64((unsigned long long)mask);
}

/* Changes the sign of the levels whose dither is negative: see dw_part_turned. */
DW_VECTOR __m512i part_turn_64(__m512i codes, __mmask64 negative)
{
    return _mm512_mask_sub_epi8(codes, negative, _mm512_setzero_si512(), codes);
}

static void count_parts_64(const uint8_t *high, uint64_t n, uint32_t counts[DW_PARTS])
{
    uint64_t whole = n / PARTED_AT_ONCE * PARTED_AT_ONCE;
    dw_kernels_c.count_parts(high + whole, n - whole, counts);
    for (uint64_t i = 0; i < whole; i += PARTED_AT_ONCE) {
        part_masks masks = part_masks_of(high + i);
        for (int p = 0; p < DW_PARTS; p++) counts[p] += part_count(masks.of[p]);
    }
}

/* Each store writes 64 bytes, of which the last ones have no meaning: they are overwritten by the
 * next store, or lie in the gap behind the part. */
DW_VBMI2 static void sort_parts_64(const uint8_t *high, const uint8_t *codes, uint64_t n,
                                   uint8_t *next[DW_PARTS])
{
    uint64_t whole = n / PARTED_AT_ONCE * PARTED_AT_ONCE;
    uint8_t *to[DW_PARTS] = {next[0], next[1], next[2], next[3]};
    for (uint64_t i = 0; i < whole; i += PARTED_AT_ONCE) {
        part_masks masks = part_masks_of(high + i);
        __m512i some = part_turn_64(_mm512_loadu_si512((const void *)(codes + i)), masks.negative);
        for (int p = 0; p < DW_PARTS; p++) {
            _mm512_storeu_si512((void *)to[p], _mm512_maskz_compress_epi8(masks.of[p], some));
            to[p] += part_count(masks.of[p]);
        }
    }
    memcpy(next, to, sizeof to);
    dw_kernels_c.sort_parts(high + whole, codes + whole, n - whole, next);
}

DW_VBMI2 static void restore_parts_64(const uint8_t *high, const uint8_t *next[DW_PARTS],
                                      uint64_t n, uint8_t *codes)
{
    uint64_t whole = n / PARTED_AT_ONCE * PARTED_AT_ONCE;
    const uint8_t *from[DW_PARTS] = {next[0], next[1], next[2], next[3]};
    for (uint64_t i = 0; i < whole; i += PARTED_AT_ONCE) {
        part_masks masks = part_masks_of(high + i);
        __m512i some = _mm512_setzero_si512();
        for (int p = 0; p < DW_PARTS; p++) {
            __m512i those = _mm512_loadu_si512((const void *)from[p]);
            some = _mm512_mask_expand_epi8(some, masks.of[p], those);
            from[p] += part_count(masks.of[p]);
        }
        _mm512_storeu_si512((void *)(codes + i), part_turn_64(some, masks.negative));
    }
    memcpy(next, from, sizeof from);
    dw_kernels_c.restore_parts(high + whole, next, n - whole, codes + whole);
}
