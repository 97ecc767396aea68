/* SPDX-License-Identifier: Apache-2.0
 * kernels_decode.h - codes to the new prev or y, in vectors.
 *
 * Text for vector kernels, as kernels_simd.h, which comes before it. */

/* Elements of prev that are asked for before they are needed: those of the next tile. */
enum { AHEAD = DW_TILE_ELEMENTS };

/* Where n codes lie, and what they are added to. */
typedef struct coded {
    const uint8_t *tile;
    size_t elements, first; /* of the tile */
    const unsigned char *base;
    unsigned char *out;
    size_t n; /* a multiple of 16 */
    float scale;
} coded;

/* The values that codes stand for: all of them where they can be looked up, else what makes them. */
typedef struct levels {
    f32x16 table, scale, zero_level;
} levels;

DW_VECTOR levels levels_of(float scale, uint32_t bits)
{
    levels v = {f_set(0), f_set(scale), f_set(MAGIC + (float)(1 << (bits - 1)))};
#ifdef f_lookup
    static const _Alignas(64) float by_low_bits[4][LANES] = {
        {-1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1},
        {-2, -1, 0, 1, -2, -1, 0, 1, -2, -1, 0, 1, -2, -1, 0, 1},
        {-4, -3, -2, -1, 0, 1, 2, 3, -4, -3, -2, -1, 0, 1, 2, 3},
        {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7},
    };
    if (bits <= 4) v.table = f_mul(f_load(by_low_bits[bits - 1]), v.scale);
#endif
    return v;
}

DW_VECTOR f32x16 add_level(f32x16 base, i32x16 codes, levels v, uint32_t bits)
{
#ifdef f_lookup
    if (bits <= 4) return f_add(base, f_lookup(v.table, codes));
#endif
    if (bits == 1) codes = i_add(codes, codes); /* 2c - 1 */
    return f_muladd(f_sub(i_float(i_or(codes, f_bits(f_set(MAGIC)))), v.zero_level), v.scale, base);
}

/* 16 codes of a tile, one per lane; where values are looked up, anything may stand above their bits. */
DW_VECTOR i32x16 take16(uint32_t bits, const uint8_t *tile, size_t elements, size_t first)
{
    const uint8_t *two = tile + elements / 2 + first / 4; /* behind a plane of four bits */
    switch (bits) {
#ifdef f_lookup
    case 1: return i_loose1(tile + first / 8);
    case 2: return i_loose2(tile + first / 4);
    case 3: return i_pick(i_loose2(tile + first / 4), i_shl(i_loose1(tile + elements / 4 + first / 8), 2), i_set(3));
    case 4: return i_loose4(tile + first / 2);
#else
    case 1: return i_take1(tile + first / 8);
    case 2: return i_take2(tile + first / 4);
    case 3: return i_or(i_take2(tile + first / 4), i_shl(i_take1(tile + elements / 4 + first / 8), 2));
    case 4: return i_take4(tile + first / 2);
#endif
    case 5: return i_or(i_take4(tile + first / 2), i_shl(i_take1(tile + elements / 2 + first / 8), 4));
    case 6: return i_or(i_take4(tile + first / 2), i_shl(i_take2(two), 4));
    case 7:
        return i_or(i_or(i_take4(tile + first / 2), i_shl(i_take2(two), 4)),
                    i_shl(i_take1(tile + elements / 4 * 3 + first / 8), 6));
    default: return i_take8(tile + first);
    }
}

typedef struct code_pair {
    i32x16 even, odd;
} code_pair;

#define LOW(word, width) i_and(word, i_set((1 << (width)) - 1))

/* As take_pair, of one to three bits. */
DW_VECTOR code_pair take_few(uint32_t bits, const uint8_t *tile, size_t elements, size_t first)
{
#ifdef f_lookup
    if (bits == 1) {
        i32x16 both = i_loose2(tile + first / 8);
        return (code_pair){both, i_shr(both, 1)};
    }
    i32x16 two = i_loose4(tile + first / 4);
    if (bits == 2) return (code_pair){two, i_shr(two, 2)};
    i32x16 one = i_loose2(tile + elements / 4 + first / 8), low = i_set(3);
    return (code_pair){i_pick(two, i_shl(one, 2), low), i_pick(i_shr(two, 2), i_shl(one, 1), low)};
#else
    if (bits == 1) {
        i32x16 both = i_take2(tile + first / 8);
        return (code_pair){LOW(both, 1), i_shr(both, 1)};
    }
    i32x16 two = i_take4(tile + first / 4);
    code_pair codes = {LOW(two, 2), i_shr(two, 2)};
    if (bits == 2) return codes;
    i32x16 one = i_take2(tile + elements / 4 + first / 8);
    return (code_pair){i_or(codes.even, i_shl(LOW(one, 1), 2)), i_or(codes.odd, i_shl(i_shr(one, 1), 2))};
#endif
}

/* 32 codes of a tile. A lane takes what two elements have in a plane, the even one's bits below the odd one's. */
DW_VECTOR code_pair take_pair(uint32_t bits, const uint8_t *tile, size_t elements, size_t first)
{
    if (bits == 8) {
        i32x16 all = i_take16(tile + first);
        return (code_pair){LOW(all, 8), i_shr(all, 8)};
    }
    if (bits < 4) return take_few(bits, tile, elements, first);
    i32x16 four = i_take8(tile + first / 2);
#ifdef f_lookup
    if (bits == 4) return (code_pair){four, i_shr(four, 4)};
#endif
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
}

