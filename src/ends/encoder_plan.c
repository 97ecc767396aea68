/* SPDX-License-Identifier: Apache-2.0
 * encoder_plan.c - what a frame will carry and where: all that can fail. */
#include <string.h>

#include "encoder.h"
#include "tensor.h"

void dw_draft_describe(dw_draft *d, uint32_t n, uint32_t t, uint32_t c, dw_dtype x)
{
    const dw_encoder *encoder = d->encoder;
    d->info = (dw_frame_info){.codec = d->params.codec,
                              .incarnation = encoder->incarnation,
                              .sequence = encoder->sequence + 1,
                              .n = n,
                              .t = t,
                              .c = c,
                              .x = x,
                              .prev = d->params.prev,
                              .bits = d->params.bits,
                              .key = d->params.key,
                              .group = d->params.group,
                              .chooses = d->params.chooses,
                              .wants_reply = d->params.wants_reply,
                              .audit = d->params.audit};
}

/* The kinds of entries that carry x itself. */
static dw_entry_kind stateless_kind(const dw_draft *d)
{
    return dw_dtype_of(d->info.key) ? DW_ENTRY_RAW : DW_ENTRY_DIRECT;
}

static dw_entry_kind key_kind(const dw_draft *d)
{
    return dw_dtype_of(d->info.key) ? DW_ENTRY_KEY_RAW : DW_ENTRY_KEY;
}

/* Finds or adds the key of sample i and takes a slot for its next prev: all that can fail. */
static dw_status plan_state(dw_draft *d, dw_outgoing *p, uint64_t *used)
{
    dw_encoder *encoder = d->encoder;
    uint64_t bytes = (uint64_t)d->info.t * d->info.c * dw_dtype_bytes(d->info.prev);
    dw_held *held = dw_predictor_find(&encoder->predictor, p->entry.key);
    if (!held) {
        dw_status status = dw_predictor_add(&encoder->predictor, p->entry.key, &held);
        if (status) return dw_encoder_fail(encoder, status, NULL);
        p->added = true;
    }
    p->held = held;
    if (held->mark == encoder->calls)
        return dw_encoder_fail(encoder, DW_ERR_ARGUMENT,
                               "two samples of one call have the same key");
    if (held->busy)
        return dw_encoder_fail(
            encoder, DW_ERR_ARGUMENT,
            "a key is in a frame that is still in flight: finish or cancel that frame first");
    held->mark = encoder->calls;
    uint64_t growth = bytes > held->counted ? bytes - held->counted : 0;
    dw_status status = dw_predictor_take(&encoder->predictor, bytes, growth, used, &p->fresh.data);
    if (status == DW_ERR_LIMIT) { /* a full quota sends stateless, it never fails */
        p->entry.kind = stateless_kind(d);
        return DW_OK;
    }
    if (status) return dw_encoder_fail(encoder, status, NULL);
    const dw_copy *base = held->base == DW_BASE_NOW    ? &held->now
                          : held->base == DW_BASE_UNDO ? &held->undo
                                                       : NULL;
    bool same = held->t == d->info.t && held->c == d->info.c && held->dtype == d->info.prev &&
                held->incarnation == encoder->incarnation;
    bool delta = base && base->data && same;
    p->entry.kind = delta ? DW_ENTRY_DELTA : key_kind(d);
    p->base = delta ? base : NULL;
    p->entry.base_chain = delta ? base->chain : 0;
    return DW_OK;
}

/* Gives back what plan_state took, for samples [0, n). */
void dw_draft_unplan(dw_draft *d, uint32_t n)
{
    dw_encoder *encoder = d->encoder;
    uint64_t bytes = (uint64_t)d->info.t * d->info.c * dw_dtype_bytes(d->info.prev);
    for (uint32_t i = n; i-- > 0;) {
        dw_outgoing *p = &d->plans[i];
        dw_predictor_give(&encoder->predictor, p->fresh.data, bytes);
        if (p->added) dw_predictor_remove(&encoder->predictor, p->held);
    }
}

dw_status dw_draft_plan(dw_draft *d, dw_outgoing **plans, uint64_t *cap)
{
    dw_encoder *encoder = d->encoder;
    uint64_t before = encoder->predictor.held_bytes + encoder->predictor.reserved_bytes,
             used = before;
    encoder->calls++;
    void *grown = *plans;
    if (!dw_mem_grow(&encoder->allocator, &grown, cap, d->info.n, sizeof(dw_outgoing)))
        return dw_encoder_fail(encoder, DW_ERR_NO_MEMORY, NULL);
    *plans = d->plans = grown;
    for (uint32_t i = 0; i < d->info.n; i++) {
        dw_outgoing *p = &d->plans[i];
        memset(p, 0, sizeof *p);
        p->entry.key = d->keys[i];
        p->entry.kind = d->info.codec == DW_CODEC_RAW ? DW_ENTRY_RAW : DW_ENTRY_DIRECT;
        dw_status status = d->info.codec == DW_CODEC_DELTA ? plan_state(d, p, &used) : DW_OK;
        if (status) {
            dw_draft_unplan(d, i + 1);
            return status;
        }
    }
    d->growth = used - before;
    return DW_OK;
}

