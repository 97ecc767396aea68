/* SPDX-License-Identifier: Apache-2.0
 * kernels_decode.h - vector kernels that decode: codes to the new prev or y.
 *
 * A part of the vector kernels: see kernels_simd.h, which comes before it. */

/* How many elements ahead prev is prefetched: those of the next tile. */
enum { AHEAD = DW_TILE_ELEMENTS };

/* Pointers to an element's bits in the planes of a tile. */
typedef struct planes {
    const uint8_t *first, *second, *third;
} planes;

/* The width of plane number k of codes with so many bits; 0: there is no such plane. */
DW_VECTOR uint32_t plane_bits(uint32_t bits, int k)
{
    uint32_t first = dw_plane_width(bits, 0),
             second = bits > first ? dw_plane_width(bits, first) : 0;
    return k == 0 ? first : k == 1 ? second : bits - first - second;
}

DW_VECTOR planes planes_at(const uint8_t *tile, uint32_t bits, size_t elements, size_t i)
{
    uint32_t first = plane_bits(bits, 0), second = plane_bits(bits, 1);
    return (planes){tile + i * first / 8, tile + elements * first / 8 + i * second / 8,
                    tile + elements * (first + second) / 8 + i * plane_bits(bits, 2) / 8};
}

/* Advances by n elements, a multiple of 16. */
DW_VECTOR planes planes_on(planes p, uint32_t bits, size_t n)
{
    return (planes){p.first + n / 8 * plane_bits(bits, 0), p.second + n / 8 * plane_bits(bits, 1),
                    p.third + n / 8 * plane_bits(bits, 2)};
}

/* The state of a decode loop: where codes are read, what they are added to, where results go, and
 * the digest so far. */
typedef struct coded {
    planes codes;
    const unsigned char *base;
    unsigned char *out;
    /* The part of prev to prefetch for the next tile, whether or not this tile uses prev. The
     * address may be invalid. */
    uintptr_t ahead;
    tally made;
    int past; /* results are stored past the caches */
} coded;

/* The values of codes: a table where they can be looked up, else scale and offset to compute
 * them. factor: of values that are added. */
typedef struct levels {
    f32x16 table, scale, zero_level, factor;
} levels;

