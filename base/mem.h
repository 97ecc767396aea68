/* SPDX-License-Identifier: Apache-2.0
 * mem.h - memory: the caller's allocator, checked sizes, and random numbers.
 *
 * Memory is aligned to 64 bytes. The default allocator uses huge pages, where the system has them,
 * for blocks of 2 MiB or more. Errors: NULL where the allocator has no memory. Threads: those that
 * the allocator allows. */
#ifndef DW_MEM_H
#define DW_MEM_H

#include <stdbool.h>

#include "deltawire/deltawire.h"

/* Return false on overflow and leave *result as it was. All sizes that come from outside are
 * computed with these functions; only the payload sizes in layout.h have a bound of their own. */
bool dw_size_multiply(uint64_t a, uint64_t b, uint64_t *result);
bool dw_size_add(uint64_t a, uint64_t b, uint64_t *result);

/* *chosen; where it is NULL or has no functions, malloc and free. */
dw_allocator dw_mem_allocator(const dw_allocator *chosen);
/* The same for an allocator that a program has set. Error: ARGUMENT if it has only one of the two
 * functions. */
dw_status dw_mem_take_allocator(dw_allocator *taken, const dw_allocator *given, dw_why *why);
/* A block of no bytes takes one. zeroed: n elements of so many bytes each. */
void *dw_mem_allocate(const dw_allocator *allocator, uint64_t bytes);
void *dw_mem_allocate_zeroed(const dw_allocator *allocator, uint64_t n, uint64_t bytes);
/* Who gives a block back states its size. NULL does nothing. */
void dw_mem_release(const dw_allocator *allocator, void *memory, uint64_t bytes);

/* How much memory a block of so many bytes takes: rounded up, and with the overhead of the C
 * library. It serves to limit the memory that a peer can make us use. For an allocator of the
 * program it is an estimate. */
uint64_t dw_mem_cost(uint64_t bytes);

/* Grows the array from *cap elements to at least `need`. Returns false, with nothing changed, where
 * there is no memory. */
bool dw_mem_grow(const dw_allocator *allocator, void **array, uint64_t *cap, uint64_t need,
                 size_t element);

/* Returns 64 bits from the operating system's random source; never 0. */
uint64_t dw_mem_random(void);

#endif
