/* SPDX-License-Identifier: Apache-2.0
 * kernels_decode.h - codes to the new prev or y, in vectors.
 *
 * Text for vector kernels, as kernels_simd.h, which comes before it. */

/* 16 codes of a tile, one per lane. */
DW_VECTOR i32x16 take16(uint32_t bits, const uint8_t *tile, size_t elements, size_t first)
{
    const uint8_t *two = tile + elements / 2 + first / 4; /* behind a plane of four bits */
    switch (bits) {
    case 1: return i_take1(tile + first / 8);
    case 2: return i_take2(tile + first / 4);
    case 3: return i_or(i_take2(tile + first / 4), i_shl(i_take1(tile + elements / 4 + first / 8), 2));
    case 4: return i_take4(tile + first / 2);
    case 5: return i_or(i_take4(tile + first / 2), i_shl(i_take1(tile + elements / 2 + first / 8), 4));
    case 6: return i_or(i_take4(tile + first / 2), i_shl(i_take2(two), 4));
    case 7:
        return i_or(i_or(i_take4(tile + first / 2), i_shl(i_take2(two), 4)),
                    i_shl(i_take1(tile + elements / 4 * 3 + first / 8), 6));
    default: return i_take8(tile + first);
    }
}

/* Elements of prev that are asked for before they are needed: those of the next tile. */
enum { AHEAD = DW_TILE_ELEMENTS };

typedef struct code_pair {
    i32x16 even, odd;
} code_pair;

/* 32 codes of a tile. A lane takes what two elements have in a plane, the even one's bits below the odd one's. */
DW_VECTOR code_pair take_pair(uint32_t bits, const uint8_t *tile, size_t elements, size_t first)
{
#define LOW(word, width) i_and(word, i_set((1 << (width)) - 1))
    if (bits == 8) {
        i32x16 all = i_take16(tile + first);
        return (code_pair){LOW(all, 8), i_shr(all, 8)};
    }
    if (bits < 4) {
        i32x16 two = i_take4(tile + first / 4);
        code_pair codes = {LOW(two, 2), i_shr(two, 2)};
        if (bits == 2) return codes;
        i32x16 one = i_take2(tile + elements / 4 + first / 8);
        return (code_pair){i_or(codes.even, i_shl(LOW(one, 1), 2)), i_or(codes.odd, i_shl(i_shr(one, 1), 2))};
    }
    i32x16 four = i_take8(tile + first / 2);
    code_pair codes = {LOW(four, 4), i_shr(four, 4)};
    if (bits == 5) {
        i32x16 one = i_take2(tile + elements / 2 + first / 8);
        codes = (code_pair){i_or(codes.even, i_shl(LOW(one, 1), 4)), i_or(codes.odd, i_shl(i_shr(one, 1), 4))};
    }
    if (bits >= 6) {
        i32x16 two = i_take4(tile + elements / 2 + first / 4);
        codes = (code_pair){i_or(codes.even, i_shl(LOW(two, 2), 4)), i_or(codes.odd, i_shl(i_shr(two, 2), 4))};
    }
    if (bits == 7) {
        i32x16 one = i_take2(tile + elements / 4 * 3 + first / 8);
        codes = (code_pair){i_or(codes.even, i_shl(LOW(one, 1), 6)), i_or(codes.odd, i_shl(i_shr(one, 1), 6))};
    }
    return codes;
#undef LOW
}

DW_VECTOR f32x16 value_of(i32x16 codes, f32x16 zero_level, f32x16 scale)
{
    return f_mul(f_sub(i_float(i_or(codes, f_bits(f_set(MAGIC)))), zero_level), scale);
}

/* decode_piece for bf16: as many of its values as come in pairs of blocks; their number. */
DW_VECTOR size_t decode_pairs(const dw_decode_run *run, const unsigned char *base, size_t mask, unsigned char *out, size_t n,
                              size_t first, f32x16 wide, f32x16 zero_level, uint32_t bits)
{
    size_t at = 0;
    for (; at + 2 * LANES <= n; at += 2 * LANES) {
        code_pair codes = take_pair(bits, run->codes, run->tile_elements, first + at);
        pair before = load_pair(base, at & mask);
        DW_PREFETCH(base + 2 * ((at + AHEAD) & mask));
        narrow_pair(out + 2 * at, f_add(before.even, value_of(codes.even, zero_level, wide)),
                    f_add(before.odd, value_of(codes.odd, zero_level, wide)));
    }
    return at;
}

/* n values, a multiple of 16, of one piece. */
DW_VECTOR void decode_piece(const dw_decode_run *run, const unsigned char *base, size_t mask, unsigned char *out, size_t n,
                            size_t first, uint16_t scale, dw_dtype dtype, uint32_t bits)
{
    f32x16 wide = f_set(dw_bf16_widen(scale)), zero_level = f_set(MAGIC + (float)(1 << (bits - 1)));
    size_t at = dtype == DW_BF16 ? decode_pairs(run, base, mask, out, n, first, wide, zero_level, bits) : 0;
    for (; at < n; at += LANES) {
        f32x16 value = value_of(take16(bits, run->codes, run->tile_elements, first + at), zero_level, wide);
        DW_PREFETCH(base + bytes_of(dtype) * ((at + AHEAD) & mask));
        store(out, dtype, at, f_add(load(base, dtype, at & mask), value));
    }
}

