/* SPDX-License-Identifier: Apache-2.0
 * measure.h - sends all tensors of a set one way, and sums up size, error and time. */
#ifndef DELTAWIRE_BENCH_QUALITY_MEASURE_H
#define DELTAWIRE_BENCH_QUALITY_MEASURE_H

#include "way.h"

/* Over the visits of one kind, first or later. All elements are compared, in binary64.
 *
 * wide table:
 * | name       | meaning                                                                         |
 * | bits       | on the wire per element                                                         |
 * | error      | |y - x| / |x|                                                                   |
 * | cosine     | of the angle between x and y                                                    |
 * | bias       | mean of y - x, over the root mean square of x; bias_sigma: the standard         |
 * |            | deviation that this mean has where errors are independent of each other         |
 * | gain       | <x, y> / <x, x>: the part of x's own amplitude that arrives, 1 for a codec      |
 * |            | whose mean y is x; gain_sigma as above                                          |
 * | *_GBps     | bytes of x per second through encode and decode, of the median call             |
 * | not_finite | elements left out of all sums: they arrived as NaN or infinite                  | */
typedef struct dw_quality {
    uint64_t tensors, not_finite;
    double bits, error, cosine, bias, bias_sigma, gain, gain_sigma, encode_GBps, decode_GBps;
} dw_quality;

typedef struct dw_measured {
    dw_quality first, later;
    uint64_t clamped;
} dw_measured;

/* Only samples whose place is below `samples`. Closes the way. Errors: those of the way, with a
 * sentence; NO_MEMORY. */
dw_status dw_measure(dw_measured *measured, const dw_bench_record *set, size_t samples, dw_way *way,
                     dw_why *why);

/* |x - x of the sample's last visit| / |x|, over all later visits of these samples. */
double dw_measure_change(const dw_bench_record *set, size_t samples);

#endif
