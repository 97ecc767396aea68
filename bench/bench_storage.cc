/* SPDX-License-Identifier: Apache-2.0
 * bench_storage.cc - visits of samples whose prev lies in a file, beside the same in memory, and
 * beside the bare file.
 *
 * A name is <way>/<bytes of x>. Each visit encodes one sample of bf16 with delta:bits=2 and decodes
 * it, so both ends read a copy and write one. `file` has a cache for a tenth of the samples and is
 * told the next samples; `blind` is not told. `bare` reads and writes as many bytes of a file, with
 * as many threads, and does nothing else. The file lies in TMPDIR, and in the page cache if twice
 * DELTAWIRE_BENCH_STATE_MIB (256 if it is not set) fits there. For what a disk adds, give more than
 * the memory, and leave out `memory`. */
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "deltawire/storage.h"

namespace
{

constexpr uint32_t kChannels = 1024;
constexpr int kThreads = 4;

enum Way { kMemory, kFile, kBlind, kBare };

struct Case {
    Way way;
    size_t bytes;   /* of x, and of a copy */
    size_t samples; /* so many that the copies of one end take 256 MiB */
};

std::string path()
{
    const char *folder = getenv("TMPDIR");
    return std::string(folder ? folder : "/tmp") + "/deltawire-bench.state";
}

class Pair
{
  public:
    explicit Pair(const Case &c) : c_(c), x_(c.bytes / 2), y_(c.bytes / 2)
    {
        std::string text = "file:" + path() + ",cache=" + std::to_string(c.bytes * c.samples / 10) +
                           ",ahead=" + std::to_string(32 * c.bytes) +
                           ",threads=" + std::to_string(kThreads);
        dw_config config;
        bool ok = dw_config_parse(&config, "delta:bits=2,replies=never", nullptr) == DW_OK;
        if (c.way != kMemory) ok = ok && dw_storage_open(&storage_, text.c_str(), nullptr) == DW_OK;
        dw_host host{};
        host.struct_size = sizeof host;
        host.backing = dw_storage_backing(storage_);
        ok = ok && dw_encoder_create(&encoder_, &config, &host, nullptr) == DW_OK &&
             dw_decoder_create(&decoder_, &config, &host, nullptr) == DW_OK;
        if (!ok) abort();
        for (size_t i = 0; i < x_.size(); i++)
            x_[i] = static_cast<uint16_t>(0x3f00 + i * 2654435761u % 256);
        dw_tensor x = tensor(x_);
        frame_.resize(dw_frame_bound(&config, &x));
    }
    ~Pair()
    {
        dw_encoder_destroy(encoder_);
        dw_decoder_destroy(decoder_);
        dw_storage_close(storage_);
    }
    bool visit(size_t at)
    {
        dw_key key = {at % c_.samples, 0}, next = {(at + 8) % c_.samples, 0};
        if (c_.way == kFile) {
            dw_encoder_prefetch(encoder_, &next, 1);
            dw_decoder_prefetch(decoder_, &next, 1);
        }
        dw_tensor x = tensor(x_), y = tensor(y_);
        size_t len = 0;
        return dw_encode(encoder_, &key, &x, nullptr, frame_.data(), frame_.size(), &len) ==
                   DW_OK &&
               dw_decode(decoder_, frame_.data(), len, &y, nullptr, nullptr, 0, nullptr) == DW_OK;
    }
    double waited() const
    {
        dw_storage_counters c = {};
        c.struct_size = sizeof c;
        return dw_storage_count(storage_, &c) == DW_OK ? 1e-9 * double(c.wait_ns) : 0;
    }

  private:
    dw_tensor tensor(std::vector<uint16_t> &values) const
    {
        return dw_tensor_3d(values.data(), DW_BF16, 1, uint32_t(values.size()) / kChannels,
                            kChannels);
    }
    Case c_;
    std::vector<uint16_t> x_, y_;
    std::vector<uint8_t> frame_;
    dw_storage *storage_ = nullptr;
    dw_encoder *encoder_ = nullptr;
    dw_decoder *decoder_ = nullptr;
};

void count(benchmark::State &state, const Case &c)
{
    state.SetBytesProcessed(int64_t(state.iterations()) * int64_t(c.bytes));
    /* What a file must read, and write as well, for a visit at two ends. */
    state.counters["copies_bytes"] = benchmark::Counter(
        2.0 * double(c.bytes) * double(state.iterations()), benchmark::Counter::kIsRate);
}

void run(benchmark::State &state, Case c)
{
    Pair pair(c);
    size_t at = 0;
    for (; at < c.samples; at++)
        if (!pair.visit(at)) abort();
    double before = pair.waited();
    for (auto _ : state)
        if (!pair.visit(at++)) state.SkipWithError("a visit failed");
    state.counters["waited_s"] = pair.waited() - before;
    count(state, c);
}

/* Each of kThreads threads reads the next slot, and writes it somewhere else: a visit's two copies.
 */
void run_bare(benchmark::State &state, Case c)
{
    static int fd;
    static std::atomic<size_t> next;
    size_t slots = 2 * c.samples + kThreads;
    std::vector<char> buffer(c.bytes, 'x');
    if (state.thread_index() == 0) {
        next = 0;
        fd = open(path().c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
        for (size_t i = 0; i < slots; i++)
            if (pwrite(fd, buffer.data(), c.bytes, off_t(i * c.bytes)) != ssize_t(c.bytes)) abort();
    }
    for (auto _ : state)
        for (int copy = 0; copy < 2; copy++) {
            size_t at = next++;
            off_t from = off_t(at % slots * c.bytes), to = off_t((at + kThreads) % slots * c.bytes);
            if (pread(fd, buffer.data(), c.bytes, from) != ssize_t(c.bytes) ||
                pwrite(fd, buffer.data(), c.bytes, to) != ssize_t(c.bytes))
                abort();
        }
    state.SetBytesProcessed(int64_t(state.iterations() * c.bytes));
    if (state.thread_index() != 0) return;
    close(fd);
    unlink(path().c_str());
}

} // namespace

int main(int argc, char **argv)
{
    const char *names[] = {"memory", "file", "blind", "bare"};
    const char *mib = getenv("DELTAWIRE_BENCH_STATE_MIB");
    size_t one_end = size_t(mib ? strtoull(mib, nullptr, 10) : 256) << 20;
    for (size_t bytes : {size_t(256) << 10, size_t(4) << 20})
        for (Way way : {kMemory, kFile, kBlind, kBare}) {
            Case c = {way, bytes, one_end / bytes};
            std::string name = std::string(names[way]) + "/" + std::to_string(bytes);
            auto *row =
                benchmark::RegisterBenchmark(name.c_str(), way == kBare ? run_bare : run, c);
            row->UseRealTime();
            if (way == kBare) row->Threads(kThreads);
        }
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
}
