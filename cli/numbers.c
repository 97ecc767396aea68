/* SPDX-License-Identifier: Apache-2.0
 * numbers.c - reads the numbers that users write as values of options. */
#include "numbers.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

uint64_t dw_whole_number(struct argp_state *state, const char *name, const char *text,
                         uint64_t least, uint64_t most)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || value < least || value > most)
        argp_error(state, "--%s \"%s\" is not a whole number from %" PRIu64 " to %" PRIu64, name,
                   text, least, most);
    return value;
}

double dw_real_number(struct argp_state *state, const char *name, const char *text, double least,
                      double most)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value < least || value > most)
        argp_error(state, "--%s \"%s\" is not a number from %.10g to %.10g", name, text, least,
                   most);
    return value;
}

uint32_t dw_timeout_number(struct argp_state *state, const char *name, const char *text)
{
    return (uint32_t)(1000 * dw_real_number(state, name, text, 0.001, 1e6));
}

double dw_rate_number(struct argp_state *state, const char *name, const char *text)
{
    static const struct {
        const char *name;
        double bits;
    } units[] = {{"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}};
    size_t digits = strspn(text, "0123456789.");
    char *end;
    double bits = 0, value = strtod(text, &end);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (digits > 0 && end == text + digits && !strcmp(end, units[i].name))
            bits = value * units[i].bits;
    if (!(bits >= 1 && bits <= 1e12))
        argp_error(state, "--%s \"%s\" is not a rate from 1bit to 1000gbit, such as 100mbit", name,
                   text);
    return bits / 8;
}
