/* SPDX-License-Identifier: Apache-2.0
 * kernels_finish.h - vector kernels for the last step of an encode: deltas and scales to codes,
 * planes and the new prev.
 *
 * A part of the vector kernels: see kernels_simd.h; kernels_encode.h comes before it. */

/* Chunks of 64 elements: where their data is read and written. */
typedef struct span {
    const unsigned char *from; /* deltas; or x, where the kind or the plan says so */
    const unsigned char *prev;
    unsigned char *next;
    const float *scale, *inverse;
    const int32_t *base_mask;
    const uint16_t *dithers; /* NULL: nearest rounding */
    uint8_t *tile;
    size_t elements, first, n;  /* n: a multiple of 64 */
    const unsigned char *ahead; /* the part of x that the next sweep will read; or NULL */
    int far;                    /* x comes from main memory */
    int past;                   /* next is stored past the caches */
    uint32_t bits;
} span;

/* The variant of a finish. prev: DW_F32 to DW_BF16, or 0: no state. bits: 0: any number of bits.
 * any: supports all options of an encoder: also dithers, scales that do not cover all values, and
 * one bit. The other variants support only nearest rounding to a scale that covers all values.
 * chooses: pieces may be direct. Then the deltas are computed again from x, because the sweep did
 * not know the base of each piece. Exception: with `any` but without `pairs`, the deltas are read
 * from the scratch, where those of direct pieces were already replaced by x. rests: 0, or the dtype
 * of x; then x is read, too, and taken away from the new prev. This is what `subtract` does. The
 * pieces that are not special have finite rests, so no rest must be replaced by 0. */
typedef struct finish_kind {
    int prev, pairs, chooses;
    uint32_t bits;
    int any, rests;
} finish_kind;

/* The bytes of one element at `from`. */
DW_VECTOR size_t source_size(finish_kind kind)
{
    if (kind.rests) return bytes_of((dw_dtype)kind.rests);
    return kind.pairs && (!kind.prev || kind.chooses) ? 2 : 4;
}

