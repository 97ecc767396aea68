/* SPDX-License-Identifier: Apache-2.0
 * local.h - `train --local N`: all ranks of a run as processes of this machine. */
#ifndef DW_CLI_LOCAL_H
#define DW_CLI_LOCAL_H

#include "deltawire/trainer.h"

/* Starts a process of this program for each of the config->stages * config->replicas ranks, with
 * the given arguments and those of its rank, and waits for all of them. Returns the exit code. */
int dw_run_local(const dw_train_config *config, const char *link, int argc, char **argv);

/* Reports to the parent of a child of --local, through the pipe fd: "listening" and the address, or
 * "failed" and the error. */
void dw_tell(int fd, const char *what, const char *text);

#endif
