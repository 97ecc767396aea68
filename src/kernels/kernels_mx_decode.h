/* SPDX-License-Identifier: Apache-2.0
 * kernels_mx_decode.h - vector kernels that decode for microscaling.
 *
 * A part of the vector kernels: see kernels_simd.h. It comes after the file for decode, whose
 * helpers it uses. Poisoned blocks, and others with a very large scale (MX_SPECIAL_SCALE), are
 * left to C.
 *
 * Codes are converted to floats by way of f16, whose exponent and fraction are wide enough for all
 * elements: sign, exponent and fraction are moved to their places in an f16, and the conversion
 * instruction handles subnormal numbers. What remains is a factor of 2^(15 - bias), which is
 * included in the scale. An int8 becomes the f16 1024 + 128 + level, from which 1152 is subtracted.
 * All of this is exact. */

/* Scales from here on are left to C. Below, the largest element, less than 2^16, times 2^(206 -
 * 127) is below 2^95. */
enum { MX_SPECIAL_SCALE = 207 };

/* The variant of a decode kernel. digests: as in decode_kind. */
typedef struct mx_decode_kind {
    dw_dtype dtype;
    dw_element element;
    int digests;
} mx_decode_kind;

DW_VECTOR uint32_t mx_bits(dw_element element)
{
    return element <= DW_ELEMENT_E5M2 ? 8 : element == DW_ELEMENT_E2M1 ? 4 : 6;
}

/* The value of a code, without the scale of its block, is the float that mx_floats makes of the
 * code, times 2 to this power. */
DW_VECTOR int mx_f16_below(dw_element element)
{
    switch (element) {
    case DW_ELEMENT_INT8: return -6;
    case DW_ELEMENT_E4M3: return 15 - 7;
    case DW_ELEMENT_E5M2: return 0;
    case DW_ELEMENT_E3M2: return 15 - 3;
    default: return 15 - 1;
    }
}

/* The even and the odd elements of a block, as f16. */
typedef struct mx_halves {
    h16x16 even, odd;
} mx_halves;

/* Limits the magnitude of f16 values to the largest number of the element format, given as an
 * f16. */
DW_VECTOR h16x16 mx_finite(h16x16 half, int largest)
{
    return h_or(h_and(half, h_set(0x8000)), h_min(h_and(half, h_set(0x7fff)), h_set(largest)));
}

/* Input: words of two 8-bit codes. */
DW_VECTOR mx_halves mx_halves_of_8(h16x16 both, dw_element element)
{
    h16x16 upper = h_set(0xff00);
    if (element == DW_ELEMENT_INT8)
        return (mx_halves){h_xor(h_and(both, h_set(0xff)), h_set(0x6480)),
                           h_xor(h_shr(both, 8), h_set(0x6480))};
    if (element == DW_ELEMENT_E5M2)
        return (mx_halves){mx_finite(h_shl(both, 8), 0x7b00),
                           mx_finite(h_and(both, upper), 0x7b00)};
    h16x16 fields = h_set(0xbf80), even = h_sra(h_shl(both, 8), 1), odd = h_sra(both, 1);
    return (mx_halves){mx_finite(h_and(even, fields), 0x3f00),
                       mx_finite(h_and(odd, fields), 0x3f00)};
}

/* Input: words of two low parts (four bits each), and of two high parts (two bits each: the sign
 * and the top bit of the exponent). */
DW_VECTOR mx_halves mx_halves_of_6(h16x16 low, h16x16 high, dw_element element)
{
    h16x16 even = h_shl(high, 14), odd = h_shl(high, 12);
    if (element == DW_ELEMENT_E3M2) {
        h16x16 fields = h_set(0x0f00), tops = h_set(0x9000);
        return (mx_halves){h_or(h_and(h_shl(low, 8), fields), h_and(h_sra(even, 2), tops)),
                           h_or(h_and(h_shl(low, 4), fields), h_and(h_sra(odd, 2), tops))};
    }
    h16x16 fields = h_set(0x0780), tops = h_set(0x8800);
    return (mx_halves){h_or(h_and(h_shl(low, 7), fields), h_and(h_sra(even, 3), tops)),
                       h_or(h_and(h_shl(low, 3), fields), h_and(h_sra(odd, 3), tops))};
}

