/* SPDX-License-Identifier: Apache-2.0
 * replicas.h - the ranks of one stage in all replicas: their links, and the group in which they
 * average the gradients of their parts.
 *
 * The gradient of a part is one buffer of the group, with the part's index as its slot. It contains
 * the matrices of the part one after another, each row by row. So a codec's group of 64 or 128
 * values lies within one row of a matrix if the width of the matrix is a multiple of that number.
 * The group begins to average a gradient as soon as the last micro-batch has been computed backward
 * through the part, while the earlier parts are still being computed.
 *
 * A rank that listens for a rank of another replica sends its address to that rank, from rank to
 * rank. So users give only the addresses of the links between consecutive ranks. If a replica has
 * one stage, two consecutive ranks belong to the same stage, and use the link that they have.
 *
 * With one replica none of these functions does anything. Errors: as in stage.h. Threads: those of
 * the stage. */
#ifndef DW_TRAINER_REPLICAS_H
#define DW_TRAINER_REPLICAS_H

#include "stage.h"

/* The length of the pieces in which a gradient is sent, in floats; a multiple of 2048. */
enum { DW_REPLICAS_PIECE = 65536 };

/* Opens the links to this stage's ranks in the other replicas, and the group. To be called when
 * this rank has met its neighbours. greeting: borrowed. */
dw_status dw_replicas_open(dw_stage *stage, json_t *greeting);

/* If status < 0, sends stage->why to the other replicas. Closes the group and the links that
 * dw_replicas_open has opened. */
void dw_replicas_close(dw_stage *stage, dw_status status);

/* Returns the rank of this stage in another replica; NULL if that is this rank's own replica, or if
 * there is no link to it yet. */
dw_neighbour *dw_replicas_at(dw_stage *stage, uint32_t replica);

/* Starts to average the gradient of part i of this stage, which must not be touched until collect
 * has returned. An error is returned by collect. */
void dw_replicas_start(dw_stage *stage, uint32_t i);

/* Waits until the gradients of all parts are the mean over all replicas. */
dw_status dw_replicas_collect(dw_stage *stage);

/* Save and load what the codec of the gradients keeps (residuals, prev), for checkpoints. save: the
 * caller frees *bytes, which is NULL if nothing is kept. load: before anything has been averaged.
 * Errors also: FORMAT. */
dw_status dw_replicas_save(dw_stage *stage, uint8_t **bytes, size_t *len);
dw_status dw_replicas_load(dw_stage *stage, const uint8_t *bytes, size_t len);

/* Adds to *cost the bytes of gradients that this rank has sent, and the time that it has waited for
 * their means. */
void dw_replicas_cost(dw_stage *stage, dw_train_cost *cost);

#endif
