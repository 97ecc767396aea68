/* SPDX-License-Identifier: Apache-2.0
 * limit.h - a codec's memory traffic without its arithmetic: what the machine allows. */
#ifndef DELTAWIRE_BENCH_LIMIT_H
#define DELTAWIRE_BENCH_LIMIT_H

#include <cstddef>
#include <vector>

/* Streams of bytes, gone through side by side in the same proportions, front to back. */
struct Traffic {
    std::vector<size_t> reads;  /* bytes of each stream that is read */
    std::vector<size_t> writes; /* bytes of each stream that is written */
    int read_copies = 1;        /* buffers of the first stream, taken in turn */
};

/* Seconds for one pass: the median of passes made for about as long as `seconds`. */
double limit_seconds(const Traffic &traffic, double seconds);

#endif
