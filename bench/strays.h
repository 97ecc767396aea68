/* SPDX-License-Identifier: Apache-2.0
 * strays.h - stray connections to a port, a given number per second, made by a process of their
 * own.
 *
 * A stray connects to the loopback address, sends nothing or 100 bytes that are not of deltawire's
 * protocol, and closes the connection. An error ends the program with a sentence. */
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
