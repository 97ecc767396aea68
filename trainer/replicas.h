/* SPDX-License-Identifier: Apache-2.0
 * replicas.h - the ranks of one stage in all replicas: their links, and the group in which they
 * average the gradients of their parts.
 *
 * Each part's gradient is one buffer of the group, with the part's index as its slot: it lies in
 * one vector, row after row, so the codecs' groups of 64 or 128 values do not mix rows of matrices
 * whose width is a multiple of that. The buffer leaves as soon as the last micro-batch has gone
 * backward through the part, while the parts in front of it are still computed.
 *
 * A replica that listens tells its address to the others along the ranks, so nothing but the first
 * links needs to be known from outside. Ranks that follow each other (where there is one stage)
 * share the link that they have.
 *
 * With one replica there is nothing of this, and no function does anything. Errors: as in stage.h.
 * Threads: those of the stage. */
#ifndef DW_TRAINER_REPLICAS_H
#define DW_TRAINER_REPLICAS_H

#include "stage.h"

/* The floats of a gradient that are sent at a time; a multiple of 2048. */
enum { DW_REPLICAS_PIECE = 65536 };

/* After all ranks have met their neighbours. greeting: borrowed. */
dw_status dw_replicas_open(dw_stage *stage, json_t *greeting);

/* Says stage->why to the others if status < 0, and closes the group and its own links. */
void dw_replicas_close(dw_stage *stage, dw_status status);

/* Returns this stage's rank in a replica; NULL: it is this rank, or was not met. */
dw_neighbour *dw_replicas_at(dw_stage *stage, uint32_t replica);

/* Starts to average the gradient of part i of this stage, which must not be touched until collect
 * has returned. An error is returned by collect. */
void dw_replicas_start(dw_stage *stage, uint32_t i);

/* Waits until the gradients of all parts are the mean over all replicas. */
dw_status dw_replicas_collect(dw_stage *stage);

/* What the codecs of the gradients keep, for checkpoints. save: *bytes is to be freed, and NULL if
 * there is nothing. load: into a group that has averaged nothing yet. Errors also: FORMAT. */
dw_status dw_replicas_save(dw_stage *stage, uint8_t **bytes, size_t *len);
dw_status dw_replicas_load(dw_stage *stage, const uint8_t *bytes, size_t len);

/* Adds what averaging has cost this rank. */
void dw_replicas_cost(dw_stage *stage, dw_train_cost *cost);

#endif
