/* SPDX-License-Identifier: Apache-2.0
 * complain.c - sentences for stderr, exit codes, and a check of stdout. */
#include "complain.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns how many bytes at `at` are a character that may be printed, or 0: invalid UTF-8, a
 * control character, or one that changes the direction of text. Errors quote what peers have sent,
 * and a peer must not control the terminal. transports/common/report.c does the same for links. */
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
        if (at[i] >> 6 != 2) return 0; /* the end of the text, too */
        code = code << 6 | (at[i] & 0x3fu);
    }
    bool is_control = code < 0x20 || (code >= 0x7f && code < 0xa0),
         turns = code == 0x200e || code == 0x200f || (code >= 0x2028 && code <= 0x202e) ||
                 (code >= 0x2066 && code <= 0x2069),
         is_none = code < least[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000);
    return is_control || turns || is_none ? 0 : n;
}

void dw_complain(const char *format, ...)
{
    char text[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (unsigned char *at = (unsigned char *)text; *at;) {
        int n = printable(at);
        if (n == 0) *at = '?';
        at += n == 0 ? 1 : n;
    }
    fprintf(stderr, "deltawire: %s\n", text);
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

/* An exit handler, because argp itself exits after --help. errno is lost where an earlier write
 * failed. */
static void check_stdout(void)
{
    bool failed_before = ferror(stdout);
    errno = 0;
    if (fflush(stdout) == 0 && !failed_before) return;
    dw_complain("cannot write to standard output: %s",
                errno ? strerror(errno) : "the output is incomplete");
    _exit(DW_EXIT_FAILED);
}

void dw_check_stdout_at_exit(void)
{
    atexit(check_stdout);
}