/* Writes 64 codes to the planes at `tile`, starting at element `first`. */
DW_VECTOR void put64(codes64 codes, uint32_t bits, uint8_t *tile, size_t elements, size_t first)
{
    uint8_t *second = tile + elements / 2 + first / 4; /* the plane behind one of four bits */
    switch (bits) {
    case 1: codes_put1(tile + first / 8, codes, 0); return;
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

/* Step 6 of the encoder. Since s * L >= A (docs/format.md), |delta * inverse| exceeds the lowest
 * level by less than half a step, so only the upper end must be clamped. */
DW_VECTOR i32x16 level_of(f32x16 delta, float inverse, f32x16 top)
{
    return i_nearest(f_min(f_mul(delta, f_set(inverse)), top));
}

/* The base of a block: 0 where its piece is direct. */
DW_VECTOR f32x16 chosen_base(const span *s, size_t block, f32x16 base, int chooses)
{
    return chooses ? i_float(i_and(f_bits(base), i_set(s->base_mask[block]))) : base;
}

/* Steps 2 to 4 of the reconstruction. */
DW_VECTOR f32x16 advance(const span *s, size_t block, f32x16 base, i32x16 level)
{
    return f_muladd(f_whole(level), f_set(s->scale[block]), base);
}

/* 16 floats at `from`: deltas, or x. */
DW_VECTOR f32x16 load_from(const span *s, size_t at, finish_kind kind)
{
    return load(s->from, kind.rests ? (dw_dtype)kind.rests : DW_F32, at);
}

/* Stores a block of the new prev, or of the new residual. */
DW_VECTOR void store_next(const span *s, size_t at, finish_kind kind, f32x16 next, f32x16 x)
{
    if (kind.rests && s->past)
        i_stream(s->next + sizeof(float) * at, f_bits(f_sub(next, x)));
    else
        store_sum(s->next, (dw_dtype)kind.prev, at, kind.rests ? f_sub(next, x) : next);
}

/* Codes block number `block` of the span's first chunk and returns its levels. */
DW_VECTOR i32x16 finish_block(const span *s, size_t block, f32x16 top, finish_kind kind)
{
    size_t at = block * LANES;
    dw_dtype dtype = kind.prev ? (dw_dtype)kind.prev : DW_F32;
    f32x16 x = load_from(s, at, kind), delta = x, base = f_set(0);
    if (kind.prev) base = chosen_base(s, block, load(s->prev, dtype, at), kind.chooses);
    if (kind.chooses || kind.rests) delta = f_sub(x, base);
    i32x16 level = level_of(delta, s->inverse[block], top);
    f32x16 next = advance(s, block, base, level);
    if (kind.prev) store_next(s, at, kind, next, x);
    return level;
}

/* Like finish_block, but for all options of an encoder. A piece that is coded as zero has an
 * inverse of 0, and its deltas are finite, so their products with the inverse are 0. Pieces whose
 * deltas may be NaN or infinite are encoded again in C. */
DW_VECTOR i32x16 finish_any(const span *s, size_t block, ends all, finish_kind kind)
{
    size_t at = block * LANES;
    const uint16_t *dithers = s->dithers ? s->dithers + at : NULL;
    f32x16 x = load_from(s, at, kind), delta = x, base = f_set(0),
           inverse = f_set(s->inverse[block]);
    if (kind.prev)
        base = chosen_base(s, block, load(s->prev, (dw_dtype)kind.prev, at), kind.chooses);
    if (kind.rests) delta = f_sub(x, base);
    steps d;
    if (s->bits == 1) {
        d = steps_of(delta, inverse, 1, dithers);
    } else {
        f32x16 scaled = f_mul(delta, inverse);
        d = steps_within(dithers ? f_add(scaled, dither_of(dithers)) : scaled, all);
    }
    if (kind.prev) {
        store_next(s, at, kind, f_muladd(d.level, f_set(s->scale[block]), base), x);
    }
    return d.step;
}

/* The deltas of two blocks as a pair, and their base. */
DW_VECTOR pair deltas_of_pair(const span *s, size_t block, finish_kind kind, pair *base)
{
    size_t at = block * LANES;
    pair d;
    *base = (pair){f_set(0), f_set(0)};
    if (kind.prev && !kind.chooses)
        d = (pair){f_load(s->from + 4 * at), f_load(s->from + 4 * (at + LANES))};
    else
        d = load_pair(s->from, at);
    if (kind.prev) {
        DW_PREFETCH(s->prev, 2 * (at + DW_TILE_ELEMENTS));
        *base = load_pair(s->prev, at);
        *base = (pair){chosen_base(s, block, base->even, kind.chooses),
                       chosen_base(s, block, base->odd, kind.chooses)};
    }
    if (kind.chooses) d = (pair){f_sub(d.even, base->even), f_sub(d.odd, base->odd)};
    return d;
}

/* Codes two blocks as a pair. */
DW_VECTOR void finish_pair(const span *s, size_t block, f32x16 top, finish_kind kind,
                           i32x16 level[2])
{
    pair base, d = deltas_of_pair(s, block, kind, &base);
    level[0] = level_of(d.even, s->inverse[block], top);
    level[1] = level_of(d.odd, s->inverse[block], top);
    if (kind.prev)
        i_store(s->next + 2 * block * LANES, narrow_pair(advance(s, block, base.even, level[0]),
                                                         advance(s, block, base.odd, level[1])));
}

/* Codes two blocks as a pair with stochastic rounding, for two bits and more. Each 32-bit word of
 * s->dithers holds the random number of an even element in its lower half, and that of the next,
 * odd element in its upper half. */
DW_VECTOR void finish_dithered_pair(const span *s, size_t block, ends all, finish_kind kind,
                                    i32x16 step[2])
{
    pair base, d = deltas_of_pair(s, block, kind, &base);
    i32x16 words = i_load(s->dithers + block * LANES), fraction = i_set(0xffff << 7);
    f32x16 inverse = f_set(s->inverse[block]), even = f_mul(d.even, inverse),
           odd = f_mul(d.odd, inverse);
    steps low =
        steps_within(f_add(even, dither_of_fraction(i_and(i_shl(words, 7), fraction))), all);
    steps high =
        steps_within(f_add(odd, dither_of_fraction(i_and(i_shr(words, 9), fraction))), all);
    step[0] = low.step;
    step[1] = high.step;
    if (kind.prev) {
        f32x16 scale = f_set(s->scale[block]);
        f32x16 even_next = f_muladd(low.level, scale, base.even),
               odd_next = f_muladd(high.level, scale, base.odd);
        i_store(s->next + 2 * block * LANES, narrow_pair(even_next, odd_next));
    }
}

/* How many cache lines of x a chunk has, where a finish of this kind prefetches x. */
DW_VECTOR size_t ahead_lines(finish_kind kind)
{
    return (kind.prev && kind.prev != DW_F32) || kind.pairs ? 2 : 4;
}

/* Prefetches what the next sweep will read. */
DW_VECTOR void ask_ahead(const span *s, finish_kind kind)
{
    for (size_t line = 0; !s->far && line < ahead_lines(kind); line++)
        DW_PREFETCH(s->ahead, 64 * line);
    for (size_t line = 0; s->far && line < ahead_lines(kind); line++)
        DW_PREFETCH_FAR(s->ahead, 64 * line);
}

/* Codes the first chunk of a span. */
DW_VECTOR void finish_chunk(const span *s, ends all, finish_kind kind, uint32_t bits)
{
    int half = 1 << (bits - 1);
    i32x16 l[4];
    codes64 codes;
    if (s->ahead) ask_ahead(s, kind);
    if (kind.any && kind.pairs) {
        finish_dithered_pair(s, 0, all, kind, l);
        finish_dithered_pair(s, 2, all, kind, l + 2);
    } else if (kind.any) {
        for (size_t k = 0; k < 4; k++) l[k] = finish_any(s, k, all, kind);
    } else if (kind.pairs) {
        finish_pair(s, 0, all.top, kind, l);
        finish_pair(s, 2, all.top, kind, l + 2);
    } else {
        for (size_t k = 0; k < 4; k++) l[k] = finish_block(s, k, all.top, kind);
    }
#ifdef codes_of_pairs
    if (kind.pairs)
        codes = codes_of_pairs(l[0], l[1], l[2], l[3], half);
    else
#endif
        codes = codes_of_levels(l[0], l[1], l[2], l[3], half);
    put64(codes, bits, s->tile, s->elements, s->first);
}

DW_VECTOR void finish(const span *given, finish_kind kind)
{
    span s = *given; /* a copy, because stores may alias the caller's */
    uint32_t bits = kind.bits ? kind.bits : s.bits;
    size_t size = kind.prev ? bytes_of((dw_dtype)kind.prev) : 0;
    ends all = ends_of(bits);
    ROLLED for (size_t left = s.n; left; left -= CHUNK)
    {
        finish_chunk(&s, all, kind, bits);
        s.from += source_size(kind) * CHUNK;
        s.prev += size * CHUNK;
        if (kind.prev) s.next += size * CHUNK;
        s.scale += CHUNK / LANES;
        s.inverse += CHUNK / LANES;
        s.base_mask += CHUNK / LANES;
        if (kind.any && s.dithers) s.dithers += CHUNK;
        s.first += CHUNK;
        if (s.ahead) s.ahead += 64 * ahead_lines(kind);
    }
}

typedef void finish_function(const span *s);

#define FINISH(name, ...)                                                                          \
    static void name(const span *s)                                                                \
    {                                                                                              \
        finish(s, (finish_kind){__VA_ARGS__});                                                     \
    }
#define FINISHES(name, rests, ...)                                                                 \
    FINISH(name##_2, __VA_ARGS__, 2, 0, rests)                                                     \
    FINISH(name##_3, __VA_ARGS__, 3, 0, rests)                                                     \
    FINISH(name##_4, __VA_ARGS__, 4, 0, rests)                                                     \
    FINISH(name##_5, __VA_ARGS__, 5, 0, rests)                                                     \
    FINISH(name##_6, __VA_ARGS__, 6, 0, rests)                                                     \
    FINISH(name##_7, __VA_ARGS__, 7, 0, rests)                                                     \
    FINISH(name##_8, __VA_ARGS__, 8, 0, rests)                                                     \
    static finish_function *const name[] = {name##_2, name##_3, name##_4, name##_5,                \
                                            name##_6, name##_7, name##_8};
FINISHES(finish_floats, 0, 0, 0, 0)
FINISHES(finish_f32, 0, DW_F32, 0, 0)
FINISHES(finish_f32_chosen, 0, DW_F32, 0, 1)
FINISHES(finish_f32_rest, DW_F32, DW_F32, 0, 0)
#ifdef codes_of_pairs
FINISHES(finish_halves, 0, 0, 1, 0)
FINISHES(finish_pairs, 0, DW_BF16, 1, 0)
FINISHES(finish_pairs_chosen, 0, DW_BF16, 1, 1)
#endif
/* less common cases: one function for all numbers of bits */
FINISH(finish_bf16, DW_BF16, 0, 0, 0, 0, 0)
FINISH(finish_f16, DW_F16, 0, 0, 0, 0, 0)
FINISH(finish_f16_rest, DW_F32, 0, 0, 0, 0, DW_F16)
FINISH(finish_bf16_rest, DW_F32, 0, 0, 0, 0, DW_BF16)
FINISH(finish_any_floats, 0, 0, 0, 0, 1, 0)
FINISH(finish_any_f32, DW_F32, 0, 0, 0, 1, 0)
FINISH(finish_any_f32_chosen, DW_F32, 0, 1, 0, 1, 0)
FINISH(finish_any_f32_rest, DW_F32, 0, 0, 0, 1, DW_F32)
FINISH(finish_any_f16_rest, DW_F32, 0, 0, 0, 1, DW_F16)
FINISH(finish_any_bf16_rest, DW_F32, 0, 0, 0, 1, DW_BF16)
FINISH(finish_any_f16, DW_F16, 0, 0, 0, 1, 0)
FINISH(finish_any_f16_chosen, DW_F16, 0, 1, 0, 1, 0)
FINISH(finish_any_bf16, DW_BF16, 0, 0, 0, 1, 0)
FINISH(finish_any_bf16_chosen, DW_BF16, 0, 1, 0, 1, 0)
#ifdef codes_of_pairs
FINISH(finish_dithered_halves, 0, 1, 0, 0, 1, 0)
FINISH(finish_dithered_pairs, DW_BF16, 1, 0, 0, 1, 0)
FINISH(finish_dithered_pairs_chosen, DW_BF16, 1, 1, 0, 1, 0)
#endif
#undef FINISHES
#undef FINISH

/* ---- Encode ---------------------------------------------------------------------------------- */

/* The sweep and the finish for a run. */
typedef struct plan {
    sweep_function *sweep;
    finish_function *finish;
    int pairs, reads_x; /* reads_x: finish reads x, and the sweep stores no deltas */
} plan;

#ifdef codes_of_pairs
static sweep_function *const pairs_of[3] = {sweep_f32_pairs, sweep_f16_pairs, sweep_bf16_pairs};
#endif

/* A plan that supports all options. */
static plan plan_any(const dw_encode_run *run, sweep_function *const *by_prev)
{
    static finish_function *const finishes[3][2] = {{finish_any_f32, finish_any_f32_chosen},
                                                    {finish_any_f16, finish_any_f16_chosen},
                                                    {finish_any_bf16, finish_any_bf16_chosen}};
    sweep_function *const without[] = {sweep_f32, sweep_f16, sweep_bf16};
#ifdef codes_of_pairs
    if (run->dither && run->bits > 1 && run->width % 32 == 0) {
        int x_is_half = run->x_dtype == DW_BF16, prev_is_half = run->prev_dtype == DW_BF16;
        if (!run->next && x_is_half) return (plan){sweep_pairs, finish_dithered_halves, 1, 1};
        if (run->next && prev_is_half && !run->choices)
            return (plan){pairs_of[run->x_dtype - DW_F32], finish_dithered_pairs, 1, 0};
        if (run->next && prev_is_half && x_is_half)
            return (plan){choose_halves, finish_dithered_pairs_chosen, 1, 1};
    }
#endif
    if (!run->next)
        return (plan){without[run->x_dtype - DW_F32], finish_any_floats, 0, run->x_dtype == DW_F32};
    return (plan){by_prev[run->prev_dtype - DW_F32],
                  finishes[run->prev_dtype - DW_F32][run->choices != NULL], 0, 0};
}

/* A plan that takes x away from the new prev, for the residual of error feedback. */
static plan plan_for_rests(const dw_encode_run *run, int any)
{
    sweep_function *const sweeps[] = {extremes_f32, extremes_f16, extremes_bf16};
    finish_function *const finishes[2][3] = {
        {finish_f32_rest[any ? 0 : run->bits - 2], finish_f16_rest, finish_bf16_rest},
        {finish_any_f32_rest, finish_any_f16_rest, finish_any_bf16_rest}};
    int x = run->x_dtype - DW_F32;
    return (plan){sweeps[x], finishes[any][x], 0, 1};
}

static plan plan_without_state(const dw_encode_run *run, int pairs)
{
    uint32_t bits = run->bits - 2;
#ifdef codes_of_pairs
    if (run->x_dtype == DW_BF16 && pairs) return (plan){sweep_pairs, finish_halves[bits], 1, 1};
#endif
    if (run->x_dtype == DW_F32) return (plan){sweep_f32, finish_floats[bits], 0, 1};
    (void)pairs;
    return (plan){run->x_dtype == DW_F16 ? sweep_f16 : sweep_bf16, finish_floats[bits], 0, 0};
}

static plan plan_for(const dw_encode_run *run)
{
    static sweep_function *const sweeps[2][3][3] = {
        {{sweep_f32_f32, sweep_f32_f16, sweep_f32_bf16},
         {sweep_f16_f32, sweep_f16_f16, sweep_f16_bf16},
         {sweep_bf16_f32, sweep_bf16_f16, sweep_bf16_bf16}},
        {{choose_f32_f32, choose_f32_f16, choose_f32_bf16},
         {choose_f16_f32, choose_f16_f16, choose_f16_bf16},
         {choose_bf16_f32, choose_bf16_f16, choose_bf16_bf16}},
    };
    uint32_t chooses = run->choices != NULL, bits = run->bits - 2;
    int pairs = run->width % 32 == 0, x_is_prev = run->x_dtype == run->prev_dtype;
    sweep_function *const *by_prev = sweeps[chooses][run->x_dtype - DW_F32];
    int any = run->dither || run->scale == DW_SCALE_MSE || run->bits == 1;
    if (run->rests) return plan_for_rests(run, any);
    if (any) return plan_any(run, by_prev);
    if (!run->next) return plan_without_state(run, pairs);
    if (chooses) {
        if (run->prev_dtype == DW_F32 && x_is_prev)
            return (plan){choose_floats, finish_f32_chosen[bits], 0, 1};
#ifdef codes_of_pairs
        if (run->prev_dtype == DW_BF16 && x_is_prev && pairs)
            return (plan){choose_halves, finish_pairs_chosen[bits], 1, 1};
#endif
        return plan_any(run, by_prev);
    }
    if (run->prev_dtype == DW_F32) return (plan){by_prev[0], finish_f32[bits], 0, 0};
    if (run->prev_dtype == DW_F16) return (plan){by_prev[1], finish_f16, 0, 0};
#ifdef codes_of_pairs
    if (pairs) return (plan){pairs_of[run->x_dtype - DW_F32], finish_pairs[bits], 1, 0};
#endif
    return (plan){by_prev[2], finish_bf16, 0, 0};
}

/* Copies n elements from the planes of a chunk to those of a tile. */
static void copy_planes(const uint8_t *chunk, uint32_t bits, size_t n, uint8_t *tile,
                        size_t elements, size_t first)
{
    for (uint32_t bit = 0; bit < bits;) {
        uint32_t width = dw_plane_width(bits, bit);
        memcpy(tile + elements * bit / 8 + first * width / 8, chunk + CHUNK * bit / 8,
               n * width / 8);
        bit += width;
    }
}

/* Codes the end of a section, which is shorter than a chunk, through buffers. The surplus results
 * are discarded. */
static void finish_rest(const plan *with, const span *s, size_t n, size_t from_size, size_t size)
{
    _Alignas(64) unsigned char from[4 * CHUNK] = {0}, prev[4 * CHUNK] = {0}, next[4 * CHUNK],
                                        tile[CHUNK];
    span rest = *s;
    memcpy(from, s->from, n * from_size);
    if (s->next) memcpy(prev, s->prev, n * size);
    rest.from = from;
    rest.prev = prev;
    rest.next = next;
    rest.tile = tile;
    rest.elements = rest.n = CHUNK;
    rest.past = 0; /* it is read at once */
    rest.first = 0;
    with->finish(&rest);
    if (s->next) memcpy(s->next, next, n * size);
    copy_planes(tile, s->bits, n, s->tile, s->elements, s->first);
}

/* Encodes a special piece (see SPECIAL_FROM in kernels_simd.h) with the C kernel. */
static void encode_special(const dw_encode_run *run, const section *s, uint32_t piece)
{
    size_t at = (size_t)piece * run->width, size = bytes_of(run->prev_dtype);
    dw_encode_run one = *run;
    dw_dither dither;
    one.pieces = 1;
    one.channels = s->channels < run->width ? s->channels : run->width;
    one.x = s->x + at * bytes_of(run->x_dtype);
    if (run->prev) one.prev = s->prev + at * size;
    if (run->next) one.next = s->next + at * size;
    one.scales = run->scales + 2 * (size_t)(s->piece + piece);
    one.first_piece += s->piece + piece;
    one.first += (s->piece + piece) * run->width;
    if (run->dither) {
        dither = (dw_dither){run->dither->key,
                             run->dither->element + (uint64_t)(s->piece + piece) * run->width};
        one.dither = &dither;
    }
    dw_kernels_c.encode(&one);
}

static int asks_far(const dw_encode_run *run)
{
    return run->is_far && run->next && run->x_dtype == DW_F32 && run->prev_dtype == DW_F32;
}

/* Whether finish prefetches the x of the next sweep. Without state it does so if finish reads x.
 * With state it does not do so for x in f32: together with the data of this run, the next x would
 * not fit the first-level cache, and the hardware prefetcher does better. The exception is data in
 * main memory (far), which is prefetched into the second-level cache. */
static int asks_ahead(const dw_encode_run *run, const plan *with, int far)
{
    return run->next ? run->x_dtype != DW_F32 || far : with->reads_x;
}

static void encode_section(const dw_encode_run *run, const plan *with, const section *s, scratch *b)
{
    size_t total = (size_t)s->pieces * run->width, whole = total / CHUNK * CHUNK,
           x_size = bytes_of(run->x_dtype);
    size_t size = bytes_of(run->prev_dtype), from_size = with->reads_x ? x_size : 4;
    if (s->pieces % BATCH)
        memset(b->folds, 0, sizeof b->folds); /* lanes without a piece are computed, too */
    for (uint32_t from = 0; from < s->pieces; from += BATCH) {
        uint32_t to = s->pieces - from < BATCH ? s->pieces : from + BATCH;
        with->sweep(s, run->width, from, to, b);
        decide(run, s, from, to, !with->reads_x, b);
    }
    span all = {.from = with->reads_x ? s->x : (const unsigned char *)b->delta,
                .prev = s->prev,
                .next = s->next,
                .scale = b->scale,
                .inverse = b->inverse,
                .base_mask = b->base_mask,
                .dithers = run->dither ? fill_parts(run->dither, (size_t)s->piece * run->width,
                                                    s->channels, total, &b->parts)
                                       : NULL,
                .tile = run->codes,
                .elements = run->tile_elements,
                .first = run->first + (size_t)s->piece * run->width,
                .n = whole,
                .ahead = asks_ahead(run, with, s->far) ? s->x + total * x_size : NULL,
                .far = s->far,
                .past = s->past,
                .bits = run->bits};
    with->finish(&all);
    if (whole < total) {
        span rest = all;
        rest.from += whole * from_size;
        rest.prev += whole * size;
        if (s->next) rest.next += whole * size;
        rest.scale += whole / LANES;
        rest.inverse += whole / LANES;
        rest.base_mask += whole / LANES;
        rest.first += whole;
        if (rest.dithers) rest.dithers += whole;
        finish_rest(with, &rest, total - whole, from_size, size);
    }
    for (uint32_t from = 0; from < s->pieces; from += BATCH)
        for (uint32_t special = b->special[from / BATCH]; special; special &= special - 1)
            encode_special(run, s, from + (uint32_t)__builtin_ctz(special));
}

/* The last piece of a row, if it is shorter than the others: padded with zeros, as the format
 * demands. */
static void encode_short(const dw_encode_run *run, const plan *with, uint32_t piece, size_t n,
                         scratch *b)
{
    _Alignas(64) unsigned char x[4 * DW_TILE_ELEMENTS], prev[4 * DW_TILE_ELEMENTS],
        next[4 * DW_TILE_ELEMENTS];
    size_t x_size = bytes_of(run->x_dtype), size = bytes_of(run->prev_dtype);
    size_t at = (size_t)piece * run->width;
    memcpy(x, (const unsigned char *)run->x + at * x_size, n * x_size);
    memset(x + n * x_size, 0, (run->width - n) * x_size);
    if (run->prev) {
        memcpy(prev, (const unsigned char *)run->prev + at * size, n * size);
        memset(prev + n * size, 0, (run->width - n) * size);
    }
    section s = {x, run->prev ? prev : no_prev, run->next ? next : NULL, piece, 1, n, 0, 0};
    encode_section(run, with, &s, b);
    if (run->next) memcpy((unsigned char *)run->next + at * size, next, n * size);
}

/* How many elements pass through all three steps at once. Floats with state take 16 bytes per
 * element, scratch included, so half a tile is what a first-level cache of 32 KiB can hold. */
static uint32_t section_elements(const dw_encode_run *run)
{
    return run->next && run->prev_dtype == DW_F32 ? DW_TILE_ELEMENTS / 2 : DW_TILE_ELEMENTS;
}

/* Whether the new residual can be stored past the caches: every block begins at a cache line. */
static int may_pass_next(const dw_encode_run *run)
{
    return run->past && (uintptr_t)run->next % 64 == 0;
}

static void encode(const dw_encode_run *run)
{
    scratch b;
    plan with = plan_for(run);
    int far = asks_far(run), past = may_pass_next(run);
    uint32_t full = (uint32_t)(run->channels / run->width);
    uint32_t most = section_elements(run) / run->width;
    if (!most) most = 1; /* a whole row */
    for (uint32_t piece = 0; piece < full; piece += most) {
        uint32_t pieces = full - piece < most ? full - piece : most;
        size_t at = (size_t)piece * run->width;
        section s = {(const unsigned char *)run->x + at * bytes_of(run->x_dtype),
                     run->prev ? (const unsigned char *)run->prev + at * bytes_of(run->prev_dtype)
                               : no_prev,
                     run->next ? (unsigned char *)run->next + at * bytes_of(run->prev_dtype) : NULL,
                     piece,
                     pieces,
                     (size_t)pieces * run->width,
                     far,
                     past};
        encode_section(run, &with, &s, &b);
    }
    if (full < run->pieces)
        encode_short(run, &with, full, run->channels - (size_t)full * run->width, &b);
}
