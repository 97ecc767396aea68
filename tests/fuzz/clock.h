/* SPDX-License-Identifier: Apache-2.0
 * clock.h - the monotonic clock of a fuzz target: it stands still until the program advances it, so
 * that an input has the same effect in every run. Programs that use it are linked with
 * --wrap=clock_gettime. */
#ifndef DELTAWIRE_TESTS_FUZZ_CLOCK_H
#define DELTAWIRE_TESTS_FUZZ_CLOCK_H

#include <stdint.h>

void fuzz_clock_start(void); /* sets the same time for every input */
void fuzz_clock_move(int64_t ns);

#endif
