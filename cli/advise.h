/* SPDX-License-Identifier: Apache-2.0
 * advise.h - `deltawire advise`: predicts which codecs make the steps of a training short. */
#ifndef DW_CLI_ADVISE_H
#define DW_CLI_ADVISE_H

/* Runs the subcommand. argv[0] is its name, and its options follow. Returns the exit code. */
int dw_cli_advise(int argc, char **argv);

#endif
