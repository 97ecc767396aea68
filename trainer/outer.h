/* SPDX-License-Identifier: Apache-2.0
 * outer.h - local steps: replicas train on their own for some steps, and then average how far their
 * parameters have moved.
 *
 * A round is a number of steps in which each replica updates its own parameters by its own
 * gradients (the inner optimizer). At its end the differences between the parameters at the
 * beginning of the round and those now are averaged in place of gradients, through the codec of
 * gradients. The outer optimizer, gradient descent with Nesterov momentum, then takes one step from
 * the beginning of the round, with the mean as its gradient. All replicas begin the next round with
 * these parameters, which are the same to the bit. Sources: DiLoCo, arXiv:2311.08105, Algorithm 1;
 * SparseLoCo, arXiv:2508.15706, which replaces the momentum by error feedback of the codec.
 *
 * The averages of the inner optimizer stay those of each replica. So a checkpoint has them, and the
 * momentum, in the states of ranks (checkpoint.h), and zeros in the files of parts.
 *
 * Without local steps none of these functions does anything. Errors: as in stage.h. */
#ifndef DW_TRAINER_OUTER_H
#define DW_TRAINER_OUTER_H

#include "file.h"
#include "stage.h"

/* open: before a checkpoint is loaded. Errors: NO_MEMORY. begin: the first round begins with the
 * parameters that the model has now. */
dw_status dw_outer_open(dw_stage *stage);
void dw_outer_begin(dw_stage *stage);
void dw_outer_close(dw_stage *stage);

/* Ends a round, and begins the next one. Every rank must call it after the same step. The gradients
 * must be zeros, and are so afterwards. */
dw_status dw_outer_average(dw_stage *stage);

/* Save and load the momentum and the averages of the inner optimizer. bytes: what was saved, of
 * dw_outer_bytes bytes. */
size_t dw_outer_bytes(const dw_stage *stage);
void dw_outer_save(dw_stage *stage, dw_file *file);
void dw_outer_load(dw_stage *stage, const uint8_t *bytes);

#endif
