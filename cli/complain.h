/* SPDX-License-Identifier: Apache-2.0
 * complain.h - how the `deltawire` program says that something went wrong. */
#ifndef DW_CLI_COMPLAIN_H
#define DW_CLI_COMPLAIN_H

#include "deltawire/deltawire.h"

/* Exit codes; a program that Ctrl-C ended gives 130 (128 + SIGINT) to the shell. */
enum { DW_EXIT_OK = 0, DW_EXIT_FAILED = 1, DW_EXIT_USAGE = 2, DW_EXIT_SIGNAL = 128 };

/* Prints "deltawire: <sentence>" to stderr. */
__attribute__((format(printf, 1, 2))) void dw_complain(const char *format, ...);

/* Puts the sentence into *why and returns status: `return dw_fail(why, DW_ERR_..., "...")`. */
__attribute__((format(printf, 3, 4))) dw_status dw_fail(dw_why *why, dw_status status,
                                                        const char *format, ...);

/* The exit code that means this status. */
int dw_exit_code(dw_status status);

#endif
