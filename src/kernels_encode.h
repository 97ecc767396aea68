/* SPDX-License-Identifier: Apache-2.0
 * kernels_encode.h - x and prev to codes and the new prev, in vectors.
 *
 * Text for vector kernels, as kernels_simd.h, which comes before it. A batch is up to 16 pieces. One sweep over x and prev leaves
 * the deltas in a scratch in the first-level cache and the extremes of every piece in 4 lanes; the scales of the whole batch are then
 * computed side by side, one piece per lane; the finish takes the deltas to codes, planes and the new prev. Short last pieces go
 * through buffers that are padded with zeros, so no loop has a mask. */

enum { POSITIVE, NEGATIVE, X_POSITIVE, X_NEGATIVE }; /* of the deltas, and of x itself */

typedef struct batch {
    _Alignas(64) float delta[DW_TILE_ELEMENTS];
    _Alignas(64) float scale[BATCH], inverse[BATCH], top[BATCH]; /* top: the largest level; 0: only the zero level */
    _Alignas(64) int32_t base_mask[BATCH];                       /* 0: the piece is direct */
    _Alignas(64) int32_t quarters[4][4 * BATCH];                  /* extremes: four lanes of each piece */
    uint16_t wire[BATCH];
    uint32_t poisoned; /* mask of pieces */
} batch;

/* Pieces side by side in memory, none of them short. */
typedef struct stretch {
    const unsigned char *x, *prev;
    unsigned char *next;
    uint32_t piece, pieces; /* within the run */
    size_t ahead;           /* elements from here to what the next sweep will read */
} stretch;

DW_VECTOR void sweep(const stretch *s, uint32_t width, dw_dtype x_dtype, dw_dtype prev_dtype, int chooses, batch *b)
{
    size_t mask = index_mask(s->prev), at = 0;
    const unsigned char *prev = s->prev ? s->prev : (const unsigned char *)zeros;
    for (uint32_t p = 0; p < s->pieces; p++) {
        lanes_extremes delta = {i_set(0), i_set(0)}, direct = delta;
        for (size_t end = at + width; at < end; at += LANES) {
            f32x16 x = load(s->x, x_dtype, at);
            f32x16 d = f_sub(x, load(prev, prev_dtype, at & mask));
            f_store(b->delta + at, d);
            delta = extremes_join(delta, d);
            if (chooses) direct = extremes_join(direct, x);
        }
        i_store_quarter(b->quarters[POSITIVE] + 4 * p, delta.positive);
        i_store_quarter(b->quarters[NEGATIVE] + 4 * p, delta.negative);
        if (chooses) {
            i_store_quarter(b->quarters[X_POSITIVE] + 4 * p, direct.positive);
            i_store_quarter(b->quarters[X_NEGATIVE] + 4 * p, direct.negative);
        }
    }
}

/* dw_scale_of of quant.h, a piece per lane. */
DW_VECTOR void scales_of(i32x16 positive, i32x16 negative, uint32_t bits, int is_signed, batch *b)
{
    int32_t half = 1 << (bits - 1);
    i32x16 largest = i_max(positive, negative);
    f32x16 amount = i_float(largest), count = f_set((float)(is_signed ? half : half - 1));
    i32x16 scale = i_shr(f_bits(f_div(amount, count)), 16);
    scale = i_sub(scale, f_less(f_mul(i_float(i_shl(scale, 16)), count), amount)); /* ones are -1 */
    scale = i_min(scale, i_set(DW_BF16_LARGEST));
    if (is_signed) scale = i_or(scale, i_and(i_greater(positive, negative), i_set(0x8000)));
    i32x16 poisoned = i_greater(largest, i_set((int32_t)DW_F32_INFINITY - 1));
    i32x16 flat = i_or(poisoned, i_greater(i_set((int32_t)DW_ZERO_BELOW), largest));
    scale = i_andnot(flat, scale);
    f32x16 wide = i_float(i_shl(scale, 16));
    f_store(b->scale, wide);
    i_store(b->inverse, i_andnot(flat, f_bits(f_div(f_set(1.0f), wide))));
    i_store(b->top, i_andnot(flat, f_bits(f_set((float)(half - 1)))));
    i_store_halves(b->wire, i_or(scale, i_and(poisoned, i_set(DW_BF16_NAN))));
    b->poisoned = i_signs(poisoned);
}

