/* SPDX-License-Identifier: Apache-2.0
 * kernels_encode.h - vector kernels that encode, up to the scales: x and prev to deltas and scales.
 *
 * A part of the vector kernels: see kernels_simd.h, which comes before it. An encode has three
 * steps over all whole pieces of a run:
 *
 *   sweep   reads x and prev, writes the deltas to a scratch in the first-level cache and the
 *           extremes of 16 pieces to folds
 *   decide  computes the scales of 16 pieces in parallel, one piece per lane
 *   finish  (kernels_finish.h) turns deltas into codes, planes and the new prev, 64 elements at a
 *           time, for one number of bits
 *
 * All sweeps and decisions come before the first finish, so that the processor has other work while
 * it waits for a scale. Where prev is bf16, or x is bf16 and there is no state, blocks are
 * processed in pairs: the even and the odd elements of 32. A short last piece goes through a buffer
 * that is padded with zeros, so no loop needs a mask. Pieces that are poisoned or have huge scales
 * are encoded again in C. */

enum { BLOCKS = DW_TILE_ELEMENTS / LANES };

typedef struct scratch {
    _Alignas(64) float delta[DW_TILE_ELEMENTS + CHUNK];
    /* One value per block, and room to store 16 at once. */
    _Alignas(64) float scale[BLOCKS + LANES], inverse[BLOCKS + LANES];
    _Alignas(64) int32_t base_mask[BLOCKS + LANES]; /* 0: the block's piece is direct */
    _Alignas(64) int32_t folds[2][BATCH * LANES];   /* extremes of deltas, and of x */
    uint32_t special[BLOCKS / BATCH];               /* for every batch, a mask of special pieces */
    parts parts;                                    /* random numbers for stochastic rounding */
} scratch;

/* Full pieces that are contiguous in memory. far: prev comes from main memory, so the sweep
 * prefetches that of the next section. past: next is stored past the caches. */
typedef struct section {
    const unsigned char *x, *prev; /* prev: no_prev where there is none */
    unsigned char *next;
    uint32_t piece, pieces; /* within the run */
    size_t channels;        /* less than pieces * width only if it is a single short piece */
    int far, past;
} section;

/* -------------------------------------------------------------------------------------------
 * sweep */

/* Four blocks, as the scratch holds them. */
typedef struct four {
    f32x16 part[4];
} four;

DW_VECTOR pair load_as_pair(const unsigned char *from, dw_dtype dtype, size_t i)
{
#ifdef codes_of_pairs
    if (dtype != DW_BF16) return pair_of(load(from, dtype, i), load(from, dtype, i + LANES));
#endif
    (void)dtype;
    return load_pair(from, i);
}

/* Loads n of the four blocks that start at element i; n is 2 or 4 where they are pairs. */
DW_VECTOR four load_blocks(const unsigned char *from, dw_dtype dtype, size_t i, int pairs, int n)
{
    four f;
    for (int k = 0; k < n; k++) {
        if (pairs) {
            pair p = load_as_pair(from, dtype, i + (size_t)k * LANES);
            f.part[k] = p.even;
            f.part[++k] = p.odd;
        } else {
            f.part[k] = load(from, dtype, i + (size_t)k * LANES);
        }
    }
    return f;
}

DW_VECTOR lanes_extremes extremes_of_blocks(four f, int n)
{
    i32x16 bits = f_bits(f.part[0]);
    lanes_extremes e = {bits, bits};
    for (int k = 1; k < n; k++) e = extremes_join(e, f.part[k]);
    return e;
}

DW_VECTOR lanes_extremes extremes_of_both(lanes_extremes a, lanes_extremes b)
{
    return (lanes_extremes){i_max(a.positive, b.positive), i_max_unsigned(a.negative, b.negative)};
}

/* The variant of a sweep. */
typedef struct sweep_kind {
    dw_dtype x, prev;
    int has_prev, pairs, chooses, stores; /* stores: deltas are stored; otherwise finish reads x */
} sweep_kind;

