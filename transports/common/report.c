/* SPDX-License-Identifier: Apache-2.0
 * report.c - error sentences. */
#include "common/report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Returns the length in bytes of the UTF-8 character at `at`; 0: it must not be printed. Not
 * printed are invalid UTF-8, control characters (they can control a terminal), and characters that
 * change the direction of the text. */
static int printable(const unsigned char *at)
{
    int n = at[0] < 0x80       ? 1
            : at[0] >> 5 == 6  ? 2
            : at[0] >> 4 == 14 ? 3
            : at[0] >> 3 == 30 ? 4
                               : 0;
    static const uint32_t mask[] = {0, 0x7f, 0x1f, 0xf, 7}, least[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t code = at[0] & mask[n];
    for (int i = 1; i < n; i++) {
        if (at[i] >> 6 != 2) return 0; /* this also finds the end of the text */
        code = code << 6 | (at[i] & 0x3fu);
    }
    bool is_control = code < 0x20 || (code >= 0x7f && code < 0xa0),
         turns = code == 0x200e || code == 0x200f || (code >= 0x2028 && code <= 0x202e) ||
                 (code >= 0x2066 && code <= 0x2069),
         is_none = code < least[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000);
    return is_control || turns || is_none ? 0 : n;
}

void dw_link_make_printable(char *text)
{
    for (unsigned char *at = (unsigned char *)text; *at;) {
        int n = printable(at);
        if (n == 0) *at = '?';
        at += n == 0 ? 1 : n;
    }
}

static void fill(dw_why *why, int offset, const char *format, va_list arguments)
{
    if (!why) return;
    vsnprintf(why->text, sizeof why->text, format, arguments);
    dw_link_make_printable(why->text);
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
