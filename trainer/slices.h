/* SPDX-License-Identifier: Apache-2.0
 * slices.h - how a micro-batch is cut into slices of its tokens, and where they lie in memory.
 *
 * A slice is a range of tokens, the same for all samples of a micro-batch. S slices of T tokens
 * have T / S tokens each, and the first ones one more if there is a remainder. They follow one
 * another in the pipeline (arXiv:2102.07988). Every tensor of a micro-batch lies slice after slice:
 * the tensor of one slice is (N, tokens, ...), without gaps, whatever the number of slices. */
#ifndef DW_TRAINER_SLICES_H
#define DW_TRAINER_SLICES_H

#include <stddef.h>
#include <stdint.h>

/* A micro-batch of N samples, where there is room for `room` of them, in S slices of T tokens. */
typedef struct dw_slices {
    uint32_t room, N, T, S;
} dw_slices;

typedef struct dw_slice {
    uint32_t start, tokens; /* from token `start` on */
} dw_slice;

/* Slice i of S, 1 <= S <= T. */
static inline dw_slice dw_slice_of(uint32_t T, uint32_t S, uint32_t i)
{
    uint32_t each = T / S, over = T % S;
    return (dw_slice){i * each + (i < over ? i : over), each + (i < over)};
}

/* The tokens of the longest slice, which is the first one. */
static inline uint32_t dw_slice_longest(uint32_t T, uint32_t S)
{
    return dw_slice_of(T, S, 0).tokens;
}

/* The first row of a slice in the tensors of its micro-batch, where each token of each sample is a
 * row. */
static inline size_t dw_slice_row(const dw_slices *slices, uint32_t i)
{
    return (size_t)slices->room * dw_slice_of(slices->T, slices->S, i).start;
}

#endif
