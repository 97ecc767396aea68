/* SPDX-License-Identifier: Apache-2.0
 * nested.c - rows of values inside a payload that another form writes. */
#include "codecs/nested.h"

static const dw_form *form_of(const dw_form_params *params)
{
    if (params->element) return &dw_form_mx;
    return params->bits ? &dw_form_quantized : &dw_form_floats;
}

bool dw_nested_plan(const dw_form_params *params, uint32_t t, uint64_t c, uint32_t group,
                    dw_plan *plan)
{
    *plan = (dw_plan){.t = t, .c = (uint32_t)c};
    plan->params = (dw_form_params){.form = form_of(params),
                                    .bits = params->bits,
                                    .group = group,
                                    .element = params->element,
                                    .dtype = params->dtype};
    plan->form = plan->params.form;
    return !plan->form->plan(plan, NULL);
}

void dw_nested_encode(const dw_encode_job *job, const dw_plan *plan, const float *values,
                      uint32_t number, uint8_t *payload, dw_sums *sums)
{
    dw_encode_job nested = *job;
    nested.layout = plan->layout;
    nested.plan = plan;
    nested.x = values;
    nested.x_dtype = DW_F32;
    nested.stride = (int64_t)plan->c;
    nested.prev = nested.kept = NULL;
    nested.next = nested.keeps = NULL;
    nested.keeps_residual = false;
    nested.payload = payload;
    nested.rule.dither_key ^= number;
    for (uint64_t i = 0; i < plan->chunks; i++) {
        dw_chunk_result result;
        plan->form->encode(&nested, i, &result);
        sums->pieces += result.sums.pieces;
        sums->zero += result.sums.zero;
        sums->poisoned += result.sums.poisoned;
    }
}

void dw_nested_decode(const struct dw_kernels *kernels, const dw_plan *plan, const uint8_t *payload,
                      float *values)
{
    dw_chunk_result unused;
    dw_decode_job nested = {.layout = plan->layout,
                            .plan = plan,
                            .payload = payload,
                            .y = values,
                            .y_dtype = DW_F32,
                            .stride = (int64_t)plan->c,
                            .is_exact = true,
                            .kernels = kernels};
    for (uint64_t i = 0; i < plan->chunks; i++) plan->form->decode(&nested, i, &unused);
}

void dw_nested_count(const dw_decode_job *job, const dw_plan *plan, const uint8_t *payload,
                     dw_counters *counters)
{
    dw_decode_job nested = *job;
    nested.layout = plan->layout;
    nested.plan = plan;
    nested.payload = payload;
    if (plan->form->count) plan->form->count(&nested, counters);
}

dw_contraction dw_nested_contracts(const dw_form_params *params, const dw_config *config)
{
    return form_of(params)->contracts(params, config);
}
