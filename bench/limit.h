/* SPDX-License-Identifier: Apache-2.0
 * limit.h - a codec's memory traffic without its arithmetic: what the machine allows. */
#ifndef DELTAWIRE_BENCH_LIMIT_H
#define DELTAWIRE_BENCH_LIMIT_H

#include <cstddef>
#include <memory>
#include <vector>

#include "pool.h"

struct Free {
    void operator()(void *p) const;
};

/* Memory that begins on a line, every page of it touched. huge: asks for pages of 2 MiB, as the
 * library does for prev. */
typedef std::unique_ptr<unsigned char, Free> Buffer;
Buffer make_buffer(size_t bytes, bool huge);

struct Stream {
    unsigned char *data; /* begins on a line; whole lines are read or written */
    size_t bytes;
};

/* Streams of bytes, gone through side by side in the same proportions, front to back, a tile of the
 * format after the other. */
struct Traffic {
    std::vector<Stream> reads, writes;
};

/* Seconds for one pass. streaming: writes go past the caches. pool: shares it among threads; may be
 * null. */
double limit_pass(const Traffic &traffic, bool streaming, Pool *pool);

#endif
