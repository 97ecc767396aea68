/* SPDX-License-Identifier: Apache-2.0
 * measure.h - sends all tensors of a set through one codec or baseline, and computes their mean
 * size, error and speed. */
#ifndef DELTAWIRE_BENCH_QUALITY_MEASURE_H
#define DELTAWIRE_BENCH_QUALITY_MEASURE_H

#include "way.h"

/* The figures of all visits of one kind: of all samples' first visits, or of all later ones. x is
 * what was sent and y is what arrived. All elements are compared, in binary64.
 *
 * wide table:
 * | name       | meaning                                                                         |
 * | tensors    | how many tensors were sent                                                      |
 * | not_finite | how many elements are left out of all sums, because y - x was NaN or infinite   |
 * | bits       | bits on the wire per element                                                    |
 * | error      | |y - x| / |x|, of Euclidean norms over all elements                             |
 * | cosine     | the cosine of the angle between x and y                                         |
 * | bias       | the mean of y - x, divided by the root mean square of x                         |
 * | bias_sigma | the standard deviation that `bias` has if errors are independent of each other  |
 * | gain       | <x, y> / <x, x>, the part of x's own amplitude that arrives. It is 1 for a      |
 * |            | codec whose y is x in the mean                                                  |
 * | gain_sigma | the standard deviation that `gain` has if errors are independent of each other  |
 * | *_GBps     | bytes of x (32-bit floats) per second, of the median encode or decode           | */
typedef struct dw_quality {
    uint64_t tensors, not_finite;
    double bits, error, cosine, bias, bias_sigma, gain, gain_sigma, encode_GBps, decode_GBps;
} dw_quality;

typedef struct dw_measured {
    dw_quality first, later; /* of first visits, and of later visits */
    uint64_t outside;        /* how many values were too large for the codes, in all visits */
} dw_measured;

/* Sends the visits of all samples whose place in the set is below `samples` by `way`, writes the
 * figures to *measured, and closes the way, also after an error. Errors: those of the way, and
 * NO_MEMORY, each with a sentence in *why. */
dw_status dw_measure(dw_measured *measured, const dw_bench_record *set, size_t samples, dw_way *way,
                     dw_why *why);

/* Returns how much the tensors of a sample change from one visit to the next: |x - x'| / |x|, where
 * x' is x of the sample's previous visit, and both norms are over all later visits of the samples
 * whose place is below `samples`. Returns NaN if there are no later visits, or no memory. */
double dw_measure_change(const dw_bench_record *set, size_t samples);

#endif