DW_VECTOR levels levels_of(float scale, uint32_t bits)
{
    levels v = {f_set(0), f_set(scale), f_set(MAGIC + (float)(1 << (bits - 1))), f_set(1)};
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

/* Extracts 16 codes, one per lane. */
DW_VECTOR i32x16 take_codes(planes from, uint32_t bits)
{
    switch (bits) {
    case 1: return i_take1(from.first);
    case 2: return i_take2(from.first);
    case 3: return i_or(i_take2(from.first), i_shl(i_take1(from.second), 2));
    case 4: return i_take4(from.first);
    case 5: return i_or(i_take4(from.first), i_shl(i_take1(from.second), 4));
    case 6: return i_or(i_take4(from.first), i_shl(i_take2(from.second), 4));
    case 7:
        return i_or(i_or(i_take4(from.first), i_shl(i_take2(from.second), 4)),
                    i_shl(i_take1(from.third), 6));
    default: return i_take8(from.first);
    }
}

/* Extracts 16 codes, one per lane. If the values of codes are looked up in a table, the bits of a
 * lane above its code are undefined; the lookup ignores them. */
DW_VECTOR i32x16 take_loose(planes from, uint32_t bits)
{
#ifdef f_lookup
    if (bits == 1) return i_loose1(from.first);
    if (bits == 2) return i_loose2(from.first);
    if (bits == 3) return i_pick(i_loose2(from.first), i_shl(i_loose1(from.second), 2), i_set(3));
    if (bits == 4) return i_loose4(from.first);
#endif
    return take_codes(from, bits);
}

/* Extracts the 16 codes from element `first` of a tile on, as take_loose does. */
DW_VECTOR i32x16 take16(uint32_t bits, const uint8_t *tile, size_t elements, size_t first)
{
    return take_loose(planes_at(tile, bits, elements, first), bits);
}

typedef struct code_pair {
    i32x16 even, odd;
} code_pair;

#define LOW(word, width) i_and(word, i_set((1 << (width)) - 1))

/* Extracts 32 codes of one to three bits; see take_pair. */
DW_VECTOR code_pair take_few(planes from, uint32_t bits)
{
#ifdef f_lookup
    if (bits == 1) {
        i32x16 both = i_loose2(from.first);
        return (code_pair){both, i_shr(both, 1)};
    }
    i32x16 two = i_loose4(from.first);
    if (bits == 2) return (code_pair){two, i_shr(two, 2)};
    i32x16 one = i_loose2(from.second), low = i_set(3);
    return (code_pair){i_pick(two, i_shl(one, 2), low), i_pick(i_shr(two, 2), i_shl(one, 1), low)};
#else
    if (bits == 1) {
        i32x16 both = i_take2(from.first);
        return (code_pair){LOW(both, 1), i_shr(both, 1)};
    }
    i32x16 two = i_take4(from.first);
    code_pair codes = {LOW(two, 2), i_shr(two, 2)};
    if (bits == 2) return codes;
    i32x16 one = i_take2(from.second);
    return (code_pair){i_or(codes.even, i_shl(LOW(one, 1), 2)),
                       i_or(codes.odd, i_shl(i_shr(one, 1), 2))};
#endif
}

/* Extracts 32 codes: those of the even and those of the odd elements. Each lane loads the bits of
 * two neighbouring elements of a plane. The bits of the even element are the lower ones. The bits
 * above a code are undefined where those of take_loose are. */
DW_VECTOR code_pair take_pair(planes from, uint32_t bits)
{
    if (bits == 8) {
        i32x16 all = i_take16(from.first);
        return (code_pair){LOW(all, 8), i_shr(all, 8)};
    }
    if (bits < 4) return take_few(from, bits);
    i32x16 four = i_take8(from.first);
#ifdef f_lookup
    if (bits == 4) return (code_pair){four, i_shr(four, 4)};
#endif
    code_pair codes = {LOW(four, 4), i_shr(four, 4)};
    if (bits >= 6) {
        i32x16 two = i_take4(from.second);
        codes = (code_pair){i_or(codes.even, i_shl(LOW(two, 2), 4)),
                            i_or(codes.odd, i_shl(i_shr(two, 2), 4))};
    }
    if (bits == 5 || bits == 7) {
        i32x16 one = i_take2(bits == 5 ? from.second : from.third);
        int place = bits == 5 ? 4 : 6;
        i32x16 even = LOW(one, 1), odd = i_shr(one, 1);
        codes.even = i_or(codes.even, place == 4 ? i_shl(even, 4) : i_shl(even, 6));
        codes.odd = i_or(codes.odd, place == 4 ? i_shl(odd, 4) : i_shl(odd, 6));
    }
    return codes;
}

/* The variant of a decode kernel. digests: the digest is computed from registers, for f32 and bf16
 * only. direct: there is no base, and results are made a line of 64 bytes at a time, not of f16.
 * adds: values are added to what `out` holds; only without a base. */
typedef struct decode_kind {
    dw_dtype dtype;
    uint32_t bits, digests, direct, adds;
} decode_kind;

/* Stores 64 bytes; past: past the caches. */
DW_VECTOR void put_line(unsigned char *to, i32x16 made, int past)
{
    if (past)
        i_stream(to, made);
    else
        i_store(to, made);
}

/* Adds the first n elements, 16, 32 or 64, to what `out` holds. */
DW_VECTOR void add_values(coded c, size_t n, levels v, decode_kind kind)
{
    for (size_t at = 0; at < n; at += LANES) {
        i32x16 codes = take_loose(planes_on(c.codes, kind.bits, at), kind.bits);
        f32x16 value = add_level(f_set(0), codes, v, kind.bits), old = load(c.out, kind.dtype, at);
        store_finite(c.out, kind.dtype, at, sum_of(old, value, v.factor));
    }
}

/* Decodes the first n elements, 16, 32 or 64, and returns the digest so far. bf16 is processed in
 * pairs of blocks where there are at least two. */
DW_VECTOR tally decode_blocks(coded c, size_t n, levels v, decode_kind kind)
{
    dw_dtype dtype = kind.dtype;
    if (dtype == DW_BF16 && n > LANES) {
        for (size_t at = 0; at < n; at += 2 * LANES) {
            code_pair codes = take_pair(planes_on(c.codes, kind.bits, at), kind.bits);
            pair base = {f_set(0), f_set(0)};
            if (!kind.direct) {
                base = load_pair(c.base, at);
                DW_PREFETCH(c.ahead, 2 * at);
            }
            i32x16 made = narrow_pair(add_level(base.even, codes.even, v, kind.bits),
                                      add_level(base.odd, codes.odd, v, kind.bits));
            put_line(c.out + 2 * at, made, c.past);
            if (kind.digests) c.made = tally_add(c.made, made);
        }
        return c.made;
    }
    for (size_t at = 0; at < n; at += LANES) {
        i32x16 codes = take_loose(planes_on(c.codes, kind.bits, at), kind.bits);
        if (kind.direct) {
            put_line(c.out + 4 * at, f_bits(add_level(f_set(0), codes, v, kind.bits)), c.past);
            continue;
        }
        DW_PREFETCH(c.ahead, bytes_of(dtype) * at);
        f32x16 made = add_level(load(c.base, dtype, at), codes, v, kind.bits);
        store_sum(c.out, dtype, at, made);
        if (kind.digests) c.made = tally_add(c.made, f_bits(made));
    }
    return c.made;
}

/* Decodes the first n elements and returns the state behind them. */
DW_VECTOR coded decode_step(coded c, size_t n, levels v, decode_kind kind)
{
    tally made = c.made;
    if (kind.adds)
        add_values(c, n, v, kind);
    else
        made = decode_blocks(c, n, v, kind);
    size_t bytes = n * bytes_of(kind.dtype);
    return (coded){planes_on(c.codes, kind.bits, n),
                   c.base + bytes,
                   c.out + bytes,
                   c.ahead + bytes,
                   made,
                   c.past};
}

/* Decodes n elements of one piece, a multiple of 16, and returns the state behind them. */
DW_VECTOR coded decode_values(coded c, size_t n, float scale, float factor, decode_kind kind)
{
    levels v = levels_of(scale, kind.bits);
    if (kind.adds) v.factor = f_set(factor);
    ROLLED for (; n >= 4 * LANES; n -= 4 * LANES) c = decode_step(c, 4 * LANES, v, kind);
    ROLLED for (; n >= 2 * LANES; n -= 2 * LANES) c = decode_step(c, 2 * LANES, v, kind);
    if ((kind.digests || kind.direct) && kind.dtype == DW_BF16)
        return c; /* 16 bf16 are only half a register: too short for the digest's words and for a
                     line */
    ROLLED for (; n; n -= LANES) c = decode_step(c, LANES, v, kind);
    return c;
}

#ifdef h_lookup
/* Does the same as decode_values for codes of 4 bits, a dtype of 16 bits and no base. Then there
 * are only 16 different results, which are looked up in a table. n: a multiple of 64. */
DW_VECTOR coded look_up_values(coded c, size_t n, float scale, decode_kind kind)
{
    static const uint8_t all[8] = {0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe};
    _Alignas(32) unsigned char values[2 * LANES];
    f32x16 made = add_level(f_set(0), i_take4(all), levels_of(scale, 4), 4);
    store_sum(values, kind.dtype, 0, made);
    h_table table = h_table_of(values);
    for (; n; n -= 4 * LANES) {
        i32x16 first, second;
        h_lookup(table, c.codes.first, &first, &second);
        put_line(c.out, first, c.past);
        put_line(c.out + 64, second, c.past);
        c.codes.first += 2 * LANES;
        c.out += 8 * LANES;
    }
    return c;
}
#endif

/* Decodes piece p of a run by the C kernel. The piece has n elements and a special scale (see
 * SPECIAL_FROM in kernels_simd.h). */
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
    one.sum = NULL;
    dw_kernels_c.decode(&one);
}

