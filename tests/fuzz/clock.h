/* SPDX-License-Identifier: Apache-2.0
 * clock.h - the monotonic clock of a fuzz target: it stands still until it is moved, so that an
 * input does the same in every run. Programs that use it are linked with --wrap=clock_gettime. */
#ifndef DELTAWIRE_TESTS_FUZZ_CLOCK_H
#define DELTAWIRE_TESTS_FUZZ_CLOCK_H

#include <stdint.h>

void fuzz_clock_start(void); /* the same for every input */
void fuzz_clock_move(int64_t ns);

#endif
