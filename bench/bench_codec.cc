/* SPDX-License-Identifier: Apache-2.0
 * bench_codec.cc - measures bytes of x per second of encode and decode, compared with the limit of
 * the memory. */
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "deltawire/deltawire.h"
#include "deltawire/profile.h"
#include "limit.h"
#include "tables.h"
#include "tile.h"

namespace
{

constexpr uint32_t kChannels = 1024;
constexpr int kVariants = 2; /* variants of x: a sample that never changes would give groups of
                                zeros */

/* What a word after the codec's name changes in its config. */
enum Variant {
    kPlain,
    kChoose,
    kNoAudit,
    kWriteY,
    kReadY,
    kAdd,
    kStochastic,
    kMse,
    kDither,
    kCoded,
    kCodedDither,
    kTrellis,
    kFeedback,
    kHadamard,
    kCodedHadamard,
    kProfile,
    kCodedProfile,
    kPrev8
};
const char *const kVariantWords[] = {"",
                                     "+choose",
                                     "-audit",
                                     "+y",
                                     "+read",
                                     "+add",
                                     "+stochastic",
                                     "+mse",
                                     "+dither",
                                     "+rans",
                                     "+dither+rans",
                                     "+trellis",
                                     "+feedback",
                                     "+hadamard",
                                     "+hadamard+rans",
                                     "+profile",
                                     "+profile+rans",
                                     "+prev8"};

struct Case {
    bool encode;
    Variant variant;
    dw_codec codec;
    uint32_t bits, group; /* bits: of raw 16: bf16 */
    dw_element element;   /* 0: not microscaled */
    bool steps;           /* the form step */
    uint32_t step;        /* in thousandths; 0: the default, 1 */
    dw_dtype x, prev;
    const char *table;
    size_t bytes; /* of x */
    int threads;

