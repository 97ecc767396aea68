/* SPDX-License-Identifier: Apache-2.0
 * owner.c - which process we are, asked with every call of a link: a look at a page that fork()
 * wipes costs nothing, a system call does. */
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
    /* Not before 4.14; and emulators of other processors say yes to every advice, even to what is
     * none. */
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
