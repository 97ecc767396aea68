/* SPDX-License-Identifier: Apache-2.0
 * train.h - `deltawire train`: one rank of a pipeline, or all of them. */
#ifndef DW_CLI_TRAIN_H
#define DW_CLI_TRAIN_H

/* argv[0] is the name of the subcommand. Returns the exit code. */
int dw_cli_train(int argc, char **argv);

#endif
