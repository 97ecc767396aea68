/* SPDX-License-Identifier: Apache-2.0
 * joint_checkpoint.h - the checkpoint of a whole run: all ranks write it together, and all of them
 * start from it. checkpoint.h says which files a checkpoint consists of. */
#ifndef DW_TRAINER_JOINT_CHECKPOINT_H
#define DW_TRAINER_JOINT_CHECKPOINT_H

#include "checkpoint.h"
#include "stage.h"

/* Opens the checkpoint of the settings `resume` or `init`, and checks that a run with these
 * settings can start from it. Without these settings *start stays as it is. Then prepares the
 * directory of the setting `save`. Errors: those of dw_checkpoint_open and dw_checkpoint_prepare;
 * MISMATCH (a checkpoint of another model, or of gradients of another grid or codec), ARGUMENT (no
 * steps are left). */
dw_status dw_joint_checkpoint_open(dw_checkpoint *start, const dw_settings *settings, dw_why *why);

/* Loads the parts of this rank and, with the setting `resume`, what the optimizer and the codec of
 * the gradients keep. Errors: those of dw_checkpoint_read and dw_replicas_load. */
dw_status dw_joint_checkpoint_load(dw_stage *stage, const dw_checkpoint *start);

/* With the setting `resume`, rank 0 says (on_misfit) if the checkpoint is of a run with another
 * seed, batch or optimizer. */
void dw_joint_checkpoint_compare(const dw_stage *stage, const dw_checkpoint *start);

/* Saves the state after `step` steps to the directory of the setting `save`. Every rank must call
 * it after the same step. Errors: those of dw_checkpoint_write and of stage.h; MISMATCH (replicas
 * hold different parts). The checkpoint before it remains usable then. */
dw_status dw_joint_checkpoint_save(dw_stage *stage, uint32_t step);

#endif
