/* SPDX-License-Identifier: Apache-2.0
 * encoder_plan.c - decides what a frame will carry, and where: all that can fail. */
#include "ends/encoder.h"

#include <string.h>

#include "codecs/skip.h"
#include "codecs/tolerance.h"
#include "common/tensor.h"

static const dw_plan *plan_of(const dw_encode_ticket *t, dw_use use)
{
    return &t->plans->of[use];
}

static void become(dw_outgoing *p, const dw_encode_ticket *t, dw_role role, dw_use use)
{
    p->entry.role = role;
    p->entry.use = use;
    p->entry.form = (uint8_t)plan_of(t, use)->form->wire;
}

static uint64_t values_bytes(const dw_encode_ticket *t)
{
    return dw_prev_bytes(dw_ticket_dtype(t), (uint64_t)t->header.t * t->header.c);
}

static uint64_t copy_bytes(const dw_encode_ticket *t)
{
    return values_bytes(t) + dw_ticket_kept_bytes(t);
}

static bool is_same_shape(const dw_encode_ticket *t, const dw_held *held)
{
    return held->t == t->header.t && held->c == t->header.c && held->dtype == dw_ticket_dtype(t);
}

/* Finds or adds the key of sample i and takes a slot for its new copy, or for its new residual.
 * With a full quota, which is no error, there is no slot: the sample is sent stateless. */
static dw_status take_slot(dw_encode_ticket *t, uint32_t i, uint64_t *used)
{
    dw_encoder *encoder = t->encoder;
    dw_outgoing *p = &t->out[i];
    uint64_t bytes = copy_bytes(t);
    dw_key key = dw_encoder_held_key(encoder, p->entry.key, i);
    dw_held *held = dw_predictor_find(&encoder->end.predictor, key);
    if (!held) {
        dw_status status = dw_predictor_add(&encoder->end.predictor, key, &held);
        if (status) return dw_encoder_fail(encoder, status, NULL);
        p->added = true;
    }
    p->held = held;
    if (held->mark == encoder->calls)
        return dw_encoder_fail(encoder, DW_ERR_ARGUMENT,
                               "two samples of one call have the same key");
    if (held->busy)
        return dw_encoder_fail(encoder, DW_ERR_ARGUMENT,
                               "a key is in a frame that is still in flight: finish or cancel that "
                               "frame first");
    dw_paging_mark(&encoder->end.predictor.paging, held, encoder->calls);
    dw_copy *base = held->base == DW_BASE_UNDO ? &held->undo : &held->now;
    dw_status status = dw_paging_in(&encoder->end.predictor.paging, held, base);
    if (status) return dw_end_fail_paging(&encoder->end, status);
    uint64_t growth = bytes > held->counted ? bytes - held->counted : 0;
    status = dw_predictor_take(&encoder->end.predictor, bytes, growth, used, &p->fresh.data);
    p->lacks_room = status == DW_ERR_LIMIT;
    return status && !p->lacks_room ? dw_end_fail_paging(&encoder->end, status) : DW_OK;
}

/* Plans sample i of an encoder that keeps prev: as a change, or as a key entry. */
static dw_status plan_state(dw_encode_ticket *t, uint32_t i, uint64_t *used)
{
    const dw_encoder *encoder = t->encoder;
    dw_outgoing *p = &t->out[i];
    dw_status status = take_slot(t, i, used);
    if (status || !p->fresh.data) return status;
    const dw_held *held = p->held;
    const dw_copy *base = held->base == DW_BASE_NOW    ? &held->now
                          : held->base == DW_BASE_UNDO ? &held->undo
                                                       : NULL;
    bool delta = base && base->data && is_same_shape(t, held) &&
                 held->incarnation == encoder->end.incarnation;
    become(p, t, delta ? DW_ROLE_DELTA : DW_ROLE_KEY, delta ? DW_USE_CHANGE : DW_USE_WHOLE);
    p->base = delta ? base : NULL;
    p->entry.base_chain = delta ? base->chain : 0;
    const void *x = dw_tensor_sample(&t->asked.x, i);
    if (delta && dw_skip_fits(t->plans, dw_engine_kernels(&encoder->end.engine), x,
                              t->asked.x.stride_t, base->data))
        become(p, t, DW_ROLE_SKIP, DW_USE_NONE);
    return DW_OK;
}

/* Plans sample i of an encoder that keeps residuals. The residual of a tensor of another shape says
 * nothing about this one, and is replaced. */
