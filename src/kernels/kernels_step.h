/* SPDX-License-Identifier: Apache-2.0
 * kernels_step.h - vector kernels for the form step.
 *
 * A part of the vector kernels: see kernels_simd.h, which comes before it, as does
 * kernels_dither.h. Products are never fused with sums, and sums are always clamped, so every step
 * and every base is handled here and none is left to C. The pairs of dtypes that matter have
 * functions of their own; all others share one that asks for the dtypes of every block. */

/* ---- Squares --------------------------------------------------------------------------------- */

/* A f64x16 holds its lanes in order, so it is loaded as bytes. */
DW_VECTOR f64x16 step_lanes(const double *lanes)
{
    f64x16 sums;
    _Static_assert(sizeof sums == DW_NORM_LANES * sizeof *lanes, "one binary64 per lane");
    memcpy(&sums, lanes, sizeof sums);
    return sums;
}

/* The squares of x - prev so far: their sums, and the largest magnitudes. limit: larger magnitudes
 * are left out. left_out counts them, in each lane and downwards from 0. */
typedef struct step_sums {
    f64x16 squares;
    i32x16 largest, limit, left_out;
} step_sums;

/* is_limited: known when it is compiled; otherwise the limit is not looked at. */
DW_VECTOR step_sums step_add(step_sums s, f32x16 delta, int is_limited)
{
    i32x16 magnitude = i_and(f_bits(delta), i_set(0x7fffffff));
    if (is_limited) {
        i32x16 above = i_greater(magnitude, s.limit);
        s.left_out = i_add(s.left_out, above);
        magnitude = i_andnot(above, magnitude);
        delta = i_float(i_andnot(above, f_bits(delta)));
    }
    s.squares = d_add_square(s.squares, delta);
    s.largest = i_max(s.largest, magnitude);
    return s;
}

DW_VECTOR step_sums step_squares_of(step_sums s, const unsigned char *x, dw_dtype x_dtype,
                                    const unsigned char *prev, dw_dtype prev_dtype, uint64_t n,
                                    int is_limited)
{
    for (uint64_t at = 0; at < n; at += LANES)
        s = step_add(s, f_sub(load(x, x_dtype, at), load(prev, prev_dtype, at)), is_limited);
    return s;
}

DW_VECTOR step_sums step_squares_of_x(step_sums s, const unsigned char *x, dw_dtype x_dtype,
                                      uint64_t n, int is_limited)
{
    for (uint64_t at = 0; at < n; at += LANES) s = step_add(s, load(x, x_dtype, at), is_limited);
    return s;
}

/* Adds n elements, a multiple of LANES. The pairs of dtypes that matter have loops of their own. */
DW_VECTOR step_sums step_squares_whole(step_sums s, const void *x, dw_dtype x_dtype,
                                       const void *prev, dw_dtype prev_dtype, uint64_t n,
                                       int is_limited)
{
    if (!prev) return step_squares_of_x(s, x, x_dtype, n, is_limited);
    if (x_dtype == DW_F32 && prev_dtype == DW_F32)
        return step_squares_of(s, x, DW_F32, prev, DW_F32, n, is_limited);
    if (x_dtype == DW_BF16 && prev_dtype == DW_F32)
        return step_squares_of(s, x, DW_BF16, prev, DW_F32, n, is_limited);
    if (x_dtype == DW_BF16 && prev_dtype == DW_BF16)
        return step_squares_of(s, x, DW_BF16, prev, DW_BF16, n, is_limited);
    return step_squares_of(s, x, x_dtype, prev, prev_dtype, n, is_limited);
}

/* Returns the sum of counts that vectors have made in each lane, downwards from 0. */
static uint64_t step_count(i32x16 counts)
{
    int32_t lanes[LANES];
    uint64_t sum = 0;
    if (i_signs(counts) == 0) return 0;
    i_store(lanes, counts);
    for (int i = 0; i < LANES; i++) sum += (uint64_t)-lanes[i];
    return sum;
}

