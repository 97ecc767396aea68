/* SPDX-License-Identifier: Apache-2.0
 * clock.h - the monotonic clock: only the difference of two times has a meaning, and setting the
 * time of day does not move it. The pure layer must not include this header. */
#ifndef DW_CLOCK_H
#define DW_CLOCK_H

#include <stdint.h>
#include <time.h>

enum { DW_NS_PER_MS = 1000000 };

static inline int64_t dw_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline int64_t dw_now_ms(void)
{
    return dw_now_ns() / DW_NS_PER_MS;
}

static inline double dw_now_s(void)
{
    return 1e-9 * (double)dw_now_ns();
}

/* The function now_ns of a dw_host. */
static inline uint64_t dw_host_now_ns(void *context)
{
    (void)context;
    return (uint64_t)dw_now_ns();
}

#endif
