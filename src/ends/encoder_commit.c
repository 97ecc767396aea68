/* SPDX-License-Identifier: Apache-2.0
 * encoder_commit.c - a frame that is done: its digests are written, and its copies installed.
 * Nothing here can fail. */
#include <string.h>

#include "codecs/residual.h"
#include "common/cpu.h"
#include "common/tensor.h"
#include "ends/encoder.h"

/* A frame on a device announces at most t->asked.most_forgotten keys, which bounds its head. */
uint64_t dw_ticket_head_most(const dw_encode_ticket *t)
{
    uint64_t bytes;
    (void)dw_frame_table_end(t->header.n_parameters, t->header.n, t->asked.most_forgotten, &bytes);
    return bytes;
}

dw_head dw_ticket_draft(dw_encode_ticket *t)
{
    dw_header *header = &t->header;
    bool audits = t->plans->params.audit != 0;
    uint64_t end;
    (void)dw_frame_table_end(header->n_parameters, header->n, header->n_forgotten, &end);
    dw_frame_put_parameters(t->memory.draft, t->plans->params.block, header->n_parameters);
    for (uint32_t i = 0; i < header->n; i++) {
        dw_entry entry = t->out[i].entry;
        entry.payload_digest = 1;
        entry.state_digest = audits && dw_role_has_state(entry.role);
        dw_frame_put_entry(t->memory.draft, header, i, &entry);
    }
    for (uint32_t i = 0; i < header->n_forgotten; i++)
        dw_frame_put_forgotten(t->memory.draft, header, i, t->announced[i].key);
    dw_frame_finalize(t->memory.draft, header);
    return (dw_head){.draft = t->memory.draft,
                     .bytes = end,
                     .most = dw_ticket_head_most(t),
                     .entries = dw_frame_tables(header->n_parameters),
                     .frame = t->asked.frame,
                     .first = t->flight.first,
                     .n = header->n};
}

/* A stage behind the form may have made payloads shorter than planned: they are moved together. A
 * device has done so already. */
void dw_ticket_close_gaps(dw_encode_ticket *t)
{
    uint64_t end = t->out[0].entry.payload_offset;
    for (uint32_t i = 0; i < t->header.n; i++) {
        dw_entry *entry = &t->out[i].entry;
        if (t->memory.results[i].payload_bytes)
            entry->payload_bytes = t->memory.results[i].payload_bytes;
        if (entry->payload_offset != end && !t->encoder->end.engine.device)
            memmove(t->asked.frame + end, t->asked.frame + entry->payload_offset,
                    entry->payload_bytes);
        entry->payload_offset = end;
        end += entry->payload_bytes;
    }
    t->header.length = end;
}

static void seal_entry(dw_encode_ticket *t, uint32_t i, uint8_t *head)
{
    dw_outgoing *p = &t->out[i];
    const dw_params *params = &t->plans->params;
    bool has_state = dw_role_has_state(p->entry.role);
    bool is_empty = p->entry.role == DW_ROLE_SKIP;
    p->entry.payload_digest = is_empty ? 0 : dw_digest_of_sum(t->memory.results[i].payload_sum);
    p->entry.state_digest =
        has_state && params->audit ? dw_digest_of_sum(t->memory.results[i].state_sum) : 0;
    if (has_state) {
        p->fresh.version = t->header.sequence;
        p->fresh.state_digest = p->entry.state_digest;
        p->fresh.audit = params->audit;
        p->fresh.chain = dw_frame_chain(&t->header, params->digest, params->kept, &p->entry);
    }
    dw_frame_put_entry(head, &t->header, i, &p->entry);
}

void dw_ticket_finalize(dw_encode_ticket *t, uint8_t *head)
{
    dw_frame_put_parameters(head, t->plans->params.block, t->header.n_parameters);
    for (uint32_t i = 0; i < t->header.n; i++) {
        dw_sums_add(&t->sums, &t->memory.results[i].sums);
        seal_entry(t, i, head);
    }
    for (uint32_t i = 0; i < t->header.n_forgotten; i++)
        dw_frame_put_forgotten(head, &t->header, i, t->announced[i].key);
    dw_frame_finalize(head, &t->header);
}