DW_VECTOR i32x16 select(i32x16 mask, i32x16 yes, i32x16 no)
{
    return i_or(i_and(mask, yes), i_andnot(mask, no));
}

static void mark_direct(const dw_encode_run *run, uint32_t piece, uint32_t direct)
{
    for (; direct; direct &= direct - 1) {
        uint64_t bit = run->first_piece + piece + (uint32_t)__builtin_ctz(direct);
        run->choices[bit / 8] = (uint8_t)(run->choices[bit / 8] | 1u << bit % 8);
    }
}

/* The scale of piece p of the batch, as finish wants it. */
static void set_scale(const dw_encode_run *run, uint32_t p, uint16_t scale, batch *b)
{
    int flat = dw_scale_is_flat(scale);
    b->scale[p] = flat ? 0.0f : dw_bf16_widen(scale);
    b->inverse[p] = dw_scale_inverse(scale);
    b->top[p] = flat ? 0.0f : (float)((1 << (run->bits - 1)) - 1);
    b->wire[p] = scale;
    b->poisoned = (b->poisoned & ~(1u << p)) | (uint32_t)dw_scale_is_poisoned(scale) << p;
}

/* A piece that shares scale and choice with others of its row. */
static uint32_t decide_row(const dw_encode_run *run, const stretch *s, batch *b)
{
    uint32_t direct = run->row->direct != 0;
    b->poisoned = 0;
    set_scale(run, 0, run->row->scale, b);
    b->base_mask[0] = direct ? 0 : -1;
    if (direct) mark_direct(run, s->piece, 1);
    return direct;
}

/* Scales, choices and counts of a batch. Returns the mask of direct pieces. */
DW_VECTOR uint32_t decide_all(const dw_encode_run *run, const stretch *s, int chooses, batch *b)
{
    uint32_t live = (1u << s->pieces) - 1, direct_mask = 0;
    i32x16 positive = i_columns(b->quarters[POSITIVE]), negative = negative_magnitude(i_columns(b->quarters[NEGATIVE]));
    if (chooses) {
        i32x16 x_positive = i_columns(b->quarters[X_POSITIVE]), x_negative = negative_magnitude(i_columns(b->quarters[X_NEGATIVE]));
        i32x16 direct = i_greater(i_max(positive, negative), i_max(x_positive, x_negative));
        positive = select(direct, x_positive, positive);
        negative = select(direct, x_negative, negative);
        i_store(b->base_mask, i_andnot(direct, i_set(-1)));
        direct_mask = i_signs(direct) & live;
        mark_direct(run, s->piece, direct_mask);
    }
    scales_of(positive, negative, run->bits, run->scale != DW_SCALE_ABSMAX, b);
    b->poisoned &= live;
    return direct_mask;
}

DW_VECTOR uint32_t decide(const dw_encode_run *run, const stretch *s, int chooses, batch *b)
{
    uint32_t direct_mask = run->row ? decide_row(run, s, b) : decide_all(run, s, chooses, b);
    memcpy(run->scales + 2 * (size_t)s->piece, b->wire, 2 * (size_t)s->pieces);
    run->counts->pieces += s->pieces;
    run->counts->direct += (uint32_t)__builtin_popcount(direct_mask);
    run->counts->poisoned += (uint32_t)__builtin_popcount(b->poisoned);
    for (uint32_t p = 0; p < s->pieces; p++) run->counts->zero += b->wire[p] == 0;
    return direct_mask;
}

