/* SPDX-License-Identifier: Apache-2.0
 * decoder_replies.c - the answer to a frame: what is held of its keys. */
#include "decoder.h"

bool dw_decoder_is_retired(const dw_decoder *decoder, uint64_t incarnation)
{
    uint64_t n = decoder->n_retired < DW_RETIRED ? decoder->n_retired : DW_RETIRED;
    for (uint64_t i = 0; i < n; i++)
        if (decoder->retired[i] == incarnation) return true;
    return false;
}

/* A base that is named in a NACK must still be what it was: re-hash it, and give it up where it has
 * rotted. */
static dw_held *intact(dw_decoder *decoder, dw_key key)
{
    dw_held *held = dw_predictor_find(&decoder->predictor, key);
    if (!held || !held->now.data) return NULL;
    if (held->checked == decoder->calls) return held;
    held->checked = decoder->calls;
    const dw_engine *engine = &decoder->engine;
    if (!held->now.audit || decoder->remote)
        return held; /* a GPU's copies are hashed when the next delta has advanced them */
    dw_audit audit = {held->now.audit, held->now.version};
    uint64_t sum =
        engine->state_sum(engine, held->now.data, held->dtype, (uint64_t)held->t * held->c, audit);
    if (dw_digest_of_sum(sum) == held->now.state_digest) return held;
    dw_predictor_remove(&decoder->predictor, held);
    return NULL;
}

size_t dw_decoder_write_reply(dw_arrival *a, bool rejected, uint8_t *reply)
{
    dw_decoder *decoder = a->decoder;
    dw_reply_info info = {1, dw_decoder_is_retired(decoder, a->info.incarnation),
                          a->info.incarnation, a->info.sequence, 0};
    for (uint32_t i = 0; i < a->info.n; i++) {
        dw_entry_info entry;
        dw_frame_get_entry(a->frame, i, &entry);
        if (!dw_kind_has_state(entry.kind)) continue;
        dw_held *held = rejected ? intact(decoder, entry.key)
                                 : dw_predictor_find(&decoder->predictor, entry.key);
        dw_reply_entry out = {.key = entry.key};
        if (held && held->now.data) {
            out.held = 1;
            out.incarnation = held->incarnation;
            out.version = held->now.version;
            out.chain = held->now.chain;
        }
        info.accepted = info.accepted && out.held && out.chain == dw_frame_chain(&a->info, &entry);
        dw_reply_put_entry(reply, info.n++, &out);
    }
    if (info.n == 0) info.accepted = !rejected; /* it only told of forgotten keys */
    dw_reply_seal(reply, &info);
    decoder->counters.acks += info.accepted != 0;
    decoder->counters.nacks += !info.accepted;
    return dw_reply_bound(info.n);
}

bool dw_decoder_asks_for_reply(const dw_arrival *a)
{
    if (!a->info.wants_reply) return false;
    if (a->info.n_forgotten) return true;
    for (uint32_t i = 0; i < a->info.n; i++) {
        dw_entry_info entry;
        dw_frame_get_entry(a->frame, i, &entry);
        if (dw_kind_has_state(entry.kind)) return true;
    }
    return false;
}
