/* SPDX-License-Identifier: Apache-2.0
 * schedule.h - in which order a stage does the micro-batches of a step, and their slices.
 *
 * Micro-batch i goes forward in order and backward in the same order on every stage, so the sums of
 * gradients are the same bit for bit however many stages there are, and with either schedule. The
 * first stage sends micro-batches forward one after another; the last stage computes each one
 * backward as soon as it has arrived; the stages between compute whatever has arrived. Sending
 * overlaps with computing: while the network carries micro-batch i, the next ones are computed.
 *
 * The slices of a micro-batch (slices.h, arXiv:2102.07988) go forward one after another, each on
 * its own through the pipeline. The last stage computes them backward in reverse order when it has
 * them all, and all other stages do so in the order in which gradients arrive, which is the same.
 *
 * A stage that holds as many micro-batches as it may (dw_settings.in_flight) waits for a gradient
 * before it begins another one. It holds a micro-batch from the forward pass of its first slice to
 * the end of the backward pass of the same slice, which comes last in backward order. So the limit
 * counts whole micro-batches, and never stops one that was begun. With GPipe (arXiv:1811.06965) no
 * stage waits. With 1F1B (arXiv:2006.09503) a stage takes less memory, and waits for the network
 * more often. */
#ifndef DW_TRAINER_SCHEDULE_H
#define DW_TRAINER_SCHEDULE_H

#include "data.h"
#include "stage.h"

/* Forward and backward of one batch; gradients are added up, and their average over the replicas is
 * begun as soon as they are complete. ids: the samples (batch). next_ids: those of the next step;
 * NULL: not known. is_first_use: the step before had another batch. *loss: at the last stage the
 * mean of -ln p over the tokens. Errors: those of the stage. */
dw_status dw_schedule_step(dw_stage *stage, const dw_data *data, const uint32_t *ids,
                           const uint32_t *next_ids, bool is_first_use, double *loss);

/* The forward pass of this replica's share of the held-out samples, without a backward pass. With
 * the setting repeat, every sample is sent as if it were new. is_plain: activations are sent as
 * floats, and codecs keep nothing of them. *loss:
 * at the last stage its share of the mean over all of them, so the sum over replicas is the
 * mean. */
dw_status dw_schedule_eval(dw_stage *stage, const dw_data *data, bool is_plain, double *loss);

#endif
