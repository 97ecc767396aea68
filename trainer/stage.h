/* SPDX-License-Identifier: Apache-2.0
 * stage.h - one rank of the pipeline: its parts of the model, its links to the neighbours, and what
 * the ranks tell each other beside tensors.
 *
 * Tensors travel on one channel per link: activations towards higher ranks, gradients back, both
 * under the ids of their samples. Control messages are JSON on tags of their own. Every rank runs
 * the same sequence of gathers and spreads, so they need no names.
 *
 * Errors: whatever a call says, *why of the stage holds one sentence. When a neighbour told why it
 * stopped, that is the sentence. CANCELLED: this process or another was asked to stop. */
#ifndef DW_TRAINER_STAGE_H
#define DW_TRAINER_STAGE_H

#include <stdbool.h>

#include "crew.h"
#include "deltawire/transport.h"
#include "model.h"
#include "record.h"
#include "settings.h"

/* A neighbour's last words, put down by the link's thread. */
typedef struct dw_last_words {
    bool arrived; /* atomic: true once status and text are whole */
    dw_status status;
    char text[256];
} dw_last_words;

typedef struct dw_neighbour {
    uint32_t rank;
    dw_link *link; /* NULL: there is no such neighbour */
    dw_channel *channel;
    dw_record *record; /* of what is sent there; NULL: none */
    dw_last_words words;
} dw_neighbour;

typedef struct dw_stage {
    const dw_settings *settings;
    const dw_train_hooks *hooks;
    uint32_t first_part, n_parts, total_parts;
    dw_model *model;
    dw_crew *crew; /* NULL: the codecs keep to their thread */
    dw_neighbour before, after;
    uint32_t step; /* under way, from 1: kept by the caller, for the records */
    uint64_t compute_ns, wait_ns;
    dw_why why;
} dw_stage;

/* The parts of a rank: blocks shared out evenly, the first ranks take what is left over. */
void dw_stage_parts(const dw_model_shape *shape, uint32_t rank, uint32_t stages, uint32_t *first,
                    uint32_t *n);

/* Makes the model, meets the neighbours and compares greetings with them (borrowed). On an error
 * the stage is closed, but for why. */
dw_status dw_stage_open(dw_stage *stage, const dw_settings *settings, const dw_train_hooks *hooks,
                        json_t *greeting);

/* status < 0: tells the neighbours why (stage->why) before it hangs up. */
void dw_stage_close(dw_stage *stage, dw_status status);

/* Fails where somebody asked for a stop. */
dw_status dw_stage_check(dw_stage *stage);

/* Sends and receives (N, T, C). Receiving into x waits until the tensor is here; where wait is 0 it
 * looks once and may say PENDING. The samples must be those of ids. */
dw_status dw_stage_send(dw_stage *stage, dw_neighbour *to, const uint32_t *ids, uint32_t N,
                        float *x);
dw_status dw_stage_recv(dw_stage *stage, dw_neighbour *from, const uint32_t *ids, uint32_t N,
                        float *x, bool wait);

/* Every rank gives one value (taken over, NULL: no memory); rank 0 gets the array of all, by rank,
 * the others NULL. */
dw_status dw_stage_gather(dw_stage *stage, json_t *own, json_t **all);

/* Rank 0 gives a value (taken over), all get it. Returns a new reference. */
dw_status dw_stage_spread(dw_stage *stage, json_t *own, json_t **value);

/* What was recorded is in its files afterwards. */
dw_status dw_stage_flush(dw_stage *stage);

/* Waits, at most half a second, until the kernel's counters have caught up with ours. */
void dw_stage_settle(dw_stage *stage);

/* The seconds of this rank, and the bytes of its link to the next one. */
void dw_stage_cost(dw_stage *stage, dw_train_cost *cost);

/* Starts and ends a stretch of computing. */
uint64_t dw_stage_now(void);
void dw_stage_computed(dw_stage *stage, uint64_t since);

#endif
