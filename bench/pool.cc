/* SPDX-License-Identifier: Apache-2.0
 * pool.cc - a counter announces a round of work; threads that are free take the next piece. */
#include "pool.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#define RELAX() _mm_pause()
#else
#define RELAX() std::this_thread::yield()
#endif

namespace
{

/* Waits a short time, and yields the processor if other threads want it. */
class Patience
{
  public:
    void wait()
    {
        if (++turns_ < 4096)
            RELAX();
        else
            std::this_thread::yield();
    }

  private:
    unsigned turns_ = 0;
};

} // namespace

Pool::Pool(int threads)
{
    for (int i = 1; i < threads; i++) threads_.emplace_back([this] { serve(); });
}

Pool::~Pool()
{
    over_ = true;
    for (std::thread &t : threads_) t.join();
}

void Pool::work()
{
    for (size_t i; (i = next_.fetch_add(1)) < n_;) task_(context_, i);
}

void Pool::serve()
{
    Patience patience;
    for (unsigned seen = 0; !over_;) {
        unsigned now = round_.load(std::memory_order_acquire);
        if (now == seen) {
            patience.wait();
            continue;
        }
        patience = Patience();
        seen = now;
        work();
        busy_.fetch_sub(1, std::memory_order_release);
    }
}

void Pool::run(size_t n, dw_task *task, void *context)
{
    n_ = n;
    task_ = task;
    context_ = context;
    next_ = 0;
    busy_ = threads_.size();
    round_.fetch_add(1, std::memory_order_release);
    work();
    Patience patience;
    while (busy_.load(std::memory_order_acquire) > 0) patience.wait();
}

void Pool::parallel_for(void *pool, size_t n, dw_task *task, void *context)
{
    static_cast<Pool *>(pool)->run(n, task, context);
}
