/* SPDX-License-Identifier: Apache-2.0
 * advise.h - `deltawire advise`: which codecs make a step short on a link. */
#ifndef DW_CLI_ADVISE_H
#define DW_CLI_ADVISE_H

/* argv[0] is the name of the subcommand. Returns the exit code. */
int dw_cli_advise(int argc, char **argv);

#endif