static dw_status plan_residual(dw_encode_ticket *t, uint32_t i, uint64_t *used)
{
    dw_outgoing *p = &t->out[i];
    dw_status status = take_slot(t, i, used);
    if (status || !p->fresh.data) return status;
    p->base = p->held->now.data && is_same_shape(t, p->held) ? &p->held->now : NULL;
    return DW_OK;
}

/* Returns LIMIT, with a sentence that says why sample i cannot keep to error=abs. largest: the
 * largest magnitude in it. */
static dw_status cannot_keep(dw_encoder *encoder, uint32_t i, float largest)
{
    snprintf(encoder->end.why.text, sizeof encoder->end.why.text,
             "sample %u cannot keep to error=abs: its largest value is %.3e, for which codes of up "
             "to 127 steps, or a prev of 16 bits, are too coarse: allow a larger error, or use "
             "delta:prev=f32",
             (unsigned)i, (double)largest);
    return DW_ERR_LIMIT;
}

/* With error=abs: checks whether entry i, as planned so far, keeps to the bound. If its codes would
 * not be close enough to x, it becomes a sync entry, which carries all values as floats. Returns
 * LIMIT where these are not close enough either, or where the codec has no such entries. */
static dw_status keep_bound(dw_encode_ticket *t, uint32_t i)
{
    dw_outgoing *p = &t->out[i];
    const struct dw_kernels *kernels = dw_engine_kernels(&t->encoder->end.engine);
    const void *x = dw_tensor_sample(&t->asked.x, i), *base = p->base ? p->base->data : NULL;
    bool has_state = dw_role_has_state(p->entry.role);
    float largest = 0;
    if (dw_tolerance_fits(t->plans, p->entry.use, kernels, x, t->asked.x.stride_t, base, has_state,
                          &largest))
        return DW_OK;
    if (!has_state || !dw_tolerance_fits(t->plans, DW_USE_EXACT, kernels, x, t->asked.x.stride_t,
                                         NULL, true, &largest))
        return cannot_keep(t->encoder, i, largest);
    become(p, t, DW_ROLE_SYNC, DW_USE_EXACT);
    p->base = NULL;
    p->entry.base_chain = 0;
    return DW_OK;
}

void dw_ticket_unplan(dw_encode_ticket *t, uint32_t n)
{
    dw_encoder *encoder = t->encoder;
    if (!t->asked.has_x) return; /* frames that carry prev itself take no slots */
    uint64_t bytes = copy_bytes(t);
    for (uint32_t i = n; i-- > 0;) {
        dw_outgoing *p = &t->out[i];
        dw_predictor_give(&encoder->end.predictor, p->fresh.data, bytes);
        if (p->added) dw_predictor_remove(&encoder->end.predictor, p->held);
    }
}

/* Lets a backing store begin to read all that the frame needs, which is then taken one after the
 * other. */
static void read_ahead(const dw_encode_ticket *t)
{
    const dw_predictor *predictor = &t->encoder->end.predictor;
    for (uint32_t i = 0; t->keys && predictor->paging.backing.prefetch && i < t->header.n; i++) {
        const dw_held *held =
            dw_predictor_find(predictor, dw_encoder_held_key(t->encoder, t->keys[i], i));
        if (held) dw_paging_prefetch(&predictor->paging, held);
    }
}

static dw_status make_room(dw_encode_ticket *t)
{
    dw_encoder *encoder = t->encoder;
    bool done = dw_end_grow(&encoder->end, &t->out, &t->out_cap, t->header.n, sizeof *t->out);
    encoder->calls++;
    return done ? DW_OK : dw_encoder_fail(encoder, DW_ERR_NO_MEMORY, NULL);
}

dw_status dw_ticket_plan(dw_encode_ticket *t)
{
    const dw_encoder *encoder = t->encoder;
    bool keeps = t->plans->params.keeps_prev && !t->asked.is_stateless;
    bool adds = t->plans->params.keeps_residual && !t->asked.is_stateless;
    dw_status status = make_room(t);
    uint64_t before = encoder->end.predictor.held_bytes + encoder->end.predictor.reserved_bytes;
    uint64_t used = before;
    if (status) return status;
    if (keeps || adds) read_ahead(t);
    for (uint32_t i = 0; i < t->header.n; i++) {
        dw_outgoing *p = &t->out[i];
        memset(p, 0, sizeof *p);
        p->entry.key = t->keys ? t->keys[i] : (dw_key){.sample = i};
        become(p, t, DW_ROLE_STATELESS, DW_USE_WHOLE);
        if (keeps) status = plan_state(t, i, &used);
        if (adds) status = plan_residual(t, i, &used);
        if (!status && t->plans->params.bound > 0) status = keep_bound(t, i);
        if (status) {
            dw_ticket_unplan(t, i + 1);
            return status;
        }
    }
    t->growth = used - before;
    return DW_OK;
}

