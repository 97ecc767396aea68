/* SPDX-License-Identifier: Apache-2.0
 * attention.h - causal attention of one block, slice by slice: forward from the first slice to the
 * last, backward from the last to the first.
 *
 * The tokens of a slice attend to those of their own slice and of all earlier ones, so the queries,
 * keys and values of a micro-batch are kept until its backward pass has ended. In the backward pass
 * a slice adds to the gradients of the keys and values of earlier slices. When a slice is computed
 * backward, all later slices have added theirs.
 *
 * There are C channels and H heads. P(t) is t rounded up to a multiple of DW_LANES. The weights of
 * a slice whose last token is number end - 1 have the shape (N, H, tokens, P(end)).
 *
 * | name       | shape           | of            | meaning                               | owner  |
 * | qkv, d_qkv | (B, 3C)         | a micro-batch | queries, keys, values; gradients      | caller |
 * | weights    | (B, H, P(T))    | a micro-batch | of attention, after the softmax       | caller |
 * | heads      | (N, tokens, C)  | a slice       | outputs of the heads, concatenated    | caller |
 * | d_heads    | (N, tokens, C)  | a slice       | gradient of heads                     | caller |
 * | scratch    | (tokens, P(T))  | one head      | for the gradient of the weights       | caller |
 *
 * B is slices.room times slices.T. No function can fail, and none allocates memory. */
#ifndef DW_TRAINER_ATTENTION_H
#define DW_TRAINER_ATTENTION_H

#include "parameters.h"
#include "slices.h"

/* Returns the number of floats in a row of weights: P(end). */
size_t dw_attention_row(uint32_t end);

/* Computes heads of slice i from qkv of slices 0 to i, and stores the weights of slice i. */
void dw_attend(const dw_model_shape *shape, const dw_slices *slices, uint32_t i, const float *qkv,
               float *weights, float *heads);

/* Completes d_qkv of slice i, after all later slices, and adds to d_qkv of earlier ones. d_qkv need
 * not be set to zero: the last slice of a micro-batch overwrites it. */
void dw_attend_backward(const dw_model_shape *shape, const dw_slices *slices, uint32_t i,
                        const float *qkv, const float *weights, const float *d_heads, float *d_qkv,
                        float *scratch);

#endif
