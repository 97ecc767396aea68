/* SPDX-License-Identifier: Apache-2.0
 * bench_codec.cc - bytes of x per second through encode and decode, beside what the memory allows. */
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "deltawire/deltawire.h"
#include "limit.h"

namespace
{

constexpr uint32_t kChannels = 1024;
constexpr int kVariants = 2; /* of x: a sample that never changes would become zero groups */

struct Case {
    bool encode;
    dw_codec codec;
    uint32_t bits, group;
    dw_dtype x, prev;
    size_t bytes; /* of x */

    size_t elements() const { return bytes / dw_dtype_bytes(x); }
    std::string name() const;
    dw_config config() const;
    Traffic traffic(size_t frame_bytes) const;
};

const char *word(dw_dtype dtype)
{
    return dtype == DW_F32 ? "f32" : dtype == DW_F16 ? "f16" : "bf16";
}

/* <way>/<codec>/b<bits>/g<group>/<x>/<prev>/<isa>/<bytes of x>/t<threads> */
std::string Case::name() const
{
    const char *codecs[] = {"", "delta", "direct", "raw"};
    std::string s = encode ? "encode/" : "decode/";
    s += std::string(codecs[codec]) + "/b" + std::to_string(bits) + "/g";
    s += group == DW_GROUP_ROW ? "row" : std::to_string(group);
    s += std::string("/") + word(x) + "/" + (codec == DW_CODEC_DELTA ? word(prev) : "none");
    return s + "/c/" + std::to_string(bytes) + "/t1"; /* the C kernels are the only ones; one thread */
}

dw_config Case::config() const
{
    dw_config config = {};
    config.struct_size = sizeof config;
    config.codec = codec;
    if (codec == DW_CODEC_RAW) {
        config.raw = x;
    } else {
        config.bits = bits;
        config.group = group;
    }
    if (codec == DW_CODEC_DELTA) config.prev = prev;
    config.replies = DW_REPLIES_NEVER; /* no undo copies: a frame is never lost here */
    config.incarnation = 1;
    return config;
}

/* What any encoder or decoder must read and write; the frame's few bytes of tables included. */
Traffic Case::traffic(size_t frame_bytes) const
{
    Traffic t;
    size_t prev_bytes = codec == DW_CODEC_DELTA ? elements() * dw_dtype_bytes(prev) : 0;
    t.reads.push_back(encode ? bytes : frame_bytes);
    t.writes.push_back(encode ? frame_bytes : bytes);
    if (prev_bytes > 0) {
        t.reads.push_back(prev_bytes);
        t.writes.push_back(prev_bytes);
    }
    t.read_copies = encode ? kVariants : 1;
    return t;
}

/* Activations as a model gives them, roughly: ordinary magnitudes, a few strong channels. */
void fill(std::vector<unsigned char> &x, dw_dtype dtype, uint32_t seed)
{
    size_t n = x.size() / dw_dtype_bytes(dtype);
    for (size_t i = 0; i < n; i++) {
        float value = 0;
        for (int k = 0; k < 4; k++) {
            seed = seed * 1664525u + 1013904223u;
            value += static_cast<float>(static_cast<int32_t>(seed)) * (1.0f / 2147483648.0f);
        }
        if (i % kChannels % 101 == 7) value *= 8.0f;
        if (dtype == DW_F32) {
            memcpy(&x[i * 4], &value, 4);
        } else { /* bf16: the upper half */
            uint32_t bits;
            memcpy(&bits, &value, 4);
            uint16_t half = static_cast<uint16_t>(bits >> 16);
            memcpy(&x[i * 2], &half, 2);
        }
    }
}

struct Ends {
    dw_encoder *encoder = nullptr;
    dw_decoder *decoder = nullptr;
    ~Ends()
    {
        dw_encoder_destroy(encoder);
        dw_decoder_destroy(decoder);
    }
};

double seconds_since(std::chrono::steady_clock::time_point begin)
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void run(benchmark::State &state, const Case &c)
{
    dw_config config = c.config();
    Ends ends;
    dw_status status = dw_encoder_create(&ends.encoder, &config);
    if (status == DW_OK) status = dw_decoder_create(&ends.decoder, &config);
    if (status != DW_OK) return state.SkipWithError(dw_status_string(status));

    uint32_t tokens = static_cast<uint32_t>(c.elements() / kChannels);
    std::vector<std::vector<unsigned char>> x(kVariants, std::vector<unsigned char>(c.bytes));
    for (int i = 0; i < kVariants; i++)
        fill(x[static_cast<size_t>(i)], c.x, static_cast<uint32_t>(i + 1));
    std::vector<unsigned char> y(c.bytes);
    dw_tensor shape = dw_tensor_3d(y.data(), c.x, 1, tokens, kChannels), out = shape;
    std::vector<unsigned char> frame(dw_frame_bound(&config, &shape));
    dw_key key = {17, 0};

    size_t len = 0, visit = 0;
    std::vector<double> times;
    auto encode = [&] {
        dw_tensor in = dw_tensor_3d(x[visit++ % kVariants].data(), c.x, 1, tokens, kChannels);
        return dw_encode(ends.encoder, &key, &in, frame.data(), frame.size(), &len);
    };
    auto decode = [&] { return dw_decode(ends.decoder, frame.data(), len, &out, nullptr, 0, nullptr); };
    for (int i = 0; i < kVariants + 1 && status == DW_OK; i++) { /* past the key frame */
        status = encode();
        if (status == DW_OK && !c.encode) status = decode();
    }
    /* Before and after: a machine that changes its speed in between shows in both. */
    double limit = limit_seconds(c.traffic(len), 0.02);
    for (auto _ : state) {
        if (!c.encode && status == DW_OK) { /* each frame can be decoded once */
            state.PauseTiming();
            status = encode();
            state.ResumeTiming();
        }
        auto begin = std::chrono::steady_clock::now();
        if (status == DW_OK) status = c.encode ? encode() : decode();
        times.push_back(seconds_since(begin));
        if (status != DW_OK) {
            state.SkipWithError(dw_status_string(status));
            break;
        }
    }
    limit = (limit + limit_seconds(c.traffic(len), 0.02)) / 2;
    double seconds = 0, bytes = static_cast<double>(c.bytes);
    if (!times.empty()) { /* the median, as for the limit: the machine has other things to do */
        std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2),
                         times.end());
        seconds = times[times.size() / 2];
    }
    state.counters["GBps"] = seconds > 0 ? bytes / seconds / 1e9 : 0;
    state.counters["limit_GBps"] = bytes / limit / 1e9;
    state.counters["of_limit"] = seconds > 0 ? limit / seconds : 0;
    state.counters["ratio"] = len > 0 ? bytes / static_cast<double>(len) : 0;
}

