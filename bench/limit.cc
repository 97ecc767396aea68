/* SPDX-License-Identifier: Apache-2.0
 * limit.cc - reads and writes in tiles, as the codec does. All loads are combined by OR, so that
 * the compiler keeps them. */
#include "limit.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace
{

constexpr size_t kLine = 64, kHugePage = 2u << 20;
constexpr size_t kTile = 2048 * sizeof(float); /* of the longest stream, as a tile of the format */

/* No wider than the registers of every clone, because gcc passes wider vectors through memory. */
typedef uint64_t Part __attribute__((vector_size(32)));
constexpr size_t kParts = kLine / sizeof(Part);

/* Uses the widest vectors that the machine has, so that the limit does not depend on the compiler
 * flags of this file. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define WIDEST __attribute__((target_clones("avx512f", "avx2", "default"), noinline))
#else
#define WIDEST __attribute__((noinline))
#endif

WIDEST void read_lines(const unsigned char *from, size_t lines, uint64_t *out)
{
    Part a = {}, b = {}, c = {}, d = {};
    const Part *p = reinterpret_cast<const Part *>(from);
    size_t i = 0;
    for (; i + 2 <= lines; i += 2, p += 2 * kParts) {
        a |= p[0];
        b |= p[1];
        c |= p[2];
        d |= p[3];
    }
    if (i < lines) {
        a |= p[0];
        b |= p[1];
    }
    a |= c;
    b |= d;
    memcpy(out, &a, sizeof a);
    memcpy(out + sizeof a / sizeof *out, &b, sizeof b);
}

WIDEST void write_lines(unsigned char *to, size_t lines, const uint64_t *value)
{
    Part a;
    memcpy(&a, value, sizeof a);
    Part *p = reinterpret_cast<Part *>(to);
    for (size_t i = 0; i < lines * kParts; i++) p[i] = a;
}

void stream_lines(unsigned char *to, size_t lines, const uint64_t *value)
{
#if defined(__x86_64__)
    __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i *>(value));
    __m128i *p = reinterpret_cast<__m128i *>(to);
    for (size_t i = 0; i < lines * (kLine / sizeof a); i++) _mm_stream_si128(p + i, a);
#else
    write_lines(to, lines, value);
#endif
}

size_t lines_of(size_t bytes)
{
    return (bytes + kLine - 1) / kLine;
}

/* Tiles of the longest stream, and the proportional parts of the others. */
struct Pass {
    const Traffic &traffic;
    bool streaming;
    size_t tiles, each;

    void go(size_t chunk) const
    {
        uint64_t fold[kLine / sizeof(uint64_t)] = {};
        size_t end = std::min(tiles, (chunk + 1) * each);
        for (size_t tile = chunk * each; tile < end; tile++) {
            for (const Stream &s : traffic.reads) {
                size_t from = part(s, tile), to = part(s, tile + 1);
                read_lines(s.data + from * kLine, to - from, fold);
            }
            for (const Stream &s : traffic.writes) {
                size_t from = part(s, tile), to = part(s, tile + 1);
                (streaming ? stream_lines : write_lines)(s.data + from * kLine, to - from, fold);
            }
        }
#if defined(__x86_64__)
        if (streaming) _mm_sfence();
#endif
    }
    size_t part(const Stream &s, size_t tile) const
    {
        return lines_of(s.bytes) * tile / tiles;
    }
};

} // namespace

void Free::operator()(void *p) const
{
    free(p);
}

Buffer make_buffer(size_t bytes, bool huge)
{
    size_t unit = huge ? kHugePage : kLine;
    bytes = (std::max<size_t>(bytes, 1) + unit - 1) / unit * unit;
    Buffer b(static_cast<unsigned char *>(aligned_alloc(unit, bytes)));
#ifdef MADV_HUGEPAGE
    if (huge) (void)madvise(b.get(), bytes, MADV_HUGEPAGE);
#endif
    memset(b.get(), 1, bytes); /* touch every page before the measurement */
    return b;
}

double limit_pass(const Traffic &traffic, bool streaming, Pool *pool)
{
    size_t longest = 0;
    for (const Stream &s : traffic.reads) longest = std::max(longest, s.bytes);
    for (const Stream &s : traffic.writes) longest = std::max(longest, s.bytes);
    Pass pass = {traffic, streaming, (longest + kTile - 1) / kTile, 16};
    size_t chunks = (pass.tiles + pass.each - 1) / pass.each;
    auto task = [](void *context, size_t chunk) { static_cast<const Pass *>(context)->go(chunk); };
    auto begin = std::chrono::steady_clock::now();
    if (pool)
        pool->run(chunks, task, &pass);
    else
        for (size_t i = 0; i < chunks; i++) pass.go(i);
    std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    return took.count();
}
