/* SPDX-License-Identifier: Apache-2.0
 * tied.h - tied embeddings: the matrix that makes vectors of tokens is also the one that scores
 * tokens, head.logits.
 *
 * The first and the last stage have a copy each. Both begin with the same values and are updated
 * with the same gradient, the sum of those of both uses. With replicas, that sum is averaged in the
 * same operation: a group of the first and last stages of all replicas adds up the gradients of all
 * copies at once, through the codec of gradients (fused embedding synchronization: Optimus-CC,
 * arXiv:2301.09830), in place of an average in the first stages, another one in the last stages,
 * and a sum between both. All copies take the same decoded bits, so they stay equal.
 *
 * If a pipeline has one stage, the sum is made there, and averaged with the rest of the embedding.
 * Without tied embeddings none of these functions does anything. Errors: as in stage.h. */
#ifndef DW_TRAINER_TIED_H
#define DW_TRAINER_TIED_H

#include "file.h"
#include "stage.h"

/* Opens the group of all copies. To be called after dw_replicas_open; dw_replicas_close closes it.
 */
dw_status dw_tied_open(dw_stage *stage);
void dw_tied_close(dw_stage *stage);

/* Sets *begin and *n to the part of a gradient that the replicas of a stage average on their own.
 */
void dw_tied_rest(const dw_stage *stage, const dw_part *part, size_t *begin, size_t *n);

/* To be called when the gradient of part i of the stage is complete, and before dw_replicas_start:
 * starts to add up the gradients of all copies. An error is returned by collect. */
void dw_tied_start(dw_stage *stage, uint32_t i);

/* Waits until the gradient of this rank's copy is the sum over both uses, and the mean over the
 * replicas. To be called after dw_replicas_collect. */
dw_status dw_tied_collect(dw_stage *stage);

/* Compares the copies of this rank's replica. Every rank must call it after the same step. Errors:
 * MISMATCH, with a sentence that names both ranks. */
dw_status dw_tied_check(dw_stage *stage, uint32_t step);

/* As in replicas.h, for what the codec keeps of the copies. */
dw_status dw_tied_save(dw_stage *stage, dw_file *file, uint64_t *len);
dw_status dw_tied_load(dw_stage *stage, const uint8_t *bytes, size_t len);
void dw_tied_cost(dw_stage *stage, dw_train_cost *cost);

#endif
