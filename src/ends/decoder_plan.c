/* SPDX-License-Identifier: Apache-2.0
 * decoder_plan.c - compares a frame's entries with what is held of their keys: steps 6 and 7 of
 * docs/format.md, 2. */
#include "ends/decoder.h"

#include <string.h>

#include "common/tensor.h"

static uint64_t copy_bytes(const dw_decode_ticket *t)
{
    return dw_prev_bytes(t->prev, (uint64_t)t->header.t * t->header.c);
}

static bool is_based(const dw_incoming *p)
{
    return p->entry.role == DW_ROLE_DELTA || p->entry.role == DW_ROLE_SKIP;
}

/* Is this entry the next one of its key? */
static dw_status check_step(const dw_decode_ticket *t, const dw_incoming *p)
{
    const dw_held *held = p->held;
    const dw_header *header = &t->header;
    bool holds = dw_copy_is_held(&held->now);
    bool same_incarnation = holds && held->incarnation == header->incarnation;
    if (dw_decoder_is_retired(t->decoder, header->incarnation)) return DW_ERR_STALE;
    if (same_incarnation && header->sequence <= held->now.version) return DW_ERR_STALE;
    if (!is_based(p))
        return !same_incarnation && dw_predictor_refuses(&t->decoder->end.predictor,
                                                         header->incarnation, header->sequence)
                   ? DW_ERR_STALE
                   : DW_OK;
    if (!same_incarnation || held->now.chain != p->entry.base_chain) return DW_ERR_BASE;
    return held->t == header->t && held->c == header->c && held->dtype == t->prev ? DW_OK
                                                                                  : DW_ERR_BASE;
}

/* Finds the key of an entry with state. A new key is added now, so that nothing can fail later. */
static dw_status find_key(dw_decode_ticket *t, dw_incoming *p)
{
    dw_decoder *decoder = t->decoder;
    p->held = dw_predictor_find(&decoder->end.predictor, p->entry.key);
    if (!p->held) {
        dw_status status = dw_predictor_add(&decoder->end.predictor, p->entry.key, &p->held);
        if (status) return dw_decoder_fail(decoder, status, NULL);
        p->added = true;
    }
    if (p->held->mark == decoder->calls)
        return dw_decoder_fail(decoder, DW_ERR_FORMAT, "the frame names a key twice");
    if (p->held->busy) {
        p->held = NULL; /* so that dropping this frame does not touch the other frame's key */
        return dw_decoder_fail(decoder, DW_ERR_ARGUMENT,
                               "a key is in a frame that is still in flight: finish or cancel that "
                               "frame first");
    }
    dw_paging_mark(&decoder->end.predictor.paging, p->held, decoder->calls);
    return DW_OK;
}

dw_status dw_incoming_plan(dw_decode_ticket *t)
{
    dw_decoder *decoder = t->decoder;
    const dw_header *header = &t->header;
    uint64_t at = 0;
    t->n_planned = 0;
    t->growth = 0;
    if (!dw_end_grow(&decoder->end, &t->in, &t->in_cap, header->n, sizeof *t->in))
        return dw_decoder_fail(decoder, DW_ERR_NO_MEMORY, NULL);
    (void)dw_frame_table_end(header->n_parameters, header->n, header->n_forgotten, &at);
    for (uint32_t i = 0; i < header->n; i++) {
        dw_incoming *p = &t->in[i];
        memset(p, 0, sizeof *p);
        t->n_planned = i + 1;
        dw_frame_get_entry(t->asked.frame, header, i, &p->entry);
        p->entry.payload_offset = at;
        at += p->entry.payload_bytes;
        dw_status status = dw_role_has_state(p->entry.role) ? find_key(t, p) : DW_OK;
        if (status) return status;
    }
    for (uint32_t i = 0; i < header->n_forgotten; i++) {
        dw_held *held = dw_predictor_find(&decoder->end.predictor,
                                          dw_frame_get_forgotten(t->asked.frame, header, i));
        if (held && held->mark == decoder->calls)
            return dw_decoder_fail(decoder, DW_ERR_FORMAT,
                                   "the frame forgets a key that it carries");
    }
    return DW_OK;
}

dw_held *dw_incoming_to_forget(const dw_decode_ticket *t, uint32_t i)
{
    dw_held *held = dw_predictor_find(&t->decoder->end.predictor,
                                      dw_frame_get_forgotten(t->asked.frame, &t->header, i));
    bool older = held && held->incarnation == t->header.incarnation &&
                 held->now.version < t->header.sequence;
    return older ? held : NULL;
}

/* The bytes of quota that become free. A key that is named twice counts once. */
static uint64_t bytes_to_forget(const dw_decode_ticket *t)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < t->header.n_forgotten; i++) {
        dw_held *held = dw_incoming_to_forget(t, i);
        if (!held || held->mark == t->decoder->calls) continue;
        held->mark = t->decoder->calls;
        bytes += held->counted;
    }
    return bytes;
}

