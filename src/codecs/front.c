/* SPDX-License-Identifier: Apache-2.0
 * front.c - what stands in front of a form: rotates or weighs what the form codes, and undoes that
 * in what it decodes. */
#include "codecs/front.h"

#include <stdio.h>
#include <string.h>

#include "codecs/output.h"
#include "codecs/weighing.h"

dw_status dw_front_plan(dw_plan *made, dw_why *why)
{
    uint32_t width = made->params.rotates;
    made->layout.rotates = width;
    if (width == 0 || made->c % width == 0) return DW_OK;
    if (why)
        snprintf(
            why->text, sizeof why->text,
            "rotate=%u rotates blocks of %u channels, and %u channels cannot be divided into "
            "such blocks: give rotate=16, 64 or 256, whichever divides the number of channels, "
            "or leave transform out",
            (unsigned)width, (unsigned)width, (unsigned)made->c);
    return DW_ERR_SHAPE;
}

/* Whether values are changed in front of the form. */
static bool is_in_front(const dw_layout *layout)
{
    return layout->rotates || layout->weighs;
}

/* Undoes what the rotation back has done to poisoned pieces of a run: with state, the new prev is
 * the one that was held, or +0; without state, y is NaN. */
static void keep_poisoned(const dw_layout *layout, const uint8_t *payload, const dw_run *run,
                          const void *prev, void *out, dw_dtype dtype, bool has_state)
{
    for (uint32_t i = 0; i < run->segments; i++) {
        if (!dw_tiles_is_poisoned(layout, payload, run, i)) continue;
        uint64_t at = (uint64_t)i * layout->segment_channels, left = run->channels - at;
        uint64_t n = left < layout->segment_channels ? left : layout->segment_channels;
        dw_fill_poisoned(dw_at(prev, dtype, at), dw_at(out, dtype, at), dtype, n, has_state);
    }
}

/* ---- Encode ---------------------------------------------------------------------------------- */

const dw_encode_job *dw_front_begin(dw_front *r, const dw_encode_job *job)
{
    r->outer = job;
    if (!is_in_front(&job->layout)) return job;
    r->job = *job;
    r->job.layout.rotates = 0;
    r->job.layout.weighs = false;
    r->job.x = r->values;
    r->job.x_dtype = r->job.prev_dtype = DW_F32;
    r->job.stride = 0;
    r->job.prev = NULL;
    r->job.next = job->next ? r->back : NULL;
    return &r->job;
}

const dw_run *dw_front_load(dw_front *r, const dw_run *run)
{
    const dw_encode_job *job = r->outer;
    if (!is_in_front(&job->layout)) return run;
    if (job->layout.weighs)
        dw_weighing_load_run(job, run, r->values);
    else
        job->kernels->rotate(
            dw_at(job->x, job->x_dtype, run->row * (uint64_t)job->stride + run->column),
            job->x_dtype, dw_at(job->prev, job->prev_dtype, run->element), job->prev_dtype,
            run->channels, job->layout.rotates, r->values);
    r->run = *run;
    r->run.row = r->run.column = 0; /* of `values`; the element still says which dither it has */
    r->run.next = job->next ? r->back : NULL;
    return &r->run;
}

void dw_front_store(const dw_front *r, const dw_run *run)
{
    const dw_encode_job *job = r->outer;
    if (!is_in_front(&job->layout) || !job->next) return;
    const void *prev = dw_at(job->prev, job->prev_dtype, run->element);
    dw_weighed of = {r->back, prev, run->next, job->prev_dtype, job->prev_dtype};
    if (job->layout.weighs)
        dw_weighing_store_run(&job->layout, &job->channels, job->payload, run, &of, job->kernels);
    else
        job->kernels->unrotate(r->back, run->channels, job->layout.rotates, prev, job->prev_dtype,
                               run->next, job->prev_dtype);
    keep_poisoned(&job->layout, job->payload, run, prev, run->next, job->prev_dtype, true);
}

dw_source dw_front_source(const dw_encode_job *job, uint64_t row, uint64_t column,
                          float buffer[DW_TILE_ELEMENTS])
{
    uint64_t c = job->layout.c, left = c - column;
    dw_source source = {
        .x = dw_at(job->x, job->x_dtype, row * (uint64_t)job->stride + column),
        .prev = dw_at(job->prev, job->prev_dtype, row * c + column),
        .x_dtype = job->x_dtype,
        .prev_dtype = job->prev_dtype,
        .n = left,
    };
    if (!job->layout.rotates) return source;
    source.n = left < DW_TILE_ELEMENTS ? left : DW_TILE_ELEMENTS;
    job->kernels->rotate(source.x, source.x_dtype, source.prev, source.prev_dtype, source.n,
                         job->layout.rotates, buffer);
    return (dw_source){.x = buffer, .x_dtype = DW_F32, .prev_dtype = DW_F32, .n = source.n};
}

/* ---- Decode ---------------------------------------------------------------------------------- */

void dw_front_decode(const dw_decode_job *job, const dw_run *run, dw_run_decoder *decode)
{
    const dw_layout *layout = &job->layout;
    _Alignas(64) float rotated[DW_TILE_ELEMENTS];
    float values[DW_TILE_ELEMENTS]; /* to be added to y */
    bool state = job->next != NULL, adds = job->adds && !state;
    uint64_t at = run->row * (uint64_t)job->stride + run->column;
    dw_dtype dtype = state ? job->prev_dtype : adds ? DW_F32 : job->y_dtype;
    void *out = state ? run->next : adds ? values : dw_at(job->y, job->y_dtype, at);
    const void *prev = state ? dw_at(job->prev, job->prev_dtype, run->element) : NULL;
    /* Decoded as if with state and without prev, because then poisoned pieces become 0 and not NaN,
     * which the rotation would spread to all values of their blocks. */
    dw_decode_job inner = *job;
    dw_run inner_run = *run;
    inner.layout.rotates = 0;
    inner.layout.weighs = false;
    inner.prev = NULL;
    inner.prev_dtype = DW_F32;
    inner.next = inner_run.next = rotated;
    decode(&inner, &inner_run);
    dw_weighed of = {rotated, prev, out, job->prev_dtype, dtype};
    if (layout->weighs)
        dw_weighing_store_run(layout, &job->channels, job->payload, run, &of, job->kernels);
    else
        job->kernels->unrotate(rotated, run->channels, layout->rotates, prev, job->prev_dtype, out,
                               dtype);
    keep_poisoned(layout, job->payload, run, prev, out, dtype, state);
    if (adds) dw_output_add(job, values, at, run->channels);
}