/* Prefetches prev of the next section while the sweep reads n blocks of this one. The finish
 * prefetches x. So there are memory accesses under way in both steps. */
DW_VECTOR void ask_prev(const section *s, sweep_kind kind, size_t at, int n)
{
    size_t ahead = (size_t)bytes_of(kind.prev) * (s->channels + at);
    for (size_t from = 0; from < (size_t)n * LANES * bytes_of(kind.prev); from += 64)
        DW_PREFETCH_FAR(s->prev, ahead + from);
}

/* Processes n blocks (of 16 elements), starting at element `at` of a section: stores their deltas
 * and joins their extremes with those of the piece so far. first: they are the first blocks of the
 * piece. */
DW_VECTOR void sweep_blocks(const section *s, sweep_kind kind, size_t at, int n, float *delta,
                            int first, lanes_extremes *of_delta, lanes_extremes *of_x)
{
    four x = load_blocks(s->x, kind.x, at, kind.pairs, n), d = x;
    if (kind.has_prev) {
        four base = load_blocks(s->prev, kind.prev, at, kind.pairs, n);
        if (s->far) ask_prev(s, kind, at, n);
        for (int k = 0; k < n; k++) d.part[k] = f_sub(x.part[k], base.part[k]);
    }
    for (int k = 0; kind.stores && k < n; k++) f_store(delta + at + (size_t)k * LANES, d.part[k]);
    lanes_extremes e = extremes_of_blocks(d, n);
    *of_delta = first ? e : extremes_of_both(*of_delta, e);
    if (!kind.chooses) return;
    e = extremes_of_blocks(x, n);
    *of_x = first ? e : extremes_of_both(*of_x, e);
}

/* Reads pieces [from, to) of a section, at most 16. Stores their deltas, if the variant does so,
 * and writes their extremes to b->folds. */
DW_VECTOR void sweep(const section *given, uint32_t width, uint32_t from, uint32_t to,
                     sweep_kind kind, scratch *b)
{
    const section s = *given; /* a copy, because stores may alias the caller's */
    int unit = kind.pairs ? 2 : 1;
    for (uint32_t p = from; p < to; p++) {
        lanes_extremes d = {i_set(0), i_set(0)}, x = d;
        size_t at = (size_t)p * width, end = at + width;
        if (width >= CHUNK) {
            sweep_blocks(&s, kind, at, 4, b->delta, 1, &d, &x);
            ROLLED for (at += CHUNK; at + CHUNK <= end; at += CHUNK)
                sweep_blocks(&s, kind, at, 4, b->delta, 0, &d, &x);
        } else {
            sweep_blocks(&s, kind, at, unit, b->delta, 1, &d, &x);
            at += (size_t)unit * LANES;
        }
        ROLLED for (; at < end; at += (size_t)unit * LANES)
            sweep_blocks(&s, kind, at, unit, b->delta, 0, &d, &x);
        extremes_put(b->folds[0], p - from, d.positive, d.negative);
        if (kind.chooses) extremes_put(b->folds[1], p - from, x.positive, x.negative);
    }
}

typedef void sweep_function(const section *s, uint32_t width, uint32_t from, uint32_t to,
                            scratch *b);

#define SWEEP(name, x, prev, has_prev, pairs, chooses, stores)                                     \
    static void name(const section *s, uint32_t width, uint32_t from, uint32_t to, scratch *b)     \
    {                                                                                              \
        sweep(s, width, from, to, (sweep_kind){x, prev, has_prev, pairs, chooses, stores}, b);     \
    }