DW_VECTOR mx_halves mx_take(planes from, dw_element element)
{
    if (mx_bits(element) == 8) return mx_halves_of_8(h_take16(from.first), element);
    h16x16 low = h_take8(from.first);
    if (mx_bits(element) == 6) return mx_halves_of_6(low, h_take4(from.second), element);
    h16x16 fields = h_set(0x8e00);
    return (mx_halves){h_and(h_sra(h_shl(low, 12), 3), fields),
                       h_and(h_sra(h_shl(low, 8), 3), fields)};
}

DW_VECTOR f32x16 mx_floats(h16x16 halves, dw_element element)
{
    f32x16 wide = f_of_halves(halves);
    return element == DW_ELEMENT_INT8 ? f_sub(wide, f_set(1152.0f)) : wide;
}

/* Decodes a block and returns the state behind it. */
DW_VECTOR coded mx_decode_block(coded c, float power, mx_decode_kind kind)
{
    mx_halves halves = mx_take(c.codes, kind.element);
    f32x16 scale = f_set(power);
    size_t size = bytes_of(kind.dtype);
    if (kind.dtype == DW_BF16) {
        pair base = load_pair(c.base, 0);
        DW_PREFETCH(c.ahead, 0);
        i32x16 made = narrow_pair(f_muladd(mx_floats(halves.even, kind.element), scale, base.even),
                                  f_muladd(mx_floats(halves.odd, kind.element), scale, base.odd));
        i_store(c.out, made);
        if (kind.digests) c.made = tally_add(c.made, made);
    } else {
        h16x16 part[2];
        h_in_turns(halves.even, halves.odd, &part[0], &part[1]);
        for (size_t k = 0; k < 2; k++) {
            DW_PREFETCH(c.ahead, k * LANES * size);
            f32x16 made = f_muladd(mx_floats(part[k], kind.element), scale,
                                   load(c.base, kind.dtype, k * LANES));
            store_sum(c.out, kind.dtype, k * LANES, made);
            if (kind.digests) c.made = tally_add(c.made, f_bits(made));
        }
    }
    c.codes = planes_on(c.codes, mx_bits(kind.element), DW_MX_BLOCK);
    c.out += size * DW_MX_BLOCK;
    return c;
}

/* Decodes whole blocks. Special blocks are decoded, too, and later corrected by the C kernel.
 * powers: the factors of the blocks. */
DW_VECTOR void mx_decode_blocks(const dw_mx_decode_run *given, uint32_t blocks, const float *powers,
                                mx_decode_kind kind)
{
    dw_mx_decode_run run = *given; /* a copy, because stores to out may alias the caller's */
    coded c = {.codes = planes_at(run.codes, mx_bits(kind.element), run.tile_elements, run.first),
               .out = run.out};
    const unsigned char *prev = run.prev ? run.prev : no_prev;
    size_t size = bytes_of(kind.dtype), step = run.prev ? DW_MX_BLOCK * size : 0;
    if (!run.prev) run.choices = NULL;
    if (kind.digests) c.made = tally_from((uint32_t)(run.element_number / (4 / size)));
    ROLLED for (uint32_t i = 0; i < blocks; i++, prev += step)
    {
        c.base = run.choices ? chosen_prev(prev, run.choices, run.first_piece + i) : prev;
        c.ahead = (uintptr_t)prev + AHEAD * size;
        c = mx_decode_block(c, powers[i], kind);
    }
    if (kind.digests) *run.sum += i_sum_products(c.made.sum);
}

typedef void mx_decode_function(const dw_mx_decode_run *run, uint32_t blocks, const float *powers);

#define MX_DECODE(name, ...)                                                                       \
    static void name(const dw_mx_decode_run *run, uint32_t blocks, const float *powers)            \
    {                                                                                              \
        mx_decode_blocks(run, blocks, powers, (mx_decode_kind){__VA_ARGS__});                      \
    }
