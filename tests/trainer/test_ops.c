/* SPDX-License-Identifier: Apache-2.0
 * test_ops.c - the trainer's loops are correct to float precision and give the same bits with every
 * instruction set. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops.h"
#include "random.h"
#include "support/test.h"

/* The loops as ops_plain.c compiles them. */
extern __typeof__(dw_layernorm) plain_layernorm;
extern __typeof__(dw_layernorm_backward) plain_layernorm_backward;
extern __typeof__(dw_bias_gelu) plain_bias_gelu;
extern __typeof__(dw_gelu_backward) plain_gelu_backward;
extern __typeof__(dw_causal_softmax) plain_causal_softmax;
extern __typeof__(dw_causal_softmax_backward) plain_causal_softmax_backward;
extern __typeof__(dw_cross_entropy) plain_cross_entropy;
extern __typeof__(dw_add_bias) plain_add_bias;
extern __typeof__(dw_copy_bias) plain_copy_bias;
extern __typeof__(dw_sum_rows) plain_sum_rows;
extern __typeof__(dw_sum_squares) plain_sum_squares;
extern __typeof__(dw_adamw_step) plain_adamw_step;

enum { B = 37, C = 72, T = 21, P = 24, V = 256, N = B * C };

static float a[B * V], b[B * V], c[B * V], d[B * V], a2[B * V], b2[B * V], c2[B * V], d2[B * V];

static void fill(float *x, size_t n, uint32_t stream, float spread)
{
    for (size_t i = 0; i < n; i++) {
        philox4x32_ctr_t word = dw_random(7, DW_RANDOM_PARAMETERS, stream, i);
        x[i] = spread * ((float)word.v[0] / 2147483648.0f - 1.0f);
    }
}

static void fill_all(float spread)
{
    fill(a, B * V, 1, spread);
    fill(b, B * V, 2, spread);
    fill(c, B * V, 3, spread);
    fill(d, B * V, 4, spread);
    memcpy(a2, a, sizeof a);
    memcpy(b2, b, sizeof b);
    memcpy(c2, c, sizeof c);
    memcpy(d2, d, sizeof d);
}

static void assert_same_bits(void)
{
    assert_memory_equal(a, a2, sizeof a);
    assert_memory_equal(b, b2, sizeof b);
    assert_memory_equal(c, c2, sizeof c);
    assert_memory_equal(d, d2, sizeof d);
}

TEST(gives_the_same_bits_on_every_instruction_set)
{
    static const float spreads[] = {1e-20f, 0.5f, 4.0f, 60.0f, 1e6f};
    uint8_t targets[B];
    for (uint32_t i = 0; i < B; i++) targets[i] = (uint8_t)(i * 41);
    for (size_t s = 0; s < sizeof spreads / sizeof *spreads; s++) {
        fill_all(spreads[s]);
        dw_layernorm(a, d, d + B, b, c, c + C, B, C);
        plain_layernorm(a2, d2, d2 + B, b2, c2, c2 + C, B, C);
        assert_same_bits();
        dw_layernorm_backward(a, c + 2 * C, c + 3 * C, b + N, b, c, d, d + B, B, C);
        plain_layernorm_backward(a2, c2 + 2 * C, c2 + 3 * C, b2 + N, b2, c2, d2, d2 + B, B, C);
        assert_same_bits();
        fill_all(spreads[s]);
        dw_bias_gelu(a, b, c, B, C);
        plain_bias_gelu(a2, b2, c2, B, C);
        dw_gelu_backward(a, b, N);
        plain_gelu_backward(a2, b2, N);
        assert_same_bits();
        fill_all(spreads[s]);
        dw_causal_softmax(a, 0.3f, 0, T, P);
        plain_causal_softmax(a2, 0.3f, 0, T, P);
        dw_causal_softmax_backward(b, a, 0.3f, 0, T, P);
        plain_causal_softmax_backward(b2, a2, 0.3f, 0, T, P);
        assert_same_bits();
        double x = dw_cross_entropy(a, targets, true, 0.1f, B, V),
               x2 = plain_cross_entropy(a2, targets, 1, 0.1f, B, V);
        assert_memory_equal(&x, &x2, sizeof x);
        assert_same_bits();
        fill_all(spreads[s]);
        dw_add_bias(a, b, B, C), plain_add_bias(a2, b2, B, C);
        dw_copy_bias(c, a, b, B, C), plain_copy_bias(c2, a2, b2, B, C);
        dw_sum_rows(d, a, B, C), plain_sum_rows(d2, a2, B, C);
        x = dw_sum_squares(a, N), x2 = plain_sum_squares(a2, N);
        assert_memory_equal(&x, &x2, sizeof x);
        for (size_t i = 0; i < N; i++) d[i] = d2[i] = fabsf(d[i]);
        dw_adamw how = {1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.7f, 2.0f, 3.0f};
        dw_adamw_step(a, b, c, d, N, &how);
        plain_adamw_step(a2, b2, c2, d2, N, &how);
        assert_same_bits();
    }
}

