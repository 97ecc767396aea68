/* SPDX-License-Identifier: Apache-2.0
 * agreement.h - whether all replicas hold the same parameters, bit by bit.
 *
 * All replicas start with the same parameters and make the same updates, so they always agree,
 * unless a machine computes something wrongly or its memory fails. Nothing would repair that, and
 * losses would show it only late. So the replicas compare digests of every tensor. */
#ifndef DW_TRAINER_AGREEMENT_H
#define DW_TRAINER_AGREEMENT_H

#include "stage.h"

/* Compares the parameters of this stage in all replicas, and before that the copies of tied
 * embeddings (tied.h) in each replica. Every rank must call it after the same
 * step. Errors: those of stage.h; MISMATCH at the rank of replica 0, with a sentence that names the
 * rank and the first tensor that differ. The other ranks get it as the reason why that rank stops.
 */
dw_status dw_agreement_check(dw_stage *stage, uint32_t step);

#endif
