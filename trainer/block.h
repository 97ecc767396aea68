/* SPDX-License-Identifier: Apache-2.0
 * block.h - one transformer block: x + attention(norm(x)), then x + mlp(norm(x)); forward and
 * backward, slice by slice (slices.h).
 *
 * Room for N samples of T tokens makes B = N T rows of C channels; H heads. */
#ifndef DW_TRAINER_BLOCK_H
#define DW_TRAINER_BLOCK_H

#include "parameters.h"
#include "slices.h"

/* What the forward pass of one micro-batch keeps for its backward pass, slice after slice.
 *
 * | name                | shape          | meaning                             | owner       |
 * | x                   | (B, C)         | what came in                        | part before |
 * | norm1, mean1, rstd1 | (B, C), (B)    | first layer norm                    | memory      |
 * | qkv                 | (B, 3C)        | queries, keys, values               | memory      |
 * | weights             | see            | of attention, after the softmax     | memory      |
 * |                     | attention.h    |                                     |             |
 * | heads               | (B, C)         | what the heads found, side by side  | memory      |
 * | middle              | (B, C)         | the residual stream after attention | memory      |
 * | norm2, mean2, rstd2 | (B, C), (B)    | second layer norm                   | memory      |
 * | wide, bent          | (B, 4C)        | before and behind the GELU          | memory      |
 * | y                   | (B, C)         | what goes out                       | memory      | */
typedef struct dw_block_memory {
    const float *x;
    float *norm1, *mean1, *rstd1, *qkv, *weights, *heads, *middle, *norm2, *mean2, *rstd2, *wide,
        *bent, *y;
    float *all; /* the allocation that holds them all */
} dw_block_memory;

/* Memory for the gradients inside the blocks of a stage, which share it. R: the rows of the longest
 * slice.
 *
 * | name      | shape          | meaning                                             |
 * | d_wide    | (R, 4C)        | gradient of wide                                    |
 * | d_row     | (R, C)         | gradient of a row of the residual stream            |
 * | d_weights | see            | gradient of the weights of one head                 |
 * |           | attention.h    |                                                     |
 * | d_qkv     | (n, B, 3C)     | gradients of queries, keys and values. With several |
 * |           |                | slices they add up in n = n_blocks pieces, one for  |
 * |           |                | each block; otherwise n = 1                         | */
typedef struct dw_block_scratch {
    float *d_wide, *d_row, *d_weights, *d_qkv;
    float *all;
} dw_block_scratch;

/* slices: N has no meaning here. */
dw_status dw_block_memory_create(dw_block_memory *memory, const dw_model_shape *shape,
                                 const dw_slices *slices);
void dw_block_memory_destroy(dw_block_memory *memory);
dw_status dw_block_scratch_create(dw_block_scratch *scratch, const dw_model_shape *shape,
                                  const dw_slices *slices, uint32_t n_blocks);
void dw_block_scratch_destroy(dw_block_scratch *scratch);

/* Slice i of memory->y = block(x), after slices 0..i - 1. x (B, C) must remain valid until the
 * backward pass. */
void dw_block_forward(const dw_part *part, const dw_model_shape *shape, dw_block_memory *memory,
                      const dw_slices *slices, uint32_t i, const float *x);

/* d (N, tokens, C) is the gradient of slice i of y and becomes that of x; part->grads are added to.
 * Slices come in reverse order. index: of this block among the n_blocks that share the scratch. */
void dw_block_backward(dw_part *part, const dw_model_shape *shape, const dw_block_memory *memory,
                       const dw_slices *slices, uint32_t i, const dw_block_scratch *scratch,
                       uint32_t index, float *d);

/* Matrix products with a weight w (O, J): y (B, O) = beta y + x w', dx (B, J) = dy w,
 * dw += dy' x. */
void dw_matmul(float *y, const float *x, const float *w, float beta, uint32_t B, uint32_t O,
               uint32_t J);
void dw_matmul_dx(float *dx, const float *dy, const float *w, uint32_t B, uint32_t O, uint32_t J);
void dw_matmul_dw(float *dw, const float *dy, const float *x, uint32_t B, uint32_t O, uint32_t J);

#endif
