/* SPDX-License-Identifier: Apache-2.0
 * pool.h - threads for the config's parallel_for. They wait for work without sleeping, which suits
 * a benchmark that has the machine to itself. */
#ifndef DELTAWIRE_BENCH_POOL_H
#define DELTAWIRE_BENCH_POOL_H

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include "deltawire/deltawire.h"

class Pool
{
  public:
    explicit Pool(int threads); /* including the caller */
    ~Pool();
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    void run(size_t n, dw_task *task, void *context);
    static void parallel_for(void *pool, size_t n, dw_task *task, void *context);

  private:
    void work();
    void serve();

    std::vector<std::thread> threads_;
    std::atomic<unsigned> round_{0}; /* incremented by every run */
    std::atomic<size_t> next_{0}, busy_{0};
    std::atomic<bool> over_{false};
    size_t n_ = 0;
    dw_task *task_ = nullptr;
    void *context_ = nullptr;
};

#endif
