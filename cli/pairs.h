/* SPDX-License-Identifier: Apache-2.0
 * pairs.h - pairs of codecs, one for activations and one for gradients: which pairs are compared,
 * what each costs, and in which order of quality they are. */
#ifndef DW_CLI_PAIRS_H
#define DW_CLI_PAIRS_H

#include "deltawire/deltawire.h"
#include "forecast.h"

enum { DW_PAIRS_MOST = 64, DW_PAIRS_CODEC_BYTES = 256 };

/* The texts of the two codecs, and what each costs for the tensor of one micro-batch. */
typedef struct dw_pair {
    char codecs[DW_FORECAST_WAYS][DW_PAIRS_CODEC_BYTES];
    dw_forecast_way ways[DW_FORECAST_WAYS];
} dw_pair;

/* Begins as zeros, which is a list without pairs. choices[i] is the forecast with pairs[i]. */
typedef struct dw_pairs {
    size_t n;
    dw_pair pairs[DW_PAIRS_MOST];
    dw_forecast_choice choices[DW_PAIRS_MOST];
} dw_pairs;

/* The tensor of one micro-batch, and the part of its norm by which it changes between two visits of
 * the same samples. */
typedef struct dw_pairs_tensor {
    uint32_t samples, tokens, channels;
    double change;
} dw_pairs_tensor;

/* Adds the pair that a text FORWARD/BACKWARD names. The codecs themselves are not checked yet.
 * Errors: CONFIG if it is not such a text, LIMIT if there are DW_PAIRS_MOST pairs already; each
 * with a sentence in *why. */
dw_status dw_pairs_add(dw_pairs *pairs, const char *text, dw_why *why);

/* Adds the pairs that docs/codecs.md recommends or compares to a list without pairs. */
void dw_pairs_add_usual(dw_pairs *pairs);

/* Measures all codecs on this machine with a random tensor, and computes how long a step of the run
 * takes with each pair. Stops between two codecs if somebody has set *cancelled to another value
 * than 0. Errors: CANCELLED, and those of dw_speed_open and dw_speed_measure, with a sentence in
 * *why. */
dw_status dw_pairs_measure(dw_pairs *pairs, const dw_forecast_run *run,
                           const dw_pairs_tensor *tensor, const volatile int *cancelled,
                           dw_why *why);

/* Returns the best pair that was not returned yet, and sets *step_s to the seconds of a step with
 * it. Of pairs that are equally fast, the one whose larger error is smallest is the best. Returns
 * NULL when all pairs were returned. */
const dw_pair *dw_pairs_next_best(dw_pairs *pairs, double *step_s);

#endif
