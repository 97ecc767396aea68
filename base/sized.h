/* SPDX-License-Identifier: Apache-2.0
 * sized.h - structs that begin with struct_size, so that programs and libraries of different
 * versions can exchange them: they are read from, and written for, callers that were compiled with
 * an older or a newer header.
 *
 * | function        | for a struct that         | if it is longer than ours, the rest             |
 * | dw_take_asked   | asks for something        | must be zero, or the call is refused            |
 * | dw_take_told    | gives information         | is ignored                                      |
 * | dw_give_told    | the caller reads          | becomes zero                                    |
 *
 * If the struct is shorter than ours, the missing fields are read as zero, which is the default, or
 * are not written. Errors: ARGUMENT, with a sentence and nothing written: struct_size was not set,
 * or is more than any struct of ours will ever have, or a field behind ours is set. */
#ifndef DW_SIZED_H
#define DW_SIZED_H

#include <stddef.h>

#include "deltawire/deltawire.h"

/* Fills in *own, which is own_bytes long, from *given. type: the name of the struct, for the
 * sentence. */
dw_status dw_take_asked(void *own, size_t own_bytes, const void *given, const char *type,
                        dw_why *why);
dw_status dw_take_told(void *own, size_t own_bytes, const void *given, const char *type,
                       dw_why *why);

/* Copies *own into *given, as far as given->struct_size allows; struct_size itself is not changed.
 */
dw_status dw_give_told(void *given, const void *own, size_t own_bytes, const char *type,
                       dw_why *why);

#endif
