/* SPDX-License-Identifier: Apache-2.0
 * buffer.c - the pool of message buffers. */
#include "common/buffer.h"

#include "base/mem.h"

uint64_t dw_buffer_weight(const dw_buffer *buffer)
{
    return dw_mem_cost(DW_BUFFER_PREFIX_BYTES + buffer->cap);
}

dw_buffer *dw_buffer_take(dw_buffer_pool *pool, size_t cap)
{
    uint32_t size_class = 0;
    while (size_class < DW_BUFFER_CLASSES &&
           ((uint64_t)DW_BUFFER_LEAST_BYTES << size_class) < cap) {
        size_class++;
    }
    uint64_t room = (uint64_t)DW_BUFFER_LEAST_BYTES << size_class;
    if (size_class == DW_BUFFER_CLASSES || room > SIZE_MAX - DW_BUFFER_PREFIX_BYTES) return NULL;

    dw_buffer *buffer = pool->free[size_class];
    if (buffer) {
        pool->free[size_class] = buffer->next;
        pool->free_bytes -= room;
    } else {
        buffer = dw_mem_allocate(pool->allocator, DW_BUFFER_PREFIX_BYTES + (size_t)room);
        if (!buffer) return NULL;
        pool->allocations++;
        buffer->cap = (size_t)room;
        buffer->size_class = (uint8_t)size_class;
        buffer->older = pool->newest;
        buffer->newer = NULL;
        if (pool->newest) pool->newest->newer = buffer;
        pool->newest = buffer;
    }
    buffer->next = NULL;
    buffer->len = 0;
    buffer->tag = buffer->kind = 0;
    buffer->refs = 1;
    return buffer;
}

static void take_out(dw_buffer_pool *pool, dw_buffer *buffer)
{
    if (buffer->older) buffer->older->newer = buffer->newer;
    if (buffer->newer)
        buffer->newer->older = buffer->older;
    else
        pool->newest = buffer->older;
}

static void destroy(dw_buffer_pool *pool, dw_buffer *buffer)
{
    take_out(pool, buffer);
    dw_mem_release(pool->allocator, buffer, DW_BUFFER_PREFIX_BYTES + buffer->cap);
}

/* A request that has not ended holds a reference to this buffer, and that reference is never
 * dropped. So the reference count cannot reach 0, and the buffer does not go back into the pool
 * when other holders drop their references. */
void dw_buffer_lose(dw_buffer_pool *pool, dw_buffer *buffer)
{
    take_out(pool, buffer);
    buffer->older = buffer->newer = NULL;
}

void dw_buffer_drop(dw_buffer_pool *pool, dw_buffer *buffer)
{
    if (--buffer->refs > 0) return;
    if (pool->free_bytes + buffer->cap > pool->keep_bytes) {
        destroy(pool, buffer);
        return;
    }
    buffer->next = pool->free[buffer->size_class];
    pool->free[buffer->size_class] = buffer;
    pool->free_bytes += buffer->cap;
}

void dw_buffer_pool_empty(dw_buffer_pool *pool)
{
    while (pool->newest) destroy(pool, pool->newest);
    *pool = (dw_buffer_pool){.allocator = pool->allocator, .keep_bytes = pool->keep_bytes};
}
