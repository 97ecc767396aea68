/* SPDX-License-Identifier: Apache-2.0
 * ops.h - the loops of the model that are not matrix products, written so that compilers vectorise
 * them.
 *
 * B rows (samples times tokens), C columns; T tokens, P = T rounded up to DW_LANES. Every row
 * length (C, and the lengths n below) is a multiple of DW_LANES. Sums run in DW_LANES lanes that
 * are added in one fixed order, so every instruction set gives the same bits. No function allocates
 * memory, and none can fail. `restrict` arguments do not overlap. */
#ifndef DW_TRAINER_OPS_H
#define DW_TRAINER_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DW_LANES = 8 }; /* one AVX2 register; wider ones gain less than 1.4 times here */

/* y = (x - mean) * rstd * w + b per row; mean and rstd (B) are kept for the backward pass. */
void dw_layernorm(float *restrict y, float *restrict mean, float *restrict rstd,
                  const float *restrict x, const float *restrict w, const float *restrict b,
                  size_t B, size_t C);

/* dx += the gradient of x; dw and db are added to. */
void dw_layernorm_backward(float *restrict dx, float *restrict dw, float *restrict db,
                           const float *restrict dy, const float *restrict x,
                           const float *restrict w, const float *restrict mean,
                           const float *restrict rstd, size_t B, size_t C);

/* h += b per row, y = gelu(h) (tanh form: arXiv:1606.08415). */
void dw_bias_gelu(float *restrict y, float *restrict h, const float *restrict b, size_t B,
                  size_t C);

/* d = d * gelu'(h), n elements. */
void dw_gelu_backward(float *restrict d, const float *restrict h, size_t n);

/* One head of one sample, T tokens from token `first` on: row t of a (T, P) becomes softmax(scale *
 * a[0..first + t]), with zeros after that. P is at least first + T rounded up. */
void dw_causal_softmax(float *a, float scale, size_t first, size_t T, size_t P);

/* d (T, P), the gradient of the softmax a, becomes the gradient of its input, with zeros after
 * first + t. */
void dw_causal_softmax_backward(float *restrict d, const float *restrict a, float scale,
                                size_t first, size_t T, size_t P);

/* Sum over rows of -log softmax(logits)[target]. Where backward is not 0, logits (B, V) become
 * their gradient times scale. */
double dw_cross_entropy(float *logits, const uint8_t *targets, bool backward, float scale, size_t B,
                        size_t V);

void dw_add_bias(float *restrict y, const float *restrict b, size_t B, size_t C); /* y += b */
void dw_copy_bias(float *restrict y, const float *restrict x, const float *restrict b, size_t B,
                  size_t C); /* y = x + b */
/* db += sum of rows. */
void dw_sum_rows(float *restrict db, const float *restrict d, size_t B, size_t C);

/* The sum of the squares of n floats, in double. */
double dw_sum_squares(const float *x, size_t n);

/* AdamW on n parameters (arXiv:1711.05101, Algorithm 2); clears g. */
typedef struct dw_adamw {
    float lr, beta1, beta2, epsilon, decay;
    float gradient_scale;           /* clipping */
    float correction1, correction2; /* 1 / (1 - beta^step) */
} dw_adamw;
void dw_adamw_step(float *restrict p, float *restrict g, float *restrict m, float *restrict v,
                   size_t n, const dw_adamw *how);

#endif
