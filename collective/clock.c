/* SPDX-License-Identifier: Apache-2.0
 * clock.c - the time, and random numbers, of the operating system. */
#include "clock.h"

#include <sys/random.h>
#include <time.h>
#include <unistd.h>

int64_t dw_group_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

uint64_t dw_group_random(void)
{
    uint64_t number = 0;
    /* Early after boot there may be no random numbers yet. A nonce must only be new. */
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number)
        number = (uint64_t)dw_group_now_ns() ^ (uint64_t)getpid() << 40;
    return number | 1;
}
