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
 * With tied embeddings (tied.h) the first and the last stages also have links to each other, those
 * of all replicas to those of all replicas. The peers of a rank are the ranks of its stage, by
 * their replicas, and then, if it is such an end of a pipeline, the other ends.
 *
 * Where there are no peers none of these functions does anything. Errors: as in stage.h. Threads:
 * those of the stage. */
#ifndef DW_TRAINER_REPLICAS_H
#define DW_TRAINER_REPLICAS_H

#include "deltawire/collective.h"
#include "file.h"
#include "stage.h"

/* The length of the pieces in which a gradient is sent, in floats; a multiple of 2048. */
enum { DW_REPLICAS_PIECE = 65536 };

/* Opens the links to this rank's peers, and the group of its stage. To be called when this rank has
 * met its neighbours. greeting: borrowed. */
dw_status dw_replicas_open(dw_stage *stage, json_t *greeting);

/* If status < 0, sends stage->why to the peers. Closes the group and the links that
 * dw_replicas_open has opened. */
void dw_replicas_close(dw_stage *stage, dw_status status);

/* Returns the number of peers, of which this rank itself is one; 0: there are none. */
uint32_t dw_replicas_peers(const dw_stage *stage);

/* Returns peer i; NULL if that is this rank itself, or if there is no link to it yet. */
dw_neighbour *dw_replicas_at(dw_stage *stage, uint32_t i);

/* Starts to average the gradient of part i of this stage, which must not be touched until collect
 * has returned. An error is returned by collect. */
void dw_replicas_start(dw_stage *stage, uint32_t i);

/* Waits until the gradients of all parts are the mean over all replicas. */
dw_status dw_replicas_collect(dw_stage *stage);

/* Save and load what the codec of the gradients keeps (residuals, prev), for checkpoints. save:
 * appends it to the file; NULL: only sets *len to its length. load: before anything has been
 * averaged. Errors also: FORMAT. */
dw_status dw_replicas_save(dw_stage *stage, dw_file *file, uint64_t *len);
dw_status dw_replicas_load(dw_stage *stage, const uint8_t *bytes, size_t len);

/* For all groups of this rank. A member is a rank of a group; its number there may differ from its
 * rank in the run. open_group: fills in the config but for id, rank, ranks and links. wait: waits
 * for the operation of a slot. failed: returns the error of a failed group, with a sentence in
 * stage->why. If a rank was lost, the group's own sentence is not quoted, because it has the number
 * of the member. raw_bytes: the bytes that a member sends for n floats without a codec: to every
 * other member the part of its gradient that the other one owns, and its own part of the mean. */
typedef uint32_t dw_replicas_member(const dw_settings *settings, uint32_t member);
dw_status dw_replicas_open_group(dw_stage *stage, dw_group **group, dw_group_config *config);
dw_status dw_replicas_wait(dw_stage *stage, dw_group *group, uint64_t slot,
                           dw_replicas_member *rank_of_member);
dw_status dw_replicas_failed(dw_stage *stage, dw_group *group, dw_status status,
                             dw_replicas_member *rank_of_member);
dw_status dw_replicas_export(dw_stage *stage, dw_group *group, dw_file *file, uint64_t *len);
dw_status dw_replicas_import(dw_stage *stage, dw_group *group, const uint8_t *bytes, size_t len);
uint64_t dw_replicas_raw_bytes(uint64_t n, uint32_t member, uint32_t members);
void dw_replicas_add_cost(dw_group *group, uint64_t raw_bytes, dw_train_cost *cost);

/* Adds to *cost the bytes of gradients that this rank has sent, and the time that it has waited for
 * their means. */
void dw_replicas_cost(dw_stage *stage, dw_train_cost *cost);

#endif
