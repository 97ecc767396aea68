/* SPDX-License-Identifier: Apache-2.0
 * decoder.c - the decoder as an object: made, ended, asked. */
#include "ends/decoder.h"

#include <string.h>

#include "base/tensor.h"
#include "ends/saving.h"

static void say(dw_why *why, dw_status status)
{
    if (why && why->text[0] == 0)
        snprintf(why->text, sizeof why->text, "%s", dw_status_string(status));
}

static dw_status create(dw_decoder **decoder, const dw_config *given, dw_why *why)
{
    dw_config config;
    dw_params params;
    dw_status status = dw_config_take(&config, given, why);
    if (!status) status = dw_params_resolve(&params, &config, DW_F32, why);
    if (status) return status;
    dw_allocator allocator = dw_mem_allocator(&config.allocator);
    dw_decoder *made = dw_mem_allocate(&allocator, sizeof *made);
    if (!made) return DW_ERR_NO_MEMORY;
    memset(made, 0, sizeof *made);
    made->config = config;
    made->allocator = allocator;
    dw_predictor_init(&made->predictor, &allocator, config.quota_bytes);
    *decoder = made;
    return DW_OK;
}

/* The memory of a decoder that has no engine yet. */
static void discard(dw_decoder *decoder)
{
    dw_allocator allocator = decoder->allocator;
    dw_predictor_release(&decoder->predictor);
    dw_mem_release(&allocator, decoder, sizeof *decoder);
}

dw_status dw_decoder_create_why(dw_decoder **decoder, const dw_config *config, dw_why *why)
{
    if (why) *why = (dw_why){.offset = -1};
    if (decoder) *decoder = NULL;
    if (!decoder || !config) {
        say(why, DW_ERR_ARGUMENT);
        return DW_ERR_ARGUMENT;
    }
    dw_decoder *made = NULL;
    dw_status status = create(&made, config, why);
    if (!status && !dw_engine_cpu(&made->engine, &made->config, NULL)) {
        discard(made);
        status = DW_ERR_NO_MEMORY;
    }
    if (status)
        say(why, status);
    else
        *decoder = made;
    return status;
}

dw_status dw_decoder_create(dw_decoder **decoder, const dw_config *config)
{
    return dw_decoder_create_why(decoder, config, NULL);
}

dw_status dw_decoder_create_text(dw_decoder **decoder, const char *text, dw_why *why)
{
    dw_config config;
    if (decoder) *decoder = NULL;
    dw_status status = dw_config_parse(&config, text, why);
    return status ? status : dw_decoder_create_why(decoder, &config, why);
}

dw_status dw_decoder_create_cuda(dw_decoder **decoder, const dw_config *config, dw_cuda *cuda,
                                 dw_cuda_place place, dw_why *why)
{
    dw_params params;
    if (why) *why = (dw_why){.offset = -1};
    if (decoder) *decoder = NULL;
    if (!decoder || !config) {
        say(why, DW_ERR_ARGUMENT);
        return DW_ERR_ARGUMENT;
    }
    dw_decoder *made = NULL;
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
    *decoder = made;
    return DW_OK;
}

void dw_decoder_use(dw_decoder *decoder, const struct dw_kernels *kernels)
{
    dw_engine_use(&decoder->engine, kernels);
}

void dw_decoder_destroy(dw_decoder *decoder)
{
    if (!decoder) return;
    dw_allocator allocator = decoder->allocator;
    dw_decoder_end_tickets(decoder);
    decoder->engine.release(decoder->engine.context);
    dw_predictor_release(&decoder->predictor);
    dw_mem_release(&allocator, decoder, sizeof *decoder);
}

uint64_t dw_decoder_now(const dw_decoder *decoder)
{
    return decoder->config.now_ns ? decoder->config.now_ns(decoder->config.now_context) : 0;
}

