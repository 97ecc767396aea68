/* SPDX-License-Identifier: Apache-2.0
 * sentence.c - formats the sentence of an error. */
#include "sentence.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

dw_status dw_say(dw_why *why, dw_status status, const char *format, ...)
{
    if (!why) return status;
    char text[sizeof why->text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    memcpy(why->text, text, sizeof text);
    why->offset = -1;
    return status;
}
