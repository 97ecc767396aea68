/* SPDX-License-Identifier: Apache-2.0
 * cli.h - what the files of the `deltawire` program share. */
#ifndef DW_CLI_H
#define DW_CLI_H

#include "deltawire/trainer.h"

/* Exit codes; a program that Ctrl-C ended gives 130 (128 + SIGINT) to the shell. */
enum { DW_EXIT_OK = 0, DW_EXIT_FAILED = 1, DW_EXIT_USAGE = 2, DW_EXIT_SIGNAL = 128 };

/* Prints "deltawire: <sentence>" to stderr. */
__attribute__((format(printf, 1, 2))) void dw_complain(const char *format, ...);
int dw_exit_code(dw_status status);

/* signals.c: the number of the signal that asked us to stop, 0 before. */
extern volatile int dw_stop_signal;
void dw_catch_signals(void);
void dw_explain_stop(int signal_number);

/* A subcommand: argv[0] is its name. */
int dw_cli_train(int argc, char **argv);
int dw_cli_inspect(int argc, char **argv);

/* local.c: `train --local K`: starts K ranks of this program, each with the arguments given and
 * those of its place. */
int dw_run_local(uint32_t stages, const char *link, int argc, char **argv);
/* A child of --local tells its parent something: "listening" and its address, "failed" and why. */
void dw_tell(int fd, const char *what, const char *text);

/* report.c: what rank 0 tells people and the log. */
typedef struct dw_report dw_report;
typedef struct dw_report_options {
    const char *log;        /* JSONL file, NULL: none */
    int tell;               /* where a child of --local tells its address; -1: this is none */
    int quiet;              /* no step lines */
    uint32_t print_every;   /* steps from one line to the next */
    struct dw_place *place; /* who tells the next rank where this one listens; NULL: the user does
                             */
} dw_report_options;
int dw_report_open(dw_report **report, const dw_report_options *options); /* 0, or -1 after a
                                                                             complaint */
void dw_report_hooks(dw_report *report, dw_train_hooks *hooks);
int dw_report_close(dw_report *report); /* -1 after a complaint: the log is not whole */

#endif
