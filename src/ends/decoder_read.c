/* SPDX-License-Identifier: Apache-2.0
 * decoder_read.c - checks a frame's header, parameters and tables against config and tensor: steps
 * 1 to 5 of docs/format.md, 2. */
#include "ends/decoder.h"

#include <string.h>

#include "base/bytes.h"

static const uint8_t *block_of(const uint8_t *frame)
{
    return frame + DW_HEADER_BYTES;
}

static const char *bad_entries(const uint8_t *frame, const dw_header *header, const dw_plans *plans)
{
    bool draws = false, draws_places = false;
    for (int use = 0; use < DW_USES; use++) {
        const dw_plan *plan = &plans->of[use];
        draws = draws || (plan->form && plan->draws);
        draws_places = draws_places || (plan->form && dw_plan_draws_places(plan));
    }
    if (header->seed && !draws) return "it has a seed, but none of its forms uses one";
    if (header->draws_alike && !draws_places)
        return "its places are to be those of other encoders, but its codec draws none";
    if (header->n_forgotten && !plans->params.keeps_prev)
        return "it announces forgotten keys, but its codec keeps no keys";
    for (uint32_t i = 0; i < header->n; i++) {
        dw_entry entry;
        dw_frame_get_entry(frame, header, i, &entry);
        const char *why = dw_plans_bad_entry(plans, &entry);
        if (why) return why;
    }
    return NULL;
}

const char *dw_frame_check(const uint8_t *frame, const dw_header *header, dw_plans *plans,
                           dw_config *config)
{
    const char *why;
    if (!dw_params_read(config, header->codec, header->x, block_of(frame), header->n_parameters,
                        &why)) {
        config->prev = 0;
        return why;
    }
    if (dw_plans_make(plans, config, header->x, header->t, header->c, NULL))
        return "its shape is too large, or is one that its codec cannot code";
    return bad_entries(frame, header, plans);
}

static bool is_own(const dw_decode_ticket *t, const dw_params *own)
{
    return own->codec == t->header.codec && own->n_parameters == t->header.n_parameters &&
           memcmp(own->block, block_of(t->asked.frame),
                  (size_t)own->n_parameters * DW_PARAMETER_BYTES) == 0;
}

/* The digest of the profile that the frame names; 0: none. */
static uint32_t profile_of(const dw_decode_ticket *t)
{
    const uint8_t *at = block_of(t->asked.frame);
    for (uint32_t i = 0; i < t->header.n_parameters; i++, at += DW_PARAMETER_BYTES)
        if (at[0] == DW_PROFILE_OPTION) return (uint32_t)dw_get(at + 4, 4);
    return 0;
}

/* The decoder's plans for the frame's shape, with the profile that the frame names if the decoder
 * was given it; NULL, with an error in *status, where there are none. */
static const dw_plans *own_plans(dw_decode_ticket *t, dw_status *status)
{
    dw_end *end = &t->decoder->end;
    const dw_header *header = &t->header;
    const dw_config *config = &end->config;
    dw_config with;
    const dw_profile *profile = end->n_learnt ? dw_end_known(end, profile_of(t)) : NULL;
    if (profile) {
        with = *config;
        with.profile = profile;
        with.profile_digest = dw_profile_digest(profile);
        config = &with;
    }
    return dw_plan_cache_get(&end->plans, config, header->x, header->t, header->c, status,
                             &end->why);
}

static dw_status unreadable(dw_decoder *decoder, dw_status status, const char *why)
{
    snprintf(decoder->end.why.text, sizeof decoder->end.why.text, "the frame cannot be read: %s",
             why);
    return status;
}

/* Nearly all frames have the decoder's own parameters; for them the cached plans are used. Other
 * frames are first checked against plans for their own parameters, because a frame that contradicts
 * itself is FORMAT, not MISMATCH. */
dw_status dw_incoming_open(dw_decode_ticket *t, uint64_t head_len)
{
    dw_decoder *decoder = t->decoder;
    dw_plans others;
    dw_config config;
    dw_status status;
    const char *why;
    t->plans = NULL;
    t->prev = (dw_dtype)0;
    dw_status opened =
        dw_frame_open(t->asked.frame, head_len, t->asked.len, &t->header, &t->tables_intact, &why);
    if (opened && !t->tables_intact) return unreadable(decoder, opened, why);
    t->parameters = dw_digest_bytes(block_of(t->asked.frame),
                                    (uint64_t)t->header.n_parameters * DW_PARAMETER_BYTES);
    const dw_plans *own = own_plans(t, &status);
    const dw_plans *plans = own && is_own(t, &own->params) ? own : NULL;
    const char *bad = plans ? bad_entries(t->asked.frame, &t->header, plans)
                            : dw_frame_check(t->asked.frame, &t->header, &others, &config);
    /* The reply needs the dtype of prev even if the entries are wrong. A duplicate of an accepted
     * frame gets an ACK (docs/format.md, 6). It is recognized by the chains of its entries, and a
     * chain includes this dtype. If the parameters cannot be read, no chain can match. */
    t->prev = plans ? plans->params.kept : (dw_dtype)config.prev;
    if (opened) return unreadable(decoder, opened, why);
    if (bad) return unreadable(decoder, DW_ERR_FORMAT, bad);
    t->plans = plans;
    if (plans && decoder->end.engine.device) {
        t->own = *plans;
        t->plans = &t->own;
    }
    return DW_OK;
}

dw_status dw_incoming_agrees(dw_decode_ticket *t)
{
    dw_decoder *decoder = t->decoder;
    const dw_header *header = &t->header;
    const dw_tensor *y = &t->asked.y;
    dw_params own;
    char differs[128];
    if (!t->plans) {
        dw_status status =
            dw_params_resolve(&own, &decoder->end.config, header->x, &decoder->end.why);
        if (status) return status;
        dw_params_difference(&own, header->codec, block_of(t->asked.frame), header->n_parameters,
                             differs, sizeof differs);
        snprintf(decoder->end.why.text, sizeof decoder->end.why.text,
                 "the frame was encoded with %s: give both ends the same config%s", differs,
                 profile_of(t) ? ", and the decoder each profile that the encoder uses" : "");
        return DW_ERR_MISMATCH;
    }
    if (header->n != y->n || header->t != y->t || header->c != y->c) {
        snprintf(decoder->end.why.text, sizeof decoder->end.why.text,
                 "the frame carries (%u, %u, %u) but y is (%u, %u, %u)", (unsigned)header->n,
                 (unsigned)header->t, (unsigned)header->c, (unsigned)y->n, (unsigned)y->t,
                 (unsigned)y->c);
        return DW_ERR_SHAPE;
    }
    return DW_OK;
}