/* Codes of 64 elements, one per lane with anything above its low byte, into the planes at `tile`, from element `first` on. */
DW_VECTOR void put64(i32x16 c0, i32x16 c1, i32x16 c2, i32x16 c3, uint32_t bits, uint8_t *tile, size_t elements, size_t first)
{
    codes64 codes = codes_join(c0, c1, c2, c3);
    uint8_t *second = tile + elements / 2 + first / 4; /* behind a plane of four bits */
    switch (bits) {
    case 2: codes_put2(tile + first / 4, codes); return;
    case 3:
        codes_put2(tile + first / 4, codes_field(codes, 0, 2));
        codes_put1(tile + elements / 4 + first / 8, codes, 2);
        return;
    case 4: codes_put4(tile + first / 2, codes); return;
    case 5:
        codes_put4(tile + first / 2, codes_field(codes, 0, 4));
        codes_put1(tile + elements / 2 + first / 8, codes, 4);
        return;
    case 6:
        codes_put4(tile + first / 2, codes_field(codes, 0, 4));
        codes_put2(second, codes_field(codes, 4, 2));
        return;
    case 7:
        codes_put4(tile + first / 2, codes_field(codes, 0, 4));
        codes_put2(second, codes_field(codes, 4, 2));
        codes_put1(tile + elements / 4 * 3 + first / 8, codes, 6);
        return;
    default: codes_put8(tile + first, codes);
    }
}

/* Steps 6 of the encoder and 1 to 5 of the reconstruction for one block; the low byte of each lane is its code: half is even, so adding
 * it together with the magic number changes no tie. |delta * inverse| passes the lowest level by less than the rounding (docs/format.md:
 * s * L >= A), so only the upper end is clamped; 0 as the top keeps NaN and infinities out of poisoned pieces. */
DW_VECTOR i32x16 finish_block(const stretch *s, const unsigned char *prev, size_t mask, const batch *b, uint32_t piece, size_t at,
                              f32x16 magic, dw_dtype x_dtype, dw_dtype prev_dtype, int has_state, int chooses)
{
    f32x16 level = f_min(f_mul(f_load(b->delta + at), f_set(b->inverse[piece])), f_set(b->top[piece]));
    f32x16 rounded = f_add(level, magic);
    DW_PREFETCH(s->x + (at + s->ahead) * bytes_of(x_dtype));
    if (has_state) {
        DW_PREFETCH(prev + ((at + s->ahead) & mask) * bytes_of(prev_dtype));
        f32x16 base = load(prev, prev_dtype, at & mask);
        if (chooses) base = i_float(i_and(f_bits(base), i_set(b->base_mask[piece])));
        store(s->next, prev_dtype, at, f_add(base, f_mul(f_sub(rounded, magic), f_set(b->scale[piece]))));
    }
    return f_bits(rounded);
}

DW_VECTOR void finish(const dw_encode_run *run, const stretch *s, dw_dtype x_dtype, dw_dtype prev_dtype, int has_state, int chooses, const batch *b)
{
    size_t mask = index_mask(s->prev), width = run->width, total = width * s->pieces, at = 0;
    const unsigned char *prev = s->prev ? s->prev : (const unsigned char *)zeros;
    size_t first = run->first + (size_t)s->piece * width;
    f32x16 magic = f_set(MAGIC + (float)(1 << (run->bits - 1)));
#define BLOCK(piece, at) finish_block(s, prev, mask, b, (uint32_t)(piece), at, magic, x_dtype, prev_dtype, has_state, chooses)
    if (width >= 64) {
        for (uint32_t p = 0; p < s->pieces; p++) {
            size_t end = at + width;
            for (; at + 64 <= end; at += 64)
                put64(BLOCK(p, at), BLOCK(p, at + 16), BLOCK(p, at + 32), BLOCK(p, at + 48), run->bits, run->codes,
                      run->tile_elements, first + at);
            for (; at < end; at += LANES)
                codes_put16(BLOCK(p, at), run->bits, run->codes, run->tile_elements, first + at);
        }
        return;
    }
    for (; at + 64 <= total; at += 64)
        put64(BLOCK(at / width, at), BLOCK((at + 16) / width, at + 16), BLOCK((at + 32) / width, at + 32),
              BLOCK((at + 48) / width, at + 48), run->bits, run->codes, run->tile_elements, first + at);
    for (; at < total; at += LANES)
        codes_put16(BLOCK(at / width, at), run->bits, run->codes, run->tile_elements, first + at);
#undef BLOCK
}

