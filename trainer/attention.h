/* SPDX-License-Identifier: Apache-2.0
 * attention.h - causal attention of one block, slice by slice: forward from the first slice to the
 * last, backward from the last to the first.
 *
 * The tokens of a slice look at those of their own slice and of all earlier ones, so the queries,
 * keys and values of a micro-batch stay where they are until its backward pass is done. In the
 * backward pass a slice adds to the gradients of the keys and values of earlier slices. When it is
 * the turn of a slice, all later ones have added theirs.
 *
 * C channels, H heads. P(t) is t rounded up to DW_LANES; a slice that ends before token `end` has
 * weights (N, H, tokens, P(end)).
 *
 * | name       | shape           | of            | meaning                               | owner  |
 * | qkv, d_qkv | (B, 3C)         | a micro-batch | queries, keys, values; gradients      | caller |
 * | weights    | (B, H, P(T))    | a micro-batch | of attention, after the softmax       | caller |
 * | heads      | (N, tokens, C)  | a slice       | what the heads found, side by side    | caller |
 * | d_heads    | (N, tokens, C)  | a slice       | gradient of heads                     | caller |
 * | scratch    | (tokens, P(T))  | one head      | for the gradient of the weights       | caller |
 *
 * B is the room for samples times T. No function can fail or allocates memory. */
#ifndef DW_TRAINER_ATTENTION_H
#define DW_TRAINER_ATTENTION_H

#include "parameters.h"
#include "slices.h"

/* The floats of a row of weights: P(end). */
size_t dw_attention_row(uint32_t end);

/* Computes heads of slice i from qkv of slices 0..i, and keeps its weights. */
void dw_attend(const dw_model_shape *shape, const dw_slices *slices, uint32_t i, const float *qkv,
               float *weights, float *heads);

/* Completes d_qkv of slice i, after all later slices, and adds to d_qkv of earlier ones. d_qkv need
 * not be set to zero: the last slice of a micro-batch overwrites it. */
void dw_attend_backward(const dw_model_shape *shape, const dw_slices *slices, uint32_t i,
                        const float *qkv, const float *weights, const float *d_heads, float *d_qkv,
                        float *scratch);

#endif
