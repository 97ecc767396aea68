/* SPDX-License-Identifier: Apache-2.0
 * decoder_commit.c - the engine's results: verified (steps 8 and 9 of docs/format.md, 2) and
 * committed (step 10). */
#include "common/tensor.h"
#include "ends/decoder.h"

static const char *bad_payload(const dw_decode_ticket *t, uint32_t i)
{
    const dw_decode_job *job = &t->in[i].job;
    if (!job->plan->form->check || t->decoder->end.engine.device) return NULL;
    return job->plan->form->check(job->plan, job->payload, job->payload_bytes);
}

/* If a state digest does not match, the copy that the delta started from is dropped: either it is
 * damaged or the two machines compute differently, and only a key frame can repair that. */
dw_status dw_incoming_verify(dw_decode_ticket *t)
{
    dw_decoder *decoder = t->decoder;
    const dw_params *params = &t->plans->params;
    dw_status status = DW_OK;
    for (uint32_t i = 0; i < t->header.n; i++)
        if (dw_digest_of_sum(t->memory.results[i].payload_sum) != t->in[i].job.payload_digest)
            return dw_decoder_fail(decoder, DW_ERR_CORRUPT,
                                   "a payload's checksum does not match: its bytes were changed on "
                                   "the way");
    for (uint32_t i = 0; i < t->header.n; i++) {
        const char *why = t->memory.results[i].bad;
        if (!why) why = bad_payload(t, i);
        if (why) return dw_decoder_fail(decoder, DW_ERR_FORMAT, why);
    }
    for (uint32_t i = 0; i < t->header.n; i++) {
        dw_incoming *p = &t->in[i];
        if (!dw_role_has_state(p->entry.role)) continue;
        p->fresh.version = t->header.sequence;
        p->fresh.chain = dw_frame_chain(&t->header, params->digest, params->kept, &p->entry);
        p->fresh.audit = params->audit;
        if (!params->audit) continue;
        p->fresh.state_digest = dw_digest_of_sum(t->memory.results[i].state_sum);
        if (p->fresh.state_digest == p->entry.state_digest) continue;
        status = DW_ERR_STATE;
        p->drops_copy = p->entry.base_chain != 0 && !t->asked.only_checks;
    }
    return status ? dw_decoder_fail(decoder, status, NULL) : DW_OK;
}

static void count(dw_decode_ticket *t)
{
    dw_counters *counters = &t->decoder->end.counters;
    uint64_t raw = 0;
    for (uint32_t i = 0; i < t->header.n; i++) {
        dw_incoming *p = &t->in[i];
        const dw_form *form = p->job.plan->form;
        counters->delta_entries += p->entry.role == DW_ROLE_DELTA;
        counters->stateless_entries += p->entry.role == DW_ROLE_STATELESS;
        counters->skipped_entries += p->entry.role == DW_ROLE_SKIP;
        counters->key_entries += p->entry.role == DW_ROLE_KEY || p->entry.role == DW_ROLE_SYNC;
        counters->resyncs += p->entry.role == DW_ROLE_SYNC;
        if (t->decoder->end.engine.device) {
            counters->groups += p->job.layout.pieces;
            counters->direct_groups += t->memory.results[i].sums.direct;
            counters->zero_groups += t->memory.results[i].sums.zero;
            counters->poisoned_groups += t->memory.results[i].sums.poisoned;
        } else if (form->count) {
            form->count(&p->job, counters);
        }
    }
    (void)dw_tensor_bytes(t->header.n, t->header.t, t->header.c, t->asked.y.dtype, &raw);
    counters->frames++;
    counters->raw_bytes += raw;
    counters->encoded_bytes += t->header.length;
}

static void begin_incarnation(dw_decoder *decoder, uint64_t incarnation)
{
    if (decoder->end.incarnation)
        decoder->retired[decoder->n_retired++ % DW_RETIRED] = decoder->end.incarnation;
    dw_predictor_retire(&decoder->end.predictor, decoder->end.incarnation);
    decoder->end.incarnation = incarnation;
    dw_predictor_remove_other_incarnations(&decoder->end.predictor, incarnation);
}

/* True if a later frame, which was finished while this one was in flight, announced the key as
 * forgotten. Then the copy that this frame brings is dropped at once, as it would be if both had
 * been finished in their order. */
static bool is_too_late(const dw_decode_ticket *t, const dw_incoming *p)
{
    bool holds = dw_copy_is_held(&p->held->now) && p->held->incarnation == t->header.incarnation;
    return (p->held->drop_when_done || !holds) &&
           dw_predictor_refuses(&t->decoder->end.predictor, t->header.incarnation,
                                t->header.sequence);
}

void dw_incoming_commit(dw_decode_ticket *t)
{
    dw_decoder *decoder = t->decoder;
    dw_held shape = {
        .t = t->header.t, .c = t->header.c, .dtype = t->prev, .incarnation = t->header.incarnation};
    bool state = false;
    count(t);
    for (uint32_t i = 0; i < t->header.n; i++) {
        dw_incoming *p = &t->in[i];
        if (!dw_role_has_state(p->entry.role)) continue;
        bool too_late = is_too_late(t, p);
        dw_paging_use(&decoder->end.predictor.paging, p->held);
        dw_predictor_commit(&decoder->end.predictor, p->held, &shape, p->fresh, false);
        if (too_late) dw_predictor_remove(&decoder->end.predictor, p->held);
        state = true;
    }
    if (t->header.n_forgotten && !dw_decoder_is_retired(decoder, t->header.incarnation))
        dw_predictor_refuse_until(&decoder->end.predictor, t->header.incarnation,
                                  t->header.sequence);
    for (uint32_t i = 0; i < t->header.n_forgotten; i++) {
        dw_held *held = dw_incoming_to_forget(t, i);
        if (held && held->busy)
            held->drop_when_done = true;
        else if (held)
            dw_predictor_remove(&decoder->end.predictor, held);
    }
    if (state && decoder->end.incarnation != t->header.incarnation)
        begin_incarnation(decoder, t->header.incarnation);
    t->n_planned = 0;
}
