/* SPDX-License-Identifier: Apache-2.0
 * complain.h - how the `deltawire` program says that something went wrong. */
#ifndef DW_CLI_COMPLAIN_H
#define DW_CLI_COMPLAIN_H

#include "base/sentence.h"

/* Exit codes. A run that was stopped by a signal ends with DW_EXIT_SIGNAL + its number: 130 for
 * Ctrl-C, which is SIGINT. */
enum { DW_EXIT_OK = 0, DW_EXIT_FAILED = 1, DW_EXIT_USAGE = 2, DW_EXIT_SIGNAL = 128 };

/* Prints "deltawire: <sentence>" to stderr. */
__attribute__((format(printf, 1, 2))) void dw_complain(const char *format, ...);

/* The exit code for a status: wrong arguments and settings are DW_EXIT_USAGE, other errors
 * DW_EXIT_FAILED. */
int dw_exit_code(dw_status status);

/* To be called at the start; a second call changes nothing. When the program exits and something
 * that it printed could not be written to stdout (a full disk, for instance), it prints a sentence
 * to stderr and exits with DW_EXIT_FAILED. */
void dw_check_stdout_at_exit(void);

#endif
