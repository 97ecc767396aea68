/* SPDX-License-Identifier: Apache-2.0
 * agreement.c - digests of tensors, compared with those of replica 0. */
#include "agreement.h"

#include <inttypes.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/sentence.h"
#include "control.h"
#include "replicas.h"
#include "tied.h"

/* The digests of all tensors of this stage, in order, as strings: integers of JSON are signed. */
static json_t *list_digests(dw_stage *stage)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < stage->n_parts; i++) {
        const dw_part *part = dw_model_part(stage->model, i);
        for (uint32_t k = 0; k < part->n_tensors; k++) {
            const dw_parameter *tensor = &part->tensors[k];
            size_t bytes = (size_t)tensor->rows * tensor->columns * sizeof(float);
            uint64_t digest = XXH3_64bits(part->params + tensor->offset, bytes);
            json_array_append_new(list, json_sprintf("%016" PRIx64, digest));
        }
    }
    return list;
}

/* The sentence for the first tensor whose digests differ. */
static dw_status judge(dw_stage *stage, json_t *own, json_t *theirs, uint32_t peer, uint32_t step)
{
    size_t n = 0;
    for (uint32_t i = 0; i < stage->n_parts; i++) {
        const dw_part *part = dw_model_part(stage->model, i);
        for (uint32_t k = 0; k < part->n_tensors; k++, n++)
            if (!json_equal(json_array_get(own, n), json_array_get(theirs, n)))
                return dw_say(&stage->why, DW_ERR_MISMATCH,
                              "after step %u rank %u and rank %u hold different parameters, first "
                              "in %s.%s: one of the two machines computes wrongly; replace it, "
                              "and resume from a checkpoint",
                              step, peer, stage->settings->config.rank, part->name,
                              part->tensors[k].name);
    }
    if (json_array_size(theirs) == n) return DW_OK;
    return dw_say(&stage->why, DW_ERR_PROTOCOL, "rank %u sent digests of other tensors", peer);
}

dw_status dw_agreement_check(dw_stage *stage, uint32_t step)
{
    const dw_settings *settings = stage->settings;
    dw_status status = dw_tied_check(stage, step);
    if (status < 0 || settings->config.replicas == 1) return status;
    uint64_t since = dw_now_ns();
    json_t *own = list_digests(stage);
    dw_stage_computed(stage, since);
    if (!own)
        status = dw_say(&stage->why, DW_ERR_NO_MEMORY, "out of memory for digests");
    else if (settings->replica > 0)
        status = dw_control_send(stage, dw_replicas_at(stage, 0), DW_TAG_DIGESTS, own);
    else
        for (uint32_t d = 1; d < settings->config.replicas && status == DW_OK; d++) {
            dw_neighbour *peer = dw_replicas_at(stage, d);
            json_t *theirs = NULL;
            status = dw_control_recv(stage, peer, DW_TAG_DIGESTS, &theirs);
            if (status == DW_OK) status = judge(stage, own, theirs, peer->rank, step);
            json_decref(theirs);
        }
    json_decref(own);
    return status;
}
