/* SPDX-License-Identifier: Apache-2.0
 * guarded.h - memory between two guard pages: an access to these ends the program. */
#ifndef DW_TEST_GUARDED_H
#define DW_TEST_GUARDED_H

#include <sys/mman.h>
#include <unistd.h>

#include "support/tool.h"

typedef struct slot {
    unsigned char *start, *end; /* the memory that may be accessed */
} slot;

/* Maps at least this many bytes between guard pages. */
static inline slot slot_open(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = (bytes + page - 1) / page * page;
    unsigned char *all =
        mmap(NULL, inner + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(all != MAP_FAILED);
    assert_int_equal(mprotect(all + page, inner, PROT_READ | PROT_WRITE), 0);
    return (slot){all + page, all + page + inner};
}

static inline void slot_close(slot s)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    munmap(s.start - page, (size_t)(s.end - s.start) + 2 * page);
}

/* Places `bytes` bytes directly at the upper or the lower guard page. */
static inline void *slot_place(slot s, size_t bytes, bool at_end)
{
    assert_true(bytes <= (size_t)(s.end - s.start));
    return at_end ? s.end - bytes : s.start;
}

#endif
