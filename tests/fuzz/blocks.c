/* SPDX-License-Identifier: Apache-2.0
 * blocks.c - an allocator that keeps large blocks from one input to the next.
 *
 * The library takes its state in blocks of 2 MiB, several for every encoder and decoder. With
 * malloc, every input would map, poison and unmap each of them. */
#include "fuzz.h"

#if defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_ASAN 1
#endif
#endif
#ifdef HAS_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(start, bytes)   ((void)(start), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(start, bytes) ((void)(start), (void)(bytes))
#endif

/* Of a large block that was given back, only the beginning is poisoned, which would be used first.
 * To poison all of it would take longer than to decode many a frame. */
enum { LARGE = 1 << 20, KEPT = 16, FRONT = 1 << 16 };

static struct block {
    void *memory;
    size_t bytes;
} kept[KEPT];

static void *allocate(void *context, size_t bytes, size_t alignment)
{
    (void)context;
    size_t room = (bytes + alignment - 1) / alignment * alignment;
    for (int i = 0; bytes >= LARGE && i < KEPT; i++) {
        if (kept[i].bytes != bytes) continue;
        void *memory = kept[i].memory;
        kept[i] = (struct block){0};
        ASAN_UNPOISON_MEMORY_REGION(memory, FRONT);
        return memory;
    }
    return aligned_alloc(alignment, room);
}

static void release(void *context, void *memory, size_t bytes)
{
    (void)context;
    for (int i = 0; bytes >= LARGE && i < KEPT; i++) {
        if (kept[i].memory) continue;
        kept[i] = (struct block){memory, bytes};
        ASAN_POISON_MEMORY_REGION(memory, FRONT);
        return;
    }
    free(memory);
}

dw_allocator fuzz_allocator(void)
{
    return (dw_allocator){allocate, release, NULL};
}

const dw_host *fuzz_host(void)
{
    static const dw_host host = {.struct_size = sizeof host,
                                 .allocator = {.allocate = allocate, .release = release}};
    return &host;
}
