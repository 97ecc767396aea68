/* SPDX-License-Identifier: Apache-2.0
 * kernels_simd.h - the vector kernels, written once for all instruction sets: what encode
 * (kernels_encode.h) and decode (kernels_decode.h) share, and the short kernels. The file of each
 * instruction set defines the primitives listed here and then includes this one.
 *
 * Primitives for blocks of 16 lanes (f32x16, i32x16) and 64 codes (codes64):
 * wide table:
 * | f_set f_load f_add f_sub f_mul f_div f_min f_max f_bits f_less   | lane-wise; min and max return the second operand where the first is a quiet NaN |
 * | i_set i_load i_store i_float i_add i_sub i_and i_or i_andnot     | i_andnot(a, b): b where a has 0                              |
 * | i_max i_max_unsigned i_greater i_shl i_shr i_sra                 | comparisons set all bits of a lane; shifts by a literal      |
 * | i_signs                                                          | the lanes' top bits as a mask of 16                          |
 * | widen_bf16 widen_f16 narrow_bf16 narrow_f16                      | 16 halves from and to memory; narrow: RN of clamped values   |
 * | i_store_quarter i_columns                                        | unless extremes_put is defined: reduce 16 lanes to 4, and 16 times 4 to 16 |
 * | codes_join codes_field codes_put8 _put4 _put2 _put1              | bit planes                                                   |
 * | i_take16 i_take8 i_take4 i_take2 i_take1                         | 16 elements of a plane, one per lane                         |
 * | narrow_pair                                                      | two blocks to 32 interleaved bf16, as 16 words; RN of values that round to finite ones |
 * | i_pair_products                                                  | adds the products of even lanes and odd lanes, in 64 bits    |
 * | i_stream i_stream_end                                            | a store past the caches, aligned to a line; the barrier after such stores |
 * | i_shr_each i_by_sign                                             | a shift per lane; lanes of the second operand where the first is negative, else of the third |
 * | codes_of_low_bytes codes_clear                                   | the low bytes of four blocks; codes equal to the second operand become 0 |
 * | h_set h_and h_or h_xor h_min h_shl h_shr h_sra (h16x16)          | 16 words of 16 bits; min of words whose sign bit is clear    |
 * | h_take16 h_take8 h_take4                                         | 16, 8 and 4 bits of a plane into each word                   |
 * | f_of_halves h_in_turns                                           | f16 to a block; interleaves the words of two registers       |
 * | w_set w_count w_mul w_shr32 w_xor3                               | Philox: W_LANES lanes of 64 bits; w_count: first, first + 1, ...; w_mul: product of the |
 * |                                                                  | low halves; w_shr32: moves the high halves to the low ones, the new high ones are undefined |
 * | w_join w_store_turns                                             | joins the low halves of two; stores the lanes of two interleaved |
 * | d_none d_add_square d_store (f64x16)                             | sums in binary64                                             |
 *
 * Primitives that an instruction set may replace by better ones, defining a macro of the same name:
 * wide table:
 * | f_muladd                                                         | x * y + z where x * y is exact: rounded once either way      |
 * | f_clamp                                                          | limits magnitudes; not for NaN                               |
 * | i_nearest f_whole                                                | to integers, ties to even, and back; below 2^22              |
 * | codes_of_levels                                                  | four blocks of levels -128 to 127, plus half, to 64 codes    |
 * | extremes_put extremes_take                                       | store the extremes of 16 pieces; load them, one lane each    |
 *
 * Those of x86-64 also have f_butterfly1, 2, 4 and 8, for kernels_rotate.h.
 *
 * Optional primitives; an instruction set that has them defines a macro of the same name:
 * wide table:
 * | codes_of_pairs with f_pair_parts                                 | codes_of_levels for two pairs; converts two blocks to a pair |
 * | codes_of_low_byte_pairs, beside codes_of_pairs                   | codes_of_low_bytes for two pairs                             |
 * | f_lookup i_loose4 i_loose2 i_loose1 i_pick                       | looks values up by the low 4 bits of lanes; i_take with undefined upper bits; |
 * |                                                                  | bits of the first operand where the third has ones, else of the second |
 * | h_lookup with h_table, h_table_of                                | looks 64 codes of 4 bits up in a table of 16 16-bit floats   |
 */
#ifndef DW_VECTOR
#error "kernels_simd.h is included by the file of one instruction set, after its primitives"
#endif
#include "arithmetic/layout.h"
#include "arithmetic/pack.h"
#include "kernels/kernels.h"

enum { LANES = 16, BATCH = 16 };