#define SWEEPS(name, x)                                                                            \
    SWEEP(sweep_##name##_f32, x, DW_F32, 1, 0, 0, 1)                                               \
    SWEEP(sweep_##name##_f16, x, DW_F16, 1, 0, 0, 1)                                               \
    SWEEP(sweep_##name##_bf16, x, DW_BF16, 1, 0, 0, 1)                                             \
    SWEEP(choose_##name##_f32, x, DW_F32, 1, 0, 1, 1)                                              \
    SWEEP(choose_##name##_f16, x, DW_F16, 1, 0, 1, 1)                                              \
    SWEEP(choose_##name##_bf16, x, DW_BF16, 1, 0, 1, 1)
SWEEPS(f32, DW_F32)
SWEEPS(f16, DW_F16)
SWEEPS(bf16, DW_BF16)
SWEEP(sweep_f32, DW_F32, DW_F32, 0, 0, 0, 0)
SWEEP(sweep_f16, DW_F16, DW_F32, 0, 0, 0, 1)
SWEEP(sweep_bf16, DW_BF16, DW_F32, 0, 0, 0, 1)
SWEEP(choose_floats, DW_F32, DW_F32, 1, 0, 1, 0)
SWEEP(extremes_f32, DW_F32, DW_F32, 1, 0, 0, 0)
SWEEP(extremes_f16, DW_F16, DW_F32, 1, 0, 0, 0)
SWEEP(extremes_bf16, DW_BF16, DW_F32, 1, 0, 0, 0)
#ifdef codes_of_pairs
SWEEP(sweep_f32_pairs, DW_F32, DW_BF16, 1, 1, 0, 1)
SWEEP(sweep_f16_pairs, DW_F16, DW_BF16, 1, 1, 0, 1)
SWEEP(sweep_bf16_pairs, DW_BF16, DW_BF16, 1, 1, 0, 1)
SWEEP(sweep_pairs, DW_BF16, DW_F32, 0, 1, 0, 0)
SWEEP(choose_halves, DW_BF16, DW_BF16, 1, 1, 1, 0)
#endif
#undef SWEEPS
#undef SWEEP

/* Replaces the deltas of a direct piece by x. */
static void take_direct(const dw_encode_run *run, const section *s, uint32_t piece, scratch *b)
{
    size_t at = (size_t)piece * run->width;
    for (size_t end = at + run->width; at < end; at += LANES)
        f_store(b->delta + at, load(s->x, run->x_dtype, at));
}

/* ---- Decide ---------------------------------------------------------------------------------- */

DW_VECTOR void add_squares(const unsigned char *x, dw_dtype x_dtype, const unsigned char *prev,
                           dw_dtype prev_dtype, uint64_t n, uint32_t bits,
                           const dw_attempts *attempts, float sums[DW_ATTEMPTS][DW_NORM_LANES])
{
    f32x16 lanes[DW_ATTEMPTS];
    for (int k = 0; k < DW_ATTEMPTS; k++) lanes[k] = f_load(sums[k]);
    for (uint64_t at = 0; at < n; at += LANES) {
        f32x16 delta = load(x, x_dtype, at);
        if (prev) delta = f_sub(delta, load(prev, prev_dtype, at));
        for (int k = 0; k < DW_ATTEMPTS; k++)
            lanes[k] = f_add(lanes[k], square_of(delta, f_set(attempts->inverse[k]), bits));
    }
    for (int k = 0; k < DW_ATTEMPTS; k++) f_store(sums[k], lanes[k]);
}

/* The kernel `squares` of kernels.h, for rows that consist of several runs. search_scales calls it
 * for single pieces, too. */
static void squares(const void *x, dw_dtype x_dtype, const void *prev, dw_dtype prev_dtype,
                    uint64_t n, uint32_t bits, const dw_attempts *attempts,
                    float sums[DW_ATTEMPTS][DW_NORM_LANES])
{
    uint64_t whole = n / LANES * LANES;
    add_squares(x, x_dtype, prev, prev_dtype, whole, bits, attempts, sums);
    if (whole < n)
        dw_kernels_c.squares((const unsigned char *)x + whole * bytes_of(x_dtype), x_dtype,
                             prev ? (const unsigned char *)prev + whole * bytes_of(prev_dtype)
                                  : NULL,
                             prev_dtype, n - whole, bits, attempts, sums);
}

/* The decisions for a batch, one piece per lane. */
typedef struct decision {
    _Alignas(64) float scale[BATCH], inverse[BATCH];
    _Alignas(64) int32_t base_mask[BATCH];
    _Alignas(64) uint32_t positive[BATCH], negative[BATCH]; /* extremes of what is coded: deltas, or
                                                               x */
    uint16_t wire[BATCH];
    uint32_t zero, special, direct; /* masks of pieces */
} decision;

/* dw_scale_of of quant.h, one piece per lane. Special pieces are done again in C. */
DW_VECTOR void scales_of(i32x16 positive, i32x16 negative, uint32_t bits, int is_signed,
                         decision *d)
{
    int32_t half = 1 << (bits - 1);
    i32x16 largest = i_max(positive, negative);
    i32x16 scale;
    if (is_signed || bits == 1) { /* the number of levels is a power of two, so the quotient is
                                     exact; it is rounded up */
        scale = i_shr(i_add(largest, i_set(0xffff - (int32_t)((bits - 1) << 23))), 16);
        if (bits > 1) scale = i_or(scale, i_and(i_greater(positive, negative), i_set(0x8000)));
    } else {
        f32x16 amount = i_float(largest), count = f_set((float)(half - 1));
        scale = i_shr(f_bits(f_div(amount, count)), 16);
        /* All bits set is -1. */
        scale = i_sub(scale, f_less(f_mul(i_float(i_shl(scale, 16)), count), amount));
    }
    i32x16 special = i_greater(largest, i_set(SPECIAL_FROM - 1)),
           zero = i_greater(i_set((int32_t)DW_ZERO_BELOW), largest);
    i32x16 flat = i_or(special, zero);
    scale = i_andnot(flat, scale);
    f32x16 wide = i_float(i_shl(scale, 16));
    f_store(d->scale, wide);
    i_store(d->inverse, i_andnot(flat, f_bits(f_div(f_set(1.0f), wide))));
    i_store_halves(d->wire, scale);
    d->special = i_signs(special);
    d->zero = i_signs(zero);
}

DW_VECTOR i32x16 dw_select(i32x16 mask, i32x16 yes, i32x16 no)
{
    return i_or(i_and(mask, yes), i_andnot(mask, no));
}

static void decide_batch(const dw_encode_run *run, scratch *b, decision *d)
{
    i32x16 positive, negative, x_positive, x_negative;
    extremes_take(b->folds[0], &positive, &negative);
    d->direct = 0;
    if (run->choices) {
        extremes_take(b->folds[1], &x_positive, &x_negative);
        i32x16 direct = i_greater(i_max(positive, negative), i_max(x_positive, x_negative));
        positive = dw_select(direct, x_positive, positive);
        negative = dw_select(direct, x_negative, negative);
        i_store(d->base_mask, i_andnot(direct, i_set(-1)));
        d->direct = i_signs(direct);
    }
    i_store(d->positive, positive);
    i_store(d->negative, negative);
    scales_of(positive, negative, run->bits, run->scale != DW_SCALE_ABSMAX, d);
}

static void set_scale(decision *d, uint32_t p, uint16_t scale)
{
    d->wire[p] = scale;
    d->scale[p] = dw_bf16_widen(scale);
    d->inverse[p] = dw_scale_inverse(scale);
}

/* The decision for a piece whose row has several runs: it was made for the whole row. */
static void decide_row(const dw_chosen *row, decision *d)
{
    memset(d, 0, sizeof *d);
    d->direct = row->direct != 0;
    d->base_mask[0] = row->direct ? 0 : -1;
    d->zero = row->scale == 0;
    d->special = (row->scale & 0x7fffu) >= SPECIAL_SCALE;
    set_scale(d, 0, d->special ? 0 : row->scale);
}

/* Mean-square search for the pieces of a batch that have a scale. */
static void search_scales(const dw_encode_run *run, const section *s, uint32_t from, uint32_t n,
                          decision *d)
{
    uint32_t live = ((1u << n) - 1) & ~(d->special | d->zero);
    for (; live; live &= live - 1) {
        uint32_t p = (uint32_t)__builtin_ctz(live);
        size_t at = (size_t)(from + p) * run->width;
        dw_attempts attempts =
            dw_attempts_of((dw_extremes){d->positive[p], d->negative[p]}, run->bits);
        float lanes[DW_ATTEMPTS][DW_NORM_LANES] = {{0}}, sums[DW_ATTEMPTS];
        const void *base =
            run->prev && !(d->direct >> p & 1) ? s->prev + at * bytes_of(run->prev_dtype) : NULL;
        squares(s->x + at * bytes_of(run->x_dtype), run->x_dtype, base, run->prev_dtype, run->width,
                run->bits, &attempts, lanes);
        for (int k = 0; k < DW_ATTEMPTS; k++) sums[k] = dw_lanes_sum(lanes[k]);
        set_scale(d, p, dw_attempts_best(&attempts, sums));
    }
}

/* Copies one value per piece to one value per block. Stores behind the last piece are overwritten
 * by the next batch. */
DW_VECTOR void spread(void *to, const void *values, uint32_t pieces, uint32_t blocks)
{
#ifdef f_lookup
    if (pieces == BATCH && blocks == 4) {
        static const _Alignas(64)
            int32_t quarter[LANES] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
        f32x16 all = f_load(values);
        for (int k = 0; k < 4; k++)
            f_store((float *)to + k * LANES, f_lookup(all, i_add(i_load(quarter), i_set(4 * k))));
        return;
    }
#endif
    for (uint32_t p = 0; p < pieces; p++) {
        i32x16 value = i_set(((const int32_t *)values)[p]);
        for (uint32_t k = 0; k < blocks; k += LANES) i_store((int32_t *)to + p * blocks + k, value);
    }
}

static void mark_direct(const dw_encode_run *run, uint32_t piece, uint32_t direct)
{
    uint64_t bit = run->first_piece + piece;
    uint8_t *byte = run->choices + bit / 8;
    for (uint32_t bits = direct << bit % 8; bits; bits >>= 8, byte++)
        if (bits & 0xff)
            *byte = (uint8_t)(*byte | bits); /* other bytes are not touched: they may belong to
                                                another thread's pieces */
}

/* Decides scales and choices of pieces [from, to) of a section, and counts them. stores: the sweep
 * has stored deltas. */
static void decide(const dw_encode_run *run, const section *s, uint32_t from, uint32_t to,
                   int stores, scratch *b)
{
    decision d;
    uint32_t n = to - from, live = (1u << n) - 1, blocks = run->width / LANES;
    if (run->row)
        decide_row(run->row, &d);
    else
        decide_batch(run, b, &d);
    if (run->scale == DW_SCALE_MSE && !run->row) search_scales(run, s, from, n, &d);
    d.special &= live;
    uint8_t *scales = run->scales + 2 * (size_t)(s->piece + from);
    if (n == BATCH)
        memcpy(scales, d.wire, sizeof d.wire);
    else
        memcpy(scales, d.wire, 2 * (size_t)n);
    spread(b->scale + from * blocks, d.scale, n, blocks);
    spread(b->inverse + from * blocks, d.inverse, n, blocks);
    b->special[from / BATCH] = d.special;
    live &= ~d.special;
    run->counts->pieces += (uint32_t)__builtin_popcount(live);
    run->counts->zero += (uint32_t)__builtin_popcount(d.zero & live);
    if (!run->choices) return;
    spread(b->base_mask + from * blocks, d.base_mask, n, blocks);
    mark_direct(run, s->piece + from, d.direct & live);
    run->counts->direct += (uint32_t)__builtin_popcount(d.direct & live);
    for (uint32_t direct = stores ? d.direct & live : 0; direct; direct &= direct - 1)
        take_direct(run, s, from + (uint32_t)__builtin_ctz(direct), b);
}
