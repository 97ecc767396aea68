/* SPDX-License-Identifier: Apache-2.0
 * kernels_c.c - the innermost loops in plain C: the specification that every other table must equal. */
#include "kernels.h"
#include "layout.h"
#include "pack.h"

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

/* RN: from any finite values, or infinite ones that a sum made, to finite ones. */
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

/* Integer maxima: no order matters, and NaN > Inf > finite. */
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

static void extremes_c(const void *x, dw_dtype x_dtype, const void *prev, dw_dtype prev_dtype, uint64_t n,
                       dw_candidates *candidates)
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

/* One piece on its way through the encoder: everything in binary32, padding included. */
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

static dw_candidates candidates_of(const piece *p, const dw_encode_run *run)
{
    dw_candidates found = {{0, 0}, {0, 0}};
    if (run->row) return *run->row;
    join_extremes(p->delta, run->width, &found.delta);
    if (run->choices) join_extremes(p->x, run->width, &found.direct);
    return found;
}

static void quantize(piece *p, uint32_t width, uint32_t bits, uint16_t scale)
{
    int32_t half = 1 << (bits - 1);
    float inverse = dw_scale_inverse(scale);
    if (inverse == 0.0f)
        memset(p->codes, half, width);
    else
        for (uint32_t i = 0; i < width; i++) p->codes[i] = (uint8_t)dw_code_of(p->delta[i], inverse, half);
}

/* The new prev of a piece: by the decoder's rule, from the codes. */
static void reconstruct(const uint8_t *codes, const float *base, uint64_t n, uint32_t bits, uint16_t scale, void *to,
                        dw_dtype dtype)
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

static void store_scale(uint8_t *scales, uint32_t i, uint16_t scale)
{
    scales[2 * i] = (uint8_t)scale;
    scales[2 * i + 1] = (uint8_t)(scale >> 8);
}

static void encode_piece(const dw_encode_run *run, uint32_t i, uint64_t at, uint64_t n, piece *p)
{
    load(p, run, at, n);
    subtract(p->x, p->base, run->width, p->delta);
    dw_candidates candidates = candidates_of(p, run);
    int direct =
        run->choices && dw_extremes_largest(candidates.direct) < dw_extremes_largest(candidates.delta);
    if (direct) {
        uint64_t bit = run->first_piece + i;
        run->choices[bit / 8] = (uint8_t)(run->choices[bit / 8] | 1u << bit % 8);
        memcpy(p->delta, p->x, run->width * sizeof *p->delta);
        memset(p->base, 0, run->width * sizeof *p->base);
    }
    uint16_t scale = dw_scale_of(direct ? candidates.direct : candidates.delta, run->bits, run->is_signed);
    quantize(p, run->width, run->bits, scale);
    store_scale(run->scales, i, scale);
    dw_pack(p->codes, run->width, run->bits, run->codes, run->tile_elements, run->first + (size_t)i * run->width);
    run->counts->pieces++;
    run->counts->direct += direct != 0;
    run->counts->zero += scale == 0;
    run->counts->poisoned += dw_scale_is_poisoned(scale) != 0;
    if (!run->next) return;
    void *next = (void *)(uintptr_t)element(run->next, run->prev_dtype, at);
    if (dw_scale_is_poisoned(scale))
        keep(run->prev ? element(run->prev, run->prev_dtype, at) : NULL, n, next, run->prev_dtype);
    else
        reconstruct(p->codes, p->base, n, run->bits, scale, next, run->prev_dtype);
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
    dw_unpack(codes, run->width, run->bits, run->codes, run->tile_elements, run->first + (size_t)i * run->width);
    reconstruct(codes, base, n, run->bits, scale, out, run->out_dtype);
}

static void decode_c(const dw_decode_run *run)
{
    uint64_t left = run->channels;
    for (uint32_t i = 0; i < run->pieces; i++) {
        uint64_t n = left < run->width ? left : run->width;
        decode_piece(run, i, run->channels - left, n);
        left -= n;
    }
}

static void convert_c(const void *from, dw_dtype from_dtype, void *to, dw_dtype to_dtype, uint64_t n)
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

/* An odd constant with no pattern (2^32 over the golden ratio): a distinct key for every word. */
#define DIGEST_KEY 0x9E3779B1u

static uint32_t digest_word(const void *elements, dw_dtype dtype, uint64_t word, uint64_t n)
{
    if (dtype == DW_F32) return word < n ? ((const uint32_t *)elements)[word] : 0;
    const uint16_t *half = elements;
    uint32_t low = 2 * word < n ? half[2 * word] : 0u, high = 2 * word + 1 < n ? half[2 * word + 1] : 0u;
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
    double x_sums[DW_NORM_LANES] = {0}, delta_sums[DW_NORM_LANES] = {0}, error_sums[DW_NORM_LANES] = {0};
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

const dw_kernels dw_kernels_c = {"c", encode_c, decode_c, extremes_c, convert_c, digest_c, stream_c, norms_c};
