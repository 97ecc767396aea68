/* SPDX-License-Identifier: Apache-2.0
 * block.h - one transformer block: x + attention(norm(x)), then x + mlp(norm(x)); forward and
 * backward, slice by slice (slices.h).
 *
 * In the tables below C is the number of channels. A row belongs to one token of one sample; B is
 * the number of rows for which there is memory: slices.room times slices.T. */
#ifndef DW_TRAINER_BLOCK_H
#define DW_TRAINER_BLOCK_H

#include "parameters.h"
#include "slices.h"

/* What the forward pass of one micro-batch keeps for its backward pass, stored as slices.h says.
 *
 * | name                | shape          | meaning                             | owner       |
 * | x                   | (B, C)         | the input of the block              | part before |
 * | norm1, mean1, rstd1 | (B, C), (B)    | first layer norm                    | memory      |
 * | qkv                 | (B, 3C)        | queries, keys, values               | memory      |
 * | weights             | see            | of attention, after the softmax     | memory      |
 * |                     | attention.h    |                                     |             |
 * | heads               | (B, C)         | outputs of the heads, concatenated  | memory      |
 * | middle              | (B, C)         | the residual stream after attention | memory      |
 * | norm2, mean2, rstd2 | (B, C), (B)    | second layer norm                   | memory      |
 * | wide, bent          | (B, 4C)        | input and output of the GELU        | memory      |
 * | y                   | (B, C)         | the output of the block             | memory      | */
typedef struct dw_block_memory {
    const float *x;
    float *norm1, *mean1, *rstd1, *qkv, *weights, *heads, *middle, *norm2, *mean2, *rstd2, *wide,
        *bent, *y;
    float *all; /* the allocation that holds them all */
} dw_block_memory;

/* Memory for the gradients inside the blocks of a stage, which share it. R: the number of rows of
 * the longest slice.
 *
 * | name      | shape          | meaning                                             |
 * | d_wide    | (R, 4C)        | gradient of wide                                    |
 * | d_row     | (R, C)         | gradients of intermediate results of width C        |
 * | d_weights | see            | gradient of the weights of one head                 |
 * |           | attention.h    |                                                     |
 * | d_qkv     | (n, B, 3C)     | gradients of queries, keys and values. With several |
 * |           |                | slices each block has its own, n = n_blocks, to     |
 * |           |                | which all its slices add; otherwise n = 1           | */
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

/* Computes slice i of memory->y = block(x). Slices 0 to i - 1 must have been computed before. x
 * (B, C) must remain valid until the backward pass. */
void dw_block_forward(const dw_part *part, const dw_model_shape *shape, dw_block_memory *memory,
                      const dw_slices *slices, uint32_t i, const float *x);

/* Computes slice i backward: d (N, tokens, C) is the gradient of that slice of y and becomes the
 * one of x; the gradients of the parameters are added to part->grads. The last slice comes first.
 * index: the number of this block among the n_blocks that share the scratch. */
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
