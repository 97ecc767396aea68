/* SPDX-License-Identifier: Apache-2.0
 * local.h - `train --local K`: all ranks of a pipeline as processes of this machine. */
#ifndef DW_CLI_LOCAL_H
#define DW_CLI_LOCAL_H

#include <stdint.h>

/* Starts so many ranks of this program, each with the arguments given and those of its place, and
 * waits for them. Returns the exit code. */
int dw_run_local(uint32_t stages, const char *link, int argc, char **argv);

/* A child of --local tells its parent something: "listening" and its address, "failed" and why. */
void dw_tell(int fd, const char *what, const char *text);

#endif
