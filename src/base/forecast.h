/* SPDX-License-Identifier: Apache-2.0
 * forecast.h - how long a step of a pipeline will take with given codecs: a model of computing,
 * coding and sending, in inline functions for programs and links that have to choose a codec.
 *
 * The stages of a pipeline process the micro-batches of a step one after the other, first forward,
 * then backward. A link carries both directions at the same time. So the first micro-batch takes as
 * long as its way through everything, and each further one as long as the slowest thing on that
 * way: a stage, or a link in one of the directions. What a step waits for besides is not known
 * here: other programs, lost packets, replies, an optimizer. */
#ifndef DW_FORECAST_H
#define DW_FORECAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DW_FORECAST_FORWARD, DW_FORECAST_BACKWARD, DW_FORECAST_WAYS };

/* A run without its codecs. All stages and links are alike. */
typedef struct dw_forecast_run {
    uint32_t stages, micro_batches;
    double compute_s;              /* what one stage computes in a step, forward and backward */
    double delay_s;                /* from one end of a link to the other */
    double rate[DW_FORECAST_WAYS]; /* of a link, bytes per second, above 0 */
} dw_forecast_run;

/* A codec in one direction, for the tensor of one micro-batch. */
typedef struct dw_forecast_way {
    double bytes, encode_s, decode_s;
    double error; /* |x - y| / |x| */
} dw_forecast_way;

static inline double dw_forecast_larger(double a, double b)
{
    return a > b ? a : b;
}

/* Returns the seconds that a step takes. */
static inline double dw_forecast_step(const dw_forecast_run *run,
                                      const dw_forecast_way ways[DW_FORECAST_WAYS])
{
    const dw_forecast_way *forward = &ways[DW_FORECAST_FORWARD],
                          *backward = &ways[DW_FORECAST_BACKWARD];
    double compute = run->compute_s / run->micro_batches, first = run->stages * compute;
    if (run->stages == 1) return run->micro_batches * compute;
    /* The first stage encodes forward and decodes backward; the last does the opposite; a stage
     * between others does both. */
    double at_the_first = forward->encode_s + backward->decode_s,
           at_the_last = forward->decode_s + backward->encode_s;
    double slowest = compute + (run->stages > 2 ? at_the_first + at_the_last
                                                : dw_forecast_larger(at_the_first, at_the_last));
    for (int i = 0; i < DW_FORECAST_WAYS; i++) {
        double wire = ways[i].bytes / run->rate[i];
        first += (run->stages - 1) * (ways[i].encode_s + wire + run->delay_s + ways[i].decode_s);
        slowest = dw_forecast_larger(slowest, wire);
    }
    return first + (run->micro_batches - 1) * slowest;
}

/* Steps that differ by less than this part of themselves count as equally long, because the model
 * knows no better. */
#define DW_FORECAST_TIE 0.03

typedef struct dw_forecast_choice {
    double step_s, error;
    bool is_taken; /* a choice that is taken is not looked at */
} dw_forecast_choice;

/* Returns the number of the best of n choices: among the fastest ones, the one with the smallest
 * error. Returns n if all are taken. */
static inline size_t dw_forecast_best(const dw_forecast_choice *choices, size_t n)
{
    size_t fastest = n, best;
    for (size_t i = 0; i < n; i++)
        if (!choices[i].is_taken && (fastest == n || choices[i].step_s < choices[fastest].step_s))
            fastest = i;
    best = fastest;
    for (size_t i = 0; i < n; i++)
        if (!choices[i].is_taken && choices[i].error < choices[best].error &&
            choices[i].step_s <= choices[fastest].step_s * (1 + DW_FORECAST_TIE))
            best = i;
    return best;
}

#endif
