/* SPDX-License-Identifier: Apache-2.0
 * complain.c - sentences for stderr, exit codes, and a check of stdout. */
#include "complain.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/printable.h"

void dw_complain(const char *format, ...)
{
    char text[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    dw_make_printable(text);
    fprintf(stderr, "deltawire: %s\n", text);
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
