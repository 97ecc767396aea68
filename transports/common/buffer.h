/* SPDX-License-Identifier: Apache-2.0
 * buffer.h - messages in memory: a pool by size class, so that a busy link never allocates.
 * Not thread-safe: the link's lock guards it. */
#ifndef DW_BUFFER_H
#define DW_BUFFER_H

#include <stddef.h>
#include <stdint.h>

#include "common/message.h"
#include "deltawire/deltawire.h"

typedef struct dw_buffer {
    struct dw_buffer *next;          /* in a queue, an inbox or the pool */
    struct dw_buffer *older, *newer; /* of all the pool has made */
    size_t cap, len;                 /* payload: room, used */
    uint32_t tag, kind;
    uint32_t refs; /* the queue, the user and a channel may each hold one */
    uint32_t size_class;
} dw_buffer;

/* Header and payload follow the struct; the payload starts on a cache line, but for messages of up
 * to DW_BUFFER_SMALL_BYTES: those would take twice the memory. */
enum { DW_BUFFER_PREFIX_BYTES = 64 };
_Static_assert(sizeof(dw_buffer) + DW_LINK_HEADER_BYTES <= DW_BUFFER_PREFIX_BYTES,
               "prefix too small");

static inline void *dw_buffer_payload(dw_buffer *buffer)
{
    return (char *)buffer + DW_BUFFER_PREFIX_BYTES;
}

static inline unsigned char *dw_buffer_wire(dw_buffer *buffer)
{
    return (unsigned char *)buffer + DW_BUFFER_PREFIX_BYTES - DW_LINK_HEADER_BYTES;
}

static inline dw_buffer *dw_buffer_of(void *payload)
{
    return (dw_buffer *)(void *)((char *)payload - DW_BUFFER_PREFIX_BYTES);
}

enum { DW_BUFFER_SMALL_BYTES = 2048 };

/* Class c has room for DW_BUFFER_LEAST_BYTES << c bytes. Pages that a message does not touch cost
 * nothing, so powers of two waste addresses, not memory. */
enum { DW_BUFFER_LEAST_BYTES = 64, DW_BUFFER_CLASSES = 40 };

typedef struct dw_buffer_pool {
    const dw_allocator *allocator;
    dw_buffer *free[DW_BUFFER_CLASSES];
    dw_buffer *newest; /* of all, free or in use */
    /* Waiting for use; more than keep_bytes go back to the system. */
    uint64_t free_bytes, keep_bytes;
    uint64_t allocations; /* since creation: stands still in steady state (tested) */
} dw_buffer_pool;

/* A buffer with one reference and len 0; NULL: no memory. */
dw_buffer *dw_buffer_take(dw_buffer_pool *pool, size_t cap);

/* Drops one reference; the last one brings the buffer back. */
void dw_buffer_drop(dw_buffer_pool *pool, dw_buffer *buffer);

/* The memory that it takes, with the struct's and malloc's part of it; pages that were never
 * touched count, too, for who had the buffer before may have touched them. */
uint64_t dw_buffer_weight(const dw_buffer *buffer);

/* Something outside of the process's control may still read or write the buffer: it is not used
 * again, nor freed. */
void dw_buffer_lose(dw_buffer_pool *pool, dw_buffer *buffer);

/* Frees all, those in use too: a message that its user never released goes with the link. */
void dw_buffer_pool_empty(dw_buffer_pool *pool);

#endif
