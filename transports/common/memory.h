/* SPDX-License-Identifier: Apache-2.0
 * memory.h - memory of links and backends: the allocator of the link's options, and the default.
 *
 * All memory is aligned to 64 bytes; from two mebibytes on the default allocator takes it from huge
 * pages where it can. Whoever gives memory back says how much it was. Errors: NULL where the
 * allocator has none. Threads: as the allocator's. */
#ifndef DW_MEMORY_H
#define DW_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "deltawire/deltawire.h"

/* The one that was chosen; malloc and free where none was, or chosen is NULL. */
dw_allocator dw_memory_allocator(const dw_allocator *chosen);

void *dw_memory_take(const dw_allocator *allocator, size_t bytes);
void *dw_memory_take_zeroed(const dw_allocator *allocator, size_t n, size_t bytes); /* n of them */
/* How much memory a piece of so many bytes costs: rounded up, with what the C library adds to it.
 * For bounds of what a peer may make us keep; of another allocator it is an estimate. */
uint64_t dw_memory_cost(size_t bytes);

void dw_memory_give(const dw_allocator *allocator, void *memory, size_t bytes); /* NULL is fine */

#endif
