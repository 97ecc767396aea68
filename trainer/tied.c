/* SPDX-License-Identifier: Apache-2.0
 * tied.c - the group of all copies of the tied matrix, and sums of their gradients. */
#include "tied.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/sentence.h"
#include "replicas.h"

enum { GROUP_ID = 4, SLOT = 0 }; /* channels have 1 and 3, the group of a stage has 2 */

struct dw_tied {
    dw_group *group;
    bool is_started;
    dw_status status; /* of a start that failed */
    uint64_t raw_bytes;
};

/* The first stages of all replicas are the members 0 to D - 1, the last ones D to 2 D - 1. */
static uint32_t rank_of(const dw_settings *settings, uint32_t member)
{
    uint32_t stages = settings->config.stages, replicas = settings->config.replicas;
    return member % replicas * stages + (member < replicas ? 0 : stages - 1);
}

static uint32_t own_member(const dw_settings *settings)
{
    return settings->replica + (settings->stage ? settings->config.replicas : 0);
}

/* The tied matrix in a vector of a part, which may be its params or grads. */
static float *copy_in(const dw_part *part, float *vector)
{
    return vector + part->tensors[part->index ? DW_HEAD_LOGITS : DW_EMBED_TOKENS].offset;
}

static size_t floats_of(const dw_stage *stage)
{
    return (size_t)DW_VOCABULARY * stage->settings->shape.channels;
}

/* The part of this rank that has a copy, NULL: none. In a single stage it is the embedding. */
static dw_part *part_of(const dw_stage *stage)
{
    if (dw_model_owns_embed(stage->model)) return dw_model_part(stage->model, 0);
    if (dw_model_owns_head(stage->model)) return dw_model_part(stage->model, stage->n_parts - 1);
    return NULL;
}

dw_status dw_tied_open(dw_stage *stage)
{
    const dw_settings *settings = stage->settings;
    uint32_t D = settings->config.replicas, own = own_member(settings);
    if (!dw_settings_has_far_end(settings)) return DW_OK;
    dw_link **links = calloc((size_t)2 * D, sizeof *links);
    stage->tied = calloc(1, sizeof *stage->tied);
    dw_status status = DW_OK;
    if (!links || !stage->tied)
        status = dw_say(&stage->why, DW_ERR_NO_MEMORY, "out of memory for tied embeddings");
    for (uint32_t m = 0; m < 2 * D && status == DW_OK; m++) {
        /* Peers are first those of the own end, members first those of the first stages. */
        uint32_t peer = settings->stage ? (m + D) % (2 * D) : m;
        if (m != own) links[m] = dw_replicas_at(stage, peer)->link;
    }
    dw_group_config config = {.id = GROUP_ID, .rank = own, .ranks = 2 * D, .links = links};
    if (status == DW_OK) status = dw_replicas_open_group(stage, &stage->tied->group, &config);
    free(links);
    return status;
}

void dw_tied_close(dw_stage *stage)
{
    if (stage->tied) dw_group_close(stage->tied->group);
    free(stage->tied);
    stage->tied = NULL;
}

void dw_tied_rest(const dw_stage *stage, const dw_part *part, size_t *begin, size_t *n)
{
    bool is_summed_apart = stage->tied && part->index == 0;
    *begin = is_summed_apart ? floats_of(stage) : 0;
    *n = part->n_own - *begin; /* n_own leaves out the copy of the head */
}

/* Adds the gradient of the head's copy to that of the embedding, in a stage that has both. */
static void add_head(dw_stage *stage)
{
    const dw_part *embed = dw_model_part(stage->model, 0),
                  *head = dw_model_part(stage->model, stage->n_parts - 1);
    float *sum = copy_in(embed, embed->grads);
    const float *more = copy_in(head, head->grads);
    for (size_t k = 0; k < floats_of(stage); k++) sum[k] += more[k];
}

