/* SPDX-License-Identifier: Apache-2.0
 * bench_entropy.cc - measures codes per second of entropy-coded blocks, and their size beside the
 * entropy; where their libraries were found, beside zstd at level 1 and htscodecs, too. */
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#ifdef DW_BENCH_ZSTD
#include <zstd.h>
#endif
#ifdef DW_BENCH_HTSCODECS
#include <htscodecs/rANS_static4x16.h>
#endif

#include "blocks.h"
#include "tables.h"

namespace
{

using Codes = std::vector<uint8_t>;

constexpr size_t kWhole = 1 << 20; /* codes that peers also get at once */

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

Codes draw(const Source &s, size_t n)
{
    std::mt19937_64 random(17);
    std::normal_distribution<double> normal;
    std::exponential_distribution<double> one_side(std::sqrt(2.0));
    Codes codes(n);
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

/* Who codes: a table of kernels of ours, or a peer. */
class Coder
{
  public:
    explicit Coder(const std::string &name) { dw_bench_blocks_use(name.c_str()); }
    virtual ~Coder() = default;
    Coder(const Coder &) = delete;
    Coder &operator=(const Coder &) = delete;

    virtual size_t encode(Codes &codes, Codes &block)
    {
        return dw_bench_block_encode(codes.data(), block.data());
    }

    virtual bool decode(Codes &block, size_t bytes, Codes &codes)
    {
        return dw_bench_block_decode(block.data(), bytes, codes.data()) != 0;
    }

  protected:
    Coder() = default;
};

const std::vector<std::string> kPeers = {
#ifdef DW_BENCH_ZSTD
    "zstd1",
#endif
#ifdef DW_BENCH_HTSCODECS
    "hts32"
#endif
};

bool is_peer(const std::string &name)
{
    return std::find(kPeers.begin(), kPeers.end(), name) != kPeers.end();
}

#ifdef DW_BENCH_ZSTD
class Zstd : public Coder
{
  public:
    ~Zstd() override
    {
        ZSTD_freeCCtx(to_);
        ZSTD_freeDCtx(from_);
    }

    size_t encode(Codes &codes, Codes &block) override
    {
        return ZSTD_compressCCtx(to_, block.data(), block.size(), codes.data(), codes.size(), 1);
    }

    bool decode(Codes &block, size_t bytes, Codes &codes) override
    {
        return ZSTD_decompressDCtx(from_, codes.data(), codes.size(), block.data(), bytes) ==
               codes.size();
    }

  private:
    ZSTD_CCtx *to_ = ZSTD_createCCtx();
    ZSTD_DCtx *from_ = ZSTD_createDCtx();
};
#endif

#ifdef DW_BENCH_HTSCODECS
/* rANS of order 0 with 32 states, as our blocks have. It chooses its own instruction set. */
class Htscodecs : public Coder
{
  public:
    size_t encode(Codes &codes, Codes &block) override
    {
        unsigned bytes = static_cast<unsigned>(block.size());
        unsigned n = static_cast<unsigned>(codes.size());
        return rans_compress_to_4x16(codes.data(), n, block.data(), &bytes, RANS_ORDER_X32) ? bytes
                                                                                            : 0;
    }

    bool decode(Codes &block, size_t bytes, Codes &codes) override
    {
        unsigned n = static_cast<unsigned>(codes.size());
        return rans_uncompress_to_4x16(block.data(), static_cast<unsigned>(bytes), codes.data(),
                                       &n) &&
               n == codes.size();
    }
};
#endif

std::unique_ptr<Coder> coder_of(const std::string &name)
{
#ifdef DW_BENCH_ZSTD
    if (name == "zstd1") return std::make_unique<Zstd>();
#endif
#ifdef DW_BENCH_HTSCODECS
    if (name == "hts32") return std::make_unique<Htscodecs>();
#endif
    return std::make_unique<Coder>(name);
}

void run(benchmark::State &state, Way way, const Source &source, const std::string &name, size_t n)
{
    std::unique_ptr<Coder> coder = coder_of(name);
    Codes codes = draw(source, n), block(4 * n), back(n);
    uint32_t counts[256];
    size_t bytes = coder->encode(codes, block);
    if (bytes == 0 || !coder->decode(block, bytes, back) || back != codes) {
        state.SkipWithError("the codes do not come back");
        return;
    }
    std::vector<double> times;
    for (auto _ : state) {
        auto begin = std::chrono::steady_clock::now();
        if (way == kEncode) coder->encode(codes, block);
        if (way == kDecode) coder->decode(block, bytes, back);
        if (way == kCount) dw_bench_count(codes.data(), counts);
        benchmark::ClobberMemory();
        times.push_back(
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    double number = static_cast<double>(n);
    state.counters["Gcodes"] = number / times[times.size() / 2] / 1e9;
    state.counters["bits"] = 8 * static_cast<double>(bytes) / number;
    state.counters["entropy"] = 8 * entropy_bytes(codes) / number;
}

void add(Way way, const Source &source, const std::string &coder, size_t n)
{
    std::string name =
        std::string(kWays[way]) + "/" + source.name + "/" + coder + "/" + std::to_string(n);
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State &state) {
        run(state, way, source, coder, n);
    })->Unit(benchmark::kMicrosecond);
}

} // namespace

int main(int argc, char **argv)
{
    std::vector<std::string> coders;
    for (int i = 0; dw_bench_table(i); i++) coders.push_back(dw_bench_table(i));
    coders.insert(coders.end(), kPeers.begin(), kPeers.end());
    for (const std::string &coder : coders)
        for (const Source &source : kSources)
            for (Way way : {kEncode, kDecode, kCount})
                for (size_t n : {size_t{DW_BENCH_CODES}, kWhole}) {
                    /* Our blocks end at 65536 codes; peers may have one table for all of these. */
                    bool is_there = is_peer(coder) ? way != kCount : n == DW_BENCH_CODES;
                    if (is_there) add(way, source, coder, n);
                }
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    if (benchmark::RunSpecifiedBenchmarks() == 0) return 1; /* no benchmark matches the filter */
    benchmark::Shutdown();
    return 0;
}