/* The scales of a run's pieces, and for every 16 pieces a mask of those that are special. */
typedef struct piece_scales {
    _Alignas(64) float wide[DW_TILE_ELEMENTS / LANES];
    uint32_t special[DW_TILE_ELEMENTS / LANES / BATCH];
} piece_scales;

static void take_scales(const dw_decode_run *run, piece_scales *to)
{
    _Alignas(64) uint16_t wire[DW_TILE_ELEMENTS / LANES];
    for (uint32_t p = 0; p < run->pieces; p += BATCH) {
        uint32_t n = run->pieces - p < BATCH ? run->pieces - p : BATCH;
        if (n == BATCH)
            memcpy(wire, run->scales + 2 * (size_t)p, 2 * BATCH);
        else
            memcpy(wire, run->scales + 2 * (size_t)p, 2 * (size_t)n);
        f32x16 wide = widen_bf16(wire);
        f_store(to->wide + p, wide);
        i32x16 special = i_greater(i_and(f_bits(wide), i_set(0x7fffffff)), i_set(SPECIAL_FROM - 1));
        to->special[p / BATCH] = i_signs(special) & ((1u << n) - 1);
    }
}

/* The base of a piece where there is a choice: prev or zeros. Computed without a branch, because
 * choices follow no pattern. */
