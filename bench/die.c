/* SPDX-License-Identifier: Apache-2.0
 * die.c - how the benchmarks of links and groups end after an error. */
#include "die.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void bench_die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}
