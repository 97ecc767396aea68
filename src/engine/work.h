/* SPDX-License-Identifier: Apache-2.0
 * work.h - the chunks of a frame: numbers them across all entries, runs them, and joins their
 * results.
 *
 * | name    | meaning                                                    | owner |
 * | first   | number of each entry's first chunk; and the end            | work  |
 * | results | of each chunk; written by its task, read when all are done | work  |
 * | taken   | of each entry, a bit for each shared area that a chunk has | work  |
 *
 * Errors: false where there is no memory, with nothing changed. Arrays are kept from call to call,
 * so that a steady state allocates nothing. Threads: dw_work_run calls the host's parallel_for;
 * dw_work_entry and those of areas may be called from any thread, all others from the thread of the
 * call. */
#ifndef DW_WORK_H
#define DW_WORK_H

#include <stdatomic.h>

#include "base/mem.h"
#include "codecs/form.h"

typedef struct dw_work {
    uint64_t *first, first_cap;
    dw_chunk_result *results;
    uint64_t results_cap, chunks;
    _Atomic uint32_t *taken;
    uint64_t taken_cap;
    uint32_t entries;
} dw_work;

void dw_work_release(dw_work *work, const dw_allocator *allocator);

/* Prepares the work on a frame of n entries: call begin, then put once per entry in order, then
 * ready. */
bool dw_work_begin(dw_work *work, const dw_allocator *allocator, uint32_t n);
void dw_work_put(dw_work *work, uint64_t chunks);
bool dw_work_ready(dw_work *work, const dw_allocator *allocator);

/* The entry that a chunk of the frame belongs to; *chunk: its number within that entry. */
uint32_t dw_work_entry(const dw_work *work, uint64_t index, uint64_t *chunk);
uint64_t dw_work_chunks(const dw_work *work, uint32_t entry);

/* An area of the entry's scratch for a chunk (codecs/form.h), until it is given back. */
uint64_t dw_work_take_area(const dw_work *work, uint32_t entry, uint64_t chunk);
void dw_work_give_area(const dw_work *work, uint32_t entry, uint64_t area);

/* Runs the task once for every chunk. */
void dw_work_run(const dw_work *work, const dw_host *host, dw_task *task, void *context);

/* The joined results of an entry's chunks, added in order. */
dw_chunk_result dw_work_join(const dw_work *work, uint32_t entry);

#endif
