/* SPDX-License-Identifier: Apache-2.0
 * strays.h - connections of strangers to a port, so many a second, from a process of their own.
 *
 * A stray connects to the loopback address, says nothing or 100 bytes that are no deltawire, and
 * hangs up. Whatever fails dies with a sentence. */
#ifndef STRAYS_H
#define STRAYS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct strays {
    pid_t process;
    struct strays_shared {
        bool is_on;
        int port;
        uint64_t connections; /* so far */
    } * shared;
} strays;

strays strays_begin(int per_second); /* quiet until strays_come; before there are threads */
void strays_come(const strays *s, int port);
void strays_rest(const strays *s);
uint64_t strays_count(const strays *s);
void strays_end(const strays *s);

#endif
