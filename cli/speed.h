/* SPDX-License-Identifier: Apache-2.0
 * speed.h - measures what a codec costs on this machine: the bytes, the times and the error of a
 * tensor of random numbers whose samples were sent before. */
#ifndef DW_CLI_SPEED_H
#define DW_CLI_SPEED_H

#include "deltawire/deltawire.h"
#include "forecast.h"

typedef struct dw_speed dw_speed;

/* Makes the tensors with which codecs are measured: several visits of a tensor of n samples, t
 * tokens and c channels, in f32 with a normal distribution. Between two visits it changes by
 * `change` times its norm. If the tensor is large, only a part of it is measured, and its bytes and
 * times are multiplied accordingly. Errors: NO_MEMORY, with a sentence in *why. */
dw_status dw_speed_open(dw_speed **speed, uint32_t n, uint32_t t, uint32_t c, double change,
                        dw_why *why);
/* Frees the tensors. `speed` may be NULL. */
void dw_speed_close(dw_speed *speed);

/* Encodes and decodes all visits with the codec of this text. Sets *way to the bytes and the error
 * of the last visit, and to the shortest times of all visits but the first. Errors: those of
 * dw_config_parse, of creating encoders and decoders, and of coding, with a sentence in *why that
 * names the codec. */
dw_status dw_speed_measure(const dw_speed *speed, const char *codec, dw_forecast_way *way,
                           dw_why *why);

#endif
