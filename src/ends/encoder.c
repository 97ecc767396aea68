/* SPDX-License-Identifier: Apache-2.0
 * encoder.c - the encoder as an object: made, ended, asked, told to forget. */
#include "ends/encoder.h"

#include <string.h>

#include "base/tensor.h"
#include "ends/saving.h"

static void say(dw_why *why, dw_status status)
{
    if (why && why->text[0] == 0)
        snprintf(why->text, sizeof why->text, "%s", dw_status_string(status));
}

static dw_status create(dw_encoder **encoder, const dw_config *given, dw_why *why)
{
    dw_config config;
    dw_params params;
    dw_status status = dw_config_take(&config, given, why);
    if (!status) status = dw_params_resolve(&params, &config, DW_F32, why);
    if (status) return status;
    dw_allocator allocator = dw_mem_allocator(&config.allocator);
    dw_encoder *made = dw_mem_allocate(&allocator, sizeof *made);
    if (!made) return DW_ERR_NO_MEMORY;
    memset(made, 0, sizeof *made);
    made->config = config;
    made->allocator = allocator;
    made->incarnation = config.incarnation ? config.incarnation : dw_mem_random();
    dw_predictor_init(&made->predictor, &allocator, config.quota_bytes);
    *encoder = made;
    return DW_OK;
}

/* The memory of an encoder that has no engine yet. */
static void discard(dw_encoder *encoder)
{
    dw_allocator allocator = encoder->allocator;
    dw_predictor_release(&encoder->predictor);
    dw_mem_release(&allocator, encoder, sizeof *encoder);
}

dw_status dw_encoder_create_why(dw_encoder **encoder, const dw_config *config, dw_why *why)
{
    if (why) *why = (dw_why){.offset = -1};
    if (encoder) *encoder = NULL;
    if (!encoder || !config) {
        say(why, DW_ERR_ARGUMENT);
        return DW_ERR_ARGUMENT;
    }
    dw_encoder *made = NULL;
    dw_status status = create(&made, config, why);
    if (!status && !dw_engine_cpu(&made->engine, &made->config, NULL)) {
        discard(made);
        status = DW_ERR_NO_MEMORY;
    }
    if (status)
        say(why, status);
    else
        *encoder = made;
    return status;
}

dw_status dw_encoder_create(dw_encoder **encoder, const dw_config *config)
{
    return dw_encoder_create_why(encoder, config, NULL);
}

dw_status dw_encoder_create_text(dw_encoder **encoder, const char *text, dw_why *why)
{
    dw_config config;
    if (encoder) *encoder = NULL;
    dw_status status = dw_config_parse(&config, text, why);
    return status ? status : dw_encoder_create_why(encoder, &config, why);
}

dw_status dw_encoder_create_cuda(dw_encoder **encoder, const dw_config *config, dw_cuda *cuda,
                                 dw_cuda_place place, dw_why *why)
{
    dw_params params;
    if (why) *why = (dw_why){.offset = -1};
    if (encoder) *encoder = NULL;
    if (!encoder || !config) {
        say(why, DW_ERR_ARGUMENT);
        return DW_ERR_ARGUMENT;
    }
    dw_encoder *made = NULL;
    dw_status status = create(&made, config, why);
    if (status) {
        say(why, status);
        return status;
    }
    status = dw_engine_cuda(&made->engine, &made->config, cuda, place, why);
    if (!status) {
        (void)dw_params_resolve(&params, &made->config, DW_F32, why);
        status = dw_params_on_device(&params, why);
        if (status) made->engine.release(made->engine.context);
    }
    if (status) {
        say(why, status);
        discard(made);
        return status;
    }
    dw_predictor_use(&made->predictor, &made->engine.store);
    *encoder = made;
    return DW_OK;
}

void dw_encoder_use(dw_encoder *encoder, const struct dw_kernels *kernels)
{
    dw_engine_use(&encoder->engine, kernels);
}

