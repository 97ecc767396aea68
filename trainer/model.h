/* SPDX-License-Identifier: Apache-2.0
 * model.h - a GPT-2-style decoder over bytes, cut into parts (embed, blocks, head), of which a
 * stage owns a contiguous range: pre-LayerNorm, causal attention, GELU (tanh form), learned
 * positions, untied head; f32. With a bottleneck (layout.h) a stage also owns the matrices that
 * make R channels of C before the next stage, and C of R after the one before.
 *
 * A slot keeps what the backward pass needs of one micro-batch. It has N samples of T + 1 bytes:
 * byte t is an input token, and byte t + 1 is the token to predict. The tokens go through the model
 * in slices (slices.h): forward from the first to the last, backward from the last to the first. A
 * micro-batch begins its backward pass when all its slices have gone forward, and ends it before
 * another micro-batch begins its own. Not thread-safe. Only dw_model_create can fail. Source:
 * Radford et al., Language models are unsupervised multitask learners (2019). */
#ifndef DW_TRAINER_MODEL_H
#define DW_TRAINER_MODEL_H

#include <stdbool.h>

#include "layout.h"

typedef struct dw_model dw_model;

/* Makes the parts first to first + n_parts - 1, with memory for n_slots micro-batches of at most N
 * samples. slices: into how many slices a micro-batch is divided, 1 to shape->context. Errors:
 * ARGUMENT (an invalid shape), NO_MEMORY, LIMIT; *model is then NULL. */
dw_status dw_model_create(dw_model **model, const dw_model_shape *shape, uint32_t first,
                          uint32_t n_parts, uint32_t N, uint32_t n_slots, uint32_t slices);
void dw_model_destroy(dw_model *model); /* NULL is fine */

void dw_model_initialize(dw_model *model, uint64_t seed);

uint32_t dw_model_part_count(const dw_model *model);
dw_part *dw_model_part(dw_model *model, uint32_t i);
bool dw_model_owns_embed(const dw_model *model);
bool dw_model_owns_head(const dw_model *model);

/* In what follows, tensors at a boundary have C channels, or R with a bottleneck. */

/* Where the caller puts the activation (N, tokens, C) of the previous stage before it calls forward
 * for the slice. The first stage does not use it. */
float *dw_model_input(dw_model *model, uint32_t slot, uint32_t slice);

/* Computes one slice forward. samples: the whole micro-batch, (N, T + 1) bytes, which the stages
 * read that own embed or head; NULL at the others. */
void dw_model_forward(dw_model *model, uint32_t slot, uint32_t slice, uint32_t N,
                      const uint8_t *samples);

/* The result of forward for the next stage, (N, tokens, C); NULL at the last stage. */
float *dw_model_output(dw_model *model, uint32_t slot, uint32_t slice);

/* Last stage, after forward: the sum of -ln p(next byte) over the N samples' tokens in this slice.
 * Where backward is not 0 it also leaves the gradient of scale times that sum for
 * dw_model_backward. */
double dw_model_loss(dw_model *model, uint32_t slot, uint32_t slice, bool backward, float scale);

/* The gradient (N, tokens, C) of a slice at the boundary of the stage. Before backward it is that
 * of the output, which all stages but the last fill in; after backward it is that of the input, to
 * be sent to the previous stage. All slots and slices share it. */
float *dw_model_gradient(dw_model *model);

/* Computes one slice backward: adds to the gradients of all parameters of the stage, from the last
 * part to the first. */
void dw_model_backward(dw_model *model, uint32_t slot, uint32_t slice);

/* From now on dw_model_backward calls done(context, i) for each part i as soon as it has added to
 * the gradients of this part, which it does not touch again. done NULL: it no longer does so. */
typedef void dw_model_part_done(void *context, uint32_t i);
void dw_model_watch(dw_model *model, dw_model_part_done *done, void *context);

#endif