/* Placed before a loop with a long body, which clang would otherwise unroll to four times the
 * code. */
#ifdef __clang__
#define ROLLED _Pragma("clang loop unroll(disable)")
#else
#define ROLLED
#endif

/* Constant for rounding by addition (quant.h): 1.5 * 2^23. Its low 16 bits are zero. */
#define MAGIC 12582912.0f

/* Zeros to be read as prev where there is none; as long as the longest run. */
static const _Alignas(64) unsigned char no_prev[4 * DW_TILE_ELEMENTS];

/* Pieces whose largest magnitude (in an encode) or scale (in a decode) is 2^95 or more, and
 * poisoned ones, are left to C ("special"). Below that limit, half of 2^8 levels times the scale is
 * less than 2^102. That is below half a unit in the last place of the largest f32 (2^103) and bf16
 * (2^119), so a sum with any finite base rounds to a finite value, and no clamp is needed. A
 * product below 2^102 is also exact, so it may be fused with the sum. */
#define SPECIAL_FROM 0x6f000000

/* The same limit, 2^95, as the bits of a bf16: used where only the scale of a piece is known. */
#define SPECIAL_SCALE 0x6f00

#ifndef f_muladd
DW_VECTOR f32x16 f_muladd(f32x16 x, f32x16 y, f32x16 z)
{
    return f_add(f_mul(x, y), z);
}
#endif

#ifndef f_clamp
DW_VECTOR f32x16 f_clamp(f32x16 value, float largest)
{
    return f_max(f_min(value, f_set(largest)), f_set(-largest));
}
#endif

#ifndef i_nearest
DW_VECTOR i32x16 i_nearest(f32x16 value)
{
    return i_sub(f_bits(f_add(value, f_set(MAGIC))), f_bits(f_set(MAGIC)));
}

DW_VECTOR f32x16 f_whole(i32x16 value)
{
    return f_sub(i_float(i_add(value, f_bits(f_set(MAGIC)))), f_set(MAGIC));
}
#endif

#ifndef codes_of_levels
DW_VECTOR codes64 codes_of_levels(i32x16 l0, i32x16 l1, i32x16 l2, i32x16 l3, int half)
{
    i32x16 zero = i_set(half);
    return codes_join(i_add(l0, zero), i_add(l1, zero), i_add(l2, zero), i_add(l3, zero));
}
#endif

DW_VECTOR f32x16 load(const unsigned char *from, dw_dtype dtype, size_t i)
{
    if (dtype == DW_F32) return f_load(from + 4 * i);
    return dtype == DW_F16 ? widen_f16(from + 2 * i) : widen_bf16(from + 2 * i);
}

/* Converts 16 values to the dtype and stores them. This is RN of docs/format.md without its clamp,
 * so values that are too large for the dtype become infinite. The NaN 0x7fc00000 becomes the NaN of
 * the dtype. */
DW_VECTOR void store_finite(unsigned char *to, dw_dtype dtype, size_t i, f32x16 value)
{
    if (dtype == DW_F32)
        f_store(to + 4 * i, value);
    else if (dtype == DW_F16)
        narrow_f16(to + 2 * i, value);
    else
        narrow_bf16(to + 2 * i, value);
}

/* Like store_finite, but with the clamp of RN, so that the result is finite. The values must not be
 * NaN. */
DW_VECTOR void store(unsigned char *to, dw_dtype dtype, size_t i, f32x16 value)
{
    store_finite(to, dtype, i,
                 f_clamp(value, dtype == DW_F32   ? FLT_MAX
                                : dtype == DW_F16 ? 65504.0f
                                                  : 0x1.fep127f));
}

/* Stores sums base + level * scale with RN. The bases must be finite, and the scales not special
 * (SPECIAL_FROM). Then f32 and bf16 cannot overflow, and only f16 needs the clamp. */
DW_VECTOR void store_sum(unsigned char *to, dw_dtype dtype, size_t i, f32x16 value)
{
    if (dtype == DW_F16)
        store(to, dtype, i, value);
    else
        store_finite(to, dtype, i, value);
}

/* Two blocks that hold the even and the odd elements of 32. bf16 can be converted from and to this
 * form at half the cost of two consecutive blocks. */
typedef struct pair {
    f32x16 even, odd;
} pair;

DW_VECTOR pair load_pair(const unsigned char *from, size_t i)
{
    i32x16 both = i_load(from + 2 * i);
    return (pair){i_float(i_shl(both, 16)), i_float(i_and(both, i_set(-0x10000)))};
}