    size_t elements() const { return bytes / dw_dtype_bytes(x); }
    uint32_t tokens() const
    {
        return static_cast<uint32_t>((elements() + kChannels - 1) / kChannels);
    }
    uint32_t channels() const { return static_cast<uint32_t>(elements() / tokens()); }
    size_t block() const { return bytes >= (8u << 20) ? 1 : 16; } /* calls in a row */
    bool y_is_prev() const { return codec == DW_CODEC_DELTA && variant != kWriteY; }
    std::string step_word() const;
    std::string name() const;
    dw_config config() const;
};

const char *word(dw_dtype dtype)
{
    return dtype == DW_F32 ? "f32" : dtype == DW_F16 ? "f16" : "bf16";
}

/* "step", with the step behind it where it is not the default: "step1.4". */
std::string Case::step_word() const
{
    std::string tenths = step % 1000 ? "." + std::to_string(step % 1000 / 100) : "";
    return step ? "step" + std::to_string(step / 1000) + tenths : "step";
}

/* <way>/<codec>/b<bits>/g<group>/<x>/<prev>/<isa>/<bytes of x>/t<threads>; microscaled: the element
 * in place of b<bits>; in steps: "step" or "step<step>" */
std::string Case::name() const
{
    const char *codecs[] = {"", "delta", "direct", "raw", "mx"};
    const char *elements[] = {"", "int8", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1"};
    std::string s = encode ? "encode/" : "decode/";
    s += std::string(codecs[codec]) + kVariantWords[variant] + "/";
    s += (element ? elements[element] : steps ? step_word() : "b" + std::to_string(bits)) + "/g";
    s += group == DW_GROUP_ROW       ? "row"
         : group == DW_GROUP_SAMPLE  ? "sample"
         : group == DW_GROUP_CHANNEL ? "channel"
                                     : std::to_string(group);
    s += std::string("/") + word(x) + "/" + (codec == DW_CODEC_DELTA ? word(prev) : "none");
    return s + "/" + table + "/" + std::to_string(bytes) + "/t" + std::to_string(threads);
}

/* A profile with weights and two lists of means. It is made once and never destroyed. */
const dw_profile *profile_of(uint32_t channels)
{
    static std::map<uint32_t, dw_profile *> made;
    if (made.count(channels)) return made[channels];
    std::vector<float> values(3 * size_t{channels}, 0.01f);
    for (uint32_t c = 0; c < channels; c++) values[c] = 1.0f / static_cast<float>(1 + c % 7);
    dw_tensor rows = dw_tensor_3d(values.data(), DW_F32, 1, 3, channels);
    if (dw_profile_create(&made[channels], &rows, nullptr, nullptr) != DW_OK) std::abort();
    return made[channels];
}

dw_config Case::config() const
{
    dw_config config = {};
    config.struct_size = sizeof config;
    config.codec = codec;
    if (codec == DW_CODEC_RAW) {
        config.raw = bits == 16 ? DW_BF16 : x;
    } else if (element) {
        config.element = element;
        if (codec == DW_CODEC_DELTA) config.form = DW_FORM_MX;
    } else if (steps) {
        config.form = DW_FORM_STEP;
        config.step = step;
        config.group = group;
    } else {
        config.bits = bits;
        config.group = group;
    }
    if (codec == DW_CODEC_DELTA) {
        config.prev = variant == kPrev8 ? 8u : static_cast<uint32_t>(prev);
        if (!steps && variant != kHadamard)
            config.choose = variant == kChoose ? DW_CHOOSE_GROUP : DW_CHOOSE_NEVER;
        if (variant == kNoAudit) config.audit = DW_AUDIT_NEVER;
    }
    if (variant == kStochastic) config.rounding = DW_ROUNDING_STOCHASTIC;
    if (variant == kDither || variant == kCodedDither) config.rounding = DW_ROUNDING_DITHER;
    if (variant == kTrellis) config.rounding = DW_ROUNDING_TRELLIS;
    if (variant == kMse) config.scale = DW_SCALE_MSE;
    if (variant == kFeedback) config.feedback = DW_FEEDBACK_EF;
    if (variant == kCoded || variant == kCodedDither || variant == kTrellis ||
        variant == kCodedHadamard || variant == kCodedProfile)
        config.entropy = DW_ENTROPY_RANS;
    if (variant == kHadamard || variant == kCodedHadamard) config.transform = DW_TRANSFORM_HADAMARD;
    if (variant == kProfile || variant == kCodedProfile) config.profile = profile_of(channels());
    config.replies = DW_REPLIES_NEVER; /* no undo copies, because no frame is lost here */
    config.incarnation = 1;
    return config;
}

/* Roughly the activations of a model: ordinary magnitudes, and a few strong channels. */
void fill(unsigned char *x, size_t n, dw_dtype dtype, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        float value = 0;
        for (int k = 0; k < 4; k++) {
            seed = seed * 1664525u + 1013904223u;
            value += static_cast<float>(static_cast<int32_t>(seed)) * (1.0f / 2147483648.0f);
        }
        if (i % kChannels % 101 == 7) value *= 8.0f;
        if (dtype == DW_F32) {
            memcpy(x + i * 4, &value, 4);
        } else if (dtype == DW_F16) {
            /* 1 to 2, and its negative: the spread does not matter for speed. */
            uint16_t half = static_cast<uint16_t>(0x3c00 | (seed >> 16 & 0x83ff));
            memcpy(x + i * 2, &half, 2);
        } else { /* bf16: the upper half */
            uint32_t bits;
            memcpy(&bits, &value, 4);
            uint16_t half = static_cast<uint16_t>(bits >> 16);
            memcpy(x + i * 2, &half, 2);
        }
    }
}

double seconds_since(std::chrono::steady_clock::time_point begin)
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> times)
{
    if (times.empty()) return 0;
    auto middle = times.begin() + static_cast<long>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
}

/* An encoder, its decoder and their buffers. The limit is measured on the same x, y and frame. */
class Bench
{
  public:
    explicit Bench(const Case &c) : case_(c)
    {
        config_ = c.config();
        dw_host host{};
        host.struct_size = sizeof host;
        if (c.threads > 1) {
            pool_.reset(new Pool(c.threads));
            host.parallel_for = Pool::parallel_for;
            host.parallel_context = pool_.get();
        }
        if (dw_encoder_create(&encoder_, &config_, &host, nullptr) != DW_OK ||
            dw_decoder_create(&decoder_, &config_, &host, nullptr) != DW_OK)
            return;
        dw_bench_use(c.table, encoder_, decoder_);
        for (int i = 0; i < kVariants; i++) {
            x_.push_back(make_buffer(c.bytes, false));
            fill(x_.back().get(), c.elements(), c.x, static_cast<uint32_t>(i + 1));
        }
        y_ = make_buffer(c.bytes, false);
        dw_tensor x = tensor(x_[0].get());
        frame_cap_ = dw_frame_bound(&config_, &x);
        for (size_t i = 0; i < (c.encode ? 1 : c.block()); i++)
            frames_.push_back({make_buffer(frame_cap_, false), 0});
        bool keeps = c.codec == DW_CODEC_DELTA || c.variant == kFeedback;
        state_bytes_ = keeps ? c.elements() * dw_dtype_bytes(c.prev) : 0; /* or of residuals */
        if (c.variant == kPrev8) state_bytes_ = c.elements() / 16 * 17;
        limit_prev_ = make_buffer(state_bytes_, true);
        limit_next_ = make_buffer(state_bytes_, true);
    }
    ~Bench()
    {
        dw_encoder_destroy(encoder_);
        dw_decoder_destroy(decoder_);
    }
    Bench(const Bench &) = delete;
    Bench &operator=(const Bench &) = delete;

