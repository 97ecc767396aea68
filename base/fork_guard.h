/* SPDX-License-Identifier: Apache-2.0
 * fork_guard.h - whether this is still the process in which an object was made. After fork() the
 * child has the memory and the descriptors, but none of the threads, and its locks are in the state
 * that they happened to be in. So it must not use the object.
 *
 * Every call of a link, a group or a pool of threads asks for this, so it must be cheap: reading a
 * page that fork() sets to zero in the child costs next to nothing, and a system call (getpid)
 * twice in a sum of a group takes 1 % of it. The pure layer must not include this header. */
#ifndef DW_FORK_GUARD_H
#define DW_FORK_GUARD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DW_FORK_GUARD_PAGE_BYTES = 4096 };

typedef struct dw_fork_guard {
    /* A page whose first byte is 0 in a forked child; NULL: `process` is compared instead. */
    const volatile unsigned char *page;
    pid_t process;
} dw_fork_guard;

/* begin: the calling process is the one that may use the object. is_ours: whether it is that one.
 * end: gives the page back. */
static inline void dw_fork_guard_begin(dw_fork_guard *guard)
{
    *guard = (dw_fork_guard){.process = getpid()};
#ifdef MADV_WIPEONFORK
    unsigned char *page = mmap(NULL, DW_FORK_GUARD_PAGE_BYTES, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return;
    /* Linux has MADV_WIPEONFORK since 4.14. Emulators of other processors return success for every
     * advice; the invalid advice -1 shows whether this is one of them. */
    if (madvise(page, DW_FORK_GUARD_PAGE_BYTES, MADV_WIPEONFORK) != 0 ||
        madvise(page, DW_FORK_GUARD_PAGE_BYTES, -1) == 0) {
        munmap(page, DW_FORK_GUARD_PAGE_BYTES);
        return;
    }
    *page = 1;
    guard->page = page;
#endif
}

static inline bool dw_fork_guard_is_ours(const dw_fork_guard *guard)
{
    return guard->page ? *guard->page : guard->process == getpid();
}

static inline void dw_fork_guard_end(dw_fork_guard *guard)
{
    if (guard->page) munmap((void *)(uintptr_t)guard->page, DW_FORK_GUARD_PAGE_BYTES);
    guard->page = NULL;
}

#endif
