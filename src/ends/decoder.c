/* SPDX-License-Identifier: Apache-2.0
 * decoder.c - creates, destroys, queries and exports a decoder. */
#include "ends/decoder.h"

#include <string.h>

#include "common/tensor.h"
#include "ends/saving.h"

dw_status dw_decoder_create(dw_decoder **decoder, const dw_config *config, const dw_host *host,
                            dw_why *why)
{
    dw_end *made;
    if (decoder) *decoder = NULL;
    dw_status status = dw_end_make(decoder ? &made : NULL, sizeof **decoder, config, host, why);
    if (status) return status;
    *decoder = (dw_decoder *)made;
    return DW_OK;
}

void dw_decoder_use(dw_decoder *decoder, const struct dw_kernels *kernels)
{
    dw_engine_use(&decoder->end.engine, kernels);
}

void dw_decoder_destroy(dw_decoder *decoder)
{
    if (!decoder) return;
    dw_decoder_end_tickets(decoder);
    dw_end_destroy(&decoder->end, sizeof *decoder);
}

dw_status dw_decoder_add_profile(dw_decoder *decoder, const dw_profile *profile)
{
    dw_config with;
    if (!decoder) return DW_ERR_ARGUMENT;
    if (!profile) return dw_decoder_fail(decoder, DW_ERR_ARGUMENT, "the profile is NULL");
    if (decoder->tickets) return dw_decoder_fail(decoder, DW_ERR_ARGUMENT, dw_end_busy);
    return dw_end_learn(&decoder->end, profile, &with);
}

dw_status dw_decoder_prefetch(dw_decoder *decoder, const dw_key *keys, size_t n)
{
    return decoder ? dw_end_prefetch(&decoder->end, keys, n) : DW_ERR_ARGUMENT;
}

dw_status dw_decoder_peek(const dw_decoder *decoder, dw_key key, dw_tensor *prev)
{
    return decoder ? dw_end_peek((dw_end *)&decoder->end, key, prev) : DW_ERR_ARGUMENT;
}

dw_status dw_decoder_count(const dw_decoder *decoder, dw_counters *counters)
{
    return decoder ? dw_end_count((dw_end *)&decoder->end, counters) : DW_ERR_ARGUMENT;
}

const char *dw_decoder_why(const dw_decoder *decoder)
{
    return decoder ? decoder->end.why.text : "";
}

/* The length of a frame with a delta for every key whose prev the decoder holds, and with x itself
 * for all others. An encoder that would have to send x itself where the decoder expects a delta can
 * still keep to this length: it sends a stateless entry, which can be as short as a delta. With
 * error=abs it cannot, because such an entry might not keep to the bound. Then any entry may carry
 * x itself, or floats, and the longest of all is expected. There is room for a forgotten key per
 * sample: an encoder forgets no more for want of room. */
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
    const dw_plans *plans =
        dw_plan_cache_get(&decoder->end.plans, &decoder->end.config, shape->dtype, shape->t,
                          shape->c, &status, &decoder->end.why);
    if (!plans) return status;
    uint64_t whole = plans->of[DW_USE_WHOLE].payload_bytes,
             exact = plans->of[DW_USE_EXACT].payload_bytes, longest = whole > exact ? whole : exact;
    bool has_bound = plans->params.bound > 0;
    for (uint32_t i = 0; i < shape->n; i++) {
        const dw_held *held = plans->params.keeps_prev && keys
                                  ? dw_predictor_find(&decoder->end.predictor, keys[i])
                                  : NULL;
        bool based = held && dw_copy_is_held(&held->now) && held->t == shape->t &&
                     held->c == shape->c && held->dtype == plans->params.kept &&
                     held->incarnation == decoder->end.incarnation;
        uint64_t one = based ? plans->of[DW_USE_CHANGE].payload_bytes : whole;
        if (has_bound && longest > one) one = longest;
        if (!dw_size_add(total, one, &total)) return dw_decoder_fail(decoder, DW_ERR_LIMIT, NULL);
    }
    bool names_one = decoder->end.n_learnt && !decoder->end.config.profile_digest;
    uint64_t keys_held = decoder->end.predictor.keys;
    uint32_t n_forgotten = keys_held < shape->n ? (uint32_t)keys_held : shape->n;
    if (!dw_frame_table_end(plans->params.n_parameters + names_one, shape->n, n_forgotten, &end) ||
        !dw_size_add(total, end, &total) || total > PTRDIFF_MAX)
        return dw_decoder_fail(decoder, DW_ERR_LIMIT, NULL);
    *len = (size_t)total;
    return DW_OK;
}

static dw_saver saver_of(dw_decoder *decoder)
{
    return (dw_saver){.end = &decoder->end, .side = DW_SIDE_DECODER, .sequence = NULL};
}

dw_status dw_decoder_export(dw_decoder *decoder, const dw_key *key, dw_saved_visit *visit,
                            void *context)
{
    if (!decoder) return DW_ERR_ARGUMENT;
    dw_saver saver = saver_of(decoder);
    return dw_save(&saver, key, visit, context);
}

dw_status dw_decoder_import(dw_decoder *decoder, const void *saved, size_t len)
{
    if (!decoder) return DW_ERR_ARGUMENT;
    dw_saver saver = saver_of(decoder);
    return dw_restore(&saver, saved, len);
}
