/* SPDX-License-Identifier: Apache-2.0
 * memory.c - the only file of collective/ that calls the C library's allocator. */
#include "memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

static void *default_allocate(void *context, size_t bytes, size_t alignment)
{
    (void)context;
    if (bytes > SIZE_MAX - alignment) return NULL;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void default_release(void *context, void *memory, size_t bytes)
{
    (void)context;
    (void)bytes;
    free(memory);
}

dw_allocator dw_group_allocator(const dw_allocator *chosen)
{
    if (chosen && chosen->allocate && chosen->release) return *chosen;
    return (dw_allocator){default_allocate, default_release, NULL};
}

void *dw_group_memory_take(const dw_allocator *allocator, size_t bytes)
{
    return allocator->allocate(allocator->context, bytes > 0 ? bytes : 1, ALIGNMENT);
}

void *dw_group_memory_zeroed(const dw_allocator *allocator, size_t bytes)
{
    void *memory = dw_group_memory_take(allocator, bytes);
    if (memory) memset(memory, 0, bytes);
    return memory;
}

void dw_group_memory_give(const dw_allocator *allocator, void *memory, size_t bytes)
{
    if (memory) allocator->release(allocator->context, memory, bytes > 0 ? bytes : 1);
}
