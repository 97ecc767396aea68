/* SPDX-License-Identifier: Apache-2.0
 * local.h - `train --local K`: all ranks of a pipeline as processes of this machine. */
#ifndef DW_CLI_LOCAL_H
#define DW_CLI_LOCAL_H

#include <stdint.h>

/* Starts `stages` processes of this program, each with the given arguments and with those of its
 * rank, and waits for them. Returns the exit code. */
int dw_run_local(uint32_t stages, const char *link, int argc, char **argv);

/* Reports to the parent of a child of --local, through the pipe fd: "listening" and the address, or
 * "failed" and the error. */
void dw_tell(int fd, const char *what, const char *text);

#endif