/* bf16 in pairs of blocks; what fills no pair follows in order. */
DW_VECTOR void decode_values(coded c, dw_dtype dtype, uint32_t bits)
{
    levels v = levels_of(c.scale, bits);
    size_t at = 0;
    if (dtype == DW_BF16)
        for (; at + 2 * LANES <= c.n; at += 2 * LANES) {
            code_pair codes = take_pair(bits, c.tile, c.elements, c.first + at);
            pair base = load_pair(c.base, at);
            DW_PREFETCH(c.base, 2 * (at + AHEAD));
            narrow_pair(c.out + 2 * at, add_level(base.even, codes.even, v, bits), add_level(base.odd, codes.odd, v, bits));
        }
    for (; at < c.n; at += LANES) {
        i32x16 codes = take16(bits, c.tile, c.elements, c.first + at);
        DW_PREFETCH(c.base, bytes_of(dtype) * (at + AHEAD));
        store(c.out, dtype, at, add_level(load(c.base, dtype, at), codes, v, bits));
    }
}

/* Piece p of a run, of n elements, where the arithmetic of the vectors does not hold. */
static void decode_special(const dw_decode_run *run, uint32_t p, size_t n)
{
    size_t at = (size_t)p * run->width * bytes_of(run->out_dtype);
    dw_decode_run one = *run;
    one.pieces = 1;
    one.channels = n;
    one.prev = run->prev ? (const unsigned char *)run->prev + at : NULL;
    one.out = (unsigned char *)run->out + at;
    one.scales = run->scales + 2 * (size_t)p;
    one.first_piece = run->first_piece + p;
    one.first = run->first + p * run->width;
    dw_kernels_c.decode(&one);
}

DW_VECTOR uint16_t wire_scale(const uint8_t *scales, uint32_t p)
{
    return (uint16_t)(scales[2 * p] | scales[2 * p + 1] << 8);
}

/* Piece p of a run, but for what it decodes from and to. */
DW_VECTOR coded coded_piece(const dw_decode_run *run, uint32_t p, uint16_t scale, size_t size)
{
    size_t at = (size_t)p * run->width;
    uint64_t bit = run->first_piece + p;
    int direct = run->choices && (run->choices[bit / 8] >> bit % 8 & 1);
    return (coded){.tile = run->codes,
                   .elements = run->tile_elements,
                   .first = run->first + at,
                   .base = run->prev && !direct ? (const unsigned char *)run->prev + at * size : no_prev,
                   .out = (unsigned char *)run->out + at * size,
                   .scale = dw_bf16_widen(scale)};
}

/* Pieces that are not short. */
DW_VECTOR void decode_pieces(const dw_decode_run *given, uint32_t pieces, dw_dtype dtype, uint32_t bits)
{
    dw_decode_run run = *given; /* stores to out may alias the caller's */
    for (uint32_t p = 0; p < pieces; p++) {
        uint16_t scale = wire_scale(run.scales, p);
        coded c = coded_piece(&run, p, scale, bytes_of(dtype));
        c.n = run.width;
        if ((scale & 0x7fff) >= SPECIAL_FROM >> 16)
            decode_special(given, p, c.n);
        else
            decode_values(c, dtype, bits);
    }
}

/* The last piece of a run, of n elements: what fills blocks, then the rest through padded buffers. */
DW_VECTOR void decode_short(const dw_decode_run *run, uint32_t p, size_t n, dw_dtype dtype, uint32_t bits)
{
    _Alignas(64) unsigned char base[4 * LANES] = {0}, out[4 * LANES];
    uint16_t scale = wire_scale(run->scales, p);
    size_t size = bytes_of(dtype), whole = n / LANES * LANES, rest = n - whole;
    coded c = coded_piece(run, p, scale, size);
    if ((scale & 0x7fff) >= SPECIAL_FROM >> 16) {
        decode_special(run, p, n);
        return;
    }
    c.n = whole;
    decode_values(c, dtype, bits);
    if (!rest) return;
    memcpy(base, c.base + whole * size, rest * size);
    unsigned char *end = c.out + whole * size;
    c.base = base;
    c.out = out;
    c.first += whole;
    c.n = LANES;
    decode_values(c, dtype, bits);
    memcpy(end, out, rest * size);
}

/* n: of the last piece, where it is short; else 0 */
typedef void decode_function(const dw_decode_run *run, uint32_t pieces, size_t n);

#define DECODE(name, dtype, bits)                                                                                          \
    static void name(const dw_decode_run *run, uint32_t pieces, size_t n)                                                  \
    {                                                                                                                      \
        decode_pieces(run, pieces, dtype, bits);                                                                           \
        if (n) decode_short(run, pieces, n, dtype, bits);                                                                  \
    }
#define DECODE_DTYPE(name, dtype)                                                                                          \
    DECODE(decode_##name##_1, dtype, 1)                                                                                    \
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

static void decode(const dw_decode_run *run)
{
    static decode_function *const table[3][8] = {
        {decode_f32_1, decode_f32_2, decode_f32_3, decode_f32_4, decode_f32_5, decode_f32_6, decode_f32_7, decode_f32_8},
        {decode_f16_1, decode_f16_2, decode_f16_3, decode_f16_4, decode_f16_5, decode_f16_6, decode_f16_7, decode_f16_8},
        {decode_bf16_1, decode_bf16_2, decode_bf16_3, decode_bf16_4, decode_bf16_5, decode_bf16_6, decode_bf16_7, decode_bf16_8},
    };
    uint32_t full = (uint32_t)(run->channels / run->width);
    table[run->out_dtype - DW_F32][run->bits - 1](run, full, run->channels - (size_t)full * run->width);
}
