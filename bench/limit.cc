/* SPDX-License-Identifier: Apache-2.0
 * limit.cc - reads and writes in tiles, as the codec does, folded with one OR so that no load is dropped. */
#include "limit.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace
{

constexpr size_t kLine = 64;
constexpr size_t kTile = 2048 * sizeof(float); /* of the longest stream, as a tile of the format */

typedef uint64_t Line __attribute__((vector_size(kLine)));

/* The widest vectors that the machine has: the limit must not depend on the flags of this file. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define WIDEST __attribute__((target_clones("avx512f", "avx2", "default"), noinline))
#else
#define WIDEST __attribute__((noinline))
#endif

WIDEST void read_lines(const unsigned char *from, size_t lines, uint64_t *out)
{
    Line a = {}, b = {};
    const Line *p = reinterpret_cast<const Line *>(from);
    size_t i = 0;
    for (; i + 2 <= lines; i += 2) {
        a |= p[i];
        b |= p[i + 1];
    }
    if (i < lines) a |= p[i];
    a |= b;
    memcpy(out, &a, sizeof a);
}

WIDEST void write_lines(unsigned char *to, size_t lines, const uint64_t *value)
{
    Line a;
    memcpy(&a, value, sizeof a);
    Line *p = reinterpret_cast<Line *>(to);
    for (size_t i = 0; i < lines; i++) p[i] = a;
}

struct Free {
    void operator()(void *p) const { free(p); }
};
using Buffer = std::unique_ptr<unsigned char, Free>;

Buffer buffer(size_t lines)
{
    size_t bytes = std::max<size_t>(lines, 1) * kLine;
    Buffer b(static_cast<unsigned char *>(aligned_alloc(kLine, bytes)));
    memset(b.get(), 1, bytes); /* every page is there before the clock runs */
    return b;
}

size_t lines_of(size_t bytes)
{
    return (bytes + kLine - 1) / kLine;
}

} // namespace

double limit_seconds(const Traffic &traffic, double seconds)
{
    std::vector<Buffer> reads, writes;
    for (size_t i = 0; i < traffic.reads.size(); i++)
        for (int copy = 0; copy < (i == 0 ? traffic.read_copies : 1); copy++)
            reads.push_back(buffer(lines_of(traffic.reads[i])));
    for (size_t bytes : traffic.writes) writes.push_back(buffer(lines_of(bytes)));

    size_t longest = 0;
    for (size_t bytes : traffic.reads) longest = std::max(longest, bytes);
    for (size_t bytes : traffic.writes) longest = std::max(longest, bytes);
    size_t tiles = (longest + kTile - 1) / kTile;

    std::vector<double> times;
    uint64_t fold[kLine / sizeof(uint64_t)] = {};
    double total = 0;
    for (int pass = 0; total < seconds || times.size() < 5; pass++) {
        auto begin = std::chrono::steady_clock::now();
        for (size_t tile = 0; tile < tiles; tile++) {
            auto part = [&](size_t bytes, size_t at) { return lines_of(bytes) * at / tiles; };
            for (size_t i = 0; i < traffic.reads.size(); i++) {
                size_t from = part(traffic.reads[i], tile), to = part(traffic.reads[i], tile + 1);
                size_t which = i == 0 ? static_cast<size_t>(pass % traffic.read_copies)
                                      : i + static_cast<size_t>(traffic.read_copies) - 1;
                read_lines(reads[which].get() + from * kLine, to - from, fold);
            }
            for (size_t i = 0; i < traffic.writes.size(); i++) {
                size_t from = part(traffic.writes[i], tile), to = part(traffic.writes[i], tile + 1);
                write_lines(writes[i].get() + from * kLine, to - from, fold);
            }
        }
        std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        times.push_back(took.count());
        total += took.count();
    }
    std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2), times.end());
    return times[times.size() / 2];
}