#define MX_DECODES(name, dtype, digests)                                                           \
    MX_DECODE(name##_int8, dtype, DW_ELEMENT_INT8, digests)                                        \
    MX_DECODE(name##_e4m3, dtype, DW_ELEMENT_E4M3, digests)                                        \
    MX_DECODE(name##_e5m2, dtype, DW_ELEMENT_E5M2, digests)                                        \
    MX_DECODE(name##_e3m2, dtype, DW_ELEMENT_E3M2, digests)                                        \
    MX_DECODE(name##_e2m3, dtype, DW_ELEMENT_E2M3, digests)                                        \
    MX_DECODE(name##_e2m1, dtype, DW_ELEMENT_E2M1, digests)                                        \
    static mx_decode_function *const name[DW_ELEMENTS] = {name##_int8, name##_e4m3, name##_e5m2,   \
                                                          name##_e3m2, name##_e2m3, name##_e2m1};
MX_DECODES(mx_decode_f32, DW_F32, 0)
MX_DECODES(mx_decode_f16, DW_F16, 0)
MX_DECODES(mx_decode_bf16, DW_BF16, 0)
MX_DECODES(mx_digest_f32, DW_F32, 1)
MX_DECODES(mx_digest_bf16, DW_BF16, 1)
#undef MX_DECODES
#undef MX_DECODE

/* Computes the factors of a run's blocks: the powers of their scales times the constant of
 * mx_f16_below. Returns a mask of special blocks. */
static uint64_t mx_take_powers(const dw_mx_decode_run *run, float *powers)
{
    uint64_t special = 0;
    f32x16 below = f_set(dw_mx_power((uint32_t)(127 + mx_f16_below(run->element))));
    for (uint32_t i = 0; i < run->blocks; i += LANES) {
        uint8_t scales[LANES] = {0};
        uint32_t n = run->blocks - i < LANES ? run->blocks - i : LANES;
        memcpy(scales, run->scales + i, n);
        i32x16 scale = i_take8(scales);
        /* scale 0 is 2^-127, a subnormal number; results for special blocks do not matter */
        f_store(powers + i, f_mul(i_float(i_max(i_shl(scale, 23), i_set(0x00400000))), below));
        special |= (uint64_t)i_signs(i_greater(scale, i_set(MX_SPECIAL_SCALE - 1))) << i;
    }
    return special;
}

/* Decodes block i of a run by the C kernel. The block has n elements and a special scale (see
 * MX_SPECIAL_SCALE). */
static void mx_decode_special(const dw_mx_decode_run *run, uint32_t i, size_t n)
{
    size_t at = (size_t)i * DW_MX_BLOCK * bytes_of(run->out_dtype);
    dw_mx_decode_run one = *run;
    one.blocks = 1;
    one.channels = n;
    one.prev = run->prev ? (const unsigned char *)run->prev + at : NULL;
    one.out = (unsigned char *)run->out + at;
    one.scales += i;
    one.first_piece += i;
    one.first += i * DW_MX_BLOCK;
    one.sum = NULL;
    dw_kernels_c.mx_decode(&one);
}

/* Decodes the last block of a run, which has n elements, through padded buffers. */
static void mx_decode_short(const dw_mx_decode_run *run, mx_decode_function *decode_with,
                            uint32_t i, size_t n, const float *power)
{
    _Alignas(64) unsigned char base[4 * DW_MX_BLOCK] = {0}, out[4 * DW_MX_BLOCK];
    size_t size = bytes_of(run->out_dtype), at = (size_t)i * DW_MX_BLOCK;
    dw_mx_decode_run one = *run;
    if (run->prev) {
        memcpy(base, (const unsigned char *)run->prev + at * size, n * size);
        one.prev = base;
    }
    one.out = out;
    one.first_piece += i;
    one.first += (uint32_t)at;
    decode_with(&one, 1, power);
    memcpy((unsigned char *)run->out + at * size, out, n * size);
}

static void mx_decode(const dw_mx_decode_run *run)
{
    static mx_decode_function *const *const plain[3] = {mx_decode_f32, mx_decode_f16,
                                                        mx_decode_bf16};
    static mx_decode_function *const *const digesting[3] = {mx_digest_f32, NULL, mx_digest_bf16};
    _Alignas(64) float powers[DW_TILE_ELEMENTS / DW_MX_BLOCK];
    uint64_t special = mx_take_powers(run, powers);
    uint32_t full = (uint32_t)(run->channels / DW_MX_BLOCK), type = run->out_dtype - DW_F32;
    size_t rest = run->channels % DW_MX_BLOCK;
    if (run->sum && run->out_dtype != DW_F16 && !special && !rest) {
        digesting[type][run->element - 1](run, full, powers);
        return;
    }
    mx_decode_function *decode_with = plain[type][run->element - 1];
    decode_with(run, full, powers);
    if (rest) mx_decode_short(run, decode_with, full, rest, powers + full);
    for (; special; special &= special - 1) {
        uint32_t i = (uint32_t)__builtin_ctzll(special);
        mx_decode_special(run, i, i < full ? (size_t)DW_MX_BLOCK : rest);
    }
    if (run->sum) *run->sum += digest(run->out, run->out_dtype, run->element_number, run->channels);
}
