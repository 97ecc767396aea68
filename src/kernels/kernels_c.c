/* SPDX-License-Identifier: Apache-2.0
 * kernels_c.c - the innermost loops in plain C: the specification that all other tables must
 * match. */
#include <Random123/philox.h>

#include "arithmetic/layout.h"
#include "arithmetic/pack.h"
#include "arithmetic/rotate.h"
#include "kernels/kernels.h"

static const void *element(const void *base, dw_dtype dtype, uint64_t i)
{
    return (const unsigned char *)base + i * (dtype == DW_F32 ? 4 : 2);
}

static void widen(const void *from, dw_dtype dtype, uint64_t n, float *to)
{
    const uint16_t *half = from;
    if (dtype == DW_F32)
        memcpy(to, from, n * sizeof *to);
    else if (dtype == DW_F16)
        for (uint64_t i = 0; i < n; i++) to[i] = dw_f16_widen(half[i]);
    else
        for (uint64_t i = 0; i < n; i++) to[i] = dw_bf16_widen(half[i]);
}

/* RN of finite values, and of sums that overflowed to infinity: the result is finite. */
static void narrow(const float *from, uint64_t n, void *to, dw_dtype dtype)
{
    float *single = to;
    uint16_t *half = to;
    if (dtype == DW_F32)
        for (uint64_t i = 0; i < n; i++) single[i] = dw_f32_finite(from[i]);
    else if (dtype == DW_F16)
        for (uint64_t i = 0; i < n; i++) half[i] = dw_f16_finite(from[i]);
    else
        for (uint64_t i = 0; i < n; i++) half[i] = dw_bf16_finite(from[i]);
}

static void fill_nan(void *to, dw_dtype dtype, uint64_t n)
{
    uint32_t *single = to;
    uint16_t *half = to;
    if (dtype == DW_F32)
        for (uint64_t i = 0; i < n; i++) single[i] = DW_F32_NAN;
    else
        for (uint64_t i = 0; i < n; i++) half[i] = dtype == DW_F16 ? DW_F16_NAN : DW_BF16_NAN;
}

/* Maxima of integers: the order of the values does not matter, and NaN > Inf > finite. */
static void join_extremes(const float *values, uint64_t n, dw_extremes *extremes)
{
    int32_t positive = (int32_t)extremes->positive, negative = (int32_t)extremes->negative;
    for (uint64_t i = 0; i < n; i++) {
        int32_t bits = (int32_t)dw_bits_of(values[i]);
        int32_t magnitude = bits & 0x7fffffff;
        int32_t above = bits < 0 ? 0 : magnitude, below = bits < 0 ? magnitude : 0;
        positive = above > positive ? above : positive;
        negative = below > negative ? below : negative;
    }
    extremes->positive = (uint32_t)positive;
    extremes->negative = (uint32_t)negative;
}

static void subtract(const float *x, const float *base, uint64_t n, float *delta)
{
    for (uint64_t i = 0; i < n; i++) delta[i] = x[i] - base[i];
}

static void extremes_c(const void *x, dw_dtype x_dtype, const void *prev, dw_dtype prev_dtype,
                       uint64_t n, dw_candidates *candidates)
{
    float wide[256], base[256];
    for (uint64_t at = 0; at < n; at += 256) {
        uint64_t now = n - at < 256 ? n - at : 256;
        widen(element(x, x_dtype, at), x_dtype, now, wide);
        join_extremes(wide, now, &candidates->direct);
        if (prev) {
            widen(element(prev, prev_dtype, at), prev_dtype, now, base);
            subtract(wide, base, now, wide);
        }
        join_extremes(wide, now, &candidates->delta);
    }
}

/* A piece while it is encoded: all in binary32, padding included. */
typedef struct piece {
    float x[DW_TILE_ELEMENTS], base[DW_TILE_ELEMENTS], delta[DW_TILE_ELEMENTS];
    uint8_t codes[DW_TILE_ELEMENTS];
} piece;

static void load(piece *p, const dw_encode_run *run, uint64_t at, uint64_t n)
{
    widen(element(run->x, run->x_dtype, at), run->x_dtype, n, p->x);
    memset(p->x + n, 0, (run->width - n) * sizeof *p->x);
    if (run->prev) {
        widen(element(run->prev, run->prev_dtype, at), run->prev_dtype, n, p->base);
        memset(p->base + n, 0, (run->width - n) * sizeof *p->base);
    } else {
        memset(p->base, 0, run->width * sizeof *p->base);
    }
}