#ifdef codes_of_pairs
/* Converts two consecutive blocks to a pair. */
DW_VECTOR pair pair_of(f32x16 first, f32x16 second)
{
    pair p;
    f_pair_parts(first, second, &p.even, &p.odd);
    return p;
}
#endif

/* The extremes of 16 lanes, as bits of floats. positive: the signed maximum; it is not above 0 if
 * there is no positive value. negative: the unsigned maximum. As unsigned integers, negative floats
 * are larger than all others. So if its top bit is set, its other bits are the largest magnitude of
 * a negative value; if the top bit is clear, there is no negative value. */
typedef struct lanes_extremes {
    i32x16 positive, negative;
} lanes_extremes;

DW_VECTOR lanes_extremes extremes_join(lanes_extremes e, f32x16 value)
{
    i32x16 bits = f_bits(value);
    return (lanes_extremes){i_max(e.positive, bits), i_max_unsigned(e.negative, bits)};
}

DW_VECTOR i32x16 negative_magnitude(i32x16 negative)
{
    return i_and(i_and(negative, i_set(0x7fffffff)), i_sra(negative, 31));
}

#ifndef extremes_put
DW_VECTOR void extremes_put(int32_t *folds, uint32_t piece, i32x16 positive, i32x16 negative)
{
    i_store_quarter(folds + 4 * piece, i_max(positive, i_set(0)));
    i_store_quarter(folds + 4 * BATCH + 4 * piece, negative);
}

DW_VECTOR void extremes_take(const int32_t *folds, i32x16 *positive, i32x16 *negative)
{
    *positive = i_columns(folds);
    *negative = negative_magnitude(i_columns(folds + 4 * BATCH));
}
#endif

static size_t bytes_of(dw_dtype dtype)
{
    return dtype == DW_F32 ? 4 : 2;
}

static dw_extremes reduce_extremes(lanes_extremes e, dw_extremes known)
{
    int32_t lanes[2][LANES];
    i_store(lanes[0], e.positive);
    i_store(lanes[1], negative_magnitude(e.negative));
    for (int i = 0; i < LANES; i++) {
        if ((uint32_t)lanes[0][i] > known.positive) known.positive = (uint32_t)lanes[0][i];
        if ((uint32_t)lanes[1][i] > known.negative) known.negative = (uint32_t)lanes[1][i];
    }
    return known;
}

DW_VECTOR void extremes_of(const unsigned char *x, dw_dtype x_dtype, const unsigned char *prev,
                           dw_dtype prev_dtype, uint64_t n, dw_candidates *candidates)
{
    lanes_extremes delta = {i_set(0), i_set(0)}, direct = delta;
    for (uint64_t at = 0; at < n; at += LANES) {
        f32x16 value = load(x, x_dtype, at);
        direct = extremes_join(direct, value);
        if (prev) delta = extremes_join(delta, f_sub(value, load(prev, prev_dtype, at)));
    }
    if (!prev) delta = direct;
    candidates->delta = reduce_extremes(delta, candidates->delta);
    candidates->direct = reduce_extremes(direct, candidates->direct);
}

static void extremes(const void *x, dw_dtype x_dtype, const void *prev, dw_dtype prev_dtype,
                     uint64_t n, dw_candidates *candidates)
{
    uint64_t whole = n / LANES * LANES;
    if (!prev) prev_dtype = DW_F32; /* any value will do */
    switch (x_dtype * 4 + prev_dtype) {
/* clang-format off */
#define EXTREMES(a, b) case a * 4 + b: extremes_of(x, a, prev, b, whole, candidates); break;
        EXTREMES(DW_F32, DW_F32) EXTREMES(DW_F32, DW_F16) EXTREMES(DW_F32, DW_BF16)
        EXTREMES(DW_F16, DW_F32) EXTREMES(DW_F16, DW_F16) EXTREMES(DW_F16, DW_BF16)
        EXTREMES(DW_BF16, DW_F32) EXTREMES(DW_BF16, DW_F16) EXTREMES(DW_BF16, DW_BF16)
/* clang-format on */
#undef EXTREMES
    }
    if (whole < n)
        dw_kernels_c.extremes((const unsigned char *)x + whole * bytes_of(x_dtype), x_dtype,
                              prev ? (const unsigned char *)prev + whole * bytes_of(prev_dtype)
                                   : NULL,
                              prev_dtype, n - whole, candidates);
}

DW_VECTOR void convert_blocks(const unsigned char *from, dw_dtype from_dtype, unsigned char *to,
                              dw_dtype to_dtype, uint64_t n)
{
    for (uint64_t at = 0; at < n; at += LANES) store(to, to_dtype, at, load(from, from_dtype, at));
}

