/* SPDX-License-Identifier: Apache-2.0
 * owner.h - the process that an object belongs to. After fork() the child has the memory and the
 * descriptors, but none of the threads, and its locks are in the state that they happened to be in.
 * So it must not use the object.
 *
 * Every call of a link, a group or a pool of threads asks for this, so it must be cheap: reading a
 * page that fork() sets to zero in the child costs next to nothing, and a system call (getpid)
 * twice in a sum of a group takes 1 % of it. The pure layer must not include this header. */
#ifndef DW_OWNER_H
#define DW_OWNER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DW_OWNER_PAGE_BYTES = 4096 };

typedef struct dw_owner {
    /* A page whose first byte is 0 in a forked child; NULL: `process` is compared instead. */
    const volatile unsigned char *page;
    pid_t process;
} dw_owner;

/* The calling process becomes the owner. */
static inline void dw_owner_become(dw_owner *owner)
{
    *owner = (dw_owner){.process = getpid()};
#ifdef MADV_WIPEONFORK
    unsigned char *page =
        mmap(NULL, DW_OWNER_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return;
    /* Linux has MADV_WIPEONFORK since 4.14. Emulators of other processors return success for every
     * advice; the invalid advice -1 shows whether this is one of them. */
    if (madvise(page, DW_OWNER_PAGE_BYTES, MADV_WIPEONFORK) != 0 ||
        madvise(page, DW_OWNER_PAGE_BYTES, -1) == 0) {
        munmap(page, DW_OWNER_PAGE_BYTES);
        return;
    }
    *page = 1;
    owner->page = page;
#endif
}

static inline bool dw_owner_is_us(const dw_owner *owner)
{
    return owner->page ? *owner->page : owner->process == getpid();
}

static inline void dw_owner_end(dw_owner *owner)
{
    if (owner->page) munmap((void *)(uintptr_t)owner->page, DW_OWNER_PAGE_BYTES);
    owner->page = NULL;
}

#endif
