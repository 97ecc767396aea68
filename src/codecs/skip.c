/* SPDX-License-Identifier: Apache-2.0
 * skip.c - the form of entries without a payload (role skip): prev keeps its values. */
#include "codecs/skip.h"

#include <string.h>

#include "arithmetic/step.h"
#include "codecs/audit.h"
#include "codecs/output.h"
#include "codecs/plan.h"
#include "codecs/tiles.h"
#include "common/cpu.h"

/* Adds up the squares of x - base, or of x if base is NULL. Every row is added to the same lanes,
 * so gaps between rows make no difference. */
static double squares_of(const dw_plans *plans, const dw_kernels *kernels, const void *x,
                         int64_t stride, const void *base, uint32_t *largest)
{
    double lanes[DW_NORM_LANES] = {0};
    dw_dtype prev = plans->params.prev;
    for (uint64_t row = 0; row < plans->t; row++)
        kernels->step_squares(dw_at(x, plans->x, row * (uint64_t)stride), plans->x,
                              dw_at(base, prev, row * plans->c), prev, plans->c, DW_NO_LIMIT, lanes,
                              largest);
    return dw_step_sum(lanes);
}

bool dw_skip_fits(const dw_plans *plans, const dw_kernels *kernels, const void *x, int64_t stride,
                  const void *base)
{
    uint32_t largest = 0;
    if (plans->params.skip == 0) return false;
    dw_cpu_mode mode = dw_cpu_enter_exact();
    double part = (double)plans->params.skip / 1000,
           change = squares_of(plans, kernels, x, stride, base, &largest),
           all = squares_of(plans, kernels, x, stride, NULL, &largest);
    bool fits = largest < DW_F32_INFINITY && change <= part * part * all;
    dw_cpu_leave_exact(mode);
    return fits;
}

static dw_status plan(dw_plan *made, dw_why *why)
{
    uint64_t bytes = (uint64_t)made->t * made->c;
    if (bytes > PTRDIFF_MAX / 4) return dw_plan_too_large(made, 0, why);
    made->payload_bytes = 0;
    made->chunks = 1;
    return DW_OK;
}

static uint64_t keep(const dw_plan *made, const dw_kernels *kernels, const void *prev, void *next,
                     dw_audit audit)
{
    uint64_t elements = (uint64_t)made->t * made->c;
    memcpy(next, prev, (size_t)(elements * dw_dtype_bytes(made->prev)));
    return dw_state_sum(kernels, next, made->prev, elements, audit);
}

static void encode(const dw_encode_job *job, uint64_t chunk, dw_chunk_result *result)
{
    (void)chunk; /* always 0: this form has one chunk */
    *result = (dw_chunk_result){
        .state_sum = keep(job->plan, job->kernels, job->prev, job->next, job->audit)};
}

static void decode(const dw_decode_job *job, uint64_t chunk, dw_chunk_result *result)
{
    (void)chunk;
    result->state_sum = keep(job->plan, job->kernels, job->prev, job->next, job->audit);
}

static void write_output(const dw_decode_job *job, uint64_t chunk)
{
    (void)chunk;
    const dw_plan *made = job->plan;
    for (uint64_t t = 0; t < made->t; t++)
        dw_output_write(job, dw_at(job->next, job->prev_dtype, t * made->c), job->prev_dtype,
                        t * (uint64_t)job->stride, made->c);
}

const dw_form dw_form_skip = {
    .wire = (dw_form_name)0,
    .name = "skip",
    .plan = plan,
    .encode = encode,
    .decode = decode,
    .write_output = write_output,
};
