/* SPDX-License-Identifier: Apache-2.0
 * limit.h - the memory traffic of a codec without its arithmetic, which gives the upper limit of
 * its speed on a machine. */
#ifndef DELTAWIRE_BENCH_LIMIT_H
#define DELTAWIRE_BENCH_LIMIT_H

#include <cstddef>
#include <memory>
#include <vector>

#include "pool.h"

struct Free {
    void operator()(void *p) const;
};

/* Memory that is aligned to a cache line, with every page touched. huge: asks for pages of 2 MiB,
 * as the library does for prev. */
typedef std::unique_ptr<unsigned char, Free> Buffer;
Buffer make_buffer(size_t bytes, bool huge);

struct Stream {
    unsigned char *data; /* aligned to a cache line; whole lines are read or written */
    size_t bytes;
};

/* Streams of bytes that are read or written together from front to back, in proportion to their
 * lengths, one tile of the format after another. */
struct Traffic {
    std::vector<Stream> reads, writes;
};

/* Seconds for one pass. streaming: writes bypass the caches. pool: the threads that share the work;
 * may be null. */
double limit_pass(const Traffic &traffic, bool streaming, Pool *pool);

#endif