    /* Prepares a call; not measured. Frames to decode are encoded in blocks, so that the caches
     * hold what earlier decodes left there. */
    dw_status prepare()
    {
        if (!decoder_) return DW_ERR_CONFIG;
        dw_status status = DW_OK;
        double unused;
        turn_ = case_.encode ? 0 : visit_decode_++ % frames_.size();
        for (size_t i = 0; !case_.encode && turn_ == 0 && i < frames_.size() && status == DW_OK;
             i++)
            status = encode(&frames_[i], &unused);
        return status;
    }

    /* Runs one frame and returns its seconds. */
    dw_status call(double *seconds)
    {
        if (case_.encode) return encode(&frames_[0], seconds);
        dw_tensor y = tensor(case_.y_is_prev() ? nullptr : y_.get());
        dw_decode_options options = {};
        options.struct_size = sizeof options;
        options.adds = case_.variant == kAdd;
        options.factor = 1;
        auto begin = std::chrono::steady_clock::now();
        dw_status status = dw_decode(decoder_, frames_[turn_].data.get(), frames_[turn_].len, &y,
                                     &options, nullptr, 0, nullptr);
        *seconds = seconds_since(begin) + read_y(false);
        return status;
    }

    /* Seconds of a pass over the traffic, and of the loop that reads y after it. */
    double limit(size_t pass, bool streaming) const
    {
        return limit_pass(traffic(pass), streaming, pool()) + read_y(streaming);
    }

    /* The bytes that every encoder or decoder must read and write, including the few bytes of the
     * frame's tables. */
    Traffic traffic(size_t pass) const
    {
        Traffic t;
        const Frame &f = frames_[pass % frames_.size()];
        Stream frame = {f.data.get(), f.len}, prev = {limit_prev_.get(), state_bytes_},
               next = {limit_next_.get(), state_bytes_};
        if (case_.encode) t.reads.push_back({x_[pass % kVariants].get(), case_.bytes});
        (case_.encode ? t.writes : t.reads).push_back(frame);
        if (case_.variant == kAdd) t.reads.push_back({y_.get(), case_.bytes});
        if (!case_.encode && !case_.y_is_prev()) t.writes.push_back({y_.get(), case_.bytes});
        if (state_bytes_ > 0) { /* the next pass reads what this one wrote, as with prev */
            t.reads.push_back(pass % 2 ? next : prev);
            t.writes.push_back(pass % 2 ? prev : next);
        }
        return t;
    }

    /* Seconds of the two digests alone, over data that is in the cache. */
    void digests(double *payload, double *state)
    {
        std::vector<double> payload_times, state_times;
        dw_tensor prev;
        for (int i = 0; i < 5; i++) {
            auto begin = std::chrono::steady_clock::now();
            benchmark::DoNotOptimize(
                dw_bench_payload_digest(frames_[0].data.get(), frames_[0].len));
            payload_times.push_back(seconds_since(begin));
            if (case_.codec != DW_CODEC_DELTA || dw_encoder_peek(encoder_, key_, &prev) != DW_OK)
                continue;
            begin = std::chrono::steady_clock::now();
            benchmark::DoNotOptimize(dw_bench_state_digest(&prev));
            state_times.push_back(seconds_since(begin));
        }
        *payload = median(payload_times);
        *state = case_.variant == kNoAudit ? 0 : median(state_times);
    }

    size_t len() const { return frames_[0].len; }
    Pool *pool() const { return pool_.get(); }

