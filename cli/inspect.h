/* SPDX-License-Identifier: Apache-2.0
 * inspect.h - `deltawire inspect`: a frame or a reply, explained. */
#ifndef DW_CLI_INSPECT_H
#define DW_CLI_INSPECT_H

/* argv[0] is the name of the subcommand. Returns the exit code. */
int dw_cli_inspect(int argc, char **argv);

#endif
