/* SPDX-License-Identifier: Apache-2.0
 * cost.h - what a rank has spent, as a message to rank 0, and sums of it. */
#ifndef DW_TRAINER_COST_H
#define DW_TRAINER_COST_H

#include <jansson.h>

#include "deltawire/trainer.h"

/* NULL: no memory. */
json_t *dw_cost_pack(const dw_train_cost *cost);

/* What is missing in the message becomes zero, and missing seconds NaN. */
void dw_cost_unpack(const json_t *message, dw_train_cost *cost);

void dw_cost_add(dw_train_cost *sum, const dw_train_cost *cost);

#endif
