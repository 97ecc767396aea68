/* SPDX-License-Identifier: Apache-2.0
 * residual.c - completes the residual of error feedback after a form has coded values. */
#include "codecs/residual.h"

void dw_residual_of_run(const dw_encode_job *job, const dw_run *run)
{
    const dw_layout *layout = &job->layout;
    uint64_t x_at = run->row * (uint64_t)job->stride + run->column;
    float *next = run->next;
    for (uint32_t from = 0, to; from < run->segments; from = to + 1) {
        /* `to` becomes the next segment that is poisoned, or the end. */
        for (to = from; to < run->segments && !dw_tiles_is_poisoned(layout, job->payload, run, to);)
            to++;
        uint64_t at = (uint64_t)from * layout->segment_channels,
                 end = (uint64_t)to * layout->segment_channels;
        if (end > run->channels) end = run->channels; /* the last segment may be shorter */
        if (at < end)
            job->kernels->subtract(dw_at(job->x, job->x_dtype, x_at + at), job->x_dtype, next + at,
                                   end - at);
    }
}

void dw_residual_of_columns(const dw_encode_job *job, const dw_column_run *run)
{
    float *next = run->out;
    const uint32_t *keeps = run->columns->keep_mask;
    for (uint32_t from = 0, to; from < run->columns->n; from = to + 1) {
        for (to = from; to < run->columns->n && !keeps[to];) to++;
        if (from < to)
            job->kernels->subtract(dw_at(run->x, run->x_dtype, from), run->x_dtype, next + from,
                                   to - from);
    }
}

void dw_residual_fade(float *residual, uint64_t n, uint32_t decay)
{
    float factor = dw_residual_factor(decay);
    for (uint64_t i = 0; i < n; i++) residual[i] *= factor;
}
