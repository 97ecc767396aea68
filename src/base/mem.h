/* SPDX-License-Identifier: Apache-2.0
 * mem.h - memory: the caller's allocator, checked sizes, and pools of equal slots.
 *
 * A pool hands out slots of any size, 64-byte aligned, and keeps what is given back for the next
 * taker of the same size, so that a steady state allocates nothing. Slots are carved from chunks of
 * about two mebibytes, which the default allocator takes from huge pages where it can.
 *
 * Errors: NULL where the allocator has none. State: dw_pool_give cannot fail. Threads: one at a
 * time. */
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
 * cannot fail. */
typedef struct dw_store {
    void *(*take)(void *context, uint64_t bytes);
    void (*give)(void *context, void *slot, uint64_t bytes);
    void *context;
} dw_store;

/* Grows *array of *cap elements to hold at least need; false: no memory, nothing changed. */
bool dw_mem_grow(const dw_allocator *allocator, void **array, uint64_t *cap, uint64_t need,
                 size_t element);

/* 64 bits from the operating system's random source; never 0. */
uint64_t dw_mem_random(void);

/* Sixteen sizes to a power of two, up to 2^63: at most a sixteenth of a slot is slack, and every
 * size has its class. */
enum { DW_POOL_CLASSES = 16 * 60 };

typedef struct dw_pool_class {
    void *first_free; /* a free slot begins with the address of the next one */
} dw_pool_class;

typedef struct dw_pool_chunk dw_pool_chunk;

typedef struct dw_pool {
    dw_allocator allocator;
    dw_pool_chunk *chunks;
    dw_pool_class classes[DW_POOL_CLASSES];
    uint64_t taken_bytes; /* in the hands of takers */
} dw_pool;

void dw_pool_init(dw_pool *pool, const dw_allocator *allocator);
void dw_pool_release(dw_pool *pool); /* every slot ends */
void *dw_pool_take(dw_pool *pool, uint64_t bytes);
void dw_pool_give(dw_pool *pool, void *slot, uint64_t bytes); /* NULL is fine */

#endif
