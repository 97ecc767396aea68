/* SPDX-License-Identifier: Apache-2.0
 * kernels_dither.h - the random parts of stochastic rounding, many counters side by side.
 *
 * Text for vector kernels, as kernels_simd.h, which comes before it. Philox4x32-10 (Salmon et al., Parallel random numbers: as easy as
 * 1, 2, 3, SC11; Random123): a 64-bit lane holds one word of one counter in its low half, and whatever the last product left in its high
 * half, which the next one does not look at. */

/* Room for the parts of a tile that begins within a counter's eight, in whole registers of counters; a chunk more may be read. */
enum { CHUNK = 64 };

typedef struct parts {
    _Alignas(64) uint16_t all[DW_TILE_ELEMENTS + 8 + 8 * W_LANES + CHUNK];
} parts;

/* The next W_LANES counters' 8 * W_LANES parts. */
DW_VECTOR void philox(uint64_t counter, uint64_t key, uint16_t *to)
{
    const w64 first = w_set(0xD2511F53u), second = w_set(0xCD9E8D57u);
    uint32_t low_key = (uint32_t)key, high_key = (uint32_t)(key >> 32);
    w64 c0 = w_count(counter), c1 = w_shr32(c0), c2 = w_set(0), c3 = w_set(0);
    for (int round = 0; round < 10; round++) {
        w64 product = w_mul(c0, first), other = w_mul(c2, second);
        c0 = w_xor3(w_shr32(other), c1, w_set(low_key));
        c2 = w_xor3(w_shr32(product), c3, w_set(high_key));
        c1 = other;
        c3 = product;
        low_key += 0x9E3779B9u;
        high_key += 0xBB67AE85u;
    }
    w_store_turns(to, w_join(c0, c1), w_join(c2, c3));
}

/* Elements [first, first + n) of the sample; behind them padding up to width. The first of them in memory. */
static const uint16_t *fill_parts(const dw_dither *dither, uint64_t first, size_t n, size_t width, parts *to)
{
    uint64_t counter = (dither->element + first) / 8;
    size_t skipped = (size_t)((dither->element + first) % 8), end = skipped + n;
    for (size_t at = 0; at < end; at += 8 * W_LANES, counter += W_LANES) philox(counter, dither->key, to->all + at);
    for (size_t i = n; i < width; i++) to->all[skipped + i] = DW_DITHER_NONE;
    return to->all + skipped;
}

/* dw_dither_of, a part per lane. A number of [1, 2) takes the parts as the bits of its fraction. */
DW_VECTOR f32x16 dither_of(const uint16_t *from)
{
    i32x16 bits = i_or(i_shl(i_take16((const uint8_t *)from), 7), f_bits(f_set(1.0f)));
    return f_add(i_float(bits), f_set(0x1p-17f - 1.5f));
}

/* Levels of a block, in all modes: clamped at both ends, and 0 where the inverse is 0, whatever the delta. step: the code less half of
 * all codes. */
typedef struct steps {
    f32x16 level;
    i32x16 step;
} steps;

DW_VECTOR steps steps_of(f32x16 delta, f32x16 inverse, uint32_t bits, const uint16_t *dithers)
{
    float half = (float)(1 << (bits - 1));
    i32x16 live = i_greater(i_and(f_bits(inverse), i_set(0x7fffffff)), i_set(0));
    f32x16 scaled = f_mul(delta, inverse);
    if (bits == 1) {
        if (dithers) scaled = f_add(f_mul(scaled, f_set(0.5f)), dither_of(dithers));
        i32x16 below = i_and(f_less(scaled, f_set(0)), live); /* ones are -1 */
        i32x16 level = i_or(i_and(below, f_bits(f_set(-1.0f))), i_andnot(below, f_bits(f_set(1.0f))));
        return (steps){i_float(level), below};
    }
    if (dithers) scaled = f_add(scaled, dither_of(dithers));
    i32x16 step = i_nearest(f_max(f_min(i_float(i_and(f_bits(scaled), live)), f_set(half - 1)), f_set(-half)));
    return (steps){f_whole(step), step};
}

/* dw_attempt_square. */
DW_VECTOR f32x16 square_of(f32x16 delta, f32x16 inverse, uint32_t bits)
{
    float half = (float)(1 << (bits - 1));
    f32x16 scaled = f_mul(delta, inverse), level;
    if (bits == 1) {
        i32x16 below = f_less(scaled, f_set(0));
        level = i_float(i_or(i_and(below, f_bits(f_set(-1.0f))), i_andnot(below, f_bits(f_set(1.0f)))));
    } else {
        level = f_whole(i_nearest(f_max(f_min(scaled, f_set(half - 1)), f_set(-half))));
    }
    f32x16 error = f_sub(scaled, level);
    return f_mul(error, error);
}
