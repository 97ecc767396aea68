/* SPDX-License-Identifier: Apache-2.0
 * ops.c - how the loops become vector instructions. */
#include "ops.h"

#include <math.h>
#include <string.h>

/* One function per instruction set, chosen when the program starts. Contraction is off
 * (meson.build), so the choice changes the time and not one bit of the result. DW_CLONES is empty
 * where the compiler or a sanitizer does not support it. */
#ifdef DW_HAVE_TARGET_CLONES
#define CLONES __attribute__((target_clones("avx2", "default")))
#else
#define CLONES
#endif
#define INLINE static inline __attribute__((always_inline))

typedef float lanes __attribute__((vector_size(4 * DW_LANES)));
typedef uint32_t lane_bits __attribute__((vector_size(4 * DW_LANES)));
typedef float lanes_anywhere __attribute__((vector_size(4 * DW_LANES), aligned(4), may_alias));
typedef float half_lanes_anywhere __attribute__((vector_size(16), aligned(4), may_alias));
typedef double double_lanes __attribute__((vector_size(32)));

INLINE lanes load(const float *p)
{
    return *(const lanes_anywhere *)p;
}

INLINE void store(float *p, lanes x)
{
    *(lanes_anywhere *)p = x;
}

INLINE lanes all(float x)
{
    return x - (lanes){0};
}

/* The larger of two, lane by lane; b where a is NaN. */
INLINE lanes larger(lanes a, lanes b)
{
    lane_bits a_wins = (lane_bits)(a > b);
    return (lanes)(((lane_bits)a & a_wins) | ((lane_bits)b & ~a_wins));
}

INLINE float sum_lanes(lanes x)
{
    float a[DW_LANES];
    memcpy(a, &x, sizeof a);
    for (int w = DW_LANES / 2; w; w /= 2)
        for (int i = 0; i < w; i++) a[i] += a[i + w];
    return a[0];
}

INLINE float max_lanes(lanes x)
{
    float a[DW_LANES];
    memcpy(a, &x, sizeof a);
    for (int w = DW_LANES / 2; w; w /= 2)
        for (int i = 0; i < w; i++) a[i] = a[i + w] > a[i] ? a[i + w] : a[i];
    return a[0];
}

/* e^x = 2^n e^r, n = rint(x / ln 2), |r| <= ln 2 / 2 = 0.347. Taylor's series to r^6 leaves
 * 0.347^7 / 7! = 1.2e-7, one unit in the last place. Adding 1.5 * 2^23 rounds to an integer and
 * leaves n in the low bits, from where a shift by 23 brings it into the exponent. ln 2 in two
 * parts: the first has 9 bits (0.693359375 = 355/512), so n times it is exact. Below -87 the result
 * is e^-87 (1.6e-38), not 0; above 88 it is e^88. A NaN stays one: `larger` gives its second
 * argument, and x is second in both calls. */
INLINE lanes exp_lanes(lanes x)
{
    float round = 12582912.0f;
    x = larger(all(-87.0f), x);
    x = -larger(all(-88.0f), -x);
    lanes shifted = x * 1.44269504f + round;
    lanes n = shifted - round;
    lanes r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    lanes e = all(1.0f / 720.0f);
    e = e * r + 1.0f / 120.0f;
    e = e * r + 1.0f / 24.0f;
    e = e * r + 1.0f / 6.0f;
    e = e * r + 0.5f;
    e = e * r + 1.0f;
    e = e * r + 1.0f;
    return (lanes)((lane_bits)e + ((lane_bits)shifted << 23));
}

CLONES void dw_layernorm(float *restrict y, float *restrict mean, float *restrict rstd,
                         const float *restrict x, const float *restrict w, const float *restrict b,
                         size_t B, size_t C)
{
    for (size_t r = 0; r < B; r++, x += C, y += C) {
        lanes sum = all(0), square = all(0);
        for (size_t c = 0; c < C; c += DW_LANES) sum += load(x + c);
        float m = sum_lanes(sum) / (float)C;
        for (size_t c = 0; c < C; c += DW_LANES) {
            lanes d = load(x + c) - m;
            square += d * d;
        }
        float s = 1.0f / sqrtf(sum_lanes(square) / (float)C + 1e-5f);
        for (size_t c = 0; c < C; c += DW_LANES)
            store(y + c, (load(x + c) - m) * s * load(w + c) + load(b + c));
        mean[r] = m;
        rstd[r] = s;
    }
}