/* The random numbers of elements [first, first + n) of a sample, then padding up to width. */
static void fill_dither(const dw_dither *dither, uint64_t first, uint64_t n, uint32_t width,
                        uint16_t *parts)
{
    philox4x32_key_t key = {{(uint32_t)dither->key, (uint32_t)(dither->key >> 32)}};
    philox4x32_ctr_t words = {{0}};
    for (uint64_t i = 0; i < n; i++) {
        uint64_t element = first + i, counter = element / 8;
        if (i == 0 || element % 8 == 0) {
            philox4x32_ctr_t count = {{(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0}};
            words = philox4x32_R(10, count, key);
        }
        parts[i] = (uint16_t)(words.v[element % 8 / 2] >> (16 * (element % 2)));
    }
    for (uint64_t i = n; i < width; i++) parts[i] = DW_DITHER_NONE;
}

static void add_squares(const float *delta, uint64_t n, uint32_t bits, const dw_attempts *attempts,
                        float sums[DW_ATTEMPTS][DW_NORM_LANES])
{
    float half = (float)(1u << (bits - 1));
    for (uint32_t k = 0; k < DW_ATTEMPTS; k++)
        for (uint64_t i = 0; i < n; i++)
            sums[k][i % DW_NORM_LANES] +=
                dw_attempt_square(delta[i], attempts->inverse[k], -half, half - 1);
}

static void squares_c(const void *x, dw_dtype x_dtype, const void *prev, dw_dtype prev_dtype,
                      uint64_t n, uint32_t bits, const dw_attempts *attempts,
                      float sums[DW_ATTEMPTS][DW_NORM_LANES])
{
    float wide[256], base[256];
    for (uint64_t at = 0; at < n; at += 256) { /* a multiple of DW_NORM_LANES */
        uint64_t now = n - at < 256 ? n - at : 256;
        widen(element(x, x_dtype, at), x_dtype, now, wide);
        if (prev) {
            widen(element(prev, prev_dtype, at), prev_dtype, now, base);
            subtract(wide, base, now, wide);
        }
        add_squares(wide, now, bits, attempts, sums);
    }
}

static uint16_t best_scale(const piece *p, const dw_encode_run *run, dw_extremes extremes)
{
    uint16_t scale = dw_scale_of(extremes, run->bits, run->scale != DW_SCALE_ABSMAX);
    float sums[DW_ATTEMPTS][DW_NORM_LANES] = {{0}}, totals[DW_ATTEMPTS];
    if (run->scale != DW_SCALE_MSE || dw_scale_is_flat(scale)) return scale;
    dw_attempts attempts = dw_attempts_of(extremes, run->bits);
    add_squares(p->delta, run->width, run->bits, &attempts, sums);
    for (uint32_t k = 0; k < DW_ATTEMPTS; k++) totals[k] = dw_lanes_sum(sums[k]);
    return dw_attempts_best(&attempts, totals);
}

/* Decides scale and choice. Where the choice is direct, delta becomes x and base becomes 0. */
static dw_chosen choose(piece *p, const dw_encode_run *run)
{
    dw_extremes delta = {0, 0}, direct = {0, 0};
    dw_chosen chosen = {0, 0};
    if (run->row) {
        chosen = *run->row;
    } else {
        join_extremes(p->delta, run->width, &delta);
        if (run->choices) join_extremes(p->x, run->width, &direct);
        chosen.direct = run->choices && dw_is_direct_better(direct, delta);
    }
    if (chosen.direct) {
        memcpy(p->delta, p->x, run->width * sizeof *p->delta);
        memset(p->base, 0, run->width * sizeof *p->base);
    }
    if (!run->row) chosen.scale = best_scale(p, run, chosen.direct ? direct : delta);
    return chosen;
}

static void quantize(piece *p, const dw_encode_run *run, uint64_t at, uint64_t n, uint16_t scale)
{
    int32_t half = 1 << (run->bits - 1);
    float inverse = dw_scale_inverse(scale);
    uint16_t parts[DW_TILE_ELEMENTS];
    if (inverse == 0.0f) {
        memset(p->codes, half, run->width);
    } else if (run->dither) {
        fill_dither(run->dither, run->dither->element + at, n, run->width, parts);
        for (uint32_t i = 0; i < run->width; i++)
            p->codes[i] = (uint8_t)dw_code_of(p->delta[i], inverse, half, dw_dither_of(parts[i]));
    } else {
        for (uint32_t i = 0; i < run->width; i++)
            p->codes[i] = (uint8_t)dw_code_of(p->delta[i], inverse, half, 0.0f);
    }
}

/* Computes the new prev of a piece from its codes, as a decoder does. */
static void reconstruct(const uint8_t *codes, const float *base, uint64_t n, uint32_t bits,
                        uint16_t scale, void *to, dw_dtype dtype)
{
    float out[DW_TILE_ELEMENTS];
    int32_t half = 1 << (bits - 1);
    float wide_scale = dw_bf16_widen(scale);
    for (uint64_t i = 0; i < n; i++) out[i] = dw_reconstruct(base[i], codes[i], half, wide_scale);
    narrow(out, n, to, dtype);
}

static void keep(const void *prev, uint64_t n, void *to, dw_dtype dtype)
{
    size_t bytes = n * dw_dtype_bytes(dtype);
    if (prev)
        memcpy(to, prev, bytes);
    else
        memset(to, 0, bytes);
}

/* Takes x away from what is in `from`, as the kernel subtract does for error feedback. */
static void take_away(const float *x, uint64_t n, float *from)
{
    for (uint64_t i = 0; i < n; i++) from[i] = dw_residual_of(from[i], x[i]);
}

static void store_scale(uint8_t *scales, uint32_t i, uint16_t scale)
{
    scales[2 * i] = (uint8_t)scale;
    scales[2 * i + 1] = (uint8_t)(scale >> 8);
}

static void encode_piece(const dw_encode_run *run, uint32_t i, uint64_t at, uint64_t n, piece *p)
{
    load(p, run, at, n);
    subtract(p->x, p->base, run->width, p->delta);
    dw_chosen chosen = choose(p, run);
    uint16_t scale = chosen.scale;
    if (chosen.direct) {
        uint64_t bit = run->first_piece + i;
        run->choices[bit / 8] = (uint8_t)(run->choices[bit / 8] | 1u << bit % 8);
    }
    quantize(p, run, at, n, scale);
    store_scale(run->scales, i, scale);
    dw_pack(p->codes, run->width, run->bits, run->codes, run->tile_elements,
            run->first + (size_t)i * run->width);
    run->counts->pieces++;
    run->counts->direct += chosen.direct != 0;
    run->counts->zero += scale == 0;
    run->counts->poisoned += dw_scale_is_poisoned(scale) != 0;
    if (!run->next) return;
    void *next = (void *)(uintptr_t)element(run->next, run->prev_dtype, at);
    if (dw_scale_is_poisoned(scale))
        keep(run->prev ? element(run->prev, run->prev_dtype, at) : NULL, n, next, run->prev_dtype);
    else
        reconstruct(p->codes, p->base, n, run->bits, scale, next, run->prev_dtype);
    if (run->rests && !dw_scale_is_poisoned(scale)) take_away(p->x, n, next);
}

static void encode_c(const dw_encode_run *run)
{
    piece p;
    uint64_t left = run->channels;
    for (uint32_t i = 0; i < run->pieces; i++) {
        uint64_t n = left < run->width ? left : run->width;
        encode_piece(run, i, run->channels - left, n, &p);
        left -= n;
    }
}

/* An odd constant without a pattern (2^32 divided by the golden ratio), so that every word gets a
 * different key. */
#define DIGEST_KEY 0x9E3779B1u

static uint32_t digest_word(const void *elements, dw_dtype dtype, uint64_t word, uint64_t n)
{
    if (dtype == DW_F32) return word < n ? ((const uint32_t *)elements)[word] : 0;
    const uint16_t *half = elements;
    uint32_t low = 2 * word < n ? half[2 * word] : 0u,
             high = 2 * word + 1 < n ? half[2 * word + 1] : 0u;
    return low | high << 16;
}

static uint64_t digest_c(const void *elements, dw_dtype dtype, uint64_t first, uint64_t n)
{
    uint64_t sum = 0, per_word = dtype == DW_F32 ? 1 : 2;
    uint32_t before = (uint32_t)(first / per_word);
    for (uint64_t word = 0; word * per_word < n; word += 2) {
        uint32_t place = before + (uint32_t)word;
        uint32_t low = digest_word(elements, dtype, word, n) + DIGEST_KEY * (place + 1);
        uint32_t high = digest_word(elements, dtype, word + 1, n) + DIGEST_KEY * (place + 2);
        sum += (uint64_t)low * high;
    }
    return sum;
}

/* IEEE conversion: infinities are kept, and NaN becomes one pattern per dtype. */
static void store_sum(float sum, void *to, dw_dtype dtype, uint64_t i)
{
    uint32_t bits = dw_bits_of(sum);
    float one = dw_float_of((bits & 0x7fffffffu) > DW_F32_INFINITY ? DW_F32_NAN : bits);
    if (dtype == DW_F32)
        ((float *)to)[i] = one;
    else
        ((uint16_t *)to)[i] = dtype == DW_F16 ? dw_f16_round(one) : dw_bf16_round(one);
}

static void add_c(const float *from, float factor, void *to, dw_dtype to_dtype, uint64_t n)
{
    float wide[256];
    for (uint64_t at = 0; at < n; at += 256) {
        uint64_t now = n - at < 256 ? n - at : 256;
        widen(element(to, to_dtype, at), to_dtype, now, wide);
        for (uint64_t i = 0; i < now; i++) {
            float product = factor * from[at + i];
            store_sum(wide[i] + product, to, to_dtype, at + i);
        }
    }
}

static void decode_piece(const dw_decode_run *run, uint32_t i, uint64_t at, uint64_t n)
{
    uint8_t codes[DW_TILE_ELEMENTS];
    float base[DW_TILE_ELEMENTS];
    uint64_t bit = run->first_piece + i;
    int direct = run->choices && (run->choices[bit / 8] >> bit % 8 & 1);
    uint16_t scale = (uint16_t)(run->scales[2 * i] | run->scales[2 * i + 1] << 8);
    void *out = (void *)(uintptr_t)element(run->out, run->out_dtype, at);
    const void *prev = run->prev ? element(run->prev, run->prev_dtype, at) : NULL;
    if (dw_scale_is_poisoned(scale)) {
        if (run->poison_keeps)
            keep(prev, n, out, run->out_dtype);
        else
            fill_nan(out, run->out_dtype, n);
        return;
    }
    if (prev && !direct)
        widen(prev, run->prev_dtype, n, base);
    else
        memset(base, 0, n * sizeof *base);
    dw_unpack(codes, run->width, run->bits, run->codes, run->tile_elements,
              run->first + (size_t)i * run->width);
    reconstruct(codes, base, n, run->bits, scale, out, run->out_dtype);
}

static void decode_and_add_piece(const dw_decode_run *run, uint32_t i, uint64_t at, uint64_t n)
{
    float values[DW_TILE_ELEMENTS];
    dw_decode_run plain = *run;
    plain.out_dtype = DW_F32;
    plain.out = values;
    decode_piece(&plain, i, 0, n);
    add_c(values, run->factor, (void *)(uintptr_t)element(run->out, run->out_dtype, at),
          run->out_dtype, n);
}

static void decode_c(const dw_decode_run *run)
{
    uint64_t left = run->channels;
    for (uint32_t i = 0; i < run->pieces; i++) {
        uint64_t n = left < run->width ? left : run->width;
        if (run->adds)
            decode_and_add_piece(run, i, run->channels - left, n);
        else
            decode_piece(run, i, run->channels - left, n);
        left -= n;
    }
    if (run->sum) *run->sum += digest_c(run->out, run->out_dtype, run->element, run->channels);
}

/* Loads one row of a strip: x, and prev as the base. */
static void load_columns(const dw_column_run *run, float *x, float *base)
{
    uint32_t n = run->columns->n;
    widen(run->x, run->x_dtype, n, x);
    memset(base, 0, n * sizeof *base);
    if (run->prev) widen(run->prev, run->prev_dtype, n, base);
}

static void column_extremes_c(const dw_column_run *run, dw_column_extremes *to)
{
    float x[DW_COLUMNS], base[DW_COLUMNS];
    load_columns(run, x, base);
    for (uint32_t i = 0; i < run->columns->n; i++) {
        dw_extremes delta = {to->delta_positive[i], to->delta_negative[i]};
        dw_extremes direct = {to->direct_positive[i], to->direct_negative[i]};
        float difference = run->prev ? x[i] - base[i] : x[i];
        join_extremes(&difference, 1, &delta);
        join_extremes(&x[i], 1, &direct);
        to->delta_positive[i] = delta.positive, to->delta_negative[i] = delta.negative;
        to->direct_positive[i] = direct.positive, to->direct_negative[i] = direct.negative;
    }
}

/* The base of a column, or 0 where the column is direct. */
static float masked(float base, uint32_t mask)
{
    return dw_float_of(dw_bits_of(base) & mask);
}

static void column_squares_c(const dw_column_run *run, dw_column_squares *to)
{
    float x[DW_COLUMNS], base[DW_COLUMNS], half = (float)(1u << (run->bits - 1));
    load_columns(run, x, base);
    for (uint32_t i = 0; i < run->columns->n; i++) {
        float delta = x[i] - masked(base[i], run->columns->base_mask[i]);
        for (uint32_t k = 0; k < DW_ATTEMPTS; k++)
            to->sum[k][i] += dw_attempt_square(delta, to->inverse[k][i], -half, half - 1);
    }
}

/* Writes the new values of a row. A poisoned column keeps prev or 0, or becomes NaN. */
static void put_columns(const dw_column_run *run, const uint8_t *codes, const float *base,
                        dw_dtype dtype)
{
    const dw_columns *columns = run->columns;
    int32_t half = 1 << (run->bits - 1);
    float out[DW_COLUMNS] = {0};
    for (uint32_t i = 0; i < columns->n; i++) {
        out[i] = dw_reconstruct(masked(base[i], columns->base_mask[i]), codes[i], half,
                                columns->scale[i]);
        if (columns->keep_mask[i]) out[i] = base[i];
    }
    narrow(out, columns->n, run->out, dtype);
    for (uint32_t i = 0; i < columns->n; i++)
        if (columns->keep_mask[i] && !run->poison_keeps)
            fill_nan((void *)(uintptr_t)element(run->out, dtype, i), dtype, 1);
}

static void encode_columns_c(const dw_column_run *run)
{
    const dw_columns *columns = run->columns;
    float x[DW_COLUMNS], base[DW_COLUMNS];
    uint8_t codes[DW_COLUMNS];
    uint16_t parts[DW_COLUMNS];
    int32_t half = 1 << (run->bits - 1);
    load_columns(run, x, base);
    if (run->dither) fill_dither(run->dither, run->dither->element, columns->n, columns->n, parts);
    memset(codes, half, columns->stored);
    for (uint32_t i = 0; i < columns->n; i++) {
        float delta = x[i] - masked(base[i], columns->base_mask[i]);
        float dither = run->dither ? dw_dither_of(parts[i]) : 0.0f;
        if (columns->inverse[i] != 0.0f)
            codes[i] = (uint8_t)dw_code_of(delta, columns->inverse[i], half, dither);
    }
    dw_pack(codes, columns->stored, run->bits, run->codes, run->tile_elements, run->first);
    if (run->out) put_columns(run, codes, base, run->prev_dtype);
}

static void decode_columns_c(const dw_column_run *run)
{
    float base[DW_COLUMNS] = {0};
    uint8_t codes[DW_COLUMNS];
    if (run->prev) widen(run->prev, run->prev_dtype, run->columns->n, base);
    dw_unpack(codes, run->columns->stored, run->bits, run->codes, run->tile_elements, run->first);
    put_columns(run, codes, base, run->x_dtype);
}

static void convert_c(const void *from, dw_dtype from_dtype, void *to, dw_dtype to_dtype,
                      uint64_t n)
{
    float wide[256];
    if (from_dtype == to_dtype) {
        memcpy(to, from, n * dw_dtype_bytes(to_dtype));
        return;
    }
    for (uint64_t at = 0; at < n; at += 256) {
        uint64_t now = n - at < 256 ? n - at : 256;
        widen(element(from, from_dtype, at), from_dtype, now, wide);
        narrow(wide, now, (void *)(uintptr_t)element(to, to_dtype, at), to_dtype);
    }
}

static uint64_t digest_bytes_c(const uint8_t *payload, uint64_t from, uint64_t n)
{
    uint64_t sum = 0;
    for (uint64_t at = from; at < from + n; at += 8) {
        const uint8_t *b = payload + at;
        uint32_t low = b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
        uint32_t high = b[4] | (uint32_t)b[5] << 8 | (uint32_t)b[6] << 16 | (uint32_t)b[7] << 24;
        uint32_t place = (uint32_t)(at / 4);
        sum += (uint64_t)(low + DIGEST_KEY * (place + 1)) *
               (uint32_t)(high + DIGEST_KEY * (place + 2));
    }
    return sum;
}

static void stream_c(void *to, const void *from, uint64_t bytes, int last)
{
    (void)last;
    memcpy(to, from, bytes);
}

static int is_counted(float value)
{
    return (dw_bits_of(value) & 0x7fffffffu) < DW_NORM_LIMIT;
}

static void norms_c(const dw_norms_run *run, dw_norms *norms)
{
    double x_sums[DW_NORM_LANES] = {0}, delta_sums[DW_NORM_LANES] = {0},
           error_sums[DW_NORM_LANES] = {0};
    float x[256], base[256] = {0}, back[256];
    for (uint64_t at = 0; at < run->n; at += 256) {
        uint64_t now = run->n - at < 256 ? run->n - at : 256;
        widen(element(run->x, run->x_dtype, at), run->x_dtype, now, x);
        if (run->base) widen(element(run->base, run->base_dtype, at), run->base_dtype, now, base);
        widen(element(run->back, run->back_dtype, at), run->back_dtype, now, back);
        for (uint64_t i = 0; i < now; i++) {
            float delta = x[i] - base[i], error = x[i] - back[i];
            if (!is_counted(x[i]) || !is_counted(delta) || !is_counted(error)) continue;
            x_sums[i % DW_NORM_LANES] += (double)x[i] * x[i];
            delta_sums[i % DW_NORM_LANES] += (double)delta * delta;
            error_sums[i % DW_NORM_LANES] += (double)error * error;
        }
    }
    for (int i = 0; i < DW_NORM_LANES; i++) {
        norms->x += x_sums[i];
        norms->delta += delta_sums[i];
        norms->error += error_sums[i];
    }
}

static void subtract_c(const void *x, dw_dtype x_dtype, float *from, uint64_t n)
{
    float wide[256];
    for (uint64_t at = 0; at < n; at += 256) {
        uint64_t now = n - at < 256 ? n - at : 256;
        widen(element(x, x_dtype, at), x_dtype, now, wide);
        take_away(wide, now, from + at);
    }
}

#include "kernels/kernels_collect_c.h"
#include "kernels/kernels_compact_c.h"
#include "kernels/kernels_mx_c.h"
#include "kernels/kernels_rans_c.h"
#include "kernels/kernels_step_c.h"
#include "kernels/kernels_trellis_c.h"

#include "kernels/kernels_rotate_c.h"
#include "kernels/kernels_weigh_c.h"

const dw_kernels dw_kernels_c = {"c",
                                 encode_c,
                                 decode_c,
                                 extremes_c,
                                 squares_c,
                                 column_extremes_c,
                                 column_squares_c,
                                 encode_columns_c,
                                 decode_columns_c,
                                 convert_c,
                                 digest_c,
                                 digest_bytes_c,
                                 stream_c,
                                 norms_c,
                                 add_c,
                                 subtract_c,
                                 mx_encode_c,
                                 mx_decode_c,
                                 step_squares_c,
                                 step_encode_c,
                                 step_decode_c,
                                 dither_bytes_c,
                                 count_parts_c,
                                 sort_parts_c,
                                 restore_parts_c,
                                 histogram_c,
                                 rans_encode_c,
                                 rans_decode_c,
                                 rans_decode_trellis_c,
                                 trellis_encode_c,
                                 trellis_marks_c,
                                 rotate_c,
                                 unrotate_c,
                                 weigh_c,
                                 unweigh_c,
                                 collect_c,
                                 compact_c,
                                 expand_c};