dw_status dw_decoder_peek(const dw_decoder *decoder, dw_key key, dw_tensor *prev)
{
    if (!decoder || !prev) return DW_ERR_ARGUMENT;
    const dw_held *held = dw_predictor_find(&decoder->predictor, key);
    if (!held || !held->now.data) return DW_ERR_ARGUMENT;
    *prev = dw_tensor_3d(held->now.data, held->dtype, 1, held->t, held->c);
    return DW_OK;
}

dw_status dw_decoder_counters(const dw_decoder *decoder, dw_counters *counters)
{
    if (!decoder || !counters) return DW_ERR_ARGUMENT;
    dw_counters found = decoder->counters;
    found.keys_held = decoder->predictor.keys;
    found.state_bytes = dw_predictor_bytes(&decoder->predictor);
    found.slack_bytes = dw_predictor_slack(&decoder->predictor);
    return dw_counters_give(counters, &found);
}

const char *dw_decoder_why(const dw_decoder *decoder)
{
    return decoder ? decoder->why.text : "";
}

/* Of one key: a change where the decoder holds what changes can start from, else x itself. Whatever
 * the encoder does instead, it can make as short as this: a stateless entry as short as a
 * change. */
dw_status dw_decoder_expect(dw_decoder *decoder, const dw_key *keys, const dw_tensor *shape,
                            size_t *len)
{
    uint64_t end, total = 0;
    dw_status status = DW_OK;
    if (!decoder) return DW_ERR_ARGUMENT;
    if (!shape || !len) return dw_decoder_fail(decoder, DW_ERR_ARGUMENT, "an argument is NULL");
    if (dw_tensor_check(shape))
        return dw_decoder_fail(decoder, DW_ERR_ARGUMENT,
                               "the shape has no dtype, or an extent is zero");
    const dw_plans *plans = dw_plan_cache_get(&decoder->plans, &decoder->config, shape->dtype,
                                              shape->t, shape->c, &status, &decoder->why);
    if (!plans) return status;
    uint64_t whole = plans->of[DW_USE_WHOLE].payload_bytes;
    for (uint32_t i = 0; i < shape->n; i++) {
        const dw_held *held = plans->params.keeps_prev && keys
                                  ? dw_predictor_find(&decoder->predictor, keys[i])
                                  : NULL;
        bool based = held && held->now.data && held->t == shape->t && held->c == shape->c &&
                     held->dtype == plans->params.prev && held->incarnation == decoder->incarnation;
        if (!dw_size_add(total, based ? plans->of[DW_USE_CHANGE].payload_bytes : whole, &total))
            return dw_decoder_fail(decoder, DW_ERR_LIMIT, NULL);
    }
    if (!dw_frame_table_end(plans->params.n_parameters, shape->n, 0, &end) ||
        !dw_size_add(total, end, &total) || total > PTRDIFF_MAX)
        return dw_decoder_fail(decoder, DW_ERR_LIMIT, NULL);
    *len = (size_t)total;
    return DW_OK;
}

static dw_saver saver_of(dw_decoder *decoder)
{
    return (dw_saver){.predictor = &decoder->predictor,
                      .allocator = &decoder->allocator,
                      .side = DW_SIDE_DECODER,
                      .incarnation = &decoder->incarnation,
                      .sequence = NULL,
                      .engine = &decoder->engine,
                      .why = &decoder->why};
}

dw_status dw_decoder_export(dw_decoder *decoder, dw_key key, void *room, size_t cap, size_t *len)
{
    if (!decoder) return DW_ERR_ARGUMENT;
    dw_saver saver = saver_of(decoder);
    return dw_save(&saver, key, room, cap, len);
}

dw_status dw_decoder_export_all(dw_decoder *decoder, dw_saved_visit *visit, void *context)
{
    if (!decoder) return DW_ERR_ARGUMENT;
    dw_saver saver = saver_of(decoder);
    return dw_save_all(&saver, visit, context);
}

dw_status dw_decoder_import(dw_decoder *decoder, const void *saved, size_t len)
{
    if (!decoder) return DW_ERR_ARGUMENT;
    dw_saver saver = saver_of(decoder);
    return dw_restore(&saver, saved, len);
}
