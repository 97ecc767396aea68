/* SPDX-License-Identifier: Apache-2.0
 * owner.c - detects that the process was forked. Every call of a link asks for this, so it must be
 * cheap: reading a page that fork() sets to zero in the child costs next to nothing, a system call
 * (getpid) would cost more. */
#include "common/owner.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE_BYTES = 4096 };

void dw_owner_become(dw_owner *owner)
{
    *owner = (dw_owner){.process = getpid()};
#ifdef MADV_WIPEONFORK
    unsigned char *page =
        mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return;
    /* Linux has MADV_WIPEONFORK since 4.14. Emulators of other processors return success for every
     * advice; the invalid advice -1 shows whether this is one of them. */
    if (madvise(page, PAGE_BYTES, MADV_WIPEONFORK) != 0 || madvise(page, PAGE_BYTES, -1) == 0) {
        munmap(page, PAGE_BYTES);
        return;
    }
    *page = 1;
    owner->page = page;
#endif
}

bool dw_owner_is_us(const dw_owner *owner)
{
    return owner->page ? *owner->page : owner->process == getpid();
}

void dw_owner_end(dw_owner *owner)
{
    if (owner->page) munmap((void *)(uintptr_t)owner->page, PAGE_BYTES);
    owner->page = NULL;
}
