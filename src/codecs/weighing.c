/* SPDX-License-Identifier: Apache-2.0
 * weighing.c - weights and means of channels in front of the form step. */
#include "codecs/weighing.h"

#include "base/bytes.h"

uint16_t dw_weighing_sign(const dw_encode_job *job, uint64_t row)
{
    const dw_channels *channels = &job->channels;
    float x;
    if (job->prev || !channels->means[0]) return 0;
    uint64_t at = row * (uint64_t)job->stride + channels->decides;
    job->kernels->convert(dw_at(job->x, job->x_dtype, at), job->x_dtype, &x, DW_F32, 1);
    return dw_profile_choose(channels, x) ? DW_PROFILE_SIGN : 0;
}

void dw_weighing_load(const dw_encode_job *job, uint64_t x_at, uint64_t element, uint64_t n,
                      bool of_x, float *to)
{
    const dw_channels *channels = &job->channels;
    uint64_t c = job->layout.c, column = element % c;
    const void *base = dw_at(job->prev, job->prev_dtype, element);
    dw_dtype dtype = job->prev_dtype;
    if (!base && channels->means[0]) {
        base = channels->means[dw_weighing_sign(job, element / c) != 0] + column;
        dtype = DW_F32;
    }
    job->kernels->weigh(dw_at(job->x, job->x_dtype, x_at), job->x_dtype, of_x ? NULL : base, dtype,
                        channels->inverses + column, n, to);
}

/* Segment i of a run, in elements from its start. */
typedef struct part {
    uint64_t at, n;
} part;

static part part_of(const dw_layout *layout, const dw_run *run, uint32_t i)
{
    uint64_t at = (uint64_t)i * layout->segment_channels, left = run->channels - at;
    return (part){at, left < layout->segment_channels ? left : layout->segment_channels};
}

void dw_weighing_load_run(const dw_encode_job *job, const dw_run *run, float *to)
{
    uint64_t x_at = run->row * (uint64_t)job->stride + run->column;
    for (uint32_t i = 0; i < run->segments; i++) {
        part p = part_of(&job->layout, run, i);
        dw_weighing_load(job, x_at + p.at, run->element + p.at, p.n, false, to + p.at);
    }
}

void dw_weighing_store_run(const dw_layout *layout, const dw_channels *channels,
                           const uint8_t *payload, const dw_run *run, const dw_weighed *of,
                           const struct dw_kernels *kernels)
{
    const uint8_t *steps = payload + run->tile.offset + 2 * (uint64_t)run->first_segment;
    for (uint32_t i = 0; i < run->segments; i++) {
        part p = part_of(layout, run, i);
        uint64_t column = (run->element + p.at) % layout->c;
        const float *means =
            channels->means[(dw_get(steps + 2 * (size_t)i, 2) & DW_PROFILE_SIGN) != 0];
        const void *base = dw_at(of->prev, of->prev_dtype, p.at);
        if (!base && means) base = means + column;
        kernels->unweigh(of->values + p.at, channels->weights + column, base,
                         of->prev ? of->prev_dtype : DW_F32, p.n,
                         dw_at(of->out, of->out_dtype, p.at), of->out_dtype);
    }
}
