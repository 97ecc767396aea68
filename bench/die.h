/* SPDX-License-Identifier: Apache-2.0
 * die.h - how the benchmarks of links and groups end after an error. */
#ifndef DW_BENCH_DIE_H
#define DW_BENCH_DIE_H

/* Prints a sentence, formatted as by printf, to stderr and ends the program with exit status 1. */
__attribute__((format(printf, 1, 2), noreturn)) void bench_die(const char *format, ...);

#endif