/* A telling whose frame was not answered for so many frames is taken for lost. */
enum { TELL_AGAIN_AFTER = 32 };

/* The next key at or behind `from` that this frame is to tell of: not one that it carries, nor one
 * told lately. */
dw_held *dw_draft_next_to_tell(const dw_draft *d, dw_held *from)
{
    for (; from; from = from->newer) {
        bool lately = from->told && d->info.sequence - from->told < TELL_AGAIN_AFTER;
        if (from->mark != d->encoder->calls && !from->busy && !lately) return from;
    }
    return NULL;
}

/* Places the payloads and sees that all of it fits; forgotten keys travel where there is room. */
dw_status dw_draft_lay_out(dw_draft *d, size_t cap, uint64_t *total)
{
    dw_encoder *encoder = d->encoder;
    uint64_t end, payload = 0, bytes;
    if (!dw_frame_table_end(d->info.n, 0, &end))
        return dw_encoder_fail(encoder, DW_ERR_LIMIT, NULL);
    for (uint32_t i = 0; i < d->info.n; i++) {
        dw_outgoing *p = &d->plans[i];
        if (!dw_frame_payload_bytes(&d->info, p->entry.kind, &bytes))
            return dw_encoder_fail(encoder, DW_ERR_LIMIT, NULL);
        p->entry.payload_bytes = bytes;
        if (!dw_size_add(payload, bytes, &payload))
            return dw_encoder_fail(encoder, DW_ERR_LIMIT, NULL);
    }
    if (!dw_size_add(end, payload, total) || *total > cap)
        return dw_encoder_fail(
            encoder, DW_ERR_NO_ROOM,
            "the frame does not fit: dw_frame_bound tells the room that is enough");
    if (d->info.codec == DW_CODEC_DELTA) {
        dw_held *tell = dw_draft_next_to_tell(d, encoder->predictor.oldest_forgotten);
        for (; tell && d->info.n_forgotten < d->most_forgotten;
             tell = dw_draft_next_to_tell(d, tell->newer)) {
            if (!dw_frame_table_end(d->info.n, d->info.n_forgotten + 1, &bytes) ||
                bytes + payload > cap)
                break;
            d->info.n_forgotten++;
        }
    }
    (void)dw_frame_table_end(d->info.n, d->info.n_forgotten, &end);
    d->info.payload_bytes = payload;
    *total = end + payload;
    for (uint32_t i = 0; i < d->info.n; i++) {
        d->plans[i].entry.payload_offset = end;
        end += d->plans[i].entry.payload_bytes;
    }
    return DW_OK;
}

/* Another number for every visit of every key, so that what rounding adds to one has nothing to do
 * with another. */
static uint64_t dither_key(const dw_draft *d, dw_key key)
{
    uint64_t words[4] = {d->encoder->config.seed, key.sample, key.slice, d->info.sequence};
    uint8_t bytes[sizeof words];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(words[i / 8] >> (8 * (i % 8)));
    return dw_digest_bytes(bytes, sizeof bytes);
}

/* What recorded activations and gradients lost least with, at the price of absmax (bench/README.md,
 * Scales). One bit wants a search; and only absmax has a level for every value, which stochastic
 * rounding needs to be right on average. */
static dw_scale default_scale(uint32_t bits, bool is_stochastic)
{
    return is_stochastic ? DW_SCALE_ABSMAX : bits == 1 ? DW_SCALE_MSE : DW_SCALE_SIGNED;
}

dw_encode_job dw_draft_job(const dw_draft *d, const dw_outgoing *p, uint32_t i)
{
    dw_encode_job job = {.rule = {d->params.scale, d->params.is_stochastic, 0},
                         .x = dw_tensor_sample(d->x, i),
                         .x_dtype = d->x->dtype,
                         .stride = d->x->stride_t,
                         .prev = p->base ? p->base->data : NULL,
                         .next = p->fresh.data,
                         .prev_dtype = d->info.prev,
                         .payload = d->frame + p->entry.payload_offset,
                         .audit = {p->fresh.data ? d->info.audit : 0, d->info.sequence}};
    if (job.rule.is_stochastic) job.rule.dither_key = dither_key(d, p->entry.key);
    (void)dw_frame_layout(&d->info, p->entry.kind, &job.layout);
    if (!job.rule.scale) job.rule.scale = default_scale(job.layout.bits, d->params.is_stochastic);
    return job;
}
