/* SPDX-License-Identifier: Apache-2.0
 * forecast.c - computes how long a step of a pipeline will take, and which codecs are best for it.
 */
#include "forecast.h"

#include <math.h>

/* If a step takes less than this part longer than another, both count as equally long, because the
 * model is not more exact than that. */
static const double tie = 0.03;

double dw_forecast_step(const dw_forecast_run *run, const dw_forecast_way ways[DW_FORECAST_WAYS])
{
    const dw_forecast_way *forward = &ways[DW_FORECAST_FORWARD],
                          *backward = &ways[DW_FORECAST_BACKWARD];
    double compute = run->compute_s / run->micro_batches, first = run->stages * compute;
    if (run->stages == 1) return run->micro_batches * compute;
    /* The first stage encodes forward and decodes backward; the last does the opposite; a stage
     * between others does both. */
    double at_the_first = forward->encode_s + backward->decode_s,
           at_the_last = forward->decode_s + backward->encode_s;
    double slowest =
        compute + (run->stages > 2 ? at_the_first + at_the_last : fmax(at_the_first, at_the_last));
    for (int i = 0; i < DW_FORECAST_WAYS; i++) {
        double wire = ways[i].bytes / run->rate[i];
        first += (run->stages - 1) * (ways[i].encode_s + wire + run->delay_s + ways[i].decode_s);
        slowest = fmax(slowest, wire);
    }
    return first + (run->micro_batches - 1) * slowest;
}

size_t dw_forecast_best(const dw_forecast_choice *choices, size_t n)
{
    size_t fastest = n, best;
    for (size_t i = 0; i < n; i++)
        if (!choices[i].is_taken && (fastest == n || choices[i].step_s < choices[fastest].step_s))
            fastest = i;
    best = fastest;
    for (size_t i = 0; i < n; i++)
        if (!choices[i].is_taken && choices[i].error < choices[best].error &&
            choices[i].step_s <= choices[fastest].step_s * (1 + tie))
            best = i;
    return best;
}
