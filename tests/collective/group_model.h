/* SPDX-License-Identifier: Apache-2.0
 * group_model.h - what an operation of a group should compute, with the pure layer alone. It keeps
 * the encoders and decoders, so that codecs with state are the same from visit to visit. */
#ifndef DW_GROUP_MODEL_H
#define DW_GROUP_MODEL_H

#include "deltawire/collective.h"

enum { MODEL_MOST = 6 };

typedef struct group_model {
    uint32_t ranks, piece;
    uint32_t hops;                                  /* of an all-reduce: 2 after model_create */
    uint64_t slot;                                  /* of the next operation; may be changed */
    dw_encoder *contribute[MODEL_MOST][MODEL_MOST]; /* [from][to]; [from][ranks]: in one hop */
    dw_decoder *add[MODEL_MOST][MODEL_MOST];        /* [from][to]; the same */
    dw_encoder *share[MODEL_MOST];
    dw_decoder *take[MODEL_MOST];
} group_model;

/* Makes encoders and decoders without replies, as in a group. result: as in dw_group_config; NULL:
 * the same as codec. Codecs with random rounding cannot be modelled, because a group's encoders
 * choose their own incarnations. */
void model_create(group_model *model, uint32_t ranks, uint32_t piece, uint64_t slot,
                  const char *codec, const char *result);
void model_destroy(group_model *model);

/* x[r]: the buffers of the ranks, in the dtype of the job. y: n floats of this dtype.
 * model_sums: the n sums of all x in binary32, as the owners of the parts compute them. The other
 * functions compute what every rank gets from an operation: all_reduce, all_gather (gather; x[r] is
 * the part of rank r), and broadcast (x is that of the root). */
void model_sums(group_model *model, const dw_group_job *job, const void *const *x, float *sums);
void model_all_reduce(group_model *model, const dw_group_job *job, const void *const *x, void *y);
void model_gather(group_model *model, const dw_group_job *job, const void *const *x, void *y);
void model_broadcast(group_model *model, const dw_group_job *job, const void *x, void *y);

#endif
