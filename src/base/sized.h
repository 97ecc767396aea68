/* SPDX-License-Identifier: Apache-2.0
 * sized.h - structs whose first member is their size, so that programs and libraries of different
 * versions can exchange them.
 *
 * The program's struct may be shorter than the library's: the missing fields are zero, which means
 * default. It may be longer if all additional bytes are zero. The library never writes past the
 * size that the program gave. Errors: false, with nothing written. */
#ifndef DW_SIZED_H
#define DW_SIZED_H

#include <stdbool.h>
#include <stddef.h>

#include "deltawire/deltawire.h"

/* From the program to the library: copies *given, of given_size bytes, into *own, of own_size
 * bytes. */
bool dw_struct_take(void *own, size_t own_size, const void *given, size_t given_size);

/* From the library to the program: copies *own into *given, whose first member holds the program's
 * size. */
bool dw_struct_give(void *given, const void *own, size_t own_size);

static inline dw_status dw_counters_give(dw_counters *given, const dw_counters *own)
{
    return dw_struct_give(given, own, sizeof *own) ? DW_OK : DW_ERR_ARGUMENT;
}

#endif
