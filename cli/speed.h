/* SPDX-License-Identifier: Apache-2.0
 * speed.h - what a codec costs on this machine, measured on tensors of random numbers: bytes, times
 * and error of a sample's later visits. */
#ifndef DW_CLI_SPEED_H
#define DW_CLI_SPEED_H

#include "base/forecast.h"
#include "deltawire/deltawire.h"

typedef struct dw_speed dw_speed;

/* Makes the tensors of several visits, in f32 with a normal distribution. Between two visits they
 * change by `change` times their norm. Of large tensors (n, t, c) only a part is measured, and what
 * it costs is multiplied. Errors: NO_MEMORY. */
dw_status dw_speed_open(dw_speed **speed, uint32_t n, uint32_t t, uint32_t c, double change,
                        dw_why *why);
void dw_speed_close(dw_speed *speed); /* NULL is fine */

/* Encodes and decodes all visits with a codec. *way is that of the last one, with the shortest
 * times of all later visits. Errors: those of codecs. */
dw_status dw_speed_measure(const dw_speed *speed, const char *codec, dw_forecast_way *way,
                           dw_why *why);

#endif