/* A poisoned piece leaves prev as it was, whatever its choice. */
static void keep_poisoned(const stretch *s, uint32_t width, dw_dtype dtype, uint32_t poisoned)
{
    size_t size = dtype == DW_F32 ? 4 : 2, bytes = width * size;
    for (; poisoned; poisoned &= poisoned - 1) {
        size_t at = (uint32_t)__builtin_ctz(poisoned) * bytes;
        if (s->prev)
            memcpy(s->next + at, s->prev + at, bytes);
        else
            memset(s->next + at, 0, bytes);
    }
}

DW_VECTOR void encode_batch(const dw_encode_run *run, const stretch *s, dw_dtype x_dtype, dw_dtype prev_dtype, int has_state,
                            int chooses, batch *b)
{
    sweep(s, run->width, x_dtype, prev_dtype, chooses, b);
    uint32_t direct = decide(run, s, chooses, b);
    for (; direct; direct &= direct - 1) {
        size_t at = (uint32_t)__builtin_ctz(direct) * (size_t)run->width;
        for (size_t end = at + run->width; at < end; at += LANES) f_store(b->delta + at, load(s->x, x_dtype, at));
    }
    finish(run, s, x_dtype, prev_dtype, has_state, chooses, b);
    if (has_state && b->poisoned) keep_poisoned(s, run->width, prev_dtype, b->poisoned);
}

/* For rows of several runs. */
static void squares(const void *x, dw_dtype x_dtype, const void *prev, dw_dtype prev_dtype, uint64_t n, uint32_t bits,
                    const dw_attempts *attempts, float sums[DW_ATTEMPTS][DW_NORM_LANES])
{
    f32x16 lanes[DW_ATTEMPTS];
    for (int k = 0; k < DW_ATTEMPTS; k++) lanes[k] = f_load(sums[k]);
    uint64_t whole = n / LANES * LANES;
    for (uint64_t at = 0; at < whole; at += LANES) {
        f32x16 delta = load(x, x_dtype, at);
        if (prev) delta = f_sub(delta, load(prev, prev_dtype, at));
        for (int k = 0; k < DW_ATTEMPTS; k++) lanes[k] = f_add(lanes[k], square_of(delta, f_set(attempts->inverse[k]), bits));
    }
    for (int k = 0; k < DW_ATTEMPTS; k++) f_store(sums[k], lanes[k]);
    if (whole < n)
        dw_kernels_c.squares((const unsigned char *)x + whole * bytes_of(x_dtype), x_dtype,
                             prev ? (const unsigned char *)prev + whole * bytes_of(prev_dtype) : NULL, prev_dtype, n - whole, bits,
                             attempts, sums);
}

typedef void encode_function(const dw_encode_run *run, const stretch *s, batch *b);

#define ENCODE(name, x, prev, state, chooses)                                            \
    static void name(const dw_encode_run *run, const stretch *s, batch *b)               \
    {                                                                                    \
        encode_batch(run, s, x, prev, state, chooses, b);                                \
    }
