/* SPDX-License-Identifier: Apache-2.0
 * bench_places.cc - measures bytes of x per second of reading the places of a sparse frame, of
 * gathering the elements at them, and of scattering values to them, compared with the limit of the
 * memory.
 *
 * A name is <way>/k<percent of the elements>/<dtype of x>/<bytes of x>. The limit is that of a loop
 * over the streams that must be read and written: a gather reads the cache lines that have places
 * in them, a scatter writes all of y. */
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "deltawire/places.h"
#include "limit.h"

namespace
{

constexpr uint32_t kChannels = 1024;
constexpr size_t kLine = 64;

enum Way { kRead, kGather, kScatter };

struct Case {
    Way way;
    uint32_t percent;
    dw_dtype dtype;
    size_t bytes; /* of x */

    size_t elements() const { return bytes / (dtype == DW_F32 ? 4 : 2); }
    std::string name() const
    {
        const char *ways[] = {"read", "gather", "scatter"};
        return std::string(ways[way]) + "/k" + std::to_string(percent) + "/" +
               (dtype == DW_F32 ? "f32" : "bf16") + "/" + std::to_string(bytes);
    }
};

double median(std::vector<double> times)
{
    auto middle = times.begin() + static_cast<long>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
}

/* Sums of eight random numbers, which are distributed much like a normal distribution. */
void fill(unsigned char *to, const Case &c)
{
    uint64_t random = 1;
    for (size_t i = 0; i < c.elements(); i++) {
        float sum = 0;
        for (int turn = 0; turn < 8; turn++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            sum += static_cast<float>(static_cast<int32_t>(random >> 32)) * 0x1p-31f;
        }
        uint32_t bits;
        memcpy(&bits, &sum, sizeof bits);
        if (c.dtype == DW_F32)
            reinterpret_cast<uint32_t *>(to)[i] = bits;
        else
            reinterpret_cast<uint16_t *>(to)[i] = static_cast<uint16_t>(bits >> 16);
    }
}

/* How many cache lines of x have places in them. */
size_t count_lines(const dw_places *places, const Case &c)
{
    const uint32_t *list = dw_places_list(places, 0);
    size_t lines = 0, each = kLine / (c.dtype == DW_F32 ? 4 : 2), last = SIZE_MAX;
    for (uint32_t i = 0; i < dw_places_count(places); last = list[i++] / each)
        lines += list[i] / each != last;
    return lines;
}

/* What a call must read and write. touched: the beginning of x, as many bytes as the cache lines
 * have in which there are places. */
Traffic traffic_of(const Case &c, Stream frame, Stream touched, Stream list, Stream values)
{
    Traffic t;
    if (c.way == kRead) {
        t.reads.push_back(frame);
        t.writes.push_back(list);
        return t;
    }
    t.reads.push_back(list);
    t.reads.push_back(c.way == kGather ? touched : values);
    t.writes.push_back(c.way == kGather ? values : Stream{touched.data, c.bytes});
    return t;
}

/* A frame with the places of random values, and what is moved. */
class Bench
{
  public:
    explicit Bench(const Case &c) : case_(c)
    {
        std::string text = "topk:keep=" + std::to_string(c.percent / 100.0);
        dw_config config;
        x_ = make_buffer(c.bytes, false);
        fill(x_.get(), c);
        dw_tensor x = tensor();
        dw_key key = {1, 0};
        if (dw_config_parse(&config, text.c_str(), nullptr) != DW_OK) return;
        frame_ = make_buffer(dw_frame_bound(&config, &x), false);
        if (dw_encoder_create(&encoder_, &config, nullptr, nullptr) != DW_OK ||
            dw_encode(encoder_, &key, &x, nullptr, frame_.get(), dw_frame_bound(&config, &x),
                      &len_) != DW_OK ||
            read() != DW_OK)
            return;
        z_ = make_buffer(sizeof(float) * k(), false);
        list_ = make_buffer(sizeof(float) * k(), false);
        lines_ = count_lines(places_, c);
        ready_ = true;
    }
    ~Bench()
    {
        dw_places_destroy(places_);
        dw_encoder_destroy(encoder_);
    }
    Bench(const Bench &) = delete;
    Bench &operator=(const Bench &) = delete;

    bool ready() const { return ready_; }

    dw_status call()
    {
        dw_tensor x = tensor(), z = dw_tensor_3d(z_.get(), DW_F32, 1, 1, k());
        if (case_.way == kGather) return dw_places_gather(places_, &x, &z, nullptr);
        if (case_.way == kScatter) return dw_places_scatter(places_, &z, &x, nullptr);
        return read();
    }

    Traffic traffic() const
    {
        size_t bytes = sizeof(float) * k();
        return traffic_of(case_, {frame_.get(), len_}, {x_.get(), kLine * lines_},
                          {list_.get(), bytes}, {z_.get(), bytes});
    }

  private:
    uint32_t k() const { return dw_places_count(places_); }

    dw_tensor tensor() const
    {
        size_t tokens = case_.elements() / kChannels;
        return dw_tensor_3d(x_.get(), case_.dtype, 1, static_cast<uint32_t>(tokens), kChannels);
    }

    dw_status read()
    {
        dw_places_destroy(places_);
        return dw_places_read(&places_, frame_.get(), len_, nullptr, nullptr);
    }

    Case case_;
    bool ready_ = false;
    size_t len_ = 0;
    dw_encoder *encoder_ = nullptr;
    dw_places *places_ = nullptr;
    size_t lines_ = 0; /* of x, that have places */
    Buffer x_, z_, list_, frame_;
};

/* Calls and passes over the same traffic alternate. */
void run(benchmark::State &state, const Case &c)
{
    Bench bench(c);
    std::vector<double> times, limits;
    dw_status status = bench.ready() ? DW_OK : DW_ERR_CONFIG;
    for (auto _ : state) {
        if (status != DW_OK) {
            state.SkipWithError(dw_status_string(status));
            return;
        }
        state.PauseTiming();
        limits.push_back(limit_pass(bench.traffic(), false, nullptr));
        state.ResumeTiming();
        auto begin = std::chrono::steady_clock::now();
        status = bench.call();
        std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        times.push_back(took.count());
    }
    double bytes = static_cast<double>(c.bytes);
    state.counters["GBps"] = bytes / median(times) / 1e9;
    state.counters["limit_GBps"] = bytes / median(limits) / 1e9;
    state.counters["ratio"] = median(limits) / median(times);
}

} // namespace

int main(int argc, char **argv)
{
    for (size_t bytes : {size_t(64) << 10, size_t(1) << 20, size_t(16) << 20})
        for (dw_dtype dtype : {DW_F32, DW_BF16})
            for (uint32_t percent : {1u, 10u, 30u})
                for (Way way : {kRead, kGather, kScatter}) {
                    Case c = {way, percent, dtype, bytes};
                    benchmark::RegisterBenchmark(c.name().c_str(), [c](benchmark::State &state) {
                        run(state, c);
                    })->Unit(benchmark::kMicrosecond);
                }
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    if (benchmark::RunSpecifiedBenchmarks() == 0) return 1; /* no benchmark matches the filter */
    benchmark::Shutdown();
    return 0;
}
