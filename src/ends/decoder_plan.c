/* SPDX-License-Identifier: Apache-2.0
 * decoder_plan.c - what a frame wants of what is held: all that can be refused before its payloads
 * are read. */
#include <string.h>

#include "decoder.h"
#include "params.h"
#include "tensor.h"

/* Steps 4 and 5 of docs/format.md, 2. */
dw_status dw_arrival_agrees(dw_arrival *a)
{
    dw_decoder *decoder = a->decoder;
    const dw_frame_info *info = &a->info;
    const dw_tensor *y = a->y;
    dw_params params;
    dw_status status = dw_params_resolve(&params, &decoder->config, info->x);
    if (status) return dw_decoder_fail(decoder, status, NULL);
    if (params.codec != info->codec || params.bits != info->bits || params.group != info->group ||
        params.key != info->key || params.prev != info->prev ||
        params.chooses != (info->chooses != 0) || params.audit != info->audit)
        return dw_decoder_fail(decoder, DW_ERR_MISMATCH,
                               "the frame was encoded with another config: give both ends the same "
                               "codec, bits, group, key, prev, "
                               "choose and audit");
    if (info->n != y->n || info->t != y->t || info->c != y->c) {
        snprintf(decoder->why.text, sizeof decoder->why.text,
                 "the frame carries (%u, %u, %u) but y is (%u, %u, %u)", (unsigned)info->n,
                 (unsigned)info->t, (unsigned)info->c, (unsigned)y->n, (unsigned)y->t,
                 (unsigned)y->c);
        return DW_ERR_SHAPE;
    }
    return DW_OK;
}

/* Step 7: is this entry the next one of its key? */
static dw_status check_step(const dw_arrival *a, const dw_incoming *p)
{
    const dw_held *held = p->held;
    const dw_frame_info *info = &a->info;
    bool holds = held->now.data != NULL,
         same_life = holds && held->incarnation == info->incarnation;
    if (dw_decoder_is_retired(a->decoder, info->incarnation)) return DW_ERR_STALE;
    if (same_life && info->sequence <= held->now.version) return DW_ERR_STALE;
    if (p->entry.kind != DW_ENTRY_DELTA) return DW_OK;
    if (!same_life || held->now.chain != p->entry.base_chain) return DW_ERR_BASE;
    return held->t == info->t && held->c == info->c && held->dtype == info->prev ? DW_OK
                                                                                 : DW_ERR_BASE;
}

/* Looks the keys up and finds the payloads. Keys that are new are added now, so that nothing can
 * fail later. */
dw_status dw_arrival_plan(dw_arrival *a, dw_incoming **plans, uint64_t *cap)
{
    dw_decoder *decoder = a->decoder;
    uint64_t at = 0;
    void *grown = *plans;
    if (!dw_mem_grow(&decoder->allocator, &grown, cap, a->info.n, sizeof(dw_incoming)))
        return dw_decoder_fail(decoder, DW_ERR_NO_MEMORY, NULL);
    *plans = a->plans = grown;
    (void)dw_frame_table_end(a->info.n, a->info.n_forgotten, &at);
    for (uint32_t i = 0; i < a->info.n; i++) {
        dw_incoming *p = &a->plans[i];
        memset(p, 0, sizeof *p);
        a->n_planned = i + 1;
        dw_frame_get_entry(a->frame, i, &p->entry);
        (void)dw_frame_payload_bytes(&a->info, p->entry.kind, &p->entry.payload_bytes);
        p->entry.payload_offset = at;
        at += p->entry.payload_bytes;
        if (!dw_kind_has_state(p->entry.kind)) continue;
        p->held = dw_predictor_find(&decoder->predictor, p->entry.key);
        if (!p->held) {
            dw_status status = dw_predictor_add(&decoder->predictor, p->entry.key, &p->held);
            if (status) return dw_decoder_fail(decoder, status, NULL);
            p->added = true;
        }
        if (p->held->mark == decoder->calls)
            return dw_decoder_fail(decoder, DW_ERR_FORMAT, "the frame names a key twice");
        if (p->held->busy) {
            p->held = NULL; /* nothing of it is this frame's to give up */
            return dw_decoder_fail(
                decoder, DW_ERR_ARGUMENT,
                "a key is in a frame that is still in flight: finish or cancel that frame first");
        }
        p->held->mark = decoder->calls;
    }
    for (uint32_t i = 0; i < a->info.n_forgotten; i++) {
        dw_held *held =
            dw_predictor_find(&decoder->predictor, dw_frame_get_forgotten(a->frame, a->info.n, i));
        if (held && held->mark == decoder->calls)
            return dw_decoder_fail(decoder, DW_ERR_FORMAT,
                                   "the frame forgets a key that it carries");
    }
    return DW_OK;
}