#define ENCODE_X(name, x)                                                                \
    ENCODE(encode_##name##_none, x, DW_F32, 0, 0)                                        \
    ENCODE(encode_##name##_f32, x, DW_F32, 1, 0)                                         \
    ENCODE(encode_##name##_f16, x, DW_F16, 1, 0)                                         \
    ENCODE(encode_##name##_bf16, x, DW_BF16, 1, 0)                                       \
    ENCODE(choose_##name##_f32, x, DW_F32, 1, 1)                                         \
    ENCODE(choose_##name##_f16, x, DW_F16, 1, 1)                                         \
    ENCODE(choose_##name##_bf16, x, DW_BF16, 1, 1)
ENCODE_X(f32, DW_F32)
ENCODE_X(f16, DW_F16)
ENCODE_X(bf16, DW_BF16)
#undef ENCODE_X
#undef ENCODE

static encode_function *encode_for(const dw_encode_run *run)
{
    /* by x; then none, and prev without and with choice, in the order of dw_dtype */
    static encode_function *const table[3][7] = {
        {encode_f32_none, encode_f32_f32, encode_f32_f16, encode_f32_bf16, choose_f32_f32, choose_f32_f16, choose_f32_bf16},
        {encode_f16_none, encode_f16_f32, encode_f16_f16, encode_f16_bf16, choose_f16_f32, choose_f16_f16, choose_f16_bf16},
        {encode_bf16_none, encode_bf16_f32, encode_bf16_f16, encode_bf16_bf16, choose_bf16_f32, choose_bf16_f16,
         choose_bf16_bf16},
    };
    uint32_t state = run->next ? (uint32_t)run->prev_dtype + (run->choices ? 3 : 0) : 0;
    return table[run->x_dtype - DW_F32][state];
}

/* The last piece of a row that its piece is too wide for: padded with zeros, as the format has it. */
static void encode_short(const dw_encode_run *run, encode_function *encode_pieces, uint32_t piece, size_t n, batch *b)
{
    _Alignas(64) unsigned char x[4 * DW_TILE_ELEMENTS], prev[4 * DW_TILE_ELEMENTS], next[4 * DW_TILE_ELEMENTS];
    size_t x_size = bytes_of(run->x_dtype), size = bytes_of(run->prev_dtype);
    size_t at = (size_t)piece * run->width;
    memcpy(x, (const unsigned char *)run->x + at * x_size, n * x_size);
    memset(x + n * x_size, 0, (run->width - n) * x_size);
    if (run->prev) {
        memcpy(prev, (const unsigned char *)run->prev + at * size, n * size);
        memset(prev + n * size, 0, (run->width - n) * size);
    }
    stretch s = {x, run->prev ? prev : NULL, next, piece, 1, 0};
    encode_pieces(run, &s, b);
    if (run->next) memcpy((unsigned char *)run->next + at * size, next, n * size);
}

static void encode(const dw_encode_run *run)
{
    if (run->dither || run->scale == DW_SCALE_MSE || run->bits == 1) {
        dw_kernels_c.encode(run);
        return;
    }
    batch b;
    encode_function *encode_pieces = encode_for(run);
    size_t x_size = bytes_of(run->x_dtype), size = bytes_of(run->prev_dtype);
    uint32_t full = (uint32_t)(run->channels / run->width), most = DW_TILE_ELEMENTS / run->width;
    if (most > BATCH) most = BATCH;
    memset(b.quarters, 0, sizeof b.quarters); /* lanes without a piece compute too */
    for (uint32_t piece = 0; piece < full;) {
        size_t at = (size_t)piece * run->width;
        stretch s = {(const unsigned char *)run->x + at * x_size,
                     run->prev ? (const unsigned char *)run->prev + at * size : NULL,
                     run->next ? (unsigned char *)run->next + at * size : NULL, piece,
                     full - piece < most ? full - piece : most, 0};
        s.ahead = (size_t)s.pieces * run->width;
        encode_pieces(run, &s, &b);
        piece += s.pieces;
    }
    if (full < run->pieces) encode_short(run, encode_pieces, full, run->channels - (size_t)full * run->width, &b);
}
