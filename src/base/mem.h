/* SPDX-License-Identifier: Apache-2.0
 * mem.h - memory: the caller's allocator and checked sizes.
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

/* The allocator of a config, or malloc and free where the config names none. */
dw_allocator dw_mem_allocator(const dw_allocator *chosen);
void *dw_mem_allocate(const dw_allocator *allocator, uint64_t bytes);
void dw_mem_release(const dw_allocator *allocator, void *memory, uint64_t bytes);

/* A source of memory for copies of prev that the CPU may be unable to address, such as GPU memory.
 * take returns NULL where there is none; give cannot fail. slack returns the bytes that the store
 * occupies, in any memory, beyond what was taken from it. */
typedef struct dw_store {
    void *(*take)(void *context, uint64_t bytes);
    void (*give)(void *context, void *slot, uint64_t bytes);
    uint64_t (*slack)(void *context);
    void *context;
} dw_store;

/* Grows the array from *cap elements to at least `need`. Returns false, with nothing changed, where
 * there is no memory. */
bool dw_mem_grow(const dw_allocator *allocator, void **array, uint64_t *cap, uint64_t need,
                 size_t element);

/* Returns 64 bits from the operating system's random source; never 0. */
uint64_t dw_mem_random(void);

#endif
