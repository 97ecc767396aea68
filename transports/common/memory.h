/* SPDX-License-Identifier: Apache-2.0
 * memory.h - memory of links and backends: from the allocator of the link's options, or from the
 * default one.
 *
 * All memory is aligned to 64 bytes. Blocks of two mebibytes or more come from huge pages if the
 * default allocator can get them. The caller that gives a block back states its size. Errors: NULL
 * if the allocator has no memory. Threads: the functions are as thread-safe as the allocator. */
#ifndef DW_MEMORY_H
#define DW_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "deltawire/deltawire.h"

/* Returns *chosen; if chosen is NULL or has no functions, the default allocator, which uses
 * aligned_alloc and free. */
dw_allocator dw_memory_allocator(const dw_allocator *chosen);

void *dw_memory_take(const dw_allocator *allocator, size_t bytes);
/* For n elements of so many bytes each. */
void *dw_memory_take_zeroed(const dw_allocator *allocator, size_t n, size_t bytes);
/* How much memory a block of so many bytes takes: rounded up, and with the overhead of the C
 * library. It serves to limit the memory that a peer can make us use. For an allocator of the
 * program it is an estimate. */
uint64_t dw_memory_cost(size_t bytes);

/* Does nothing if memory is NULL. */
void dw_memory_give(const dw_allocator *allocator, void *memory, size_t bytes);

#endif
