/* SPDX-License-Identifier: Apache-2.0
 * complain.c - sentences for stderr, and exit codes. */
#include "complain.h"

#include <stdarg.h>
#include <stdio.h>

void dw_complain(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("deltawire: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

dw_status dw_fail(dw_why *why, dw_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why->text, sizeof why->text, format, arguments);
    va_end(arguments);
    why->offset = -1;
    return status;
}

int dw_exit_code(dw_status status)
{
    if (status >= 0) return DW_EXIT_OK;
    return status == DW_ERR_ARGUMENT || status == DW_ERR_CONFIG ? DW_EXIT_USAGE : DW_EXIT_FAILED;
}
