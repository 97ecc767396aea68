/* SPDX-License-Identifier: Apache-2.0
 * layout.c - numbers parts, and divides them among stages. */
#include "layout.h"

#include <stdbool.h>
#include <stdio.h>

/* The blocks of all stages before this one. */
static uint32_t blocks_before(const dw_model_shape *shape, uint32_t stage, uint32_t stages)
{
    uint32_t each = shape->layers / stages, over = shape->layers % stages;
    return stage * each + (stage < over ? stage : over);
}

uint32_t dw_model_parts(const dw_model_shape *shape)
{
    return shape->layers + 2 + (shape->bottleneck ? 2 * (shape->stages - 1) : 0);
}

void dw_stage_parts(const dw_model_shape *shape, uint32_t stage, uint32_t stages, uint32_t *first,
                    uint32_t *n)
{
    uint32_t before = blocks_before(shape, stage, stages);
    uint32_t blocks = blocks_before(shape, stage + 1, stages) - before;
    bool is_first = stage == 0, is_last = stage + 1 == stages;
    *first = is_first ? 0 : 1 + before;
    *n = blocks + is_first + is_last;
    if (!shape->bottleneck) return;
    *first += is_first ? 0 : 2 * stage - 1; /* the stages before it have so many more */
    *n += !is_first + !is_last;
}

dw_part_place dw_part_place_of(const dw_model_shape *shape, uint32_t index)
{
    uint32_t stages = shape->bottleneck ? shape->stages : 1, stage = 0, first, n;
    dw_stage_parts(shape, 0, stages, &first, &n);
    while (index >= first + n && stage + 1 < stages)
        dw_stage_parts(shape, ++stage, stages, &first, &n);
    if (index == first)
        return stage ? (dw_part_place){DW_PART_WIDEN, stage - 1}
                     : (dw_part_place){DW_PART_EMBED, 0};
    if (index == first + n - 1)
        return stage + 1 < stages ? (dw_part_place){DW_PART_NARROW, stage}
                                  : (dw_part_place){DW_PART_HEAD, 0};
    return (dw_part_place){DW_PART_BLOCK, blocks_before(shape, stage, stages) + index - first - 1};
}

void dw_part_name(const dw_model_shape *shape, uint32_t index, char name[DW_PART_NAME_BYTES])
{
    static const char *const names[] = {"embed", "block", "head", "narrow", "widen"};
    dw_part_place place = dw_part_place_of(shape, index);
    bool is_alone = place.kind == DW_PART_EMBED || place.kind == DW_PART_HEAD;
    if (is_alone)
        snprintf(name, DW_PART_NAME_BYTES, "%s", names[place.kind]);
    else
        snprintf(name, DW_PART_NAME_BYTES, "%s-%02u", names[place.kind], place.number);
}

uint32_t dw_boundary_channels(const dw_model_shape *shape)
{
    return shape->bottleneck ? shape->bottleneck : shape->channels;
}
