/* SPDX-License-Identifier: Apache-2.0
 * rate.h - finds the step with which frames take as many bits per element as the option rate says.
 *
 * It learns from the length of every frame that was made, and from nothing else; so an encoder that
 * is given the same tensors makes the same frames, on every machine. State: dw_rate, of the encoder
 * alone. It is not saved with keys and not part of frames, since every frame says its own steps. */
#ifndef DW_RATE_H
#define DW_RATE_H

#include <stdbool.h>

#include "codecs/plan.h"

typedef struct dw_rate {
    double step; /* of the next frame: a multiple of the root mean square of what is coded */
    double debt; /* bits per element that the frames so far took too much, added up */
} dw_rate;

/* begin: before the first frame. learn: after a frame that took so many bits per element; is_coded:
 * at least one of its entries was coded with the step. Neither does anything if the config has no
 * rate. Both are called in the exact floating-point mode (base/cpu.h). */
void dw_rate_begin(dw_rate *rate, const dw_params *params);
void dw_rate_learn(dw_rate *rate, const dw_params *params, double bits, bool is_coded);

#endif
