/* SPDX-License-Identifier: Apache-2.0
 * kernels_trellis.h - vector kernels for trellis-coded quantization.
 *
 * A part of the vector kernels: see kernels_simd.h, which comes before it, as does kernels_step.h.
 * A block of 16 lanes holds half of the 32 lanes of a row, and the halves are encoded one after the
 * other. The functions are those of arithmetic/trellis.h for a block, with the same sums and
 * products. */

/* The magnitudes of a block that are rounded. The lanes of padding are set in `padding`, and their
 * magnitudes have no meaning. */
typedef struct trellis_block {
    f32x16 magnitude;
    i32x16 padding;
} trellis_block;

/* scaled: already shrunk. */
DW_VECTOR trellis_block trellis_of(f32x16 scaled)
{
    i32x16 bits = i_and(f_bits(scaled), i_set(0x7fffffff));
    return (trellis_block){f_min(i_float(bits), f_set(DW_TRELLIS_MOST)),
                           i_greater(bits, i_set((int32_t)DW_F32_INFINITY))};
}

/* Rounds to the nearest multiple of 4, plus the offset. */
DW_VECTOR f32x16 trellis_round(f32x16 magnitude, f32x16 offset)
{
    f32x16 fours = f_set(50331648.0f);
    return f_add(f_sub(f_add(f_sub(magnitude, offset), fours), fours), offset);
}

DW_VECTOR f32x16 trellis_square(f32x16 magnitude, f32x16 level)
{
    f32x16 error = f_sub(magnitude, level);
    return f_mul(error, error);
}

/* What it costs to round to a level of each kind, with an even and with an odd index. */
typedef struct trellis_costs {
    f32x16 even[DW_TRELLIS_KINDS], odd[DW_TRELLIS_KINDS];
} trellis_costs;

DW_VECTOR trellis_costs trellis_costs_of(trellis_block b, f32x16 zero_costs)
{
    f32x16 m = b.magnitude, infinity = i_float(i_set((int32_t)DW_F32_INFINITY));
    i32x16 is_low = f_less(m, f_set(1.5f));
    f32x16 three = i_float(i_andnot(is_low, f_bits(trellis_round(m, f_set(3.0f)))));
    zero_costs = i_float(i_and(is_low, f_bits(zero_costs)));
    trellis_costs c = {{trellis_square(m, trellis_round(m, f_set(0))),
                        f_add(trellis_square(m, three), zero_costs)},
                       {trellis_square(m, trellis_round(m, f_set(2.0f))),
                        trellis_square(m, trellis_round(m, f_set(1.0f)))}};
    for (int kind = 0; kind < DW_TRELLIS_KINDS; kind++) {
        c.even[kind] = i_float(i_andnot(b.padding, f_bits(c.even[kind])));
        c.odd[kind] = f_max(c.odd[kind], i_float(i_and(b.padding, f_bits(infinity))));
    }
    return c;
}

/* What the best sequence to each state costs. */
typedef struct trellis_sums {
    f32x16 of[DW_TRELLIS_STATES];
} trellis_sums;

DW_VECTOR trellis_sums trellis_begin(const uint8_t *states)
{
    _Alignas(64) float sums[LANES];
    trellis_sums s;
    for (uint32_t state = 0; state < DW_TRELLIS_STATES; state++) {
        for (int lane = 0; lane < LANES; lane++)
            sums[lane] = states[lane] == state ? 0 : dw_float_of(DW_F32_INFINITY);
        s.of[state] = f_load(sums);
    }
    return s;
}

/* Extends the best sequences by one value. Bit s of a lane of *higher is set if state s is reached
 * from the higher of its two states. */
DW_VECTOR trellis_sums trellis_extend(trellis_sums s, trellis_costs c, i32x16 *higher)
{
    f32x16 a[4] = {f_add(s.of[0], c.even[0]), f_add(s.of[2], c.even[1]), f_add(s.of[0], c.odd[0]),
                   f_add(s.of[2], c.odd[1])},
           b[4] = {f_add(s.of[1], c.odd[0]), f_add(s.of[3], c.odd[1]), f_add(s.of[1], c.even[0]),
                   f_add(s.of[3], c.even[1])};
    *higher = i_or(i_or(i_and(f_less(b[0], a[0]), i_set(1)), i_and(f_less(b[1], a[1]), i_set(2))),
                   i_or(i_and(f_less(b[2], a[2]), i_set(4)), i_and(f_less(b[3], a[3]), i_set(8))));
    return (trellis_sums){
        {f_min(a[0], b[0]), f_min(a[1], b[1]), f_min(a[2], b[2]), f_min(a[3], b[3])}};
}

