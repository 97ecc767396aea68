/* SPDX-License-Identifier: Apache-2.0
 * sentence.h - stores the sentence of an error. */
#ifndef DW_SENTENCE_H
#define DW_SENTENCE_H

#include <stdarg.h>

#include "deltawire/deltawire.h"

/* Stores the sentence in *why and returns status, so that a function can end with
 * `return dw_say(why, DW_ERR_..., "...")`. why may be NULL. The sentence is truncated if it is too
 * long, and what must not be printed becomes a question mark. Arguments may point into why->text.
 */
dw_status dw_say(dw_why *why, dw_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same. offset: the position of the error in the text, such as a URI, that the program passed;
 * -1: it is in none. */
dw_status dw_say_at(dw_why *why, dw_status status, int offset, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
dw_status dw_say_with(dw_why *why, dw_status status, int offset, const char *format,
                      va_list arguments) __attribute__((format(printf, 4, 0)));

#endif
