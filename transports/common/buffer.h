/* SPDX-License-Identifier: Apache-2.0
 * buffer.h - message buffers, and a pool of them by size class, so that a busy link does not
 * allocate. Not thread-safe: the lock of the link protects it. */
#ifndef DW_BUFFER_H
#define DW_BUFFER_H

#include <stddef.h>
#include <stdint.h>

#include "common/message.h"
#include "deltawire/deltawire.h"

typedef struct dw_buffer {
    struct dw_buffer *next;          /* in a queue, an inbox or the pool */
    struct dw_buffer *older, *newer; /* list of all buffers that the pool has made */
    size_t cap, len;                 /* of the payload: room, and used bytes */
    uint32_t tag, kind;
    uint32_t refs : 24; /* references: of the queue, the program, channels and groups */
    uint32_t size_class : 8;
} dw_buffer;

/* The header of the link and the payload follow the struct. The payload starts on a cache line. */
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

/* A received message of at most this length is copied to a buffer of its size (progress.c). */
enum { DW_BUFFER_SMALL_BYTES = 2048 };

/* Buffers of class c have room for DW_BUFFER_LEAST_BYTES << c bytes. Rounding up to powers of two
 * wastes address space but little memory, because pages that a message never touches are not
 * allocated. */
enum { DW_BUFFER_LEAST_BYTES = 64, DW_BUFFER_CLASSES = 40 };

typedef struct dw_buffer_pool {
    const dw_allocator *allocator;
    dw_buffer *free[DW_BUFFER_CLASSES];
    dw_buffer *newest; /* start of the list of all buffers, free or in use */
    /* free_bytes: memory of the free buffers. A buffer that would make it exceed keep_bytes is
     * given back to the system. */
    uint64_t free_bytes, keep_bytes;
    uint64_t allocations; /* since creation; a test checks that it does not grow in steady state */
} dw_buffer_pool;

/* Returns a buffer with one reference and len 0; NULL: no memory. */
dw_buffer *dw_buffer_take(dw_buffer_pool *pool, size_t cap);

/* Drops one reference. When the last one is dropped, the buffer goes back into the pool. */
void dw_buffer_drop(dw_buffer_pool *pool, dw_buffer *buffer);

/* The memory that the buffer takes, with the struct and the overhead of malloc. All pages count,
 * even if this message does not touch them: an earlier message may have done so. */
uint64_t dw_buffer_weight(const dw_buffer *buffer);

/* Takes the buffer out of the pool for ever. For a buffer that a device or a library may still read
 * or write: it is neither used again nor freed. */
void dw_buffer_lose(dw_buffer_pool *pool, dw_buffer *buffer);

/* Frees all buffers, even those in use: messages that the program never released are freed with the
 * link. */
void dw_buffer_pool_empty(dw_buffer_pool *pool);

#endif
