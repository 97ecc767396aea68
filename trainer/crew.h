/* SPDX-License-Identifier: Apache-2.0
 * crew.h - a pool of threads for encoders and decoders: the parallel_for of their configs.
 *
 * Every call wakes the sleeping threads, which share its pieces with the caller. The caller does
 * not wait for threads that wake up late. Several threads may call at the same time: the pool helps
 * one of them, and the others do their pieces alone.
 *
 * Errors: of create, NO_MEMORY; parallel_for cannot fail. State: none between calls. Threads:
 * any. */
#ifndef DW_TRAINER_CREW_H
#define DW_TRAINER_CREW_H

#include "deltawire/deltawire.h"

typedef struct dw_crew dw_crew;

/* threads: at least 2, the caller included. */
dw_status dw_crew_create(dw_crew **crew, uint32_t threads);

/* No call may be in progress. crew may be NULL. */
void dw_crew_destroy(dw_crew *crew);

/* context: the crew. */
void dw_crew_parallel_for(void *context, size_t n, dw_task *task, void *task_context);

#endif
