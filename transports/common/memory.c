/* SPDX-License-Identifier: Apache-2.0
 * memory.c - the only file of links and backends that allocates memory from the system. */
#include "common/memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGNMENT = 64, HUGE_PAGE_BYTES = 2 << 20 };

/* Long messages are aligned to huge pages and ask for them, so that copying a message, mostly in
 * the kernel, needs few address translations. The advice covers whole huge pages only: the rest of
 * a block must not occupy another one. */
static void *libc_allocate(void *context, size_t bytes, size_t alignment)
{
    (void)context;
    if (bytes >= HUGE_PAGE_BYTES) alignment = HUGE_PAGE_BYTES;
    void *memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
#ifdef MADV_HUGEPAGE
    if (memory && bytes >= HUGE_PAGE_BYTES) /* only advice: an error does no harm */
        (void)madvise(memory, bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES, MADV_HUGEPAGE);
#endif
    return memory;
}

static void libc_release(void *context, void *memory, size_t bytes)
{
    (void)context;
    (void)bytes;
    free(memory);
}

dw_allocator dw_memory_allocator(const dw_allocator *chosen)
{
    if (chosen && chosen->allocate) return *chosen;
    return (dw_allocator){libc_allocate, libc_release, NULL};
}

void *dw_memory_take(const dw_allocator *allocator, size_t bytes)
{
    if (bytes > PTRDIFF_MAX - HUGE_PAGE_BYTES) return NULL;
    return allocator->allocate(allocator->context, bytes ? bytes : 1, ALIGNMENT);
}

void *dw_memory_take_zeroed(const dw_allocator *allocator, size_t n, size_t bytes)
{
    if (bytes > 0 && n > PTRDIFF_MAX / bytes) return NULL;
    void *memory = dw_memory_take(allocator, n * bytes);
    return memory ? memset(memory, 0, n * bytes) : NULL;
}

/* glibc puts a header of 16 bytes in front of each block. To align a block it leaves a gap of up to
 * 96 bytes, which is often too small for other blocks. */
uint64_t dw_memory_cost(size_t bytes)
{
    enum { HEADER_BYTES = 16, LEFT_OVER_BYTES = ALIGNMENT + 32 };
    uint64_t rounded = ((uint64_t)bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return rounded + HEADER_BYTES + LEFT_OVER_BYTES;
}

void dw_memory_give(const dw_allocator *allocator, void *memory, size_t bytes)
{
    if (memory) allocator->release(allocator->context, memory, bytes ? bytes : 1);
}