DW_VECTOR const unsigned char *chosen_prev(const unsigned char *prev, const uint8_t *choices,
                                           uint64_t bit)
{
    uintptr_t direct = 0 - (uintptr_t)(choices[bit / 8] >> bit % 8 & 1);
    return (const unsigned char *)(((uintptr_t)prev & ~direct) | ((uintptr_t)no_prev & direct));
}

/* Decodes all full pieces. Special pieces are decoded, too, and later corrected by the C kernel. */
DW_VECTOR void decode_pieces(const dw_decode_run *given, uint32_t pieces, const float *scales,
                             decode_kind kind)
{
    dw_decode_run run = *given; /* a copy, because stores to out may alias the caller's */
    coded c = {.codes = planes_at(run.codes, kind.bits, run.tile_elements, run.first),
               .out = run.out,
               .past = kind.direct && run.past && (uintptr_t)run.out % 64 == 0};
    const unsigned char *prev = run.prev ? run.prev : no_prev;
    size_t step = run.prev ? run.width * bytes_of(kind.dtype) : 0;
    if (!run.prev) run.choices = NULL;
    if (kind.digests) c.made = tally_from((uint32_t)(run.element / (4 / bytes_of(kind.dtype))));
    for (uint32_t p = 0; p < pieces; p++, prev += step) {
#ifdef h_lookup
        if (kind.bits == 4 && kind.dtype != DW_F32 && !kind.digests && !kind.adds && !run.prev &&
            run.width % (4 * LANES) == 0) {
            c = look_up_values(c, run.width, scales[p], kind);
            continue;
        }
#endif
        c.base = run.choices ? chosen_prev(prev, run.choices, run.first_piece + p) : prev;
        c.ahead = (uintptr_t)prev + AHEAD * bytes_of(kind.dtype);
        c = decode_values(c, run.width, scales[p], run.factor, kind);
    }
    if (kind.digests) *run.sum += i_sum_products(c.made.sum);
}

typedef void decode_function(const dw_decode_run *run, uint32_t pieces, const float *scales);

#define DECODE(name, ...)                                                                          \
    static void name(const dw_decode_run *run, uint32_t pieces, const float *scales)               \
    {                                                                                              \
        decode_pieces(run, pieces, scales, (decode_kind){__VA_ARGS__});                            \
    }