static void assert_close(double is, double should, double tolerance, const char *what)
{
    if (fabs(is - should) <= tolerance * (0.05 + fabs(should))) return;
    fail_msg("%s is %.9g, not %.9g", what, is, should);
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

TEST(gelu_agrees_with_libm)
{
    fill_all(12);
    memset(c, 0, sizeof c);
    dw_bias_gelu(a, b, c, B, C);
    for (size_t i = 0; i < N; i++) assert_close((double)a[i], gelu((double)b[i]), 2e-6, "gelu");
    for (size_t i = 0; i < N; i++) d[i] = 1;
    dw_gelu_backward(d, b, N);
    for (size_t i = 0; i < N; i++) {
        double h = 1e-5, x = (double)b[i];
        assert_close((double)d[i], (gelu(x + h) - gelu(x - h)) / (2 * h), 1e-5, "gelu'");
    }
}

TEST(layernorm_agrees_with_its_definition)
{
    fill_all(3);
    dw_layernorm(a, d, d + B, b, c, c + C, B, C);
    for (size_t r = 0; r < B; r++) {
        double mean = 0, square = 0;
        for (size_t i = 0; i < C; i++) mean += (double)b[r * C + i] / C;
        for (size_t i = 0; i < C; i++) square += pow((double)b[r * C + i] - mean, 2) / C;
        for (size_t i = 0; i < C; i++) {
            double y = ((double)b[r * C + i] - mean) / sqrt(square + 1e-5) * (double)c[i] +
                       (double)c[C + i];
            assert_close((double)a[r * C + i], y, 3e-5, "the layer norm");
        }
    }
}

TEST(softmax_ignores_later_tokens)
{
    fill_all(30);
    dw_causal_softmax(a, 0.25f, 0, T, P);
    for (size_t t = 0; t < T; t++) {
        double top = -1e9, sum = 0;
        for (size_t i = 0; i <= t; i++) top = fmax(top, (double)a2[t * P + i]);
        for (size_t i = 0; i <= t; i++) sum += exp(0.25 * ((double)a2[t * P + i] - top));
        for (size_t i = 0; i <= t; i++)
            assert_close((double)a[t * P + i], exp(0.25 * ((double)a2[t * P + i] - top)) / sum,
                         3e-6, "the softmax");
        for (size_t i = t + 1; i < P; i++) assert_true(a[t * P + i] == 0);
    }
}

TEST(cross_entropy_agrees_with_libm)
{
    fill_all(20);
    uint8_t targets[B];
    double loss = 0;
    for (uint32_t r = 0; r < B; r++) {
        targets[r] = (uint8_t)(r * 7);
        double sum = 0;
        for (size_t v = 0; v < V; v++) sum += exp((double)a[r * V + v]);
        loss += log(sum) - (double)a[r * V + targets[r]];
    }
    assert_close(dw_cross_entropy(a, targets, false, 0, B, V), loss, 1e-6, "the loss");
    assert_memory_equal(a, a2, sizeof a); /* without gradients, the logits are not changed */
    assert_close(dw_cross_entropy(a, targets, true, 0.5f, B, V), loss, 1e-6, "the loss");
    for (size_t r = 0; r < B; r++) {
        double sum = 0, total = 0;
        for (size_t v = 0; v < V; v++) total += exp((double)a2[r * V + v]);
        for (size_t v = 0; v < V; v++) {
            sum += (double)a[r * V + v];
            double p = exp((double)a2[r * V + v]) / total;
            assert_close((double)a[r * V + v], 0.5 * (p - (v == targets[r])), 1e-5,
                         "the gradient of a logit");
        }
        assert_true(fabs(sum) < 1e-6);
    }
}

/* NaN and infinity must stay visible, and not become finite numbers. */
TEST(ops_keep_a_nan)
{
    fill_all(1);
    a[5] = NAN;
    const uint8_t targets[B] = {0};
    assert_true(isnan(dw_cross_entropy(a, targets, false, 0, B, V)));
    memset(c, 0, sizeof c);
    b[3] = NAN;
    dw_bias_gelu(a, b, c, B, C);
    assert_true(isnan(a[3]));
    assert_true(isnan(dw_sum_squares(b, N)));
}

RUN_TESTS(NULL, NULL)
