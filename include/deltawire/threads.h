/* SPDX-License-Identifier: Apache-2.0
 * threads.h - a pool of threads that share the work of encoders and decoders: a ready
 * parallel_for for their configs. */
#ifndef DELTAWIRE_THREADS_H
#define DELTAWIRE_THREADS_H

#include "deltawire/deltawire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* config.parallel_for = dw_threads_parallel_for; config.parallel_context = the pool. One pool may
 * serve any number of encoders and decoders, which it must outlive.
 *
 * | name | meaning                                                                      |
 * | n    | threads that share a call's work, the caller among them, 1..1024. 0: as many |
 * |      | as there are processors that the caller may run on                           |
 *
 * Errors: ARGUMENT, LIMIT (n), NO_MEMORY; *threads is then NULL and *why, which may be NULL, a
 * sentence. Threads: any may call. While one caller is served, the others do their work alone. The
 * pool's own threads take no signals, and sleep between calls. After fork() nobody is there to help
 * the child: it does its work alone, with the same bits, and destroy gives back memory only.
 * Source: threads/threads.c. */
typedef struct dw_threads dw_threads;
DW_API dw_status dw_threads_create(dw_threads **threads, uint32_t n, dw_why *why);

/* When nobody is calling any more. NULL is fine. */
DW_API void dw_threads_destroy(dw_threads *threads);

/* n, as it became; 0: NULL was given. */
DW_API uint32_t dw_threads_count(const dw_threads *threads);

/* A parallel_for (dw_config). threads: a dw_threads; NULL: the caller works alone. */
DW_API void dw_threads_parallel_for(void *threads, size_t n, dw_task *task, void *task_context);

#ifdef __cplusplus
}
#endif
#endif
