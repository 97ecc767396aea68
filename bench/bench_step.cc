/* SPDX-License-Identifier: Apache-2.0
 * bench_step.cc - the speed of the kernels of the form step, beside that of memory.
 *
 * bench_step [BYTES [PASSES]]: tensors with so many bytes of x (1 MiB), the median of so many
 * passes (400). Prints, for each case: GB/s of x; the same for a loop that reads and writes the
 * same streams and computes nothing (see limit.h), measured in turns with it; and the quotient. */
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "limit.h"
#include "step.h"
#include "tables.h"

namespace
{

struct Case {
    const char *name;
    dw_bench_way way;
    dw_rounding rounding;
};

const Case kCases[] = {{"squares", DW_BENCH_SQUARES, DW_ROUNDING_NEAREST},
                       {"encode", DW_BENCH_ENCODE, DW_ROUNDING_NEAREST},
                       {"encode+stochastic", DW_BENCH_ENCODE, DW_ROUNDING_STOCHASTIC},
                       {"encode+dither", DW_BENCH_ENCODE, DW_ROUNDING_DITHER},
                       {"decode", DW_BENCH_DECODE, DW_ROUNDING_NEAREST},
                       {"decode+dither", DW_BENCH_DECODE, DW_ROUNDING_DITHER}};

struct Pair {
    const char *name;
    dw_dtype x, prev;
};

const Pair kPairs[] = {{"f32/f32", DW_F32, DW_F32},
                       {"bf16/bf16", DW_BF16, DW_BF16},
                       {"bf16/f32", DW_BF16, DW_F32},
                       {"f16/f16", DW_F16, DW_F16}};

double median(std::vector<double> &seconds)
{
    std::nth_element(seconds.begin(), seconds.begin() + (long)seconds.size() / 2, seconds.end());
    return seconds[seconds.size() / 2];
}

void measure(const char *table, const Pair &pair, const Case &of, size_t bytes, int passes)
{
    size_t n = bytes / dw_dtype_bytes(pair.x) / 2048 * 2048;
    Stream x = {nullptr, n * dw_dtype_bytes(pair.x)},
           prev = {nullptr, n * dw_dtype_bytes(pair.prev)}, next = prev, codes = {nullptr, n};
    Buffer memory[] = {make_buffer(x.bytes, true), make_buffer(prev.bytes, true),
                       make_buffer(next.bytes, true), make_buffer(codes.bytes, true)};
    x.data = memory[0].get(), prev.data = memory[1].get(), next.data = memory[2].get();
    codes.data = memory[3].get();
    dw_bench_step step = {of.way,    of.rounding, pair.x,     pair.prev, x.data,
                          prev.data, next.data,   codes.data, n};
    Traffic traffic = {{x, prev}, {}};
    if (of.way == DW_BENCH_ENCODE) traffic.writes = {next, codes};
    if (of.way == DW_BENCH_DECODE) traffic = {{prev, codes}, {next}};
    dw_bench_step_fill(&step);
    std::vector<double> own, limit;
    volatile double used = 0;
    for (int i = 0; i < passes; i++) {
        auto begin = std::chrono::steady_clock::now();
        used = used + dw_bench_step_run(&step);
        std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        own.push_back(took.count());
        limit.push_back(limit_pass(traffic, false, nullptr));
    }
    double gbps = (double)x.bytes / median(own) * 1e-9,
           best = (double)x.bytes / median(limit) * 1e-9;
    printf("%s/%s/%s/%zu: %.2f / %.2f GB/s = %.2f\n", of.name, pair.name, table, bytes, gbps, best,
           gbps / best);
}

} // namespace

int main(int argc, char **argv)
{
    size_t bytes = argc > 1 ? strtoul(argv[1], nullptr, 0) : 1u << 20;
    int passes = argc > 2 ? atoi(argv[2]) : 400;
    if (argc > 3 || bytes < 1u << 14 || passes < 1) {
        fprintf(stderr, "usage: %s [BYTES [PASSES]], at least 16384 bytes and one pass\n", argv[0]);
        return 2;
    }
    for (int i = 0; dw_bench_table(i); i++) {
        dw_bench_step_use(dw_bench_table(i));
        for (const Pair &pair : kPairs)
            for (const Case &of : kCases) measure(dw_bench_table(i), pair, of, bytes, passes);
    }
    return 0;
}
