/* SPDX-License-Identifier: Apache-2.0
 * decoder_replies.c - the reply to a frame, which says what is held of its keys. */
#include "codecs/audit.h"
#include "ends/decoder.h"

bool dw_decoder_is_retired(const dw_decoder *decoder, uint64_t incarnation)
{
    uint64_t n = decoder->n_retired < DW_RETIRED ? decoder->n_retired : DW_RETIRED;
    for (uint64_t i = 0; i < n; i++)
        if (decoder->retired[i] == incarnation) return true;
    return false;
}

/* A NACK may only name a base that is intact: verifies the copy's digest, and drops a copy whose
 * digest no longer matches. */
static dw_held *intact(dw_decoder *decoder, dw_key key)
{
    dw_held *held = dw_predictor_find(&decoder->end.predictor, key);
    if (!held || !dw_copy_is_held(&held->now)) return NULL;
    if (held->checked == decoder->calls) return held;
    held->checked = decoder->calls;
    const dw_kernels *kernels = dw_engine_kernels(&decoder->end.engine);
    /* Copies on a device are not verified here, nor compact ones, whose digest is that of the
     * floats they were made of; damage shows in the digest after the next delta. */
    if (!held->now.audit || !kernels || dw_compact_bits(held->dtype)) return held;
    if (!held->now.data) return held; /* the backing store answers for it */
    dw_audit audit = dw_audit_of(held->now.audit, key, held->now.version);
    uint64_t sum =
        dw_state_sum(kernels, held->now.data, held->dtype, (uint64_t)held->t * held->c, audit);
    if (dw_digest_of_sum(sum) == held->now.state_digest) return held;
    dw_predictor_drop(&decoder->end.predictor, held);
    return NULL;
}

/* Whether a change in a frame like this one could start from the copy. A copy that was saved
 * elsewhere, or by mistake, can have the chain that a frame starts from and not its shape. If the
 * reply named that chain, the encoder would start from it again. */
static bool fits(const dw_decode_ticket *t, const dw_held *held)
{
    return held->t == t->header.t && held->c == t->header.c &&
           (held->dtype == t->prev || !t->prev /* the parameters cannot be read */);
}

size_t dw_decoder_write_reply(dw_decode_ticket *t, bool rejected, uint8_t *reply)
{
    dw_decoder *decoder = t->decoder;
    /* Both ends have the same quota. So the decoder holds keys that the encoder does not, and lets
     * go of them when it sees a new incarnation. */
    bool has_no_room = t->refusal == DW_ERR_LIMIT;
    dw_reply_info info = {.struct_size = sizeof info,
                          .accepted = 1,
                          .replaced =
                              has_no_room || dw_decoder_is_retired(decoder, t->header.incarnation),
                          .incarnation = t->header.incarnation,
                          .sequence = t->header.sequence};
    for (uint32_t i = 0; i < t->header.n; i++) {
        dw_entry entry;
        dw_frame_get_entry(t->asked.frame, &t->header, i, &entry);
        if (!dw_role_has_state(entry.role)) continue;
        dw_held *held = rejected ? intact(decoder, entry.key)
                                 : dw_predictor_find(&decoder->end.predictor, entry.key);
        dw_reply_entry out = {.key = entry.key};
        bool holds = held && dw_copy_is_held(&held->now),
             is_same = holds && held->incarnation == t->header.incarnation;
        if (!is_same && dw_predictor_refuses(&decoder->end.predictor, t->header.incarnation,
                                             t->header.sequence)) {
            out.incarnation = t->header.incarnation;
            out.version = decoder->end.predictor.dropped_sequence;
        } else if (holds) {
            out.held = 1;
            out.incarnation = held->incarnation;
            out.version = held->now.version;
            out.chain = fits(t, held) ? held->now.chain : 0;
        }
        uint64_t chain = dw_frame_chain(&t->header, t->parameters, t->prev, &entry);
        info.accepted = info.accepted && out.held && out.chain == chain;
        dw_reply_put_entry(reply, info.n++, &out);
    }
    if (info.n == 0) info.accepted = !rejected; /* the frame had no keys, only forgotten ones */
    dw_reply_finalize(reply, &info);
    decoder->end.counters.acks += info.accepted != 0;
    decoder->end.counters.nacks += !info.accepted;
    return dw_reply_bound(info.n);
}

bool dw_decoder_asks_for_reply(const dw_decode_ticket *t)
{
    if (!t->header.wants_reply) return false;
    if (t->header.n_forgotten) return true;
    for (uint32_t i = 0; i < t->header.n; i++) {
        dw_entry entry;
        dw_frame_get_entry(t->asked.frame, &t->header, i, &entry);
        if (dw_role_has_state(entry.role)) return true;
    }
    return false;
}