  private:
    /* Seconds of a loop that reads y once, if the case has such a loop. */
    double read_y(bool streaming) const
    {
        Traffic t;
        if (case_.variant != kReadY) return 0;
        t.reads.push_back({y_.get(), case_.bytes});
        return limit_pass(t, streaming, pool());
    }

    struct Frame {
        Buffer data;
        size_t len;
    };

    dw_status encode(Frame *frame, double *seconds)
    {
        dw_tensor x = tensor(x_[visit_++ % kVariants].get());
        auto begin = std::chrono::steady_clock::now();
        dw_status status =
            dw_encode(encoder_, &key_, &x, nullptr, frame->data.get(), frame_cap_, &frame->len);
        *seconds = seconds_since(begin);
        return status;
    }

    dw_tensor tensor(void *data) const
    {
        return dw_tensor_3d(data, case_.x, 1, case_.tokens(), case_.channels());
    }

    Case case_;
    std::unique_ptr<Pool> pool_;
    dw_config config_ = {};
    dw_encoder *encoder_ = nullptr;
    dw_decoder *decoder_ = nullptr;
    std::vector<Buffer> x_;
    std::vector<Frame> frames_;
    Buffer y_, limit_prev_, limit_next_;
    size_t frame_cap_ = 0, visit_ = 0, visit_decode_ = 0, turn_ = 0, state_bytes_ = 0;
    dw_key key_ = {17, 0};
};

/* Blocks of frames and blocks of passes over the same traffic alternate, so that a change of the
 * machine's speed affects both. */
void run(benchmark::State &state, const Case &c)
{
    Bench bench(c);
    double seconds = 0;
    dw_status status = DW_OK;
    for (int i = 0; i < kVariants + 1 && status == DW_OK; i++) { /* skip the key frame */
        status = bench.prepare();
        if (status == DW_OK) status = bench.call(&seconds);
    }
    std::vector<double> times, normal, streaming;
    size_t block = c.block();
    for (auto _ : state) {
        state.PauseTiming();
        if (times.size() % block == 0) {
            /* The streaming pass comes first, because it empties the caches, which the first normal
             * pass fills again. */
            for (size_t i = 0; i < block; i++) streaming.push_back(bench.limit(i, true));
            for (size_t i = 0; i <= block; i++) {
                double took = bench.limit(i, false);
                if (i > 0) normal.push_back(took);
            }
        }
        if (status == DW_OK) status = bench.prepare();
        state.ResumeTiming();
        if (status == DW_OK) status = bench.call(&seconds);
        if (status != DW_OK) {
            state.SkipWithError(dw_status_string(status));
            return;
        }
        times.push_back(seconds);
    }
    double took = median(times), limit = std::min(median(normal), median(streaming)), payload,
           audit;
    double bytes = static_cast<double>(c.bytes);
    bench.digests(&payload, &audit);
    state.counters["GBps"] = bytes / took / 1e9;
    state.counters["limit_GBps"] = bytes / limit / 1e9;
    state.counters["ratio"] = limit / took;
    state.counters["compression"] = bytes / static_cast<double>(bench.len());
    state.counters["payload_digest_share"] = payload / took;
    state.counters["state_digest_share"] = audit / took;
    dw_config config = c.config();
    if (c.variant == kPrev8) config.prev = c.prev; /* in which kernels read it */
    double arithmetic = dw_bench_tile_seconds(c.table, &config, c.encode, c.x);
    if (arithmetic > 0) state.counters["arithmetic_GBps"] = 1e-9 / arithmetic;
}

