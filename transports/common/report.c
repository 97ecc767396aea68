/* SPDX-License-Identifier: Apache-2.0
 * report.c - error sentences. */
#include "common/report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/printable.h"

static void fill(dw_why *why, int offset, const char *format, va_list arguments)
{
    if (!why) return;
    vsnprintf(why->text, sizeof why->text, format, arguments);
    dw_make_printable(why->text);
    why->offset = offset;
}

dw_status dw_link_report(dw_why *why, dw_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fill(why, -1, format, arguments);
    va_end(arguments);
    return status;
}

dw_status dw_link_report_at(dw_why *why, dw_status status, int offset, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fill(why, offset, format, arguments);
    va_end(arguments);
    return status;
}

void dw_link_report_first(dw_status *kept, dw_why *why, dw_status status, const char *format,
                          va_list arguments)
{
    if (*kept != DW_OK) return;
    fill(why, -1, format, arguments);
    *kept = status;
}

const char *dw_link_system_says(int error)
{
    switch (error) {
    case EMFILE:
        return "this process has reached its limit of open files; raise `ulimit -n`, or close "
               "links";
    case ENFILE:
        return "this machine has reached its limit of open files; raise /proc/sys/fs/file-max";
    case ENOSPC:
        return "epoll has reached its limit of watched files; raise "
               "/proc/sys/fs/epoll/max_user_watches";
    default: return strerror(error);
    }
}
