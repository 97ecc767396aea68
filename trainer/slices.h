/* SPDX-License-Identifier: Apache-2.0
 * slices.h - how the tokens of a micro-batch are divided into slices, and where slices are stored.
 *
 * A slice is a range of tokens, the same for all samples of a micro-batch. If T tokens are divided
 * into S slices, each slice has T / S tokens, and the first T % S slices have one more. Slices pass
 * through the pipeline one after another (arXiv:2102.07988). A tensor of a micro-batch is stored as
 * one array of shape (N, tokens, ...) for each slice, from the first slice to the last. */
#ifndef DW_TRAINER_SLICES_H
#define DW_TRAINER_SLICES_H

#include <stddef.h>
#include <stdint.h>

/* A micro-batch in slices. room: the largest number of samples for which there is memory. N: the
 * number of its samples, at most `room`. T: tokens of a sample. S: the number of slices. */
typedef struct dw_slices {
    uint32_t room, N, T, S;
} dw_slices;

/* The tokens start, start + 1, ..., start + tokens - 1 of every sample. */
typedef struct dw_slice {
    uint32_t start, tokens;
} dw_slice;

/* Returns slice i if T tokens are divided into S slices, 1 <= S <= T. */
static inline dw_slice dw_slice_of(uint32_t T, uint32_t S, uint32_t i)
{
    uint32_t each = T / S, over = T % S;
    return (dw_slice){i * each + (i < over ? i : over), each + (i < over)};
}

/* Returns the number of tokens of the longest slice, which is the first one. */
static inline uint32_t dw_slice_longest(uint32_t T, uint32_t S)
{
    return dw_slice_of(T, S, 0).tokens;
}

/* Returns where slice i begins in the tensors of its micro-batch, counted in rows. A row is what a
 * tensor has for one token of one sample. Slices begin at the same rows whatever N is, because
 * memory is divided for `room` samples. */
static inline size_t dw_slice_row(const dw_slices *slices, uint32_t i)
{
    return (size_t)slices->room * dw_slice_of(slices->T, slices->S, i).start;
}

#endif
