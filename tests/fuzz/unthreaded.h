/* SPDX-License-Identifier: Apache-2.0
 * unthreaded.h - does the work of a link's thread in the thread of the fuzz target, when the target
 * asks for it, so that an input has the same effect in every run.
 *
 * Programs that use it are linked with --wrap for clock_gettime, ppoll, pthread_create,
 * pthread_join, pthread_cond_wait and pthread_cond_timedwait. Waiting advances the clock. */
#ifndef DELTAWIRE_TESTS_FUZZ_UNTHREADED_H
#define DELTAWIRE_TESTS_FUZZ_UNTHREADED_H

#include "link/link.h"

void unthreaded_start(void);
/* Does what the link's thread would do in one round; nothing if there is no link. */
void unthreaded_turn(void);

#endif