std::vector<Case> cases(size_t bytes)
{
    struct Codec {
        dw_codec codec;
        uint32_t bits, group;
        dw_dtype x, prev;
    };
    static const Codec codecs[] = {
        {DW_CODEC_DELTA, 4, 64, DW_F32, DW_F32},           {DW_CODEC_DELTA, 2, 64, DW_F32, DW_F32},
        {DW_CODEC_DELTA, 3, 64, DW_F32, DW_F32},           {DW_CODEC_DELTA, 8, 64, DW_F32, DW_F32},
        {DW_CODEC_DELTA, 4, 32, DW_F32, DW_F32},           {DW_CODEC_DELTA, 4, 128, DW_F32, DW_F32},
        {DW_CODEC_DELTA, 4, DW_GROUP_ROW, DW_F32, DW_F32}, {DW_CODEC_DELTA, 4, 64, DW_F32, DW_BF16},
        {DW_CODEC_DELTA, 4, 64, DW_BF16, DW_BF16},         {DW_CODEC_DIRECT, 4, 64, DW_F32, DW_F32},
        {DW_CODEC_DIRECT, 2, 64, DW_F32, DW_F32},          {DW_CODEC_DIRECT, 6, 64, DW_F32, DW_F32},
        {DW_CODEC_DIRECT, 4, 64, DW_BF16, DW_BF16},        {DW_CODEC_RAW, 32, 0, DW_F32, DW_F32},
    };
    std::vector<Case> all;
    for (const Codec &k : codecs)
        for (bool encode : {true, false})
            all.push_back({encode, k.codec, k.bits, k.group, k.x, k.prev, bytes});
    return all;
}

} // namespace

int main(int argc, char **argv)
{
    std::vector<size_t> sizes = {64u << 10, 1u << 20, 16u << 20};
    std::vector<char *> arguments(argv, argv + 1);
    /* Enough for a median; what the user says comes later and wins. */
    char min_time[] = "--benchmark_min_time=0.1";
    arguments.push_back(min_time);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--big") == 0)
            sizes.push_back(256u << 20); /* ours; Google Benchmark sees the rest */
        else
            arguments.push_back(argv[i]);
    }
    int count = static_cast<int>(arguments.size());
    arguments.push_back(nullptr);
    for (size_t bytes : sizes)
        for (const Case &c : cases(bytes))
            benchmark::RegisterBenchmark(c.name().c_str(), [c](benchmark::State &state) {
                run(state, c);
            })->Unit(benchmark::kMicrosecond);
    benchmark::Initialize(&count, arguments.data());
    if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 2;
    if (benchmark::RunSpecifiedBenchmarks() == 0) return 1; /* the filter picked nothing */
    benchmark::Shutdown();
    return 0;
}
