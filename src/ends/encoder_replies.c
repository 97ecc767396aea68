/* SPDX-License-Identifier: Apache-2.0
 * encoder_replies.c - what an encoder learns from replies: which of its copies the decoder
 * holds. */
#include <stdio.h>

#include "ends/encoder.h"
#include "wire/reply.h"

/* The key is in a frame in flight: keeps the reply until that frame ends. */
static void defer(dw_encoder *encoder, const dw_reply_entry *entry, bool accepted)
{
    for (dw_encode_ticket *t = encoder->tickets; t; t = t->next) {
        for (uint32_t i = 0; t->flight.in_flight && i < t->header.n; i++) {
            dw_outgoing *p = &t->out[i];
            if (!p->held || p->entry.key.sample != entry->key.sample ||
                p->entry.key.slice != entry->key.slice)
                continue;
            p->deferred = *entry;
            p->is_deferred = true;
            p->deferred_accepted = accepted;
        }
    }
}

/* The decoder has accepted frame `sequence`, so it has dropped the keys that this frame announced
 * as forgotten. */
static void drop_announced(dw_encoder *encoder, uint64_t sequence)
{
    for (dw_held *held = encoder->end.predictor.oldest_forgotten, *next; held && held->announced;
         held = next) {
        next = held->newer;
        if (held->announced == sequence) dw_predictor_remove(&encoder->end.predictor, held);
    }
}

void dw_encoder_learn(dw_encoder *encoder, const dw_reply_entry *entry, bool accepted)
{
    bool ours = entry->incarnation == encoder->end.incarnation;
    if (ours && entry->version > encoder->sequence) encoder->sequence = entry->version;
    if (encoder->sequence > DW_SEQUENCE_MOST)
        dw_encoder_new_incarnation(encoder, &entry->incarnation, sizeof entry->incarnation);
    dw_held *held = dw_predictor_find(&encoder->end.predictor, entry->key);
    if (held && held->busy) {
        defer(encoder, entry, accepted);
        return;
    }
    if (!held || !dw_copy_is_held(&held->now)) return;
    if (ours && entry->chain == held->now.chain) {
        dw_predictor_confirm(&encoder->end.predictor, held);
    } else if (!accepted && ours && dw_copy_is_held(&held->undo) &&
               entry->chain == held->undo.chain) {
        if (held->base != DW_BASE_UNDO) encoder->end.counters.rebases++;
        held->base = DW_BASE_UNDO;
    } else if (!accepted) {
        held->base = DW_BASE_NOTHING;
    }
}

dw_status dw_encoder_take_reply(dw_encoder *encoder, const void *reply, size_t reply_len)
{
    dw_reply_info info;
    const char *why;
    if (!encoder) return DW_ERR_ARGUMENT;
    if (!reply) return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, "an argument is NULL");
    dw_status status = dw_reply_open(reply, reply_len, &info, &why);
    if (status) {
        snprintf(encoder->end.why.text, sizeof encoder->end.why.text,
                 "the reply cannot be read: %s", why);
        return status;
    }
    if (info.incarnation != encoder->end.incarnation)
        return DW_OK; /* a reply to an earlier incarnation says nothing about this one */
    encoder->end.counters.acks += info.accepted != 0;
    encoder->end.counters.nacks += !info.accepted;
    if (info.replaced) {
        dw_encoder_new_incarnation(encoder, reply, reply_len);
        return DW_OK;
    }
    if (info.accepted) drop_announced(encoder, info.sequence);
    for (uint32_t i = 0; i < info.n; i++) {
        dw_reply_entry entry;
        dw_reply_get_entry(reply, i, &entry);
        dw_encoder_learn(encoder, &entry, info.accepted != 0);
    }
    return DW_OK;
}
