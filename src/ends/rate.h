/* SPDX-License-Identifier: Apache-2.0
 * rate.h - controls the step so that frames take, on average, as many bits per element as the
 * option `rate` says.
 *
 * The control learns from the length of every frame that was made, and from nothing else. So an
 * encoder that is given the same tensors makes the same frames on every machine. State: dw_rate,
 * which only encoders have. It is saved beside the keys (docs/format.md, 7), and no part of frames,
 * because every payload contains its own steps. */
#ifndef DW_RATE_H
#define DW_RATE_H

#include <stdbool.h>

#include "codecs/plan.h"

/* The state of the control. */
typedef struct dw_rate {
    double step; /* for the next frame: as a multiple of the root mean square of what is coded */
    double debt; /* the sum, over all frames so far, of the actual rate minus the wanted one */
} dw_rate;

/* Initializes the state, and chooses the step for the first frame. Does nothing if the config has
 * no rate. The caller has entered the exact floating-point mode (common/cpu.h). */
void dw_rate_begin(dw_rate *rate, const dw_params *params);

/* Chooses the step for the next frame from the length of the last one. bits: how many bits per
 * element the last frame took. is_coded: whether at least one of its entries was coded with the
 * step; if all were skipped, the step stays as it is. Does nothing if the config has no rate. The
 * caller has entered the exact floating-point mode. */
void dw_rate_learn(dw_rate *rate, const dw_params *params, double bits, bool is_coded);

#endif