/* The states in which the cheapest sequences end; of several equal ones the lowest. */
DW_VECTOR i32x16 trellis_end(trellis_sums s)
{
    f32x16 least = s.of[0];
    i32x16 best = i_set(0);
    for (int state = 1; state < DW_TRELLIS_STATES; state++) {
        i32x16 less = f_less(s.of[state], least);
        best = i_or(i_andnot(less, best), i_and(less, i_set(state)));
        least = f_min(least, s.of[state]);
    }
    return best;
}

/* Goes back by one value: *state becomes the one before. Returns the level of the value. */
DW_VECTOR i32x16 trellis_back(f32x16 scaled, i32x16 higher, i32x16 *state)
{
    trellis_block b = trellis_of(scaled);
    i32x16 one = i_set(1), is_higher = i_and(i_shr_each(higher, *state), one);
    i32x16 odd = i_and(i_add(is_higher, i_shr(*state, 1)), one), kind = i_and(*state, one);
    *state = i_add(i_shl(kind, 1), is_higher);
    i32x16 is_kind_1 = i_greater(kind, i_set(0)), is_even = i_greater(one, odd);
    i32x16 offset = i_add(i_shl(odd, 1), i_and(is_kind_1, i_sub(i_set(3), i_shl(odd, 2))));
    i32x16 is_zero = i_and(i_and(is_kind_1, is_even), f_less(b.magnitude, f_set(1.5f)));
    i32x16 level = i_nearest(trellis_round(b.magnitude, f_whole(offset)));
    level = i_andnot(i_or(is_zero, b.padding), level);
    return i_by_sign(scaled, i_sub(i_set(0), level), level);
}

/* Encodes half of the lanes: `first` is 0 or 16. Returns how many values were limited. */
DW_VECTOR uint64_t trellis_encode_half(const dw_trellis_run *run, uint32_t first)
{
    _Alignas(64) int32_t higher[DW_TRELLIS_ROWS][LANES], last[LANES];
    const float *scaled = run->scaled + first;
    f32x16 shrink = f_set(run->shrink), zero_costs = f_set(run->zero_costs);
    trellis_sums s = trellis_begin(run->states + first);
    i32x16 outside = i_set(0), limit = f_bits(f_set(DW_TRELLIS_MOST)),
           infinity = i_set((int32_t)DW_F32_INFINITY);
    ROLLED for (uint32_t row = 0; row < run->rows; row++)
    {
        i32x16 reached;
        f32x16 value = f_mul(f_load(scaled + row * DW_TRELLIS_LANES), shrink);
        i32x16 bits = i_and(f_bits(value), i_set(0x7fffffff));
        outside = i_add(outside, i_andnot(i_greater(bits, infinity), i_greater(bits, limit)));
        s = trellis_extend(s, trellis_costs_of(trellis_of(value), zero_costs), &reached);
        i_store(higher[row], reached);
    }
    i32x16 state = trellis_end(s);
    i_store(last, state);
    for (int lane = 0; lane < LANES; lane++)
        run->states[first + (uint32_t)lane] = (uint8_t)last[lane];
    ROLLED for (uint32_t row = run->rows, n; row > 0; row -= n)
    {
        i32x16 l[4] = {i_set(0), i_set(0), i_set(0), i_set(0)};
        uint8_t codes[4 * LANES];
        n = row % 4 ? row % 4 : 4;
        for (uint32_t i = n; i-- > 0;) {
            uint32_t at = row - n + i;
            l[i] = trellis_back(f_mul(f_load(scaled + at * DW_TRELLIS_LANES), shrink),
                                i_load(higher[at]), &state);
        }
        codes_put8(codes, codes_of_levels(l[0], l[1], l[2], l[3], DW_TRELLIS_ZERO));
        for (uint32_t i = 0; i < n; i++)
            memcpy(run->codes + (row - n + i) * DW_TRELLIS_LANES + first, codes + (size_t)i * LANES,
                   LANES);
    }
    return step_count(outside);
}

static void trellis_encode(dw_trellis_run *run)
{
    run->clamped += trellis_encode_half(run, 0);
    run->clamped += trellis_encode_half(run, LANES);
}
