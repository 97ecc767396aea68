/* SPDX-License-Identifier: Apache-2.0
 * mem.c - the default allocator, checked arithmetic on sizes, growing arrays, and random
 * numbers. */
#if defined(__linux__)
#define _DEFAULT_SOURCE 1 /* declares getrandom and madvise, which are not part of C11 */
#include <sys/mman.h>
#include <sys/random.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/copied.h"
#include "base/mem.h"
#include "base/sentence.h"

enum { ALIGNMENT = 64, HUGE_PAGE_BYTES = 2 << 20 };

DW_COPIED bool dw_size_multiply(uint64_t a, uint64_t b, uint64_t *result)
{
    bool both_small = (a | b) <= UINT32_MAX; /* avoids a division, which is measurable in small
                                                calls */
    if (!both_small && a && b > UINT64_MAX / a) return false;
    *result = a * b;
    return true;
}

DW_COPIED bool dw_size_add(uint64_t a, uint64_t b, uint64_t *result)
{
    if (b > UINT64_MAX - a) return false;
    *result = a + b;
    return true;
}

/* Large blocks start on a huge page boundary and ask for huge pages: prev and messages are read
 * from end to end, and with pages of 4 KiB each page costs a walk through the page tables. Only the
 * whole huge pages within a block are asked for, so that the rest of it does not occupy another
 * one. */
static void *libc_allocate(void *context, size_t bytes, size_t alignment)
{
    (void)context;
    if (bytes >= HUGE_PAGE_BYTES) alignment = HUGE_PAGE_BYTES;
    void *memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
#ifdef MADV_HUGEPAGE
    if (memory && bytes >= HUGE_PAGE_BYTES) /* only a hint; failure does no harm */
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

DW_COPIED dw_allocator dw_mem_allocator(const dw_allocator *chosen)
{
    if (chosen && chosen->allocate && chosen->release) return *chosen;
    return (dw_allocator){libc_allocate, libc_release, NULL};
}

DW_COPIED dw_status dw_mem_take_allocator(dw_allocator *taken, const dw_allocator *given,
                                          dw_why *why)
{
    if (given && !given->allocate != !given->release)
        return dw_say(why, DW_ERR_ARGUMENT,
                      "an allocator has only one of its two functions: set both or none");
    *taken = dw_mem_allocator(given);
    return DW_OK;
}

DW_COPIED void *dw_mem_allocate(const dw_allocator *allocator, uint64_t bytes)
{
    if (bytes > PTRDIFF_MAX - HUGE_PAGE_BYTES) return NULL;
    return allocator->allocate(allocator->context, bytes ? (size_t)bytes : 1, ALIGNMENT);
}

DW_COPIED void *dw_mem_allocate_zeroed(const dw_allocator *allocator, uint64_t n, uint64_t bytes)
{
    if (!dw_size_multiply(n, bytes, &bytes)) return NULL;
    void *memory = dw_mem_allocate(allocator, bytes);
    return memory ? memset(memory, 0, (size_t)bytes) : NULL;
}

/* glibc puts a header of 16 bytes in front of each block. To align a block it leaves a gap of up to
 * 96 bytes, which is often too small for other blocks. */
DW_COPIED uint64_t dw_mem_cost(uint64_t bytes)
{
    enum { HEADER_BYTES = 16, LEFT_OVER_BYTES = ALIGNMENT + 32 };
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + HEADER_BYTES + LEFT_OVER_BYTES;
}

DW_COPIED void dw_mem_release(const dw_allocator *allocator, void *memory, uint64_t bytes)
{
    if (memory) allocator->release(allocator->context, memory, bytes ? (size_t)bytes : 1);
}

DW_COPIED bool dw_mem_grow(const dw_allocator *allocator, void **array, uint64_t *cap,
                           uint64_t need, size_t element)
{
    uint64_t bytes, grown = *cap ? *cap : 8;
    if (need <= *cap) return true;
    while (grown < need && grown <= UINT64_MAX / 2) grown *= 2;
    if (grown < need || !dw_size_multiply(grown, element, &bytes)) return false;
    void *fresh = dw_mem_allocate(allocator, bytes);
    if (!fresh) return false;
    if (*array) memcpy(fresh, *array, (size_t)(*cap * element));
    dw_mem_release(allocator, *array, *cap * element);
    *array = fresh;
    *cap = grown;
    return true;
}

DW_COPIED uint64_t dw_mem_random(void)
{
    uint64_t value = 0;
#if defined(__linux__)
    if (getrandom(&value, sizeof value, 0) == (ssize_t)sizeof value && value) return value;
#endif
    FILE *source = fopen("/dev/urandom", "rb");
    if (source) {
        if (fread(&value, sizeof value, 1, source) != 1) value = 0;
        fclose(source);
    }
    /* There is no random source at all: the clock and an address still make it unlikely that two
     * encoders get the same number. */
    if (!value)
        value = (uint64_t)time(NULL) * UINT64_C(0x9E3779B97F4A7C15) ^ (uint64_t)(uintptr_t)&value;
    return value ? value : 1;
}
