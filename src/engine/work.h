/* SPDX-License-Identifier: Apache-2.0
 * work.h - a frame's chunks: which entry each belongs to, who makes them, and what they tell
 * together.
 *
 * | name    | meaning                                                    | owner |
 * | first   | of every entry, its first chunk; and the end               | work  |
 * | results | of every chunk; written by its task, read when all is done | work  |
 *
 * Errors: false: no memory, nothing changed. Arrays are kept from call to call, so that a steady
 * state allocates nothing. Threads: dw_work_run calls the config's parallel_for; the other
 * functions belong to the thread of the call, but dw_work_entry to any. */
#ifndef DW_WORK_H
#define DW_WORK_H

#include "base/mem.h"
#include "codecs/job.h"

typedef struct dw_work {
    uint64_t *first, first_cap;
    dw_chunk_result *results;
    uint64_t results_cap, chunks;
    uint32_t entries;
} dw_work;

void dw_work_release(dw_work *work, const dw_allocator *allocator);

/* A frame of n entries begins: then one put for each, in order, then ready. */
bool dw_work_begin(dw_work *work, const dw_allocator *allocator, uint32_t n);
void dw_work_put(dw_work *work, uint64_t chunks);
bool dw_work_ready(dw_work *work, const dw_allocator *allocator);

/* The entry of a chunk of the frame; *chunk: which one of the entry's it is. */
uint32_t dw_work_entry(const dw_work *work, uint64_t index, uint64_t *chunk);
uint64_t dw_work_chunks(const dw_work *work, uint32_t entry);

/* Runs the task for every chunk. */
void dw_work_run(const dw_work *work, const dw_config *config, dw_task *task, void *context);

/* The results of an entry's chunks, joined in their order. */
dw_chunk_result dw_work_join(const dw_work *work, uint32_t entry);

#endif
