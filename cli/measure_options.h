/* SPDX-License-Identifier: Apache-2.0
 * measure_options.h - `deltawire measure FILE...`: codecs on tensors of the user's own. */
#ifndef DW_CLI_MEASURE_OPTIONS_H
#define DW_CLI_MEASURE_OPTIONS_H

int dw_cli_measure(int argc, char **argv);

#endif
