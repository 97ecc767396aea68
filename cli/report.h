/* SPDX-License-Identifier: Apache-2.0
 * report.h - what rank 0 tells people and the log. */
#ifndef DW_CLI_REPORT_H
#define DW_CLI_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "deltawire/trainer.h"

typedef struct dw_report dw_report;
typedef struct dw_report_options {
    const char *log;      /* JSONL file, NULL: none */
    int tell;             /* where a child of --local tells its address; -1: this is none */
    bool quiet;           /* no step lines */
    uint32_t print_every; /* steps from one line to the next */
    /* Who tells the next rank where this one listens; NULL: the user does. */
    struct dw_place *place;
} dw_report_options;

/* 0, or -1 after a complaint. */
int dw_report_open(dw_report **report, const dw_report_options *options);
void dw_report_hooks(dw_report *report, dw_train_hooks *hooks);
int dw_report_close(dw_report *report); /* -1 after a complaint: the log is not whole */

#endif
