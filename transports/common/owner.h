/* SPDX-License-Identifier: Apache-2.0
 * owner.h - the process that an object belongs to. After fork() the child has the memory and the
 * descriptors, but none of the threads, and its locks are in the state that they happened to be in.
 * So it must not use the object. */
#ifndef DW_OWNER_H
#define DW_OWNER_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct dw_owner {
    /* A page whose first byte is 0 in a forked child; NULL: `process` is compared instead. */
    const volatile unsigned char *page;
    pid_t process;
} dw_owner;

void dw_owner_become(dw_owner *owner); /* the calling process becomes the owner */
bool dw_owner_is_us(const dw_owner *owner);
void dw_owner_end(dw_owner *owner);

#endif
