/* SPDX-License-Identifier: Apache-2.0
 * crew.h - threads that help encoders and decoders: the parallel_for of their configs.
 *
 * Sleeping threads are woken for every call and share its pieces with the caller, who does not wait
 * for those that wake late. Several threads may call: while one is served, the others do their
 * pieces alone.
 *
 * Errors: of create, NO_MEMORY; parallel_for cannot fail. State: none between calls.
 * Threads: any. */
#ifndef DW_TRAINER_CREW_H
#define DW_TRAINER_CREW_H

#include "deltawire/deltawire.h"

typedef struct dw_crew dw_crew;

/* threads: the caller is one of them; >= 2. */
dw_status dw_crew_create(dw_crew **crew, uint32_t threads);

/* Nobody is calling any more. NULL is fine. */
void dw_crew_destroy(dw_crew *crew);

/* context: the crew. */
void dw_crew_parallel_for(void *context, size_t n, dw_task *task, void *task_context);

#endif