static uint64_t step_squares(const void *x, dw_dtype x_dtype, const void *prev, dw_dtype prev_dtype,
                             uint64_t n, uint32_t limit, double lanes[DW_NORM_LANES],
                             uint32_t *largest)
{
    step_sums s = {step_lanes(lanes), i_set((int32_t)(*largest & 0x7fffffff)),
                   i_set((int32_t)limit), i_set(0)};
    uint64_t whole = n / LANES * LANES;
    if (limit == DW_NO_LIMIT)
        s = step_squares_whole(s, x, x_dtype, prev, prev_dtype, whole, 0);
    else
        s = step_squares_whole(s, x, x_dtype, prev, prev_dtype, whole, 1);
    if (whole < n) { /* padding adds the squares of 0 */
        f32x16 base = prev ? load_rest(prev, prev_dtype, whole, n) : f_set(0);
        s = step_add(s, f_sub(load_rest(x, x_dtype, whole, n), base), 1);
    }
    d_store(lanes, s.squares);
    *largest = reduce_extremes((lanes_extremes){s.largest, i_set(0)}, (dw_extremes){0, 0}).positive;
    dw_step_unify_nan(lanes, largest);
    return step_count(s.left_out);
}

/* ---- Encode ---------------------------------------------------------------------------------- */

/* What a kernel reads and writes: consecutive chunks of 64 elements. prev is never NULL: where
 * there is none, it points to zeros. */
typedef struct step_span {
    const unsigned char *x, *prev;
    unsigned char *to; /* encode: the new prev; NULL: no state. decode: out */
    dw_dtype x_dtype, prev_dtype, to_dtype;
    uint8_t *codes;
    float inverse, step;
    const uint16_t *dithers; /* a random number for every element; NULL: nearest rounding */
    int32_t back;            /* all bits set: the decoder subtracts the dither; else 0 */
    int32_t zone;            /* the dead zone, as the bits of a binary32; 0: none */
} step_span;

/* What the loop of a kernel knows when it is compiled, so that it need not ask for every block. x:
 * the dtype of x, or in a decoder that of out. pairs: both dtypes are bf16, and 32 elements are
 * processed as two vectors, of the even and of the odd ones. dithered: there are random numbers.
 * zoned: there is a dead zone. No loop is both dithered and zoned. */
typedef struct step_kind {
    dw_dtype x, prev;
    int pairs, dithered, zoned;
} step_kind;

/* The largest bf16. */
#define STEP_MOST_BF16 0x1.fep127f

DW_VECTOR void step_store_pair(const step_span *s, size_t at, f32x16 even, f32x16 odd)
{
    i_store(s->to + 2 * at,
            narrow_pair(f_clamp(even, STEP_MOST_BF16), f_clamp(odd, STEP_MOST_BF16)));
}

/* The dithers of 32 elements as a pair: a word of 32 bits holds those of two. */
DW_VECTOR pair step_dither_pair(const uint16_t *dithers)
{
    i32x16 words = i_load(dithers), fraction = i_set(0xffff << 7);
    return (pair){dither_of_fraction(i_and(i_shl(words, 7), fraction)),
                  dither_of_fraction(i_and(i_shr(words, 9), fraction))};
}

/* Returns the new value of a base, to which `amount` steps are added. */
DW_VECTOR f32x16 step_sum(const step_span *s, f32x16 base, f32x16 amount)
{
    return f_add(base, f_mul(amount, f_set(s->step)));
}

/* Encodes 16 elements. *level becomes their levels; returns their new values, which of escaped ones
 * the caller replaces. *outside counts these, in each lane and downwards from 0. */
DW_VECTOR f32x16 step_code(const step_span *s, f32x16 x, f32x16 base, f32x16 z, step_kind kind,
                           i32x16 *level, i32x16 *outside)
{
    int dithered = kind.dithered;
    float most = DW_STEP_LEVELS;
    f32x16 scaled = f_mul(f_sub(x, base), f_set(s->inverse));
    if (dithered) scaled = f_add(scaled, z);
    i32x16 magnitude = i_and(f_bits(scaled), i_set(0x7fffffff));
    i32x16 escapes = i_greater(magnitude, i_set(DW_STEP_ESCAPES - 1));
    *outside = i_add(*outside, escapes);
    *level = i_nearest(f_max(f_min(scaled, f_set(most)), f_set(-most)));
    *level = i_or(i_and(escapes, i_set(-DW_STEP_ZERO)), i_andnot(escapes, *level));
    if (kind.zoned) *level = i_and(*level, i_greater(magnitude, i_set(s->zone)));
    f32x16 amount = f_whole(*level);
    if (dithered) amount = f_sub(amount, i_float(i_and(f_bits(z), i_set(s->back))));
    return step_sum(s, base, amount);
}

