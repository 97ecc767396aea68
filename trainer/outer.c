/* SPDX-License-Identifier: Apache-2.0
 * outer.c - the parameters at the beginning of a round, and the outer optimizer's momentum. */
#include "outer.h"

#include <stdlib.h>
#include <string.h>

#include "base/sentence.h"
#include "replicas.h"

/* | start    | parameters at the beginning of the round | (n) of the part |
 * | momentum | of the outer optimizer                   | (n) of the part | */
typedef struct outer_part {
    float *start, *momentum;
} outer_part;

struct dw_outer {
    outer_part *parts; /* (parts of the stage) */
};

dw_status dw_outer_open(dw_stage *stage)
{
    if (!stage->settings->has_outer) return DW_OK;
    dw_outer *outer = stage->outer = calloc(1, sizeof *outer);
    if (outer) outer->parts = calloc(stage->n_parts, sizeof *outer->parts);
    bool failed = !outer || !outer->parts;
    for (uint32_t i = 0; i < stage->n_parts && !failed; i++) {
        const dw_part *part = dw_model_part(stage->model, i);
        outer_part *own = &outer->parts[i];
        own->start = dw_floats(part->n);
        own->momentum = dw_floats(part->n);
        failed = !own->start || !own->momentum;
    }
    return failed ? dw_say(&stage->why, DW_ERR_NO_MEMORY, "out of memory for local steps") : DW_OK;
}

void dw_outer_begin(dw_stage *stage)
{
    for (uint32_t i = 0; stage->outer && i < stage->n_parts; i++) {
        const dw_part *part = dw_model_part(stage->model, i);
        memcpy(stage->outer->parts[i].start, part->params, part->n * sizeof(float));
    }
}

void dw_outer_close(dw_stage *stage)
{
    dw_outer *outer = stage->outer;
    if (!outer) return;
    for (uint32_t i = 0; outer->parts && i < stage->n_parts; i++) {
        free(outer->parts[i].start);
        free(outer->parts[i].momentum);
    }
    free(outer->parts);
    free(outer);
    stage->outer = NULL;
}

/* The outer optimizer's step: part->grads is the mean difference. */
static void step(const dw_train_config *config, dw_part *part, outer_part *own)
{
    float lr = (float)config->outer_lr, keep = (float)config->outer_momentum;
    for (size_t k = 0; k < part->n; k++) {
        float difference = part->grads[k];
        own->momentum[k] = keep * own->momentum[k] + difference;
        part->params[k] = own->start[k] - lr * (difference + keep * own->momentum[k]);
    }
    memcpy(own->start, part->params, part->n * sizeof(float));
    memset(part->grads, 0, part->n * sizeof(float));
}

dw_status dw_outer_average(dw_stage *stage)
{
    if (!stage->outer) return DW_OK;
    uint64_t since = dw_now_ns();
    for (uint32_t i = stage->n_parts; i-- > 0;) {
        const dw_part *part = dw_model_part(stage->model, i);
        const float *start = stage->outer->parts[i].start;
        for (size_t k = 0; k < part->n; k++) part->grads[k] = start[k] - part->params[k];
        dw_replicas_start(stage, i);
    }
    dw_stage_computed(stage, since);
    dw_status status = dw_replicas_collect(stage);
    since = dw_now_ns();
    for (uint32_t i = 0; i < stage->n_parts && status == DW_OK; i++)
        step(&stage->settings->config, dw_model_part(stage->model, i), &stage->outer->parts[i]);
    dw_stage_computed(stage, since);
    return status;
}

/* ---- Checkpoints ----------------------------------------------------------------------------- */

enum { KEPT = 3 };

/* What is kept of part i, in its order in a state. */
static void list_kept(dw_stage *stage, uint32_t i, float *kept[KEPT])
{
    const dw_part *part = dw_model_part(stage->model, i);
    kept[0] = part->mean;
    kept[1] = part->square;
    kept[2] = stage->outer->parts[i].momentum;
}

size_t dw_outer_bytes(const dw_stage *stage)
{
    size_t bytes = 0;
    for (uint32_t i = 0; stage->outer && i < stage->n_parts; i++)
        bytes += KEPT * dw_model_part(stage->model, i)->n * sizeof(float);
    return bytes;
}

void dw_outer_save(dw_stage *stage, dw_file *file)
{
    float *kept[KEPT];
    for (uint32_t i = 0; stage->outer && i < stage->n_parts; i++) {
        size_t vector = dw_model_part(stage->model, i)->n * sizeof(float);
        list_kept(stage, i, kept);
        for (int k = 0; k < KEPT; k++) dw_file_append(file, kept[k], vector);
    }
}

void dw_outer_load(dw_stage *stage, const uint8_t *bytes)
{
    float *kept[KEPT];
    for (uint32_t i = 0; stage->outer && i < stage->n_parts; i++) {
        size_t vector = dw_model_part(stage->model, i)->n * sizeof(float);
        list_kept(stage, i, kept);
        for (int k = 0; k < KEPT; k++, bytes += vector) memcpy(kept[k], bytes, vector);
    }
}
