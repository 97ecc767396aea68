/* SPDX-License-Identifier: Apache-2.0
 * optimizer.h - AdamW over parts, the learning rate's schedule, and clipping over all stages.
 *
 * The norm of the gradient has the same bits however the parts are distributed over stages: the sum
 * of squares of each part is one double, and these are added in the order of the parts. */
#ifndef DW_TRAINER_OPTIMIZER_H
#define DW_TRAINER_OPTIMIZER_H

#include "parameters.h"

/* | lr      | peak of the learning rate                                     |
 * | warmup  | steps of linear rise from lr / warmup; then linear fall to 0  |
 * | decay   | of matrices (rows > 1), decoupled; vectors are left alone     |
 * | clip    | largest norm of the gradient; 0: no clipping                  | */
typedef struct dw_optimizer {
    double lr, beta1, beta2, epsilon, decay, clip;
    uint32_t warmup, steps;
} dw_optimizer;

/* The learning rate of a step, 0 <= step < steps. */
double dw_optimizer_rate(const dw_optimizer *optimizer, uint32_t step);

/* The sum of squares of a part's gradient. A tied matrix counts as part of the embedding alone. */
double dw_optimizer_sum(const dw_part *part);

/* sqrt of the sums of all parts, added in order. */
double dw_optimizer_norm(const double *sums, uint32_t n_parts);

/* One update of a part, given the norm over all stages; clears the gradient. */
void dw_optimizer_update(const dw_optimizer *optimizer, dw_part *part, uint32_t step, double norm);

#endif