/* Encodes the 16 elements from `at` on. */
DW_VECTOR void step_encode_block(const step_span *s, size_t at, step_kind kind, i32x16 *level,
                                 i32x16 *outside)
{
    f32x16 x = load(s->x, kind.x, at), base = load(s->prev, kind.prev, at), z = f_set(0);
    if (kind.dithered) z = dither_of(s->dithers + at);
    f32x16 next = step_code(s, x, base, z, kind, level, outside);
    if (s->to) store(s->to, kind.prev, at, next);
}

/* Encodes the 32 bf16 from `at` on, as a vector of the even and one of the odd ones. */
DW_VECTOR void step_encode_pair(const step_span *s, size_t at, step_kind kind, i32x16 level[2],
                                i32x16 *outside)
{
    pair x = load_pair(s->x, at), base = load_pair(s->prev, at), z = {f_set(0), f_set(0)};
    if (kind.dithered) z = step_dither_pair(s->dithers + at);
    f32x16 even = step_code(s, x.even, base.even, z.even, kind, &level[0], outside),
           odd = step_code(s, x.odd, base.odd, z.odd, kind, &level[1], outside);
    if (s->to) step_store_pair(s, at, even, odd);
}

/* Encodes n elements, a multiple of 64. Returns how many values escaped. */
DW_VECTOR uint64_t step_encode_chunks(const step_span *given, size_t n, step_kind kind)
{
    step_span s = *given; /* a copy, because stores may alias the caller's */
    i32x16 outside = i_set(0);
    ROLLED for (size_t at = 0; at < n; at += CHUNK)
    {
        i32x16 l[4];
#ifdef codes_of_pairs
        if (kind.pairs) {
            step_encode_pair(&s, at, kind, l, &outside);
            step_encode_pair(&s, at + 2 * LANES, kind, l + 2, &outside);
            codes_put8(s.codes + at, codes_of_pairs(l[0], l[1], l[2], l[3], DW_STEP_ZERO));
            continue;
        }
#endif
        for (size_t k = 0; k < 4; k++) step_encode_block(&s, at + k * LANES, kind, &l[k], &outside);
        codes_put8(s.codes + at, codes_of_levels(l[0], l[1], l[2], l[3], DW_STEP_ZERO));
    }
    return step_count(outside);
}

typedef uint64_t step_encode_function(const step_span *s, size_t n);

/* Defines a function for one pair of dtypes. It contains a loop for each way of rounding: with
 * random numbers, with a dead zone, and to nearest. Random rounding has no dead zone. */
#define STEP_ENCODE(name, ...)                                                                     \
    static uint64_t name(const step_span *s, size_t n)                                             \
    {                                                                                              \
        if (s->dithers) return step_encode_chunks(s, n, (step_kind){__VA_ARGS__, 1, 0});           \
        if (s->zone > 0) return step_encode_chunks(s, n, (step_kind){__VA_ARGS__, 0, 1});          \
        return step_encode_chunks(s, n, (step_kind){__VA_ARGS__, 0, 0});                           \
    }
STEP_ENCODE(step_encode_f32, DW_F32, DW_F32, 0)
STEP_ENCODE(step_encode_bf16_f32, DW_BF16, DW_F32, 0)
STEP_ENCODE(step_encode_bf16, DW_BF16, DW_BF16, 1)
STEP_ENCODE(step_encode_any, s->x_dtype, s->prev_dtype, 0)
#undef STEP_ENCODE

