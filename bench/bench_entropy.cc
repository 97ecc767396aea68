/* SPDX-License-Identifier: Apache-2.0
 * bench_entropy.cc - measures codes per second of entropy-coded blocks, and their size beside the
 * entropy; where libzstd was found, beside zstd at level 1, too. */
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#ifdef DW_BENCH_ZSTD
#include <zstd.h>
#endif

#include "blocks.h"
#include "tables.h"

namespace
{

using Codes = std::vector<uint8_t>;

/* How codes are distributed: values of deviation 1, divided by a step and rounded; or uniform. */
struct Source {
    const char *name;
    double step; /* 0: uniform among 13 */
    bool laplace;
};

constexpr Source kSources[] = {
    {"gauss0.1", 0.1, false}, {"gauss0.35", 0.35, false}, {"gauss1", 1, false},
    {"gauss1.4", 1.4, false}, {"gauss2", 2, false},       {"gauss3", 3, false},
    {"gauss4", 4, false},     {"gauss6", 6, false},       {"laplace1", 1, true},
    {"laplace2", 2, true},    {"uniform13", 0, false}};

enum Way { kEncode, kDecode, kCount };
constexpr const char *kWays[] = {"encode", "decode", "count"};

Codes draw(const Source &s)
{
    std::mt19937_64 random(17);
    std::normal_distribution<double> normal;
    std::exponential_distribution<double> one_side(std::sqrt(2.0));
    Codes codes(DW_BENCH_CODES);
    for (uint8_t &code : codes) {
        double value = s.laplace ? (random() % 2 ? 1 : -1) * one_side(random) : normal(random);
        double level = s.step > 0 ? std::nearbyint(value / s.step) : random() % 13;
        code = static_cast<uint8_t>(128 + std::min(127.0, std::max(-128.0, level)));
    }
    return codes;
}

double entropy_bytes(const Codes &codes)
{
    double counts[256] = {}, bits = 0;
    for (uint8_t code : codes) counts[code]++;
    for (double count : counts)
        if (count > 0) bits -= count * std::log2(count / static_cast<double>(codes.size()));
    return bits / 8;
}

/* Either a table of kernels or zstd. */
class Coder
{
  public:
    explicit Coder(const std::string &name) : is_zstd_(name == "zstd1")
    {
        if (!is_zstd_) dw_bench_blocks_use(name.c_str());
#ifdef DW_BENCH_ZSTD
        if (is_zstd_) to_ = ZSTD_createCCtx(), from_ = ZSTD_createDCtx();
#endif
    }
    ~Coder()
    {
#ifdef DW_BENCH_ZSTD
        ZSTD_freeCCtx(to_);
        ZSTD_freeDCtx(from_);
#endif
    }
    Coder(const Coder &) = delete;
    Coder &operator=(const Coder &) = delete;

    size_t encode(const Codes &codes, Codes &block)
    {
#ifdef DW_BENCH_ZSTD
        if (is_zstd_)
            return ZSTD_compressCCtx(to_, block.data(), block.size(), codes.data(), codes.size(),
                                     1);
#endif
        return dw_bench_block_encode(codes.data(), block.data());
    }

    bool decode(const Codes &block, size_t bytes, Codes &codes)
    {
#ifdef DW_BENCH_ZSTD
        if (is_zstd_)
            return ZSTD_decompressDCtx(from_, codes.data(), codes.size(), block.data(), bytes) ==
                   codes.size();
#endif
        return dw_bench_block_decode(block.data(), bytes, codes.data()) != 0;
    }

  private:
    bool is_zstd_;
#ifdef DW_BENCH_ZSTD
    ZSTD_CCtx *to_ = nullptr;
    ZSTD_DCtx *from_ = nullptr;
#endif
};

void run(benchmark::State &state, Way way, const Source &source, const std::string &name)
{
    Coder coder(name);
    Codes codes = draw(source), block(2 * DW_BENCH_CODES), back(DW_BENCH_CODES);
    uint32_t counts[256];
    size_t bytes = coder.encode(codes, block);
    if (bytes == 0 || !coder.decode(block, bytes, back) || back != codes) {
        state.SkipWithError("the codes do not come back");
        return;
    }
    std::vector<double> times;
    for (auto _ : state) {
        auto begin = std::chrono::steady_clock::now();
        if (way == kEncode) coder.encode(codes, block);
        if (way == kDecode) coder.decode(block, bytes, back);
        if (way == kCount) dw_bench_count(codes.data(), counts);
        benchmark::ClobberMemory();
        times.push_back(
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    double entropy = entropy_bytes(codes), n = DW_BENCH_CODES;
    state.counters["Gcodes"] = n / times[times.size() / 2] / 1e9;
    state.counters["bits"] = 8 * static_cast<double>(bytes) / n;
    state.counters["entropy"] = 8 * entropy / n;
}

} // namespace

int main(int argc, char **argv)
{
    std::vector<std::string> coders;
    for (int i = 0; dw_bench_table(i); i++) coders.push_back(dw_bench_table(i));
#ifdef DW_BENCH_ZSTD
    coders.push_back("zstd1");
#endif
    for (const std::string &coder : coders)
        for (const Source &source : kSources)
            for (Way way : {kEncode, kDecode, kCount}) {
                if (way == kCount && coder == "zstd1") continue;
                std::string name = std::string(kWays[way]) + "/" + source.name + "/" + coder + "/" +
                                   std::to_string(DW_BENCH_CODES);
                benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State &state) {
                    run(state, way, source, coder);
                })->Unit(benchmark::kMicrosecond);
            }
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    if (benchmark::RunSpecifiedBenchmarks() == 0) return 1; /* no benchmark matches the filter */
    benchmark::Shutdown();
    return 0;
}
