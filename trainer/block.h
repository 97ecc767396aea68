/* SPDX-License-Identifier: Apache-2.0
 * block.h - one transformer block: x + attention(norm(x)), then x + mlp(norm(x)); forward and
 * backward.
 *
 * N samples of T tokens make B = N T rows of C channels, H heads; P is T rounded up to DW_LANES. */
#ifndef DW_TRAINER_BLOCK_H
#define DW_TRAINER_BLOCK_H

#include "parameters.h"

/* What the forward pass of one micro-batch keeps for its backward pass.
 *
 * | name                | shape        | meaning                             | owner       |
 * | x                   | (B, C)       | what came in                        | part before |
 * | norm1, mean1, rstd1 | (B, C), (B)  | first layer norm                    | memory      |
 * | qkv                 | (B, 3C)      | queries, keys, values               | memory      |
 * | weights             | (N, H, T, P) | of attention, after the softmax     | memory      |
 * | heads               | (B, C)       | what the heads found, side by side  | memory      |
 * | middle              | (B, C)       | the residual stream after attention | memory      |
 * | norm2, mean2, rstd2 | (B, C), (B)  | second layer norm                   | memory      |
 * | wide, bent          | (B, 4C)      | before and behind the GELU          | memory      |
 * | y                   | (B, C)       | what goes out                       | memory      | */
typedef struct dw_block_memory {
    const float *x;
    float *norm1, *mean1, *rstd1, *qkv, *weights, *heads, *middle, *norm2, *mean2, *rstd2, *wide,
        *bent, *y;
    float *all; /* the allocation that holds them all */
} dw_block_memory;

/* Memory for the gradients inside a block. All blocks of a stage share it. */
typedef struct dw_block_scratch {
    float *d_wide /* (B, 4C) */, *d_qkv /* (B, 3C) */, *d_row /* (B, C) */, *d_weights /* (T, P) */;
    float *all;
} dw_block_scratch;

dw_status dw_block_memory_create(dw_block_memory *memory, const dw_model_shape *shape, uint32_t N);
void dw_block_memory_destroy(dw_block_memory *memory);
dw_status dw_block_scratch_create(dw_block_scratch *scratch, const dw_model_shape *shape,
                                  uint32_t N);
void dw_block_scratch_destroy(dw_block_scratch *scratch);

/* memory->y = block(x). x must remain valid until the backward pass. */
void dw_block_forward(const dw_part *part, const dw_model_shape *shape, dw_block_memory *memory,
                      const float *x, uint32_t N);

/* d (B, C) is the gradient of y and becomes that of x; part->grads are added to. */
void dw_block_backward(dw_part *part, const dw_model_shape *shape, const dw_block_memory *memory,
                       dw_block_scratch *scratch, float *d, uint32_t N);

/* Matrix products with a weight w (O, J): y (B, O) = beta y + x w', dx (B, J) = dy w,
 * dw += dy' x. */
void dw_matmul(float *y, const float *x, const float *w, float beta, uint32_t B, uint32_t O,
               uint32_t J);
void dw_matmul_dx(float *dx, const float *dy, const float *w, uint32_t B, uint32_t O, uint32_t J);
void dw_matmul_dw(float *dw, const float *dy, const float *x, uint32_t B, uint32_t O, uint32_t J);

#endif
