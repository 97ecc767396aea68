/* SPDX-License-Identifier: Apache-2.0
 * sized.c - copies structs whose first member is their size. */
#include "base/sized.h"

#include <string.h>

bool dw_struct_take(void *own, size_t own_size, const void *given, size_t given_size)
{
    const unsigned char *bytes = given;
    if (given_size < sizeof(size_t)) return false;
    for (size_t i = own_size; i < given_size; i++)
        if (bytes[i]) return false;
    memset(own, 0, own_size);
    memcpy(own, given, given_size < own_size ? given_size : own_size);
    memcpy(own, &own_size, sizeof own_size);
    return true;
}

bool dw_struct_give(void *given, const void *own, size_t own_size)
{
    size_t size;
    memcpy(&size, given, sizeof size);
    if (size < sizeof size) return false;
    memcpy((unsigned char *)given + sizeof size, (const unsigned char *)own + sizeof size,
           (size < own_size ? size : own_size) - sizeof size);
    if (size > own_size) memset((unsigned char *)given + own_size, 0, size - own_size);
    return true;
}
