/* SPDX-License-Identifier: Apache-2.0
 * report.c - the first error of an endpoint, and the reasons of system calls. */
#include "common/report.h"

#include <errno.h>
#include <string.h>

#include "base/copied.h"

DW_COPIED void dw_link_report_first(dw_status *kept, dw_why *why, dw_status status,
                                    const char *format, va_list arguments)
{
    if (*kept == DW_OK) *kept = dw_say_with(why, status, -1, format, arguments);
}

DW_COPIED const char *dw_link_system_says(int error)
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
