/* SPDX-License-Identifier: Apache-2.0
 * clock.c - a monotonic clock that only its program moves. */
#include "clock.h"

#include <time.h>

int __real_clock_gettime(clockid_t id, struct timespec *now);
int __wrap_clock_gettime(clockid_t id, struct timespec *now);

static int64_t now_ns = 1000000000;

void fuzz_clock_start(void)
{
    now_ns = 1000000000;
}

void fuzz_clock_move(int64_t ns)
{
    now_ns += ns;
}

/* The fuzzer's own time is another clock. */
int __wrap_clock_gettime(clockid_t id, struct timespec *now)
{
    if (id != CLOCK_MONOTONIC) return __real_clock_gettime(id, now);
    *now = (struct timespec){.tv_sec = now_ns / 1000000000, .tv_nsec = (long)(now_ns % 1000000000)};
    return 0;
}