static void count(dw_encode_ticket *t)
{
    dw_counters *counters = &t->encoder->end.counters;
    uint64_t raw = 0;
    dw_cpu_mode mode = dw_cpu_enter_exact(); /* the counters' sums are rounded in this mode, too */
    for (uint32_t i = 0; i < t->header.n; i++) {
        dw_role role = t->out[i].entry.role;
        counters->delta_entries += role == DW_ROLE_DELTA;
        counters->key_entries += role == DW_ROLE_KEY || role == DW_ROLE_SYNC;
        counters->stateless_entries += role == DW_ROLE_STATELESS;
        counters->skipped_entries += role == DW_ROLE_SKIP;
        counters->resyncs += role == DW_ROLE_SYNC;
    }
    if (t->asked.has_x)
        (void)dw_tensor_bytes(t->asked.x.n, t->asked.x.t, t->asked.x.c, t->asked.x.dtype, &raw);
    counters->raw_bytes += raw;
    counters->frames++;
    counters->encoded_bytes += t->header.length;
    counters->groups += t->sums.pieces;
    counters->direct_groups += t->sums.direct;
    counters->zero_groups += t->sums.zero;
    counters->poisoned_groups += t->sums.poisoned;
    counters->escaped_values += t->sums.escaped;
    counters->overflowed_values += t->sums.overflowed;
    counters->x_square += t->sums.x_square;
    counters->delta_square += t->sums.delta_square;
    counters->error_square += t->sums.error_square;
    counters->measured_rows += t->sums.rows;
    counters->row_error_sum += t->sums.row_error;
    counters->bulk_error_sum += t->sums.bulk_error;
    if (t->sums.row_error_largest > counters->row_error_largest)
        counters->row_error_largest = t->sums.row_error_largest;
    dw_cpu_leave_exact(mode);
}

/* Tells the control of the rate how long a finished frame has become. Frames of sync entries alone,
 * which are not made of an x, do not count. */
static void learn_rate(const dw_encode_ticket *t)
{
    const dw_header *header = &t->header;
    bool is_coded = false;
    if (!t->asked.has_x) return;
    for (uint32_t i = 0; i < header->n; i++)
        is_coded = is_coded || t->out[i].entry.role != DW_ROLE_SKIP;
    dw_cpu_mode mode = dw_cpu_enter_exact();
    double elements = (double)header->n * header->t * header->c;
    dw_rate_learn(&t->encoder->rate, &t->plans->params, 8 * (double)header->length / elements,
                  is_coded);
    dw_cpu_leave_exact(mode);
}

/* Installs a new residual, and notes which frames can be given back (encoder_residual.c): those
 * from number `chain` to number `version`. */
static void commit_residual(dw_encode_ticket *t, dw_outgoing *p, const dw_held *shape)
{
    uint32_t decay = t->plans->params.decay;
    if (decay != DW_DECAY_NONE) {
        dw_cpu_mode mode = dw_cpu_enter_exact();
        dw_residual_fade(p->fresh.data, (uint64_t)t->header.t * t->header.c, decay);
        dw_cpu_leave_exact(mode);
    }
    bool continues = p->base && p->held->incarnation == t->header.incarnation;
    p->fresh.version = t->header.sequence;
    p->fresh.chain = continues ? p->base->chain : t->header.sequence;
    dw_predictor_commit(&t->encoder->end.predictor, p->held, shape, p->fresh, false);
}

static void commit_entry(dw_encode_ticket *t, dw_outgoing *p)
{
    dw_predictor *predictor = &t->encoder->end.predictor;
    const dw_params *params = &t->plans->params;
    dw_held shape = {.t = t->header.t,
                     .c = t->header.c,
                     .dtype = dw_ticket_dtype(t),
                     .more = dw_ticket_kept_bytes(t),
                     .incarnation = t->header.incarnation};
    if (p->entry.role == DW_ROLE_SYNC && !t->asked.has_x) { /* the entry carries a copy that was
                                                         held before */
        p->held->now = p->fresh;
        p->held->base = DW_BASE_NOW;
        p->held->incarnation = t->header.incarnation;
    } else if (params->keeps_residual && p->fresh.data) {
        commit_residual(t, p, &shape);
    } else if (dw_role_has_state(p->entry.role)) {
        dw_predictor_commit(predictor, p->held, &shape, p->fresh, params->wants_reply);
    } else if (p->added) { /* stateless for lack of room: nothing is held of this new key */
        dw_predictor_remove(predictor, p->held);
    } else if (p->revived) { /* stateless, too: the key has no copies and is forgotten again */
        dw_predictor_forget(predictor, p->held);
    }
}

static void apply_deferred_replies(dw_encode_ticket *t)
{
    for (uint32_t i = 0; i < t->header.n; i++)
        if (t->out[i].is_deferred)
            dw_encoder_learn(t->encoder, &t->out[i].deferred, t->out[i].deferred_accepted);
}

/* The records of keys that the frame announces as forgotten are removed when its reply arrives, or
 * at once where the decoder sends no replies. */
void dw_ticket_commit(dw_encode_ticket *t)
{
    dw_predictor *predictor = &t->encoder->end.predictor;
    dw_ticket_close(t);
    for (uint32_t i = 0; i < t->header.n_forgotten && !t->plans->params.wants_reply; i++) {
        dw_held *held = dw_ticket_still_announced(t, i);
        if (held) dw_predictor_remove(predictor, held);
    }
    for (uint32_t i = 0; i < t->header.n; i++) commit_entry(t, &t->out[i]);
    count(t);
    learn_rate(t);
    apply_deferred_replies(t);
}
