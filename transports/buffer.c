/* SPDX-License-Identifier: Apache-2.0
 * buffer.c - the pool of message buffers. */
#include "buffer.h"

#include <stdlib.h>

dw_buffer *dw_buffer_take(dw_buffer_pool *pool, size_t cap)
{
    uint32_t size_class = 0;
    while (size_class < DW_BUFFER_CLASSES && ((uint64_t)DW_BUFFER_LEAST_BYTES << size_class) < cap) {
        size_class++;
    }
    const uint64_t room = (uint64_t)DW_BUFFER_LEAST_BYTES << size_class;
    if (size_class == DW_BUFFER_CLASSES || room > SIZE_MAX - DW_BUFFER_PREFIX_BYTES) return NULL;

    dw_buffer *buffer = pool->free[size_class];
    if (buffer) {
        pool->free[size_class] = buffer->next;
        pool->free_bytes -= room;
    } else {
        buffer = aligned_alloc(DW_BUFFER_PREFIX_BYTES, DW_BUFFER_PREFIX_BYTES + (size_t)room);
        if (!buffer) return NULL;
        pool->allocations++;
    }
    *buffer = (dw_buffer){.cap = (size_t)room, .refs = 1, .size_class = size_class};
    return buffer;
}

void dw_buffer_drop(dw_buffer_pool *pool, dw_buffer *buffer)
{
    if (--buffer->refs > 0) return;
    if (pool->free_bytes + buffer->cap > pool->keep_bytes) {
        free(buffer);
        return;
    }
    buffer->next = pool->free[buffer->size_class];
    pool->free[buffer->size_class] = buffer;
    pool->free_bytes += buffer->cap;
}

void dw_buffer_pool_empty(dw_buffer_pool *pool)
{
    for (int i = 0; i < DW_BUFFER_CLASSES; i++) {
        while (pool->free[i]) {
            dw_buffer *buffer = pool->free[i];
            pool->free[i] = buffer->next;
            free(buffer);
        }
    }
    pool->free_bytes = 0;
}