/* Plans a sync entry: prev as it is, under a new version and chain. */
dw_status dw_ticket_plan_sync(dw_encode_ticket *t)
{
    dw_encoder *encoder = t->encoder;
    dw_status status = make_room(t);
    t->growth = 0;
    if (status) return status;
    for (uint32_t i = 0; i < t->header.n; i++) {
        dw_outgoing *p = &t->out[i];
        memset(p, 0, sizeof *p);
        p->held = dw_predictor_find(&encoder->end.predictor, t->keys[i]);
        if (!p->held || !dw_copy_is_held(&p->held->now))
            return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, "a key is not held");
        if (p->held->busy)
            return dw_encoder_fail(encoder, DW_ERR_ARGUMENT,
                                   "a key is in a frame that is still in flight: finish or cancel "
                                   "that frame first");
        const dw_held *first = t->out[0].held;
        if (p->held->mark == encoder->calls)
            return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, "a key is given twice");
        if (p->held->dtype != dw_ticket_dtype(t))
            return dw_encoder_fail(encoder, DW_ERR_ARGUMENT,
                                   "a key's copy was saved with another prev than this encoder's");
        if (p->held->t != first->t || p->held->c != first->c)
            return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, "the keys have different shapes");
        dw_paging_mark(&encoder->end.predictor.paging, p->held, encoder->calls);
        status = dw_paging_in(&encoder->end.predictor.paging, p->held, &p->held->now);
        if (status) return dw_end_fail_paging(&encoder->end, status);
        if (!p->held->now.data)
            return dw_encoder_fail(encoder, DW_ERR_ARGUMENT,
                                   "a key's copy was lost in the backing "
                                   "store, so it is not held any more");
        p->entry.key = t->keys[i];
        p->fresh.data = p->held->now.data;
        p->fresh.record = p->held->now.record;
        become(p, t, DW_ROLE_SYNC, DW_USE_EXACT);
    }
    return DW_OK;
}

/* If a frame that announced a forgotten key was not answered before so many later frames were made,
 * it is taken for lost, and the key is announced again. */
enum { ANNOUNCE_AGAIN_AFTER = 32 };

dw_held *dw_ticket_next_to_announce(const dw_encode_ticket *t, dw_held *from)
{
    for (; from; from = from->newer) {
        bool lately =
            from->announced && t->header.sequence - from->announced < ANNOUNCE_AGAIN_AFTER;
        if (from->mark != t->encoder->calls && !from->busy && !lately) return from;
    }
    return NULL;
}

static bool payloads_of(const dw_encode_ticket *t, uint64_t *payload)
{
    *payload = 0;
    for (uint32_t i = 0; i < t->header.n; i++) {
        dw_outgoing *p = &t->out[i];
        p->entry.payload_bytes = plan_of(t, p->entry.use)->payload_bytes;
        if (!dw_size_add(*payload, p->entry.payload_bytes, payload)) return false;
    }
    return true;
}

/* Shortens the frame to the room that there is: key entries are replaced, from the last to the
 * first, by stateless entries as short as a delta. Copies that are held of their keys remain. */
static void shorten(dw_encode_ticket *t, uint64_t end, uint64_t *payload)
{
    uint64_t brief = plan_of(t, DW_USE_BRIEF)->payload_bytes;
    if (!plan_of(t, DW_USE_BRIEF)->form) return;
    if (t->plans->params.bound > 0) return; /* short entries might not keep to the bound */
    for (uint32_t i = t->header.n; i-- > 0 && end + *payload > t->asked.room;) {
        dw_outgoing *p = &t->out[i];
        if (p->entry.use != DW_USE_WHOLE || p->entry.payload_bytes <= brief) continue;
        *payload -= p->entry.payload_bytes - brief;
        dw_predictor_give(&t->encoder->end.predictor, p->fresh.data, copy_bytes(t));
        p->fresh.data = NULL;
        become(p, t, DW_ROLE_STATELESS, DW_USE_BRIEF);
        p->entry.payload_bytes = brief;
    }
}

static dw_status too_long(dw_encoder *encoder, uint64_t needed, uint64_t room)
{
    snprintf(encoder->end.why.text, sizeof encoder->end.why.text,
             "the frame takes %llu bytes but there is room for %llu: dw_frame_bound returns a size "
             "that is always enough",
             (unsigned long long)needed, (unsigned long long)room);
    return DW_ERR_BUFFER_TOO_SMALL;
}

/* Assigns offsets to the payloads and checks that all of it fits. Forgotten keys are announced as
 * far as there is room. */
