/* SPDX-License-Identifier: Apache-2.0
 * numbers.h - reads the numbers that users write as values of options.
 *
 * `state` is argp's, `name` is that of the option without its dashes, and `text` is the value that
 * the user wrote. If it is not a number, or not one in the range that is allowed, argp_error prints
 * a sentence that names the option and the range, and ends the program with DW_EXIT_USAGE. */
#ifndef DW_CLI_NUMBERS_H
#define DW_CLI_NUMBERS_H

#include <argp.h>
#include <stdint.h>

/* Returns a whole number from `least` to `most`, written in decimal digits alone. */
uint64_t dw_whole_number(struct argp_state *state, const char *name, const char *text,
                         uint64_t least, uint64_t most);
/* Returns a finite number from `least` to `most`, written as strtod reads it. */
double dw_real_number(struct argp_state *state, const char *name, const char *text, double least,
                      double most);

/* Reads a time from 0.001 to 10^6 seconds, after which a program no longer waits. Returns it in
 * milliseconds. */
uint32_t dw_timeout_number(struct argp_state *state, const char *name, const char *text);

/* Reads a rate such as "100mbit", which means 10^8 bits per second. Units are bit, kbit, mbit and
 * gbit; rates from 1bit to 1000gbit are allowed. Returns bytes per second. */
double dw_rate_number(struct argp_state *state, const char *name, const char *text);

#endif