static void convert(const void *from, dw_dtype from_dtype, void *to, dw_dtype to_dtype, uint64_t n)
{
    uint64_t whole = n / LANES * LANES;
    if (from_dtype == to_dtype) {
        memcpy(to, from, n * bytes_of(to_dtype));
        return;
    }
    switch (from_dtype * 4 + to_dtype) {
#define CONVERT(a, b)                                                                              \
    case a * 4 + b: convert_blocks(from, a, to, b, whole); break;
        CONVERT(DW_F32, DW_F16)
        CONVERT(DW_F32, DW_BF16)
        CONVERT(DW_F16, DW_F32)
        CONVERT(DW_F16, DW_BF16) CONVERT(DW_BF16, DW_F32) CONVERT(DW_BF16, DW_F16)
#undef CONVERT
    }
    if (whole < n)
        dw_kernels_c.convert((const unsigned char *)from + whole * bytes_of(from_dtype), from_dtype,
                             (unsigned char *)to + whole * bytes_of(to_dtype), to_dtype, n - whole);
}

DW_VECTOR void subtract_blocks(const unsigned char *x, dw_dtype x_dtype, float *from, uint64_t n)
{
    for (uint64_t at = 0; at < n; at += LANES) {
        unsigned char *place = (unsigned char *)(from + at);
        i32x16 rest = f_bits(f_sub(f_load(place), load(x, x_dtype, at)));
        i32x16 magnitude = i_and(rest, i_set(0x7fffffff));
        i_store(place, i_and(rest, i_greater(i_set(DW_F32_INFINITY), magnitude)));
    }
}

static void subtract(const void *x, dw_dtype x_dtype, float *from, uint64_t n)
{
    uint64_t whole = n / LANES * LANES;
    switch (x_dtype) {
    case DW_F32: subtract_blocks(x, DW_F32, from, whole); break;
    case DW_F16: subtract_blocks(x, DW_F16, from, whole); break;
    case DW_BF16: subtract_blocks(x, DW_BF16, from, whole); break;
    }
    if (whole < n)
        dw_kernels_c.subtract((const unsigned char *)x + whole * bytes_of(x_dtype), x_dtype,
                              from + whole, n - whole);
}

#define DIGEST_KEY 0x9E3779B1u

/* A digest in progress: the sum so far, and the keys of the next 16 words. */
typedef struct tally {
    i64x8 sum;
    i32x16 keys;
} tally;

/* The first word has the number `place`. */
DW_VECTOR tally tally_from(uint32_t place)
{
    _Alignas(64) uint32_t keys[LANES];
    for (uint32_t i = 0; i < LANES; i++) keys[i] = DIGEST_KEY * (place + i + 1);
    return (tally){i_no_products(), i_load(keys)};
}

DW_VECTOR tally tally_add(tally t, i32x16 words)
{
    return (tally){i_pair_products(t.sum, i_add(words, t.keys)),
                   i_add(t.keys, i_set((int32_t)(DIGEST_KEY * LANES)))};
}

/* Digests `words` words, a multiple of LANES, of which the first has the number `place`. */
static uint64_t digest_words(const unsigned char *from, uint32_t place, uint64_t words)
{
    tally t = tally_from(place);
    for (uint64_t word = 0; word < words; word += LANES) t = tally_add(t, i_load(from + 4 * word));
    return i_sum_products(t.sum);
}

/* Elements that fill no block are added in C; the order of the sum does not matter. */
static uint64_t digest(const void *elements, dw_dtype dtype, uint64_t first, uint64_t n)
{
    uint64_t per_word = dtype == DW_F32 ? 1 : 2, words = n / per_word / LANES * LANES,
             done = words * per_word;
    uint64_t total = digest_words(elements, (uint32_t)(first / per_word), words);
    return done < n ? total + dw_kernels_c.digest((const unsigned char *)elements + 4 * words,
                                                  dtype, first + done, n - done)
                    : total;
}

static uint64_t digest_bytes(const uint8_t *payload, uint64_t from, uint64_t n)
{
    uint64_t whole = n / (4 * LANES) * (4 * LANES);
    return digest_words(payload + from, (uint32_t)(from / 4), whole / 4) +
           dw_kernels_c.digest_bytes(payload, from + whole, n - whole);
}

/* Prefetch distance for stores to memory that was not used for long. Only the first line of each
 * page is prefetched, for the sake of its address translation: without it such stores wait for the
 * translation of one page after the other; with it they run at the speed of the memory. */