#define DECODE_DTYPE(name, dtype, ...)                                                             \
    DECODE(decode_##name##_1, dtype, 1, __VA_ARGS__)                                               \
    DECODE(decode_##name##_2, dtype, 2, __VA_ARGS__)                                               \
    DECODE(decode_##name##_3, dtype, 3, __VA_ARGS__)                                               \
    DECODE(decode_##name##_4, dtype, 4, __VA_ARGS__)                                               \
    DECODE(decode_##name##_5, dtype, 5, __VA_ARGS__)                                               \
    DECODE(decode_##name##_6, dtype, 6, __VA_ARGS__)                                               \
    DECODE(decode_##name##_7, dtype, 7, __VA_ARGS__)                                               \
    DECODE(decode_##name##_8, dtype, 8, __VA_ARGS__)
DECODE_DTYPE(f32, DW_F32, 0, 0, 0)
DECODE_DTYPE(f16, DW_F16, 0, 0, 0)
DECODE_DTYPE(bf16, DW_BF16, 0, 0, 0)
DECODE_DTYPE(f32_digest, DW_F32, 1, 0, 0)
DECODE_DTYPE(bf16_digest, DW_BF16, 1, 0, 0)
DECODE_DTYPE(f32_direct, DW_F32, 0, 1, 0)
DECODE_DTYPE(bf16_direct, DW_BF16, 0, 1, 0)
DECODE_DTYPE(f32_add, DW_F32, 0, 0, 1)
DECODE_DTYPE(f16_add, DW_F16, 0, 0, 1)
DECODE_DTYPE(bf16_add, DW_BF16, 0, 0, 1)
#undef DECODE_DTYPE
#undef DECODE

/* Decodes the last piece of a run, which has n elements: whole blocks as a piece of their own, the
 * rest through padded buffers. */
static void decode_short(const dw_decode_run *run, decode_function *decode_whole, uint32_t p,
                         size_t n, float scale)
{
    _Alignas(64) unsigned char base[4 * LANES] = {0}, out[4 * LANES] = {0};
    size_t size = bytes_of(run->out_dtype), at = (size_t)p * run->width, rest = n % LANES,
           whole = n - rest;
    dw_decode_run part = *run;
    part.first_piece += p;
    part.first += (uint32_t)at;
    part.sum = NULL;
    part.width = (uint32_t)whole;
    part.out = (unsigned char *)run->out + at * size;
    if (run->prev) part.prev = (const unsigned char *)run->prev + at * size;
    if (whole) decode_whole(&part, 1, &scale);
    if (!rest) return;
    unsigned char *end = (unsigned char *)part.out + whole * size;
    if (run->prev) {
        memcpy(base, (const unsigned char *)part.prev + whole * size, rest * size);
        part.prev = base;
    }
    part.first += (uint32_t)whole;
    part.width = LANES;
    part.out = out;
    memcpy(out, end, rest * size); /* for kernels that add to it */
    decode_whole(&part, 1, &scale);
    memcpy(end, out, rest * size);
}

static int has_special(const dw_decode_run *run, const piece_scales *scales)
{
    uint32_t special = 0;
    for (uint32_t from = 0; from < run->pieces; from += BATCH)
        special |= scales->special[from / BATCH];
    return special != 0;
}

/* Whether the digest can be computed from registers, that is, whether they hold exactly what is
 * stored. */
static int may_digest(const dw_decode_run *run, const piece_scales *scales)
{
    return run->sum && run->out_dtype != DW_F16 && !has_special(run, scales) &&
           run->channels == (uint64_t)run->pieces * run->width &&
           run->width % (run->out_dtype == DW_F32 ? LANES : 2 * LANES) == 0;
}

/* Whether the full pieces have no base and are whole lines of 64 bytes. f16 is excluded because it
 * is narrowed while it is stored. */
static int is_direct(const dw_decode_run *run)
{
    return !run->prev && !run->adds && run->out_dtype != DW_F16 &&
           run->width * bytes_of(run->out_dtype) % 64 == 0;
}

static void decode(const dw_decode_run *run);

/* Adds the values of a run that has special pieces (see SPECIAL_FROM). The vector kernel decodes
 * these wrongly, which could not be corrected after they were added. So all values are decoded and
 * corrected first. */
static void add_decoded(const dw_decode_run *run)
{
    float values[DW_TILE_ELEMENTS];
    dw_decode_run plain = *run;
    plain.adds = 0;
    plain.out_dtype = DW_F32;
    plain.out = values;
    decode(&plain);
    add(values, run->factor, run->out, run->out_dtype, run->channels);
}

static void decode(const dw_decode_run *run)
{
#define ALL_BITS(name)                                                                             \
    {                                                                                              \
        name##_1, name##_2, name##_3, name##_4, name##_5, name##_6, name##_7, name##_8             \
    }
    static decode_function *const table[3][8] = {ALL_BITS(decode_f32), ALL_BITS(decode_f16),
                                                 ALL_BITS(decode_bf16)};
    static decode_function *const digesting[3][8] = {
        ALL_BITS(decode_f32_digest), {0}, ALL_BITS(decode_bf16_digest)};
    static decode_function *const direct[3][8] = {
        ALL_BITS(decode_f32_direct), {0}, ALL_BITS(decode_bf16_direct)};
    static decode_function *const adding[3][8] = {
        ALL_BITS(decode_f32_add), ALL_BITS(decode_f16_add), ALL_BITS(decode_bf16_add)};
#undef ALL_BITS
    piece_scales scales;
    uint32_t full = (uint32_t)(run->channels / run->width);
    size_t n = run->channels - (size_t)full * run->width;
    take_scales(run, &scales);
    for (size_t at = 0; run->past && at < run->channels * bytes_of(run->out_dtype); at += PAGE)
        ask_page((const unsigned char *)run->out + at);
    if (may_digest(run, &scales)) {
        digesting[run->out_dtype - DW_F32][run->bits - 1](run, full, scales.wide);
        return;
    }
    if (run->adds && has_special(run, &scales)) {
        add_decoded(run);
        return;
    }
    decode_function *decode_whole =
        (run->adds ? adding : table)[run->out_dtype - DW_F32][run->bits - 1];
    if (is_direct(run))
        direct[run->out_dtype - DW_F32][run->bits - 1](run, full, scales.wide);
    else
        decode_whole(run, full, scales.wide);
    if (n) decode_short(run, decode_whole, full, n, scales.wide[full]);
    for (uint32_t from = 0; from < run->pieces; from += BATCH)
        for (uint32_t special = scales.special[from / BATCH]; special; special &= special - 1) {
            uint32_t p = from + (uint32_t)__builtin_ctz(special);
            decode_special(run, p, p < full ? run->width : n);
        }
    if (run->sum) *run->sum += digest(run->out, run->out_dtype, run->element, run->channels);
}