dw_status dw_ticket_lay_out(dw_encode_ticket *t)
{
    dw_encoder *encoder = t->encoder;
    dw_header *header = &t->header;
    uint64_t end, payload, total;
    header->n_forgotten = 0;
    if (!dw_frame_table_end(header->n_parameters, header->n, 0, &end) ||
        !payloads_of(t, &payload) || !dw_size_add(end, payload, &total))
        return dw_encoder_fail(encoder, DW_ERR_LIMIT, NULL);
    if (total > t->asked.room) shorten(t, end, &payload);
    if (end + payload > t->asked.room) return too_long(encoder, end + payload, t->asked.room);
    dw_held *forgotten = NULL;
    if (t->plans->params.keeps_prev)
        forgotten = dw_ticket_next_to_announce(t, encoder->end.predictor.oldest_forgotten);
    for (; forgotten && header->n_forgotten < t->asked.most_forgotten;
         forgotten = dw_ticket_next_to_announce(t, forgotten->newer)) {
        if (!dw_frame_table_end(header->n_parameters, header->n, header->n_forgotten + 1, &end) ||
            end + payload > t->asked.room)
            break;
        header->n_forgotten++;
    }
    (void)dw_frame_table_end(header->n_parameters, header->n, header->n_forgotten, &end);
    header->length = end + payload;
    if (t->asked.has_x && dw_tensor_meets(&t->asked.x, t->asked.frame, header->length))
        return dw_encoder_fail(encoder, DW_ERR_ARGUMENT,
                               "x and frame overlap in memory: give each of them its own memory");
    for (uint32_t i = 0; i < header->n; i++) {
        t->out[i].entry.payload_offset = end;
        end += t->out[i].entry.payload_bytes;
    }
    return DW_OK;
}

/* Where the memory that the form keeps of a key begins, in a copy; NULL: there is none. */
static uint8_t *kept_in(const dw_encode_ticket *t, void *copy)
{
    return copy && dw_ticket_kept_bytes(t) ? (uint8_t *)copy + values_bytes(t) : NULL;
}

/* What the form kept at the key's last visit. A restored state may be that of another config. */
static const void *kept_of(const dw_encode_ticket *t, const dw_outgoing *p)
{
    bool is_same = p->base && p->held->more == dw_ticket_kept_bytes(t);
    return is_same ? kept_in(t, p->base->data) : NULL;
}

dw_encode_job dw_ticket_job(const dw_encode_ticket *t, uint32_t i)
{
    const dw_outgoing *p = &t->out[i];
    const dw_plan *plan = plan_of(t, p->entry.use);
    const dw_params *params = &t->plans->params;
    uint32_t every = p->fresh.data ? params->audit : 0; /* 0 without prev */
    dw_encode_job job = {.layout = plan->layout,
                         .rule = {.scale = dw_params_scale(params, plan->params.bits),
                                  .is_stochastic = params->is_stochastic,
                                  .is_trellis = params->is_trellis && plan->form == &dw_form_step},
                         .zone = (float)params->deadzone / 1000,
                         .step = params->rate ? t->encoder->rate.step
                                              : (double)plan->params.step / 1000,
                         .error = plan->params.error,
                         .x = t->asked.has_x ? dw_tensor_sample(&t->asked.x, i) : p->fresh.data,
                         .x_dtype = t->asked.has_x ? t->asked.x.dtype : params->prev,
                         .stride = t->asked.has_x ? t->asked.x.stride_t : (int64_t)t->header.c,
                         .prev = p->base ? p->base->data : NULL,
                         .next = p->fresh.data,
                         .prev_dtype = params->keeps_residual ? DW_F32 : params->prev,
                         .keeps_residual = params->keeps_residual && p->fresh.data,
                         .bypasses_caches = t->asked.bypasses_caches,
                         .kept = kept_of(t, p),
                         .keeps = kept_in(t, p->fresh.data),
                         .payload = t->asked.frame + p->entry.payload_offset,
                         .entry = i,
                         .audit = dw_audit_of(every, p->entry.key, t->header.sequence),
                         .is_exact = p->entry.role != DW_ROLE_KEY,
                         .channels = dw_end_channels(&t->encoder->end, plan->params.profile),
                         .wire_dtype = plan->params.dtype,
                         .plan = plan,
                         .kernels = dw_engine_kernels(&t->encoder->end.engine)};
    if (params->is_stochastic)
        job.rule.dither_key =
            dw_rounding_key(&t->header, t->encoder->end.config.seed, p->entry.key);
    if (plan->draws) job.draws_key = dw_shared_draws_key(&t->header, p->entry.key);
    return job;
}