enum { PAGE = 4096, PAGES_AHEAD = 2 };

DW_VECTOR void ask_page(const void *to)
{
    DW_PREFETCH((uintptr_t)to / PAGE * PAGE, PAGES_AHEAD * PAGE);
}

static void stream(void *to, const void *from, uint64_t bytes, int last)
{
    uint64_t whole = bytes / 64 * 64;
    for (uint64_t at = 0; at < whole; at += 64)
        i_stream((unsigned char *)to + at, i_load((const unsigned char *)from + at));
    if (whole < bytes)
        memcpy((unsigned char *)to + whole, (const unsigned char *)from + whole, bytes - whole);
    if (last) i_stream_end();
}

DW_VECTOR i32x16 is_counted(f32x16 value)
{
    return i_greater(i_set((int32_t)DW_NORM_LIMIT), i_and(f_bits(value), i_set(0x7fffffff)));
}

typedef struct norm_lanes {
    f64x16 x, delta, error;
} norm_lanes;

DW_VECTOR norm_lanes norms_block(norm_lanes sums, f32x16 x, f32x16 base, f32x16 back)
{
    f32x16 delta = f_sub(x, base), error = f_sub(x, back);
    i32x16 counted = i_and(i_and(is_counted(x), is_counted(delta)), is_counted(error));
    return (norm_lanes){d_add_square(sums.x, i_float(i_and(f_bits(x), counted))),
                        d_add_square(sums.delta, i_float(i_and(f_bits(delta), counted))),
                        d_add_square(sums.error, i_float(i_and(f_bits(error), counted)))};
}

static double add_lanes(double sum, f64x16 lanes)
{
    double each[LANES];
    d_store(each, lanes);
    for (int i = 0; i < LANES; i++) sum += each[i];
    return sum;
}

static f32x16 load_rest(const void *from, dw_dtype dtype, uint64_t at, uint64_t n)
{
    unsigned char padded[4 * LANES] = {0};
    memcpy(padded, (const unsigned char *)from + at * bytes_of(dtype), (n - at) * bytes_of(dtype));
    return load(padded, dtype, 0);
}

static void norms(const dw_norms_run *run, dw_norms *to)
{
    norm_lanes sums = {d_none(), d_none(), d_none()};
    f32x16 none = f_set(0);
    uint64_t at = 0;
    for (; at + LANES <= run->n; at += LANES)
        sums = norms_block(sums, load(run->x, run->x_dtype, at),
                           run->base ? load(run->base, run->base_dtype, at) : none,
                           load(run->back, run->back_dtype, at));
    if (at < run->n)
        sums = norms_block(sums, load_rest(run->x, run->x_dtype, at, run->n),
                           run->base ? load_rest(run->base, run->base_dtype, at, run->n) : none,
                           load_rest(run->back, run->back_dtype, at, run->n));
    to->x = add_lanes(to->x, sums.x);
    to->delta = add_lanes(to->delta, sums.delta);
    to->error = add_lanes(to->error, sums.error);
}

/* old + factor * value. Any NaN result becomes 0x7fc00000, which narrow_f16 and narrow_bf16 turn
 * into the NaN of the dtype. */
DW_VECTOR f32x16 sum_of(f32x16 old, f32x16 value, f32x16 factor)
{
    i32x16 bits = f_bits(f_add(old, f_mul(factor, value)));
    i32x16 nan = i_greater(i_and(bits, i_set(0x7fffffff)), i_set((int32_t)DW_F32_INFINITY));
    return i_float(i_or(i_andnot(nan, bits), i_and(nan, i_set((int32_t)DW_F32_NAN))));
}

DW_VECTOR void add_blocks(const float *from, float factor, unsigned char *to, dw_dtype dtype,
                          uint64_t n)
{
    f32x16 factors = f_set(factor);
    for (uint64_t at = 0; at < n; at += LANES)
        store_finite(to, dtype, at, sum_of(load(to, dtype, at), f_load(from + at), factors));
}

static void add(const float *from, float factor, void *to, dw_dtype to_dtype, uint64_t n)
{
    uint64_t whole = n / LANES * LANES;
    if (to_dtype == DW_F32)
        add_blocks(from, factor, to, DW_F32, whole);
    else if (to_dtype == DW_F16)
        add_blocks(from, factor, to, DW_F16, whole);
    else
        add_blocks(from, factor, to, DW_BF16, whole);
    if (whole < n)
        dw_kernels_c.add(from + whole, factor, (unsigned char *)to + whole * bytes_of(to_dtype),
                         to_dtype, n - whole);
}