void dw_encoder_destroy(dw_encoder *encoder)
{
    if (!encoder) return;
    dw_allocator allocator = encoder->allocator;
    dw_encoder_end_tickets(encoder);
    encoder->engine.release(encoder->engine.context);
    dw_predictor_release(&encoder->predictor);
    dw_mem_release(&allocator, encoder, sizeof *encoder);
}

void dw_encoder_begin_life(dw_encoder *encoder)
{
    dw_predictor *predictor = &encoder->predictor;
    encoder->incarnation = dw_digest_bytes(&encoder->incarnation, sizeof encoder->incarnation) | 1;
    encoder->sequence = 0;
    while (predictor->oldest_forgotten) dw_predictor_remove(predictor, predictor->oldest_forgotten);
}

uint64_t dw_encoder_now(const dw_encoder *encoder)
{
    return encoder->config.now_ns ? encoder->config.now_ns(encoder->config.now_context) : 0;
}

dw_status dw_encoder_forget(dw_encoder *encoder, dw_key key)
{
    if (!encoder) return DW_ERR_ARGUMENT;
    dw_held *held = dw_predictor_find(&encoder->predictor, key);
    if (!held) return DW_OK;
    if (held->busy)
        return dw_encoder_fail(encoder, DW_ERR_ARGUMENT,
                               "the key is in a frame that is still in flight: finish or cancel "
                               "that frame first");
    dw_predictor_forget(&encoder->predictor, held);
    return DW_OK;
}

dw_status dw_encoder_reset(dw_encoder *encoder)
{
    if (!encoder) return DW_ERR_ARGUMENT;
    for (const dw_encode_ticket *t = encoder->tickets; t; t = t->next)
        if (t->flying)
            return dw_encoder_fail(encoder, DW_ERR_ARGUMENT,
                                   "a frame is still in flight: finish or cancel it first");
    dw_encoder_begin_life(encoder);
    dw_predictor_clear(&encoder->predictor);
    return DW_OK;
}

dw_status dw_encoder_peek(const dw_encoder *encoder, dw_key key, dw_tensor *prev)
{
    if (!encoder || !prev) return DW_ERR_ARGUMENT;
    const dw_held *held = dw_predictor_find(&encoder->predictor, key);
    if (!held || !held->now.data) return DW_ERR_ARGUMENT;
    *prev = dw_tensor_3d(held->now.data, held->dtype, 1, held->t, held->c);
    return DW_OK;
}

dw_status dw_encoder_counters(const dw_encoder *encoder, dw_counters *counters)
{
    if (!encoder || !counters) return DW_ERR_ARGUMENT;
    dw_counters found = encoder->counters;
    found.keys_held = encoder->predictor.keys - encoder->predictor.n_forgotten;
    found.state_bytes = dw_predictor_bytes(&encoder->predictor);
    found.slack_bytes = dw_predictor_slack(&encoder->predictor);
    return dw_counters_give(counters, &found);
}

const char *dw_encoder_why(const dw_encoder *encoder)
{
    return encoder ? encoder->why.text : "";
}

static dw_saver saver_of(dw_encoder *encoder)
{
    return (dw_saver){.predictor = &encoder->predictor,
                      .allocator = &encoder->allocator,
                      .side = DW_SIDE_ENCODER,
                      .incarnation = &encoder->incarnation,
                      .sequence = &encoder->sequence,
                      .engine = &encoder->engine,
                      .why = &encoder->why};
}

dw_status dw_encoder_export(dw_encoder *encoder, dw_key key, void *room, size_t cap, size_t *len)
{
    if (!encoder) return DW_ERR_ARGUMENT;
    dw_saver saver = saver_of(encoder);
    return dw_save(&saver, key, room, cap, len);
}

dw_status dw_encoder_export_all(dw_encoder *encoder, dw_saved_visit *visit, void *context)
{
    if (!encoder) return DW_ERR_ARGUMENT;
    dw_saver saver = saver_of(encoder);
    return dw_save_all(&saver, visit, context);
}

dw_status dw_encoder_import(dw_encoder *encoder, const void *saved, size_t len)
{
    if (!encoder) return DW_ERR_ARGUMENT;
    dw_saver saver = saver_of(encoder);
    return dw_restore(&saver, saved, len);
}
