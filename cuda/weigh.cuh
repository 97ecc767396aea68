/* SPDX-License-Identifier: Apache-2.0
 * weigh.cuh - profiles of channels: divides by their weights before the kernels of the form step
 * code, and multiplies with them after it.
 *
 * The specification is src/codecs/weighing.c; source: docs/format.md, 3.15. An eight lies in one
 * row, so its channels follow each other. */
#ifndef DW_CUDA_WEIGH_CUH
#define DW_CUDA_WEIGH_CUH

#include "arithmetic/profile.h"
#include "place.cuh"

/* The means of an eight's channels, from number `list` on; NULL if the profile has none. */
DW_DEVICE const float *dw_means_at(const dw_channels *channels, uint32_t list, uint32_t column)
{
    return channels->means[0] ? channels->means[list] + column : NULL;
}

/* Subtracts the means from the deltas of an eight whose entry has no base, if the profile has
 * means, and divides by the weights. base: passed in, prev; passed out, what was subtracted. x:
 * becomes x / weight. Returns 1 if the row takes the second list of means, otherwise 0. */
DW_DEVICE uint32_t dw_weigh_eight(const dw_encode_job *job, const dw_place *place, dw_dtype x_dtype,
                                  dw_eight *delta, dw_eight *base, dw_eight *x)
{
    const dw_channels *channels = &job->channels;
    uint64_t c = job->layout.c, row = place->dense / c;
    uint32_t column = (uint32_t)(place->dense - row * c), list = 0;
    const float *means = NULL;
    if (!place->n) return 0;
    if (!job->prev && channels->means[0]) {
        uint64_t at = row * (uint64_t)job->stride + channels->decides;
        float decides = dw_widen(dw_load_bits(job->x, x_dtype, at), x_dtype);
        list = (uint32_t)dw_profile_choose(channels, decides);
        means = dw_means_at(channels, list, column);
    }
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) {
        if (i >= place->n) continue;
        float inverse = channels->inverses[column + i];
        if (means) {
            base->of[i] = means[i];
            delta->of[i] = x->of[i] - means[i];
        }
        delta->of[i] *= inverse;
        x->of[i] *= inverse;
    }
    return list;
}

/* Makes the values of an eight from those that the form has reconstructed without a base, which are
 * bits of a binary32. base: prev, or the means. held: what a poisoned piece keeps, if `keeps` is
 * set; otherwise it becomes NaN. */
DW_DEVICE void dw_unweigh_eight(const dw_channels *channels, uint32_t column, uint32_t n,
                                const dw_eight *base, const dw_eight *held, dw_dtype dtype,
                                bool keeps, bool poisoned, uint32_t bits[DW_EIGHT])
{
#pragma unroll
    for (uint32_t i = 0; i < DW_EIGHT; i++) {
        float weight = i < n ? channels->weights[column + i] : 1.0f,
              change = dw_float_of(bits[i]) * weight, value = base->of[i] + change;
        if (poisoned) value = held->of[i];
        bits[i] = poisoned && !keeps ? dw_nan_of(dtype) : dw_narrow(value, dtype);
    }
}

#endif