typedef void decode_function(const dw_decode_run *run, const unsigned char *base, size_t mask, unsigned char *out, size_t n,
                             size_t first, uint16_t scale);

#define DECODE(name, dtype, bits)                                                                                          \
    static void name(const dw_decode_run *run, const unsigned char *base, size_t mask, unsigned char *out, size_t n,       \
                     size_t first, uint16_t scale)                                                                         \
    {                                                                                                                      \
        decode_piece(run, base, mask, out, n, first, scale, dtype, bits);                                                  \
    }
#define DECODE_DTYPE(name, dtype)                                                                                          \
    DECODE(decode_##name##_2, dtype, 2)                                                                                    \
    DECODE(decode_##name##_3, dtype, 3)                                                                                    \
    DECODE(decode_##name##_4, dtype, 4)                                                                                    \
    DECODE(decode_##name##_5, dtype, 5)                                                                                    \
    DECODE(decode_##name##_6, dtype, 6)                                                                                    \
    DECODE(decode_##name##_7, dtype, 7)                                                                                    \
    DECODE(decode_##name##_8, dtype, 8)
DECODE_DTYPE(f32, DW_F32)
DECODE_DTYPE(f16, DW_F16)
DECODE_DTYPE(bf16, DW_BF16)
#undef DECODE_DTYPE
#undef DECODE

static decode_function *decode_for(dw_dtype dtype, uint32_t bits)
{
    static decode_function *const table[3][7] = {
        {decode_f32_2, decode_f32_3, decode_f32_4, decode_f32_5, decode_f32_6, decode_f32_7, decode_f32_8},
        {decode_f16_2, decode_f16_3, decode_f16_4, decode_f16_5, decode_f16_6, decode_f16_7, decode_f16_8},
        {decode_bf16_2, decode_bf16_3, decode_bf16_4, decode_bf16_5, decode_bf16_6, decode_bf16_7, decode_bf16_8},
    };
    return table[dtype - DW_F32][bits - 2];
}

static void fill_nan(unsigned char *out, dw_dtype dtype, size_t n)
{
    size_t size = bytes_of(dtype);
    uint32_t nan = dtype == DW_F32 ? DW_F32_NAN : dtype == DW_F16 ? DW_F16_NAN : DW_BF16_NAN;
    for (size_t i = 0; i < n; i++) memcpy(out + i * size, &nan, size); /* little-endian: the low half */
}

static void fill_poisoned(const dw_decode_run *run, const unsigned char *prev, unsigned char *out, size_t n)
{
    size_t size = bytes_of(run->out_dtype);
    if (run->poison_keeps && prev)
        memcpy(out, prev, n * size);
    else if (run->poison_keeps)
        memset(out, 0, n * size);
    else
        fill_nan(out, run->out_dtype, n);
}

/* The part of a short piece that fills no block. */
static void decode_rest(const dw_decode_run *run, decode_function *decode_values, const unsigned char *base, size_t mask,
                        unsigned char *out, size_t n, size_t first, uint16_t scale)
{
    _Alignas(64) unsigned char padded[4 * LANES], wide[4 * LANES];
    size_t size = bytes_of(run->out_dtype);
    memset(padded, 0, sizeof padded);
    if (mask) memcpy(padded, base, n * size);
    decode_values(run, padded, ~(size_t)0, wide, LANES, first, scale);
    memcpy(out, wide, n * size);
}

static void decode(const dw_decode_run *run)
{
    if (run->bits == 1) {
        dw_kernels_c.decode(run);
        return;
    }
    decode_function *decode_values = decode_for(run->out_dtype, run->bits);
    size_t size = bytes_of(run->out_dtype), left = run->channels, at = 0;
    for (uint32_t p = 0; p < run->pieces; p++) {
        size_t n = left < run->width ? left : run->width, whole = n / LANES * LANES;
        size_t first = run->first + (size_t)p * run->width;
        uint64_t bit = run->first_piece + p;
        int direct = run->choices && (run->choices[bit / 8] >> bit % 8 & 1);
        uint16_t scale = (uint16_t)(run->scales[2 * p] | run->scales[2 * p + 1] << 8);
        const unsigned char *prev = run->prev ? (const unsigned char *)run->prev + at * size : NULL;
        const unsigned char *base = prev && !direct ? prev : (const unsigned char *)zeros;
        size_t mask = index_mask(direct ? NULL : prev);
        unsigned char *out = (unsigned char *)run->out + at * size;
        if (dw_scale_is_poisoned(scale)) {
            fill_poisoned(run, prev, out, n);
        } else {
            decode_values(run, base, mask, out, whole, first, scale);
            if (whole < n)
                decode_rest(run, decode_values, base + (whole & mask) * size, mask, out + whole * size, n - whole, first + whole,
                            scale);
        }
        at += n;
        left -= n;
    }
}
