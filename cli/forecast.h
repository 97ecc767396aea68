/* SPDX-License-Identifier: Apache-2.0
 * forecast.h - how long a step of a pipeline will take with given codecs: a model of computing,
 * coding and sending.
 *
 * The stages of a pipeline process the micro-batches of a training step one after the other, first
 * forward, then backward. A link carries both directions at the same time. So the first micro-batch
 * takes as long as it needs to pass all stages and links in both directions. Every further one adds
 * the time of the slowest of them: a stage, or a link in one direction. The model leaves out
 * everything else that a step waits for: other programs, lost packets, replies, an optimizer. */
#ifndef DW_CLI_FORECAST_H
#define DW_CLI_FORECAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DW_FORECAST_FORWARD, DW_FORECAST_BACKWARD, DW_FORECAST_WAYS };

/* A training run, all but its codecs. All stages are alike, and so are all links. */
typedef struct dw_forecast_run {
    uint32_t stages, micro_batches;
    double compute_s; /* seconds that one stage computes in a step, forward and backward together */
    double delay_s;   /* seconds that a byte takes from one end of a link to the other */
    double rate[DW_FORECAST_WAYS]; /* of a link in each direction: bytes per second, above 0 */
} dw_forecast_run;

/* What a codec does in one direction with the tensor of one micro-batch. */
typedef struct dw_forecast_way {
    double bytes, encode_s, decode_s; /* the length of the frame; the seconds that coding takes */
    double error;                     /* the norm of x - y divided by the norm of x */
} dw_forecast_way;

/* Returns the seconds that a training step takes. ways: the codec of each direction. */
double dw_forecast_step(const dw_forecast_run *run, const dw_forecast_way ways[DW_FORECAST_WAYS]);

/* One of the codecs that can be chosen. */
typedef struct dw_forecast_choice {
    double step_s, error; /* the seconds of a step with this codec; the codec's error */
    bool is_taken;        /* dw_forecast_best passes over this choice */
} dw_forecast_choice;

/* Returns the index of the best of n choices: of those whose steps count as equally long as the
 * fastest, the one with the smallest error. Passes over choices that are taken; returns n if all
 * are. */
size_t dw_forecast_best(const dw_forecast_choice *choices, size_t n);

#endif
