/* SPDX-License-Identifier: Apache-2.0
 * agreement.h - whether all replicas hold the same parameters, bit by bit.
 *
 * All replicas start alike and make the same updates, so they agree for ever, unless a machine
 * computes or remembers something wrong. Nothing would repair that, and losses would not show it
 * soon. So the replicas compare digests of every tensor. */
#ifndef DW_TRAINER_AGREEMENT_H
#define DW_TRAINER_AGREEMENT_H

#include "stage.h"

/* Compares the parameters of this stage in all replicas. Every rank must call it after the same
 * step. Errors: MISMATCH, which names the rank and the first tensor that differ, to the ranks of
 * replica 0, and as the reason of their end to the others; those of stage.h. */
dw_status dw_agreement_check(dw_stage *stage, uint32_t step);

#endif