/* A codec that is measured with every size of x and every table of kernels. */
struct Codec {
    Variant variant; /* which options differ from those of the codec's plain benchmark */
    dw_codec codec;
    uint32_t bits, group;
    dw_dtype x, prev;
    dw_element element; /* kNoElement unless values are microscaled */
    bool steps = false; /* whether the form is step */
    uint32_t step = 0;  /* in thousandths; 0: the default */
};
constexpr dw_element kNoElement = static_cast<dw_element>(0);
const Codec kCodecs[] = {
    {kPlain, DW_CODEC_DELTA, 4, 64, DW_F32, DW_F32, kNoElement},
    {kChoose, DW_CODEC_DELTA, 4, 64, DW_F32, DW_F32, kNoElement},
    {kNoAudit, DW_CODEC_DELTA, 4, 64, DW_F32, DW_F32, kNoElement},
    {kWriteY, DW_CODEC_DELTA, 4, 64, DW_F32, DW_F32, kNoElement},
    {kStochastic, DW_CODEC_DELTA, 4, 64, DW_F32, DW_F32, kNoElement},
    {kMse, DW_CODEC_DELTA, 4, 64, DW_F32, DW_F32, kNoElement},
    {kPlain, DW_CODEC_DELTA, 4, 64, DW_BF16, DW_BF16, kNoElement},
    {kPrev8, DW_CODEC_DELTA, 4, 64, DW_BF16, DW_BF16, kNoElement},
    {kChoose, DW_CODEC_DELTA, 4, 64, DW_BF16, DW_BF16, kNoElement},
    {kNoAudit, DW_CODEC_DELTA, 4, 64, DW_BF16, DW_BF16, kNoElement},
    {kStochastic, DW_CODEC_DELTA, 4, 64, DW_BF16, DW_BF16, kNoElement},
    {kPlain, DW_CODEC_DELTA, 1, 64, DW_F32, DW_F32, kNoElement},
    {kPlain, DW_CODEC_DELTA, 2, 64, DW_F32, DW_F32, kNoElement},
    {kStochastic, DW_CODEC_DELTA, 2, 64, DW_F32, DW_F32, kNoElement},
    {kMse, DW_CODEC_DELTA, 2, 64, DW_F32, DW_F32, kNoElement},
    {kPlain, DW_CODEC_DELTA, 8, 64, DW_F32, DW_F32, kNoElement},
    {kStochastic, DW_CODEC_DELTA, 8, 64, DW_F32, DW_F32, kNoElement},
    {kPlain, DW_CODEC_DELTA, 3, 64, DW_BF16, DW_BF16, kNoElement},
    {kStochastic, DW_CODEC_DELTA, 3, 64, DW_BF16, DW_BF16, kNoElement},
    {kPlain, DW_CODEC_DELTA, 4, 32, DW_F32, DW_F32, kNoElement},
    {kPlain, DW_CODEC_DELTA, 4, 128, DW_F32, DW_F32, kNoElement},
    {kPlain, DW_CODEC_DELTA, 4, DW_GROUP_ROW, DW_F32, DW_F32, kNoElement},
    {kPlain, DW_CODEC_DELTA, 4, DW_GROUP_CHANNEL, DW_F32, DW_F32, kNoElement},
    {kPlain, DW_CODEC_DELTA, 4, 64, DW_F32, DW_BF16, kNoElement},
    {kPlain, DW_CODEC_DELTA, 4, 64, DW_F16, DW_F16, kNoElement},
    {kPlain, DW_CODEC_DIRECT, 4, 64, DW_F32, DW_F32, kNoElement},
    {kStochastic, DW_CODEC_DIRECT, 4, 64, DW_F32, DW_F32, kNoElement},
    {kPlain, DW_CODEC_DIRECT, 4, 64, DW_BF16, DW_BF16, kNoElement},
    {kReadY, DW_CODEC_DIRECT, 4, 64, DW_F32, DW_F32, kNoElement},
    {kReadY, DW_CODEC_DIRECT, 4, 64, DW_BF16, DW_BF16, kNoElement},
    {kAdd, DW_CODEC_DIRECT, 4, 64, DW_F32, DW_F32, kNoElement},
    {kAdd, DW_CODEC_DIRECT, 8, 64, DW_F32, DW_F32, kNoElement},
    {kAdd, DW_CODEC_DIRECT, 4, 64, DW_BF16, DW_BF16, kNoElement},
    {kFeedback, DW_CODEC_DIRECT, 4, 64, DW_F32, DW_F32, kNoElement},
    {kFeedback, DW_CODEC_DIRECT, 4, 64, DW_BF16, DW_F32, kNoElement},
    {kFeedback, DW_CODEC_DIRECT, 8, DW_GROUP_SAMPLE, DW_F32, DW_F32, kNoElement, true},
    {kFeedback, DW_CODEC_MX, 4, 32, DW_F32, DW_F32, DW_ELEMENT_E2M1},
    {kPlain, DW_CODEC_DIRECT, 8, DW_GROUP_ROW, DW_F32, DW_F32, kNoElement, true},
    {kPlain, DW_CODEC_DIRECT, 8, DW_GROUP_ROW, DW_BF16, DW_BF16, kNoElement, true},
    {kPlain, DW_CODEC_DELTA, 8, DW_GROUP_ROW, DW_F32, DW_F32, kNoElement, true},
    {kPlain, DW_CODEC_DELTA, 8, DW_GROUP_ROW, DW_BF16, DW_BF16, kNoElement, true},
    {kPrev8, DW_CODEC_DELTA, 8, DW_GROUP_ROW, DW_BF16, DW_BF16, kNoElement, true},
    {kCoded, DW_CODEC_DIRECT, 8, DW_GROUP_ROW, DW_F32, DW_F32, kNoElement, true},
    {kProfile, DW_CODEC_DIRECT, 8, DW_GROUP_ROW, DW_F32, DW_F32, kNoElement, true},
    {kProfile, DW_CODEC_DIRECT, 8, DW_GROUP_ROW, DW_BF16, DW_BF16, kNoElement, true},
    {kProfile, DW_CODEC_DELTA, 8, DW_GROUP_ROW, DW_F32, DW_F32, kNoElement, true},
    {kProfile, DW_CODEC_DELTA, 8, DW_GROUP_ROW, DW_BF16, DW_BF16, kNoElement, true},
    {kCodedProfile, DW_CODEC_DIRECT, 8, DW_GROUP_ROW, DW_F32, DW_F32, kNoElement, true},
    {kHadamard, DW_CODEC_DELTA, 4, 64, DW_F32, DW_F32, kNoElement},
    {kHadamard, DW_CODEC_DELTA, 4, 64, DW_BF16, DW_BF16, kNoElement},
    {kHadamard, DW_CODEC_DIRECT, 4, 64, DW_F32, DW_F32, kNoElement},
    {kHadamard, DW_CODEC_DIRECT, 8, DW_GROUP_SAMPLE, DW_F32, DW_F32, kNoElement, true},
    {kCodedHadamard, DW_CODEC_DIRECT, 8, DW_GROUP_SAMPLE, DW_F32, DW_F32, kNoElement, true},
    {kPlain, DW_CODEC_RAW, 32, 0, DW_F32, DW_F32, kNoElement},
    {kPlain, DW_CODEC_RAW, 16, 0, DW_F32, DW_F32, kNoElement},
    {kFeedback, DW_CODEC_RAW, 16, 0, DW_F32, DW_F32, kNoElement},
    {kPlain, DW_CODEC_MX, 8, 32, DW_F32, DW_F32, DW_ELEMENT_INT8},
    {kPlain, DW_CODEC_MX, 8, 32, DW_F32, DW_F32, DW_ELEMENT_E4M3},
    {kPlain, DW_CODEC_MX, 8, 32, DW_BF16, DW_BF16, DW_ELEMENT_E4M3},
    {kPlain, DW_CODEC_MX, 6, 32, DW_F32, DW_F32, DW_ELEMENT_E3M2},
    {kPlain, DW_CODEC_MX, 4, 32, DW_F32, DW_F32, DW_ELEMENT_E2M1},
    {kPlain, DW_CODEC_DELTA, 4, 32, DW_F32, DW_F32, DW_ELEMENT_E2M1},
    {kChoose, DW_CODEC_DELTA, 4, 32, DW_F32, DW_F32, DW_ELEMENT_E2M1},
    {kPlain, DW_CODEC_DELTA, 4, 32, DW_BF16, DW_BF16, DW_ELEMENT_E2M1},
    {kPlain, DW_CODEC_DIRECT, 8, DW_GROUP_SAMPLE, DW_F32, DW_F32, kNoElement, true},
    {kDither, DW_CODEC_DIRECT, 8, DW_GROUP_SAMPLE, DW_F32, DW_F32, kNoElement, true},
    {kCoded, DW_CODEC_DIRECT, 8, DW_GROUP_SAMPLE, DW_F32, DW_F32, kNoElement, true},
    {kCodedDither, DW_CODEC_DIRECT, 8, DW_GROUP_SAMPLE, DW_F32, DW_F32, kNoElement, true},
    /* With these steps codes of our x take 1.6 bits (1.2, 1.3) and 0.8 bits (2.3, 2.8). */
    {kCoded, DW_CODEC_DIRECT, 8, DW_GROUP_SAMPLE, DW_F32, DW_F32, kNoElement, true, 1200},
    {kCoded, DW_CODEC_DIRECT, 8, DW_GROUP_SAMPLE, DW_F32, DW_F32, kNoElement, true, 2300},
    {kCodedDither, DW_CODEC_DIRECT, 8, DW_GROUP_SAMPLE, DW_F32, DW_F32, kNoElement, true, 1300},
    {kCodedDither, DW_CODEC_DIRECT, 8, DW_GROUP_SAMPLE, DW_F32, DW_F32, kNoElement, true, 2800},
    {kTrellis, DW_CODEC_DIRECT, 8, DW_GROUP_SAMPLE, DW_F32, DW_F32, kNoElement, true, 700},
    {kTrellis, DW_CODEC_DELTA, 8, DW_GROUP_SAMPLE, DW_F32, DW_F32, kNoElement, true, 700},
    {kCoded, DW_CODEC_DELTA, 8, DW_GROUP_SAMPLE, DW_F32, DW_F32, kNoElement, true, 1200},
    {kCoded, DW_CODEC_DELTA, 8, DW_GROUP_SAMPLE, DW_F32, DW_F32, kNoElement, true, 2300},
    {kCoded, DW_CODEC_DELTA, 8, DW_GROUP_SAMPLE, DW_F32, DW_F32, kNoElement, true},
    {kCoded, DW_CODEC_DELTA, 8, DW_GROUP_SAMPLE, DW_BF16, DW_BF16, kNoElement, true},
    {kCoded, DW_CODEC_DELTA, 4, 64, DW_F32, DW_F32, kNoElement},
    {kPlain, DW_CODEC_DELTA, 8, DW_GROUP_SAMPLE, DW_F32, DW_F32, kNoElement, true},
    {kStochastic, DW_CODEC_DELTA, 8, DW_GROUP_SAMPLE, DW_F32, DW_F32, kNoElement, true},
    {kDither, DW_CODEC_DELTA, 8, DW_GROUP_SAMPLE, DW_F32, DW_F32, kNoElement, true},
    {kPlain, DW_CODEC_DELTA, 8, DW_GROUP_SAMPLE, DW_BF16, DW_BF16, kNoElement, true},
    {kDither, DW_CODEC_DELTA, 8, DW_GROUP_SAMPLE, DW_BF16, DW_BF16, kNoElement, true},
    {kPlain, DW_CODEC_DELTA, 8, 64, DW_F32, DW_F32, kNoElement, true},
    {kDither, DW_CODEC_DELTA, 8, 64, DW_F32, DW_F32, kNoElement, true},
};

