/* SPDX-License-Identifier: Apache-2.0
 * owner.h - the process that something belongs to. What fork() makes has the memory and the
 * descriptors as well, but none of the threads, and locks as they happened to stand. */
#ifndef DW_OWNER_H
#define DW_OWNER_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct dw_owner {
    const volatile unsigned char *page; /* zero in whatever was forked; NULL: the process tells */
    pid_t process;
} dw_owner;

void dw_owner_become(dw_owner *owner); /* the calling process */
bool dw_owner_is_us(const dw_owner *owner);
void dw_owner_end(dw_owner *owner);

#endif