CLONES void dw_layernorm_backward(float *restrict dx, float *restrict dw, float *restrict db,
                                  const float *restrict dy, const float *restrict x,
                                  const float *restrict w, const float *restrict mean,
                                  const float *restrict rstd, size_t B, size_t C)
{
    for (size_t r = 0; r < B; r++, x += C, dx += C, dy += C) {
        float m = mean[r], s = rstd[r];
        lanes sum = all(0), sum_with_x = all(0);
        for (size_t c = 0; c < C; c += DW_LANES) {
            lanes d = load(dy + c), hat = (load(x + c) - m) * s, g = d * load(w + c);
            sum += g;
            sum_with_x += g * hat;
            store(dw + c, load(dw + c) + d * hat);
            store(db + c, load(db + c) + d);
        }
        float g_mean = sum_lanes(sum) / (float)C, g_with_x = sum_lanes(sum_with_x) / (float)C;
        for (size_t c = 0; c < C; c += DW_LANES) {
            lanes hat = (load(x + c) - m) * s, g = load(dy + c) * load(w + c);
            store(dx + c, load(dx + c) + (g - g_mean - hat * g_with_x) * s);
        }
    }
}

/* 0.5 h (1 + tanh u) = h / (1 + e^-2u), u = sqrt(2/pi) (h + 0.044715 h^3): one exponential, no
 * tanh. */
#define GELU_2U    1.5957691216f /* 2 sqrt(2/pi) */
#define GELU_CUBIC 0.044715f

CLONES void dw_bias_gelu(float *restrict y, float *restrict h, const float *restrict b, size_t B,
                         size_t C)
{
    for (size_t r = 0; r < B; r++, y += C, h += C)
        for (size_t c = 0; c < C; c += DW_LANES) {
            lanes x = load(h + c) + load(b + c);
            lanes minus_2u = x * (-GELU_2U - GELU_2U * GELU_CUBIC * (x * x));
            store(h + c, x);
            store(y + c, x / (1.0f + exp_lanes(minus_2u)));
        }
}

CLONES void dw_gelu_backward(float *restrict d, const float *restrict h, size_t n)
{
    for (size_t i = 0; i < n; i += DW_LANES) {
        lanes x = load(h + i), xx = x * x;
        lanes s = 1.0f / (1.0f + exp_lanes(x * (-GELU_2U - GELU_2U * GELU_CUBIC * xx)));
        /* x times the derivative of 2u. */
        lanes slope = x * (GELU_2U + 3.0f * GELU_2U * GELU_CUBIC * xx);
        store(d + i, load(d + i) * (s + s * (1.0f - s) * slope));
    }
}

CLONES void dw_causal_softmax(float *a, float scale, size_t first, size_t T, size_t P)
{
    for (size_t t = first; t < first + T; t++, a += P) {
        size_t n = (t + DW_LANES) / DW_LANES * DW_LANES; /* t + 1, rounded up */
        for (size_t i = t + 1; i < n; i++) a[i] = a[t];  /* does not change the maximum */
        lanes top = load(a), sum = all(0);
        for (size_t i = DW_LANES; i < n; i += DW_LANES) top = larger(top, load(a + i));
        float largest = max_lanes(top);
        for (size_t i = 0; i < n; i += DW_LANES)
            store(a + i, exp_lanes((load(a + i) - largest) * scale));
        memset(a + t + 1, 0, (P - t - 1) * sizeof *a);
        for (size_t i = 0; i < n; i += DW_LANES) sum += load(a + i);
        float inverse = 1.0f / sum_lanes(sum);
        for (size_t i = 0; i < n; i += DW_LANES) store(a + i, load(a + i) * inverse);
    }
}