/* Returns the function for the dtypes of x and prev. */
static step_encode_function *step_encoder(dw_dtype x, dw_dtype prev)
{
    if (x == DW_F32 && prev == DW_F32) return step_encode_f32;
    if (x == DW_BF16 && prev == DW_F32) return step_encode_bf16_f32;
    if (x == DW_BF16 && prev == DW_BF16) return step_encode_bf16;
    return step_encode_any;
}

/* Returns a run as a span; the caller sets where results go. dithered: random numbers are needed,
 * for which `random` is the memory. The dithers of padding are next to 0. */
static step_span step_span_of(const dw_step_run *run, int dithered, parts *random)
{
    step_span s = {.x = run->x,
                   .prev = run->prev ? run->prev : no_prev,
                   .x_dtype = run->x_dtype,
                   .prev_dtype = run->prev_dtype,
                   .codes = run->codes,
                   .inverse = dw_step_inverse(run->scale),
                   .step = dw_bf16_widen(run->scale),
                   .back = run->rounding == DW_ROUNDING_DITHER ? -1 : 0,
                   .zone = (int32_t)dw_bits_of(run->zone)};
    if (dithered) {
        size_t padded = (run->n + CHUNK - 1) / CHUNK * CHUNK;
        s.dithers = fill_parts(&run->dither, 0, run->n, padded, random);
    }
    return s;
}

/* Copies n elements from `at` on, less than a chunk, to `to`, and fills the chunk with zeros.
 * Returns `to`. */
static const unsigned char *step_padded(const unsigned char *from, dw_dtype dtype, size_t at,
                                        size_t n, unsigned char *to)
{
    size_t size = bytes_of(dtype);
    memset(to, 0, CHUNK * size);
    memcpy(to, from + at * size, n * size);
    return to;
}

/* Encodes the last n elements of a run, which are less than a chunk, through padded buffers. */
static uint64_t step_encode_rest(const step_span *run, step_encode_function *encode_with, size_t at,
                                 size_t n)
{
    _Alignas(64) unsigned char x[4 * CHUNK], prev[4 * CHUNK], next[4 * CHUNK];
    uint8_t codes[CHUNK];
    step_span s = *run;
    s.x = step_padded(run->x, run->x_dtype, at, n, x);
    s.prev = step_padded(run->prev, run->prev_dtype, at, n, prev);
    s.to = run->to ? next : NULL;
    s.codes = codes;
    if (s.dithers) s.dithers += at;
    uint64_t escapes = encode_with(&s, CHUNK);
    size_t size = bytes_of(run->to_dtype);
    if (run->to) memcpy(run->to + at * size, next, n * size);
    memcpy(run->codes + at, codes, n);
    return escapes;
}

static void step_encode(dw_step_run *run)
{
    parts random;
    step_span s = step_span_of(run, run->rounding != DW_ROUNDING_NEAREST, &random);
    if (!run->prev && !run->next) s.prev_dtype = DW_F32; /* any value will do */
    s.to = run->next;
    s.to_dtype = s.prev_dtype;
    step_encode_function *encode_with = step_encoder(s.x_dtype, s.prev_dtype);
    size_t whole = run->n / CHUNK * CHUNK;
    run->escapes += encode_with(&s, whole);
    if (whole < run->n) run->escapes += step_encode_rest(&s, encode_with, whole, run->n - whole);
    memset(run->codes + run->n, DW_STEP_ZERO, run->stored - run->n);
}

/* ---- Decode ---------------------------------------------------------------------------------- */

/* Returns the levels that a vector of codes stands for. */
DW_VECTOR f32x16 step_levels(i32x16 codes)
{
    return f_whole(i_sub(codes, i_set(DW_STEP_ZERO)));
}

/* Decodes the 16 elements from `at` on. */
DW_VECTOR void step_decode_block(const step_span *s, size_t at, step_kind kind)
{
    f32x16 amount = step_levels(i_take8(s->codes + at));
    if (kind.dithered) amount = f_sub(amount, dither_of(s->dithers + at));
    store(s->to, kind.x, at, step_sum(s, load(s->prev, kind.prev, at), amount));
}

/* Decodes the 32 bf16 from `at` on, as a vector of the even and one of the odd ones. Each 16 bits
 * of codes hold the code of an even element in the lower byte, and of the next, odd one in the
 * upper. */
