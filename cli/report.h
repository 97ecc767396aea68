/* SPDX-License-Identifier: Apache-2.0
 * report.h - prints the progress of a run, and logs it. */
#ifndef DW_CLI_REPORT_H
#define DW_CLI_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "deltawire/trainer.h"

typedef struct dw_report dw_report;
typedef struct dw_report_options {
    const char *log; /* JSONL file, NULL: none */
    int tell;   /* pipe of a child of --local to its parent; -1: this process is no such child */
    bool quiet; /* no lines for steps, evaluations and checkpoints */
    uint32_t print_every; /* steps from one line to the next */
    /* Passes the address on which this rank listens to the next rank. NULL: it is printed, and the
     * user passes it on. */
    struct dw_place *place;
} dw_report_options;

/* 0, or -1 after printing an error. */
int dw_report_open(dw_report **report, const dw_report_options *options);
void dw_report_hooks(dw_report *report, dw_train_hooks *hooks);
int dw_report_close(dw_report *report); /* -1 after printing that the log is incomplete */

#endif
