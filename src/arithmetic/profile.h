/* SPDX-License-Identifier: Apache-2.0
 * profile.h - what both ends know of channels, in code that C and CUDA share
 * (docs/format.md, 3.15): each channel has a weight, by which the step of a row is multiplied for
 * it, and may have two means, one of which is subtracted from rows that have no base.
 *
 * A form codes (x - base) / weight. What it would decode is multiplied by the weight and added to
 * the base. Weights are bf16, so the product with a level and a step, which is a bf16 as well, is
 * exact: 8 + 8 significant bits of the weight and the step, and 7 of the level.
 *
 * Errors: none. State: none. */
#ifndef DW_ARITHMETIC_PROFILE_H
#define DW_ARITHMETIC_PROFILE_H

#include "arithmetic/half.h"

/* The arrays have an element for each channel. On a device they are in its memory. */
typedef struct dw_channels {
    const float *weights;  /* above 0, at most 1; NULL: the payload has no profile */
    const float *inverses; /* RN(1 / weight) */
    const float *means[2]; /* NULL: nothing is subtracted */
    uint32_t decides;      /* the channel in which the means differ most, in units of its weight */
} dw_channels;

/* The sign of the step of a piece that has no base says which means it takes. */
enum { DW_PROFILE_SIGN = 0x8000 };

/* Which of the means a row takes: the one to which it is closer in the channel that decides. x: the
 * row's value of this channel; NaN takes the first means. */
DW_INLINE int dw_profile_choose(const dw_channels *of, float x)
{
    float first = x - of->means[0][of->decides], second = x - of->means[1][of->decides];
    return (dw_bits_of(second) & 0x7fffffffu) < (dw_bits_of(first) & 0x7fffffffu);
}

#endif
