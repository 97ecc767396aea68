/* SPDX-License-Identifier: Apache-2.0
 * settings.h - the settings of a run: filled in with defaults, checked, and compared with those of
 * the neighbours. */
#ifndef DW_TRAINER_SETTINGS_H
#define DW_TRAINER_SETTINGS_H

#include <jansson.h>

#include "boundaries.h"
#include "checkpoint.h"
#include "deltawire/trainer.h"
#include "parameters.h"

typedef struct dw_settings {
    /* With defaults in place of zeros, except samples, steps, eval_every and check_every, which
     * dw_settings_count fills in, and URIs and paths that were not given. */
    dw_train_config config;
    dw_model_shape shape;
    dw_boundaries forward, backward;
    dw_codec_setting gradient;
    uint32_t ranks, stage, replica; /* of the grid; the place of this rank */
    bool has_outer; /* replicas average differences of parameters, and not gradients; see outer.h */
    /* What kind of state the ranks of a grid keep of gradients, for checkpoints. */
    char kept_text[DW_CHECKPOINT_KEPT_BYTES];
    uint32_t steps_per_epoch;
    uint64_t samples_digest; /* of the data; the caller sets it */
    /* How many micro-batches this stage holds the activations of, at most: those that it has
     * computed forward and not yet backward. */
    uint32_t in_flight;
} dw_settings;

/* Whether this rank is the first or last stage of a pipeline whose other end has a copy of the same
 * matrix (tied.h). */
static inline bool dw_settings_has_far_end(const dw_settings *settings)
{
    const dw_train_config *config = &settings->config;
    return config->tied && config->stages > 1 &&
           (settings->stage == 0 || settings->stage + 1 == config->stages);
}

/* Errors: ARGUMENT, CONFIG, each with a sentence that names the setting. */
dw_status dw_settings_resolve(dw_settings *settings, const dw_train_config *config, dw_why *why);

/* To be called when the number of samples is known: fills in steps, steps_per_epoch, eval_every and
 * check_every. Errors: LIMIT. */
dw_status dw_settings_count(dw_settings *settings, uint32_t samples, dw_why *why);

/* All that the ranks of a grid must agree on, as the greeting they exchange; NULL: no memory.
 * text: digest of the samples; checkpoint: digest of the checkpoint started from, or 0. */
json_t *dw_settings_greeting(const dw_settings *settings, uint64_t text, uint64_t checkpoint);

/* Compares the greeting of a neighbour, which should be rank `peer`, with that of this rank.
 * Errors: MISMATCH, with the first setting that differs and both values; PROTOCOL, NO_MEMORY. */
dw_status dw_settings_compare(json_t *ours, json_t *theirs, uint32_t peer, dw_why *why);

#endif
