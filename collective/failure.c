/* SPDX-License-Identifier: Apache-2.0
 * failure.c - errors, as values. */
#include "failure.h"

#include <stdarg.h>
#include <stdio.h>

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
