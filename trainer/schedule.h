/* SPDX-License-Identifier: Apache-2.0
 * schedule.h - in which order a stage does the micro-batches of a step (GPipe, arXiv:1811.06965).
 *
 * Micro-batch i goes forward in order and backward in the same order on every stage, so the sums of
 * gradients are the same bit for bit however many stages there are. The first stage sends all M
 * micro-batches forward one behind the other; the last takes each back as soon as it has come;
 * those between do what has arrived. Sending goes on behind the computing, so while the wire
 * carries micro-batch i, its neighbours are computed. */
#ifndef DW_TRAINER_SCHEDULE_H
#define DW_TRAINER_SCHEDULE_H

#include "data.h"
#include "stage.h"

/* Forward and backward of one batch; gradients are added up. ids: the samples (batch). *loss: at
 * the last stage the mean of -ln p over the tokens. Errors: those of the stage. */
dw_status dw_schedule_step(dw_stage *stage, const dw_data *data, const uint32_t *ids, double *loss);

/* Forward alone of the held-out samples. *loss: as above. */
dw_status dw_schedule_eval(dw_stage *stage, const dw_data *data, double *loss);

#endif