void dw_tied_start(dw_stage *stage, uint32_t i)
{
    const dw_settings *settings = stage->settings;
    const dw_part *part = part_of(stage);
    dw_tied *tied = stage->tied;
    if (!settings->config.tied || !part || part != dw_model_part(stage->model, i)) return;
    if (settings->config.stages == 1) add_head(stage);
    if (!tied) return;
    float *grads = copy_in(part, part->grads);
    dw_group_job job = {.struct_size = sizeof job,
                        .operation = DW_ALL_REDUCE,
                        .dtype = DW_F32,
                        .slot = SLOT,
                        .n = floats_of(stage),
                        .x = grads,
                        .y = grads,
                        .mean = 1};
    dw_status status = dw_group_start(tied->group, &job);
    tied->is_started = status == DW_OK;
    if (status < 0) tied->status = status;
    tied->raw_bytes += dw_replicas_raw_bytes(floats_of(stage), own_member(settings),
                                             2 * settings->config.replicas);
}

dw_status dw_tied_collect(dw_stage *stage)
{
    const dw_settings *settings = stage->settings;
    dw_tied *tied = stage->tied;
    if (settings->config.tied && settings->config.stages == 1) {
        const dw_part *embed = dw_model_part(stage->model, 0),
                      *head = dw_model_part(stage->model, stage->n_parts - 1);
        memcpy(copy_in(head, head->grads), copy_in(embed, embed->grads),
               floats_of(stage) * sizeof(float));
    }
    if (!tied) return DW_OK;
    if (tied->status < 0) return dw_replicas_failed(stage, tied->group, tied->status, rank_of);
    if (!tied->is_started) return DW_OK;
    dw_status status = dw_replicas_wait(stage, tied->group, SLOT, rank_of);
    tied->is_started = false;
    /* The mean over 2 D copies becomes the mean over D replicas of the sum of two. That is exact.
     */
    float *grads = copy_in(part_of(stage), part_of(stage)->grads);
    for (size_t k = 0; k < floats_of(stage) && status == DW_OK; k++) grads[k] *= 2;
    return status;
}

dw_status dw_tied_check(dw_stage *stage, uint32_t step)
{
    const dw_train_config *config = &stage->settings->config;
    if (!config->tied) return DW_OK;
    const dw_part *first = part_of(stage), *last = first;
    if (config->stages == 1) last = dw_model_part(stage->model, stage->n_parts - 1);
    size_t bytes = floats_of(stage) * sizeof(float);
    uint64_t digests[2] = {0};
    if (first) digests[0] = XXH3_64bits(copy_in(first, first->params), bytes);
    if (last) digests[1] = XXH3_64bits(copy_in(last, last->params), bytes);
    json_t *own = json_pack("[o, o]", json_sprintf("%016" PRIx64, digests[0]),
                            json_sprintf("%016" PRIx64, digests[1])),
           *all;
    dw_status status = dw_stage_gather_replica(stage, own, &all);
    if (status < 0 || stage->settings->stage) return status;
    const json_t *end = json_array_get(all, config->stages - 1);
    if (!json_equal(json_array_get(json_array_get(all, 0), 0), json_array_get(end, 1)))
        status = dw_say(&stage->why, DW_ERR_MISMATCH,
                        "after step %u rank %u and rank %u hold different copies of the tied "
                        "embedding: one of the two machines computes wrongly; replace it, and "
                        "resume from a checkpoint",
                        step, config->rank, config->rank + config->stages - 1);
    json_decref(all);
    return status;
}

dw_status dw_tied_save(dw_stage *stage, dw_file *file, uint64_t *len)
{
    return dw_replicas_export(stage, stage->tied ? stage->tied->group : NULL, file, len);
}

dw_status dw_tied_load(dw_stage *stage, const uint8_t *bytes, size_t len)
{
    return dw_replicas_import(stage, stage->tied ? stage->tied->group : NULL, bytes, len);
}

void dw_tied_cost(dw_stage *stage, dw_train_cost *cost)
{
    if (stage->tied && stage->tied->group)
        dw_replicas_add_cost(stage->tied->group, stage->tied->raw_bytes, cost);
}