DW_VECTOR void step_decode_pair(const step_span *s, size_t at, int dithered)
{
    i32x16 words = i_take16(s->codes + at);
    pair base = load_pair(s->prev, at),
         amount = {step_levels(i_and(words, i_set(0xff))), step_levels(i_shr(words, 8))};
    if (dithered) {
        pair z = step_dither_pair(s->dithers + at);
        amount = (pair){f_sub(amount.even, z.even), f_sub(amount.odd, z.odd)};
    }
    step_store_pair(s, at, step_sum(s, base.even, amount.even), step_sum(s, base.odd, amount.odd));
}

/* Decodes n elements, a multiple of 64. */
DW_VECTOR void step_decode_chunks(const step_span *given, size_t n, step_kind kind)
{
    step_span s = *given; /* a copy, because stores may alias the caller's */
    ROLLED for (size_t at = 0; at < n; at += CHUNK)
    {
        if (kind.pairs) {
            step_decode_pair(&s, at, kind.dithered);
            step_decode_pair(&s, at + 2 * LANES, kind.dithered);
            continue;
        }
        for (size_t k = 0; k < 4; k++) step_decode_block(&s, at + k * LANES, kind);
    }
}

typedef void step_decode_function(const step_span *s, size_t n);

/* Defines a function for one pair of dtypes, with a loop for dithered codes and one for others. */
#define STEP_DECODE(name, ...)                                                                     \
    static void name(const step_span *s, size_t n)                                                 \
    {                                                                                              \
        if (s->dithers)                                                                            \
            step_decode_chunks(s, n, (step_kind){__VA_ARGS__, 1, 0});                              \
        else                                                                                       \
            step_decode_chunks(s, n, (step_kind){__VA_ARGS__, 0, 0});                              \
    }
STEP_DECODE(step_decode_f32, DW_F32, DW_F32, 0)
STEP_DECODE(step_decode_bf16, DW_BF16, DW_BF16, 1)
STEP_DECODE(step_decode_any, s->to_dtype, s->prev_dtype, 0)
#undef STEP_DECODE

/* Returns the function for the dtypes of out and prev. */
static step_decode_function *step_decoder(dw_dtype out, dw_dtype prev)
{
    if (out == DW_F32 && prev == DW_F32) return step_decode_f32;
    if (out == DW_BF16 && prev == DW_BF16) return step_decode_bf16;
    return step_decode_any;
}

/* Decodes the last n elements of a run, which are less than a chunk, through padded buffers. */
static void step_decode_rest(const step_span *run, step_decode_function *decode_with, size_t at,
                             size_t n)
{
    _Alignas(64) unsigned char prev[4 * CHUNK], out[4 * CHUNK];
    uint8_t codes[CHUNK] = {0};
    size_t size = bytes_of(run->to_dtype);
    step_span s = *run;
    s.prev = step_padded(run->prev, run->prev_dtype, at, n, prev);
    memcpy(codes, run->codes + at, n);
    s.codes = codes;
    s.to = out;
    if (s.dithers) s.dithers += at;
    decode_with(&s, CHUNK);
    memcpy(run->to + at * size, out, n * size);
}

static void step_decode(const dw_step_run *run)
{
    parts random;
    step_span s = step_span_of(run, run->rounding == DW_ROUNDING_DITHER, &random);
    if (!run->prev) s.prev_dtype = run->x_dtype; /* zeros in every dtype */
    s.to = run->out;
    s.to_dtype = run->x_dtype;
    step_decode_function *decode_with = step_decoder(s.to_dtype, s.prev_dtype);
    size_t whole = run->n / CHUNK * CHUNK;
    decode_with(&s, whole);
    if (whole < run->n) step_decode_rest(&s, decode_with, whole, run->n - whole);
}

/* Writes the high bytes of the random numbers of n elements. */
static void dither_bytes(const dw_dither *dither, uint64_t n, uint8_t *to)
{
    parts random;
    const uint16_t *from = fill_parts(dither, 0, n, n, &random);
    for (uint64_t i = 0; i < n; i++) to[i] = (uint8_t)(from[i] >> 8);
}
