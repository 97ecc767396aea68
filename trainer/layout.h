/* SPDX-License-Identifier: Apache-2.0
 * layout.h - which parts a model has, in the order in which tokens pass through them, and which
 * stage owns which.
 *
 * Without a bottleneck: embed, block-00 ..., head. With one, boundary b of a pipeline of K stages
 * has two parts more: narrow-b, from C to R channels, the last part of stage b; and widen-b, from R
 * to C channels, the first one of stage b + 1. So the layout depends on K, and a stage always owns
 * consecutive parts. */
#ifndef DW_TRAINER_LAYOUT_H
#define DW_TRAINER_LAYOUT_H

#include "parameters.h"

typedef enum dw_part_kind {
    DW_PART_EMBED,
    DW_PART_BLOCK,
    DW_PART_HEAD,
    DW_PART_NARROW,
    DW_PART_WIDEN
} dw_part_kind;

/* number: of the block, or of the boundary. */
typedef struct dw_part_place {
    dw_part_kind kind;
    uint32_t number;
} dw_part_place;

/* The number of parts, and what part `index` is. */
uint32_t dw_model_parts(const dw_model_shape *shape);
dw_part_place dw_part_place_of(const dw_model_shape *shape, uint32_t index);
void dw_part_name(const dw_model_shape *shape, uint32_t index, char name[DW_PART_NAME_BYTES]);

/* The parts of a stage. Blocks are distributed evenly; the first stages take one more if there is a
 * remainder. */
void dw_stage_parts(const dw_model_shape *shape, uint32_t stage, uint32_t stages, uint32_t *first,
                    uint32_t *n);

/* The channels of the tensors between stages. */
uint32_t dw_boundary_channels(const dw_model_shape *shape);

#endif