CLONES void dw_causal_softmax_backward(float *restrict d, const float *restrict a, float scale,
                                       size_t first, size_t T, size_t P)
{
    for (size_t t = first; t < first + T; t++, a += P, d += P) {
        size_t n = (t + DW_LANES) / DW_LANES * DW_LANES;
        memset(d + t + 1, 0, (P - t - 1) * sizeof *d);
        lanes dot = all(0);
        for (size_t i = 0; i < n; i += DW_LANES) dot += load(a + i) * load(d + i);
        float mean = sum_lanes(dot);
        for (size_t i = 0; i < n; i += DW_LANES)
            store(d + i, load(a + i) * (load(d + i) - mean) * scale);
    }
}

CLONES double dw_cross_entropy(float *logits, const uint8_t *targets, bool backward, float scale,
                               size_t B, size_t V)
{
    double loss = 0;
    for (size_t r = 0; r < B; r++, logits += V) {
        lanes top = load(logits), sum = all(0);
        for (size_t v = DW_LANES; v < V; v += DW_LANES) top = larger(top, load(logits + v));
        float largest = max_lanes(top), target = logits[targets[r]];
        for (size_t v = 0; v < V; v += DW_LANES) {
            lanes e = exp_lanes(load(logits + v) - largest);
            if (backward) store(logits + v, e);
            sum += e;
        }
        float total = sum_lanes(sum);
        loss += log((double)total) - (double)(target - largest);
        if (!backward) continue;
        float factor = scale / total;
        for (size_t v = 0; v < V; v += DW_LANES) store(logits + v, load(logits + v) * factor);
        logits[targets[r]] -= scale;
    }
    return loss;
}

CLONES void dw_add_bias(float *restrict y, const float *restrict b, size_t B, size_t C)
{
    for (size_t r = 0; r < B; r++, y += C)
        for (size_t c = 0; c < C; c += DW_LANES) store(y + c, load(y + c) + load(b + c));
}

CLONES void dw_copy_bias(float *restrict y, const float *restrict x, const float *restrict b,
                         size_t B, size_t C)
{
    for (size_t r = 0; r < B; r++, y += C, x += C)
        for (size_t c = 0; c < C; c += DW_LANES) store(y + c, load(x + c) + load(b + c));
}

CLONES void dw_sum_rows(float *restrict db, const float *restrict d, size_t B, size_t C)
{
    for (size_t c = 0; c < C; c += DW_LANES) {
        lanes sum = all(0);
        for (size_t r = 0; r < B; r++) sum += load(d + r * C + c);
        store(db + c, load(db + c) + sum);
    }
}

CLONES double dw_sum_squares(const float *x, size_t n)
{
    enum { WIDE = 4 };
    double_lanes sum = {0};
    for (size_t i = 0; i < n; i += WIDE) {
        double_lanes d =
            __builtin_convertvector(*(const half_lanes_anywhere *)(x + i), double_lanes);
        sum += d * d;
    }
    double a[WIDE];
    memcpy(a, &sum, sizeof a);
    for (int w = WIDE / 2; w; w /= 2)
        for (int i = 0; i < w; i++) a[i] += a[i + w];
    return a[0];
}

/* A plain loop: it contains no sum, so compilers vectorise it as it is (-fno-math-errno lets them
 * see that sqrtf is one instruction). */
CLONES void dw_adamw_step(float *restrict p, float *restrict g, float *restrict m,
                          float *restrict v, size_t n, const dw_adamw *how)
{
    float lr = how->lr, beta1 = how->beta1, beta2 = how->beta2, epsilon = how->epsilon;
    float keep = 1.0f - lr * how->decay, scale = how->gradient_scale;
    float correction1 = how->correction1, correction2 = how->correction2;
    for (size_t i = 0; i < n; i++) {
        float gradient = g[i] * scale;
        float mean = beta1 * m[i] + (1.0f - beta1) * gradient;
        float square = beta2 * v[i] + (1.0f - beta2) * (gradient * gradient);
        p[i] = p[i] * keep - lr * (mean * correction1) / (sqrtf(square * correction2) + epsilon);
        m[i] = mean;
        v[i] = square;
        g[i] = 0;
    }
}
