/* SPDX-License-Identifier: Apache-2.0
 * sentence.c - formats the sentence of an error. */
#include "base/sentence.h"

#include <stdio.h>
#include <string.h>

#include "base/copied.h"
#include "base/printable.h"

DW_COPIED dw_status dw_say_with(dw_why *why, dw_status status, int offset, const char *format,
                                va_list arguments)
{
    if (!why) return status;
    char text[sizeof why->text] = ""; /* so that nothing of the stack follows the sentence */
    vsnprintf(text, sizeof text, format, arguments);
    dw_make_printable(text);
    memcpy(why->text, text, sizeof text);
    why->offset = offset;
    return status;
}

DW_COPIED dw_status dw_say(dw_why *why, dw_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    dw_say_with(why, status, -1, format, arguments);
    va_end(arguments);
    return status;
}

DW_COPIED dw_status dw_say_at(dw_why *why, dw_status status, int offset, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    dw_say_with(why, status, offset, format, arguments);
    va_end(arguments);
    return status;
}
