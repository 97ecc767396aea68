/* SPDX-License-Identifier: Apache-2.0
 * reach.h - notes what the inputs of a fuzz target reach, so that a corpus can be required to reach
 * all that matters: replay.c fails if the inputs of a whole folder do not. */
#ifndef DELTAWIRE_TESTS_FUZZ_REACH_H
#define DELTAWIRE_TESTS_FUZZ_REACH_H

/* The goals of a target: what the inputs of its corpus must reach together. The last element is
 * NULL, and there are at most 64 before it. A target without goals does not define this array. */
extern const char *const fuzz_goals[] __attribute__((weak));

/* Notes that the current input has reached `what`, which need not be a goal. */
void fuzz_reach(const char *what);

/* Prints every goal that no input has reached, and returns how many these are. */
int fuzz_tell_missed(void);

#endif
