/* SPDX-License-Identifier: Apache-2.0
 * clock.h - the clock with which the program measures how long something takes. */
#ifndef DW_CLI_CLOCK_H
#define DW_CLI_CLOCK_H

#include <time.h>

/* Returns the seconds of a monotonic clock. Only the difference of two times has a meaning. */
static inline double dw_now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
