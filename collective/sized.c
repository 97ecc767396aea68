/* SPDX-License-Identifier: Apache-2.0
 * sized.c - reads structs that begin with struct_size. */
#include <string.h>

#include "group.h"

enum { LEAST_SIZE = 8, MOST_SIZE = 4096 };

dw_status dw_group_read_sized(void *own, size_t own_bytes, const void *given, const char *type,
                              dw_why *why)
{
    size_t size;
    memcpy(&size, given, sizeof size);
    if (size < LEAST_SIZE || size > MOST_SIZE)
        return dw_group_say(why, DW_ERR_ARGUMENT, "%s: struct_size is %zu; set it to sizeof(%s)",
                            type, size, type);
    const unsigned char *bytes = given;
    for (size_t i = own_bytes; i < size; i++) {
        if (bytes[i])
            return dw_group_say(why, DW_ERR_ARGUMENT,
                                "%s has a field that this version of the library does not know",
                                type);
    }
    memset(own, 0, own_bytes);
    memcpy(own, given, size < own_bytes ? size : own_bytes);
    return DW_OK;
}