dw_decode_job dw_incoming_job(const dw_decode_ticket *t, uint32_t i)
{
    const dw_incoming *p = &t->in[i];
    const dw_plan *plan = &t->plans->of[p->entry.use];
    uint32_t every = p->fresh.data ? t->plans->params.audit : 0;
    uint64_t y_bytes = 0;
    (void)dw_tensor_bytes(t->header.n, t->header.t, t->header.c, t->asked.y.dtype, &y_bytes);
    dw_decode_job job = {.layout = plan->layout,
                         .payload = t->asked.body + p->entry.payload_offset,
                         .prev = is_based(p) ? p->held->now.data : NULL,
                         .next = p->fresh.data,
                         .prev_dtype = dw_prev_dtype(t->prev),
                         .y = t->asked.y.data ? dw_tensor_sample(&t->asked.y, i) : NULL,
                         .y_dtype = t->asked.y.dtype,
                         .stride = t->asked.y.stride_t,
                         .audit = dw_audit_of(every, p->entry.key, t->header.sequence),
                         .is_exact = p->entry.role == DW_ROLE_STATELESS,
                         .channels = dw_end_channels(&t->decoder->end, plan->params.profile),
                         .wire_dtype = plan->params.dtype,
                         .adds = t->asked.adds,
                         .bypasses_caches = t->asked.bypasses_caches ||
                                            y_bytes >= t->decoder->end.engine.past_from,
                         .factor = t->asked.factor,
                         .payload_bytes = p->entry.payload_bytes,
                         .payload_digest = p->entry.role == DW_ROLE_SKIP ? dw_digest_of_sum(0)
                                                                         : p->entry.payload_digest,
                         .plan = plan,
                         .kernels = dw_engine_kernels(&t->decoder->end.engine)};
    if (plan->draws) job.draws_key = dw_shared_draws_key(&t->header, p->entry.key);
    return job;
}

/* Makes the copies that the frame's changes start from resident. One that is lost is dropped, as if
 * it had been damaged in memory: the frame is refused with BASE, and its reply asks for x itself.
 */
static dw_status page_in(dw_decode_ticket *t)
{
    dw_decoder *decoder = t->decoder;
    dw_predictor *predictor = &decoder->end.predictor;
    bool lost = false;
    for (uint32_t i = 0; i < t->header.n && predictor->paging.backing.prefetch; i++)
        if (is_based(&t->in[i])) dw_paging_prefetch(&predictor->paging, t->in[i].held);
    for (uint32_t i = 0; i < t->header.n; i++) {
        dw_incoming *p = &t->in[i];
        if (!is_based(p)) continue;
        dw_status status = dw_predictor_page_in(predictor, p->held, &p->held->now);
        if (status) return dw_end_fail_paging(&decoder->end, status);
        if (p->held->now.data) continue;
        p->drops_copy = lost = true;
    }
    return lost ? dw_decoder_fail(decoder, DW_ERR_BASE,
                                  "the copy that a change starts from was lost in the backing "
                                  "store")
                : DW_OK;
}

/* Checks that every entry with state is the next one of its key, checks the quota, and takes slots
 * for the new copies. A frame of another incarnation will replace all copies that are held, so
 * these do not count in the quota any more. If entries are not the next ones of their keys, the
 * error is BASE if it is that of any entry, else STALE. */
dw_status dw_incoming_admit(dw_decode_ticket *t)
{
    dw_decoder *decoder = t->decoder;
    dw_predictor *predictor = &decoder->end.predictor;
    dw_status worst = DW_OK;
    bool is_new_incarnation =
        t->plans->params.keeps_prev && decoder->end.incarnation != t->header.incarnation;
    uint64_t kept = is_new_incarnation ? 0 : predictor->held_bytes - bytes_to_forget(t);
    uint64_t before = kept + predictor->reserved_bytes, used = before, bytes = copy_bytes(t);
    for (uint32_t i = 0; i < t->header.n; i++) {
        if (!dw_role_has_state(t->in[i].entry.role)) continue;
        dw_status status = check_step(t, &t->in[i]);
        if (status < worst) worst = status; /* BASE is the smaller number */
    }
    if (worst) return dw_decoder_fail(decoder, worst, NULL);
    worst = page_in(t);
    if (worst) return worst;
    for (uint32_t i = 0; i < t->header.n; i++) {
        dw_incoming *p = &t->in[i];
        if (!dw_role_has_state(p->entry.role)) continue;
        uint64_t have = is_new_incarnation ? 0 : p->held->counted,
                 growth = bytes > have ? bytes - have : 0;
        dw_status status = dw_predictor_take(predictor, bytes, growth, &used, &p->fresh.data);
        if (status == DW_ERR_LIMIT)
            return dw_decoder_fail(decoder, status,
                                   "quota_bytes is used up: configure the same quota at both ends");
        if (status) return dw_end_fail_paging(&decoder->end, status);
    }
    t->growth = used - before;
    return DW_OK;
}

void dw_incoming_drop(dw_decode_ticket *t)
{
    dw_decoder *decoder = t->decoder;
    uint64_t bytes = copy_bytes(t);
    for (uint32_t i = t->n_planned; i-- > 0;) {
        dw_incoming *p = &t->in[i];
        dw_predictor_give(&decoder->end.predictor, p->fresh.data, bytes);
        if (p->drops_copy)
            dw_predictor_drop(&decoder->end.predictor, p->held);
        else if (p->added || (p->held && p->held->drop_when_done))
            dw_predictor_remove(&decoder->end.predictor, p->held);
    }
    t->n_planned = 0;
}
