/* SPDX-License-Identifier: Apache-2.0
 * kernels_dither.h - vector code for the random numbers of stochastic rounding.
 *
 * A part of the vector kernels: see kernels_simd.h, which comes before it. Philox4x32-10 (Salmon et
 * al., Parallel random numbers: as easy as 1, 2, 3, SC11; Random123): the low half of a 64-bit lane
 * holds one word of one counter. The high half is whatever the last product left there; the next
 * product ignores it. */

enum { CHUNK = 64 };

/* Room for the random numbers of a tile that starts in the middle of a counter's eight numbers,
 * rounded up to whole calls of philox. Up to one chunk more may be read. */

typedef struct parts {
    _Alignas(64) uint16_t all[DW_TILE_ELEMENTS + 8 + SIDES * 8 * W_LANES + CHUNK];
} parts;

/* The keys of all rounds, in memory, from where a round can use them without an extra
 * instruction. */
typedef struct philox_keys {
    uint64_t low[10], high[10];
} philox_keys;

static inline philox_keys philox_keys_of(uint64_t key)
{
    philox_keys keys;
    for (uint32_t round = 0; round < 10; round++) {
        keys.low[round] = (uint32_t)key + round * 0x9E3779B9u;
        keys.high[round] = (uint32_t)(key >> 32) + round * 0xBB67AE85u;
    }
    return keys;
}

/* Computes the eight numbers of each of the next sides * W_LANES counters. Since each round depends
 * on the one before, several registers of counters are processed in parallel. sides: a constant, at
 * most SIDES. */
DW_VECTOR void philox(uint64_t counter, const philox_keys *keys, int sides, uint16_t *to)
{
    const w64 first = w_set(0xD2511F53u), second = w_set(0xCD9E8D57u);
    w64 c0[SIDES], c1[SIDES], c2[SIDES], c3[SIDES];
    for (int side = 0; side < sides; side++) {
        c0[side] = w_count(counter + (uint64_t)side * W_LANES);
        c1[side] = w_shr32(c0[side]);
        c2[side] = c3[side] = w_set(0);
    }
    for (int round = 0; round < 10; round++) {
        w64 low = w_fill(&keys->low[round]), high = w_fill(&keys->high[round]);
        for (int side = 0; side < sides; side++) {
            w64 product = w_mul(c0[side], first), other = w_mul(c2[side], second);
            c0[side] = w_xor3(w_shr32(other), c1[side], low);
            c2[side] = w_xor3(w_shr32(product), c3[side], high);
            c1[side] = other;
            c3[side] = product;
        }
    }
    for (int side = 0; side < sides; side++)
        w_store_turns(to + (size_t)side * 8 * W_LANES, w_join(c0[side], c1[side]),
                      w_join(c2[side], c3[side]));
}

/* Computes the numbers of elements [first, first + n) of the run, then padding up to width. Returns
 * the address of the first one. */
static const uint16_t *fill_parts(const dw_dither *dither, uint64_t first, size_t n, size_t width,
                                  parts *to)
{
    philox_keys keys = philox_keys_of(dither->key);
    uint64_t counter = (dither->element + first) / 8;
    size_t skipped = (size_t)((dither->element + first) % 8), end = skipped + n;
    size_t at = 0;
    for (; at + SIDES * 8 * W_LANES <= end; at += SIDES * 8 * W_LANES, counter += SIDES * W_LANES)
        philox(counter, &keys, SIDES, to->all + at);
    for (; at < end; at += 8 * W_LANES, counter += W_LANES) philox(counter, &keys, 1, to->all + at);
    for (size_t i = n; i < width; i++) to->all[skipped + i] = DW_DITHER_NONE;
    return to->all + skipped;
}

/* dw_dither_of, for numbers that were shifted to the position of the fraction of a float in [1,
 * 2). */
DW_VECTOR f32x16 dither_of_fraction(i32x16 fraction)
{
    return f_add(i_float(i_or(fraction, f_bits(f_set(1.0f)))), f_set(0x1p-17f - 1.5f));
}

/* One number per lane. */
DW_VECTOR f32x16 dither_of(const uint16_t *from)
{
    return dither_of_fraction(i_shl(i_take16((const uint8_t *)from), 7));
}

/* The levels of a block. step: the code minus half the number of codes. */
typedef struct steps {
    f32x16 level;
    i32x16 step;
} steps;

/* The lowest and the highest level, for two bits and more. */
typedef struct ends {
    f32x16 bottom, top;
} ends;

DW_VECTOR ends ends_of(uint32_t bits)
{
    float half = (float)(1 << (bits - 1));
    return (ends){f_set(-half), f_set(half - 1)};
}

DW_VECTOR steps steps_within(f32x16 scaled, ends all)
{
    i32x16 step = i_nearest(f_max(f_min(scaled, all.top), all.bottom));
    return (steps){f_whole(step), step};
}

/* The levels of one-bit codes: values below 0 get level -1 and step -1, others level 1 and step 0.
 * live: all bits set where the scale is not 0; elsewhere the step is 0. */
DW_VECTOR steps signs_of(f32x16 scaled, i32x16 live)
{
    i32x16 below = i_and(f_less(scaled, f_set(0)), live); /* all bits set is -1 */
    i32x16 level = i_or(i_and(below, f_bits(f_set(-1.0f))), i_andnot(below, f_bits(f_set(1.0f))));
    return (steps){i_float(level), below};
}

/* Works for all options. The steps are 0 where the inverse is 0, whatever the delta. */
DW_VECTOR steps steps_of(f32x16 delta, f32x16 inverse, uint32_t bits, const uint16_t *dithers)
{
    i32x16 live = i_greater(i_and(f_bits(inverse), i_set(0x7fffffff)), i_set(0));
    f32x16 scaled = f_mul(delta, inverse);
    if (bits == 1) {
        if (dithers) scaled = f_add(f_mul(scaled, f_set(0.5f)), dither_of(dithers));
        return signs_of(scaled, live);
    }
    if (dithers) scaled = f_add(scaled, dither_of(dithers));
    return steps_within(i_float(i_and(f_bits(scaled), live)), ends_of(bits));
}

/* dw_attempt_square, on vectors. */
DW_VECTOR f32x16 square_of(f32x16 delta, f32x16 inverse, uint32_t bits)
{
    float half = (float)(1 << (bits - 1));
    f32x16 scaled = f_mul(delta, inverse), level;
    if (bits == 1) {
        i32x16 below = f_less(scaled, f_set(0));
        level =
            i_float(i_or(i_and(below, f_bits(f_set(-1.0f))), i_andnot(below, f_bits(f_set(1.0f)))));
    } else {
        level = f_whole(i_nearest(f_max(f_min(scaled, f_set(half - 1)), f_set(-half))));
    }
    f32x16 error = f_sub(scaled, level);
    return f_mul(error, error);
}
