/* SPDX-License-Identifier: Apache-2.0
 * sized.h - structs that begin with their own size, so that programs and libraries of different
 * versions understand each other.
 *
 * A program's struct may be shorter than the library's: what is missing is zero, the default. It
 * may be longer where all that it has more is zero. What the library writes never passes the
 * program's size. Errors: false; nothing was written. */
#ifndef DW_SIZED_H
#define DW_SIZED_H

#include <stdbool.h>
#include <stddef.h>

#include "deltawire/deltawire.h"

/* From a program: *own, of own_size bytes, becomes what *given, of given_size bytes, says. */
bool dw_struct_take(void *own, size_t own_size, const void *given, size_t given_size);

/* To a program, whose *given says its size in its first member. */
bool dw_struct_give(void *given, const void *own, size_t own_size);

static inline dw_status dw_counters_give(dw_counters *given, const dw_counters *own)
{
    return dw_struct_give(given, own, sizeof *own) ? DW_OK : DW_ERR_ARGUMENT;
}

#endif
