/* SPDX-License-Identifier: Apache-2.0
 * mem.h - memory: the caller's allocator and checked sizes.
 *
 * Memory is aligned to 64 bytes; from two mebibytes on the default allocator takes it from huge
 * pages where it can. Errors: NULL where the allocator has none. Threads: as the allocator's. */
#ifndef DW_MEM_H
#define DW_MEM_H

#include <stdbool.h>

#include "deltawire/deltawire.h"

/* false on overflow; *result is then untouched. Sizes that come from outside are multiplied here
 * (those of a payload in layout.h, which has its own bound). */
bool dw_size_multiply(uint64_t a, uint64_t b, uint64_t *result);
bool dw_size_add(uint64_t a, uint64_t b, uint64_t *result);

/* The allocator of a config: malloc and free where it names none. */
dw_allocator dw_mem_allocator(const dw_allocator *chosen);
void *dw_mem_allocate(const dw_allocator *allocator, uint64_t bytes);
void dw_mem_release(const dw_allocator *allocator, void *memory, uint64_t bytes);

/* Memory that is not this processor's, for copies of prev. take: NULL where there is none; give
 * cannot fail. slack: all that the store takes, in any memory, beside what was taken from it. */
typedef struct dw_store {
    void *(*take)(void *context, uint64_t bytes);
    void (*give)(void *context, void *slot, uint64_t bytes);
    uint64_t (*slack)(void *context);
    void *context;
} dw_store;

/* Grows *array of *cap elements to hold at least need; false: no memory, nothing changed. */
bool dw_mem_grow(const dw_allocator *allocator, void **array, uint64_t *cap, uint64_t need,
                 size_t element);

/* 64 bits from the operating system's random source; never 0. */
uint64_t dw_mem_random(void);

#endif
