/* SPDX-License-Identifier: Apache-2.0
 * held_keys.c - visits and drops the keys of an encoder or decoder, for ends that compare them. */
#include "base/held_keys.h"

#include "ends/decoder.h"
#include "ends/encoder.h"

static const char in_flight[] = "a key is in a frame that is still in flight: finish or cancel "
                                "that frame first";

/* The copy that the next delta starts from; NULL: there is none. */
static const dw_copy *base_of(const dw_held *held)
{
    const dw_copy *copy = held->base == DW_BASE_UNDO ? &held->undo : &held->now;
    return held->base != DW_BASE_NOTHING && dw_copy_is_held(copy) ? copy : NULL;
}

/* incarnation: of the copies that are visited; 0: of any. */
static dw_status visit_keys(dw_end *end, uint64_t incarnation, dw_held_key_visit *visit,
                            void *context)
{
    const dw_predictor *predictor = &end->predictor;
    dw_status status = DW_OK;
    for (uint64_t i = 0; i < predictor->table_cap; i++)
        if (predictor->table[i] && predictor->table[i]->busy)
            return dw_end_fail(end, DW_ERR_ARGUMENT, in_flight);
    for (uint64_t i = 0; i < predictor->table_cap && !status; i++) {
        const dw_held *held = predictor->table[i];
        const dw_copy *copy = held ? base_of(held) : NULL;
        if (!copy || (incarnation && held->incarnation != incarnation)) continue;
        const dw_held_key one = {.key = held->key,
                                 .incarnation = held->incarnation,
                                 .version = copy->version,
                                 .chain = copy->chain};
        status = visit(context, &one);
    }
    return status ? dw_end_fail(end, status, NULL) : DW_OK;
}

static dw_status drop_keys(dw_end *end, const dw_key *keys, size_t n)
{
    dw_predictor *predictor = &end->predictor;
    for (size_t i = 0; i < n; i++) {
        const dw_held *held = dw_predictor_find(predictor, keys[i]);
        if (held && held->busy) return dw_end_fail(end, DW_ERR_ARGUMENT, in_flight);
    }
    for (size_t i = 0; i < n; i++) {
        dw_held *held = dw_predictor_find(predictor, keys[i]);
        if (!held) continue;
        dw_predictor_remove(predictor, held);
        end->counters.dropped_keys++;
    }
    return DW_OK;
}

dw_status dw_encoder_visit_keys(dw_encoder *encoder, dw_held_key_visit *visit, void *context)
{
    if (encoder->end.config.feedback > DW_FEEDBACK_NONE) return DW_OK; /* it keeps residuals */
    return visit_keys(&encoder->end, encoder->end.incarnation, visit, context);
}

dw_status dw_decoder_visit_keys(dw_decoder *decoder, dw_held_key_visit *visit, void *context)
{
    return visit_keys(&decoder->end, 0, visit, context);
}

bool dw_encoder_made(const dw_encoder *encoder, const dw_key *keys, size_t n,
                     const dw_frame_info *info)
{
    for (size_t i = 0; i < n; i++) {
        const dw_held *held = dw_predictor_find(&encoder->end.predictor, keys[i]);
        if (!held || !dw_copy_is_held(&held->now) || held->incarnation != info->incarnation ||
            held->now.version != info->sequence)
            return false;
    }
    return true;
}

dw_status dw_encoder_drop_keys(dw_encoder *encoder, const dw_key *keys, size_t n)
{
    return drop_keys(&encoder->end, keys, n);
}

dw_status dw_decoder_drop_keys(dw_decoder *decoder, const dw_key *keys, size_t n)
{
    return drop_keys(&decoder->end, keys, n);
}