void add_cases(std::vector<Case> &all, const char *table, size_t bytes)
{
    for (const Codec &k : kCodecs) {
        bool encoder_only = k.variant == kStochastic || k.variant == kMse || k.variant == kFeedback,
             decoder_only = k.variant == kWriteY || k.variant == kReadY || k.variant == kAdd;
        for (bool encode : {true, false})
            for (int threads = 1; threads <= (k.variant == kPlain ? 2 : 1); threads++)
                if (!(encode ? decoder_only : encoder_only))
                    all.push_back({encode, k.variant, k.codec, k.bits, k.group, k.element, k.steps,
                                   k.step, k.x, k.prev, table, bytes, threads});
    }
}

} // namespace

int main(int argc, char **argv)
{
    /* 1 to 16 KiB: small messages, dominated by the cost of the call; then sizes that fill a cache,
     * and sizes that exceed all caches */
    std::vector<size_t> sizes = {1u << 10, 4u << 10, 16u << 10, 64u << 10, 1u << 20, 16u << 20};
    std::vector<char *> arguments(argv, argv + 1);
    /* Enough for a median. Options of the user come later and take precedence. */
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
    std::vector<Case> cases;
    for (size_t bytes : sizes)
        for (int i = 0; dw_bench_table(i); i++) add_cases(cases, dw_bench_table(i), bytes);
    for (const Case &c : cases)
        benchmark::RegisterBenchmark(c.name().c_str(), [c](benchmark::State &state) {
            run(state, c);
        })->Unit(benchmark::kMicrosecond);
    benchmark::Initialize(&count, arguments.data());
    if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 2;
    if (benchmark::RunSpecifiedBenchmarks() == 0) return 1; /* no benchmark matches the filter */
    benchmark::Shutdown();
    return 0;
}
