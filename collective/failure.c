/* SPDX-License-Identifier: Apache-2.0
 * failure.c - errors, as values. */
#include "failure.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void dw_failure_set(dw_failure *failure, dw_status status, uint32_t rank, const char *format, ...)
{
    if (failure->status != DW_OK) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failure->why.text, sizeof failure->why.text, format, arguments);
    va_end(arguments);
    failure->rank = rank;
    failure->status = status;
}

dw_status dw_group_say(dw_why *why, dw_status status, const char *format, ...)
{
    if (!why) return status;
    va_list arguments;
    va_start(arguments, format);
    *why = (dw_why){.offset = -1};
    vsnprintf(why->text, sizeof why->text, format, arguments);
    va_end(arguments);
    return status;
}

/* ---- Structs that begin with struct_size ----------------------------------------------------- */

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