/* What is held of a key that the frame tells to forget, NULL where the telling is too old for it.
 */
dw_held *dw_arrival_to_forget(const dw_arrival *a, uint32_t i)
{
    dw_held *held =
        dw_predictor_find(&a->decoder->predictor, dw_frame_get_forgotten(a->frame, a->info.n, i));
    bool older =
        held && held->incarnation == a->info.incarnation && held->now.version < a->info.sequence;
    return older ? held : NULL;
}

/* A key may be named twice; it counts once. */
static uint64_t bytes_to_forget(const dw_arrival *a)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < a->info.n_forgotten; i++) {
        dw_held *held = dw_arrival_to_forget(a, i);
        if (!held || held->mark == a->decoder->calls) continue;
        held->mark = a->decoder->calls;
        bytes += held->counted;
    }
    return bytes;
}

dw_decode_job dw_arrival_job(const dw_arrival *a, const dw_incoming *p, uint32_t i)
{
    bool delta = p->entry.kind == DW_ENTRY_DELTA;
    dw_decode_job job = {.payload = a->body + p->entry.payload_offset,
                         .prev = delta ? p->held->now.data : NULL,
                         .next = p->fresh.data,
                         .prev_dtype = a->info.prev,
                         .y = a->y->data ? dw_tensor_sample(a->y, i) : NULL,
                         .y_dtype = a->y->dtype,
                         .stride = a->y->stride_t,
                         .audit = {p->fresh.data ? a->info.audit : 0, a->info.sequence}};
    (void)dw_frame_layout(&a->info, p->entry.kind, &job.layout);
    return job;
}

/* Step 7, and the slots. A frame of another life replaces all that is held, which then takes
 * nothing of the quota. The first entry that is out of step names the status: BASE before STALE. */
dw_status dw_arrival_admit(dw_arrival *a)
{
    dw_decoder *decoder = a->decoder;
    dw_status worst = DW_OK;
    bool new_life = a->info.codec == DW_CODEC_DELTA && decoder->incarnation != a->info.incarnation;
    uint64_t before = (new_life ? 0 : decoder->predictor.held_bytes - bytes_to_forget(a)) +
                      decoder->predictor.reserved_bytes,
             used = before;
    uint64_t bytes = (uint64_t)a->info.t * a->info.c * dw_dtype_bytes(a->info.prev);
    for (uint32_t i = 0; i < a->info.n; i++) {
        if (!dw_kind_has_state(a->plans[i].entry.kind)) continue;
        dw_status status = check_step(a, &a->plans[i]);
        if (status < worst) worst = status; /* BASE is below STALE */
    }
    if (worst) return dw_decoder_fail(decoder, worst, NULL);
    for (uint32_t i = 0; i < a->info.n; i++) {
        dw_incoming *p = &a->plans[i];
        if (!dw_kind_has_state(p->entry.kind)) continue;
        uint64_t have = new_life ? 0 : p->held->counted, growth = bytes > have ? bytes - have : 0;
        dw_status status =
            dw_predictor_take(&decoder->predictor, bytes, growth, &used, &p->fresh.data);
        if (status)
            return dw_decoder_fail(decoder, status,
                                   status == DW_ERR_LIMIT
                                       ? "quota_bytes is full: give both ends the same quota"
                                       : NULL);
        p->job.next = p->fresh.data;
        p->job.audit.every = a->info.audit;
    }
    a->growth = used - before;
    return DW_OK;
}

void dw_arrival_give_up(dw_arrival *a)
{
    dw_decoder *decoder = a->decoder;
    uint64_t bytes = (uint64_t)a->info.t * a->info.c * dw_dtype_bytes(a->info.prev);
    for (uint32_t i = a->n_planned; i-- > 0;) {
        dw_incoming *p = &a->plans[i];
        dw_predictor_give(&decoder->predictor, p->fresh.data, bytes);
        if (p->added || p->gives_up || (p->held && p->held->doomed))
            dw_predictor_remove(&decoder->predictor, p->held);
    }
}
