/* SPDX-License-Identifier: Apache-2.0
 * numbers.h - numbers in the options of a command: what is not one, or is out of range, ends the
 * program with a sentence that names the option. */
#ifndef DW_CLI_NUMBERS_H
#define DW_CLI_NUMBERS_H

#include <argp.h>
#include <stdint.h>

uint64_t dw_whole_number(struct argp_state *state, const char *name, const char *text,
                         uint64_t least, uint64_t most);
double dw_real_number(struct argp_state *state, const char *name, const char *text, double least,
                      double most);

/* A rate such as "100mbit", per second, from 1bit to 1000gbit. Returns bytes per second. */
double dw_rate_number(struct argp_state *state, const char *name, const char *text);

#endif
