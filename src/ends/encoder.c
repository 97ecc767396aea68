/* SPDX-License-Identifier: Apache-2.0
 * encoder.c - creates, destroys, queries and exports an encoder; forgets keys. */
#include "ends/encoder.h"

#include <string.h>

#include "common/cpu.h"
#include "ends/saving.h"

/* Prepares the control of the rate for the first frame of a new incarnation. Resolving the
 * parameters cannot fail, because it has succeeded when the encoder was made. */
static void begin_rate(dw_encoder *encoder)
{
    dw_params params;
    if (dw_params_resolve(&params, &encoder->end.config, DW_F32, NULL)) return;
    dw_cpu_mode mode = dw_cpu_enter_exact();
    dw_rate_begin(&encoder->rate, &params);
    dw_cpu_leave_exact(mode);
}

dw_status dw_encoder_create(dw_encoder **encoder, const dw_config *config, const dw_host *host,
                            dw_why *why)
{
    dw_end *made;
    if (encoder) *encoder = NULL;
    dw_status status = dw_end_make(encoder ? &made : NULL, sizeof **encoder, config, host, why);
    if (status) return status;
    made->incarnation = made->config.incarnation ? made->config.incarnation : dw_mem_random();
    *encoder = (dw_encoder *)made;
    begin_rate(*encoder);
    return DW_OK;
}

void dw_encoder_use(dw_encoder *encoder, const struct dw_kernels *kernels)
{
    dw_engine_use(&encoder->end.engine, kernels);
}

void dw_encoder_destroy(dw_encoder *encoder)
{
    if (!encoder) return;
    dw_encoder_end_tickets(encoder);
    dw_end_destroy(&encoder->end, sizeof *encoder);
}

/* With a fixed incarnation a run can be repeated. If the digest after a refusal were of the
 * incarnation alone, an encoder that was made again would be refused once for each reset of the one
 * before it. The reply says what the decoder holds, which differs. */
void dw_encoder_new_incarnation(dw_encoder *encoder, const void *reason, size_t len)
{
    dw_predictor *predictor = &encoder->end.predictor;
    bool is_fixed = encoder->end.config.incarnation != 0;
    encoder->end.incarnation = is_fixed ? dw_digest_bytes(reason, len) | 1 : dw_mem_random();
    encoder->sequence = 0;
    while (predictor->oldest_forgotten) dw_predictor_remove(predictor, predictor->oldest_forgotten);
}

dw_status dw_encoder_forget(dw_encoder *encoder, dw_key key)
{
    if (!encoder) return DW_ERR_ARGUMENT;
    dw_held *held = dw_predictor_find(&encoder->end.predictor, key);
    if (!held) return DW_OK;
    if (held->busy)
        return dw_encoder_fail(encoder, DW_ERR_ARGUMENT,
                               "the key is in a frame that is still in flight: finish or cancel "
                               "that frame first");
    if (encoder->end.config.feedback > DW_FEEDBACK_NONE) /* the decoder need not be told */
        dw_predictor_remove(&encoder->end.predictor, held);
    else
        dw_predictor_forget(&encoder->end.predictor, held);
    return DW_OK;
}

dw_status dw_encoder_reset(dw_encoder *encoder)
{
    if (!encoder) return DW_ERR_ARGUMENT;
    for (const dw_encode_ticket *t = encoder->tickets; t; t = t->next)
        if (t->flight.in_flight)
            return dw_encoder_fail(encoder, DW_ERR_ARGUMENT,
                                   "a frame is still in flight: finish or cancel it first");
    dw_encoder_new_incarnation(encoder, &encoder->end.incarnation, sizeof encoder->end.incarnation);
    dw_predictor_clear(&encoder->end.predictor);
    begin_rate(encoder);
    return DW_OK;
}

dw_status dw_encoder_use_profile(dw_encoder *encoder, const dw_profile *profile)
{
    dw_config with;
    if (!encoder) return DW_ERR_ARGUMENT;
    if (encoder->tickets) return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, dw_end_busy);
    dw_status status = dw_end_learn(&encoder->end, profile, &with);
    if (!status) encoder->end.config = with;
    return status;
}

dw_status dw_encoder_prefetch(dw_encoder *encoder, const dw_key *keys, size_t n)
{
    return encoder ? dw_end_prefetch(&encoder->end, keys, n) : DW_ERR_ARGUMENT;
}

dw_status dw_encoder_peek(const dw_encoder *encoder, dw_key key, dw_tensor *prev)
{
    return encoder ? dw_end_peek((dw_end *)&encoder->end, key, prev) : DW_ERR_ARGUMENT;
}

dw_status dw_encoder_count(const dw_encoder *encoder, dw_counters *counters)
{
    return encoder ? dw_end_count((dw_end *)&encoder->end, counters) : DW_ERR_ARGUMENT;
}

const char *dw_encoder_why(const dw_encoder *encoder)
{
    return encoder ? encoder->end.why.text : "";
}

static dw_saver saver_of(dw_encoder *encoder)
{
    bool keeps_residual = encoder->end.config.feedback > DW_FEEDBACK_NONE;
    return (dw_saver){.end = &encoder->end,
                      .side = keeps_residual ? DW_SIDE_RESIDUAL : DW_SIDE_ENCODER,
                      .sequence = &encoder->sequence,
                      .rate = &encoder->rate};
}

dw_status dw_encoder_export(dw_encoder *encoder, const dw_key *key, dw_saved_visit *visit,
                            void *context)
{
    if (!encoder) return DW_ERR_ARGUMENT;
    dw_saver saver = saver_of(encoder);
    return dw_save(&saver, key, visit, context);
}

dw_status dw_encoder_import(dw_encoder *encoder, const void *saved, size_t len)
{
    if (!encoder) return DW_ERR_ARGUMENT;
    dw_saver saver = saver_of(encoder);
    return dw_restore(&saver, saved, len);
}
