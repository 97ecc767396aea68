/* SPDX-License-Identifier: Apache-2.0
 * clock.c - a monotonic clock that stands still until the program advances it. */
#include "clock.h"

#include <time.h>

#include "fuzz.h"

int __real_clock_gettime(clockid_t id, struct timespec *now);
int __wrap_clock_gettime(clockid_t id, struct timespec *now);

/* A caller that reads the clock this often without waiting is in an endless loop. */
enum { LOOKS_MOST = 3000000 };

static int64_t now_ns = 1000000000;
static int looks;

void fuzz_clock_start(void)
{
    now_ns = 1000000000;
    looks = 0;
}

void fuzz_clock_move(int64_t ns)
{
    now_ns += ns;
    looks = 0;
}

/* Other clocks are real, for the fuzzer itself. */
int __wrap_clock_gettime(clockid_t id, struct timespec *now)
{
    if (id != CLOCK_MONOTONIC) return __real_clock_gettime(id, now);
    REQUIRE(++looks < LOOKS_MOST);
    *now = (struct timespec){.tv_sec = now_ns / 1000000000, .tv_nsec = (long)(now_ns % 1000000000)};
    return 0;
}
