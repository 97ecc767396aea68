/* SPDX-License-Identifier: Apache-2.0
 * encoder.c - the way out: tensor, predictor, quantizer, packer, frame. */
#include <string.h>

#include "cpu.h"
#include "encoder.h"
#include "params.h"
#include "tensor.h"

dw_status dw_encoder_create(dw_encoder **encoder, const dw_config *config)
{
    dw_params params;
    if (!encoder) return DW_ERR_ARGUMENT;
    *encoder = NULL;
    if (!config) return DW_ERR_ARGUMENT;
    dw_status status = dw_params_resolve(&params, config, DW_F32);
    if (status) return status;
    dw_allocator allocator = dw_mem_allocator(&config->allocator);
    dw_encoder *made = dw_mem_allocate(&allocator, sizeof *made);
    if (!made) return DW_ERR_NO_MEMORY;
    memset(made, 0, sizeof *made);
    made->config = *config;
    made->allocator = allocator;
    made->engine = dw_engine_cpu(NULL);
    made->incarnation = config->incarnation ? config->incarnation : dw_mem_random();
    dw_predictor_init(&made->predictor, &allocator, config->quota_bytes);
    *encoder = made;
    return DW_OK;
}

void dw_encoder_use(dw_encoder *encoder, const dw_engine *engine)
{
    encoder->engine = *engine;
}

void dw_encoder_destroy(dw_encoder *encoder)
{
    if (!encoder) return;
    dw_allocator allocator = encoder->allocator;
    dw_encoder_end_tickets(encoder);
    if (encoder->remote) encoder->remote->release(encoder->remote->context);
    dw_predictor_release(&encoder->predictor);
    dw_mem_release(&allocator, encoder->plans, encoder->plans_cap * sizeof *encoder->plans);
    dw_work_release(&encoder->work, &allocator);
    dw_mem_release(&allocator, encoder, sizeof *encoder);
}

/* Cuts the frame into chunks, and finds room for what they tell: the last that can fail. */
static dw_status prepare_chunks(dw_draft *d)
{
    dw_encoder *encoder = d->encoder;
    if (!dw_work_begin(&encoder->work, &encoder->allocator, d->info.n))
        return dw_encoder_fail(encoder, DW_ERR_NO_MEMORY, NULL);
    for (uint32_t i = 0; i < d->info.n; i++) {
        dw_outgoing *p = &d->plans[i];
        bool floats = dw_kind_is_floats(p->entry.kind);
        if (!floats) p->job = dw_draft_job(d, p, i);
        dw_work_put(&encoder->work, floats ? 1 : dw_layout_chunks(&p->job.layout));
    }
    if (!dw_work_ready(&encoder->work, &encoder->allocator))
        return dw_encoder_fail(encoder, DW_ERR_NO_MEMORY, NULL);
    return DW_OK;
}

static void encode_floats(const dw_draft *d, const dw_outgoing *p, uint32_t i,
                          dw_chunk_result *result)
{
    const dw_engine *engine = &d->encoder->engine;
    dw_float_job job = {.t = d->info.t,
                        .c = d->info.c,
                        .form = dw_frame_form(&d->info, p->entry.kind),
                        .exact = p->entry.kind == DW_ENTRY_RAW,
                        .payload = d->frame + p->entry.payload_offset,
                        .bytes = p->entry.payload_bytes,
                        .tensor = dw_tensor_sample(d->x, i),
                        .dtype = d->x->dtype,
                        .stride = d->x->stride_t,
                        .next = p->fresh.data,
                        .prev_dtype = d->info.prev,
                        .sums = &result->sums};
    *result = (dw_chunk_result){0};
    engine->put_floats(&job);
    if (p->fresh.data) engine->take_floats(&job, 1);
}

/* Chunk `index` of the frame. Runs in any thread. */
static void encode_chunk(void *context, size_t index)
{
    const dw_draft *d = context;
    const dw_encoder *encoder = d->encoder;
    uint64_t chunk;
    uint32_t i = dw_work_entry(&encoder->work, index, &chunk);
    const dw_outgoing *p = &d->plans[i];
    dw_cpu_mode mode = dw_cpu_enter_exact();
    if (dw_kind_is_floats(p->entry.kind))
        encode_floats(d, p, i, &encoder->work.results[index]);
    else
        encoder->engine.encode(&encoder->engine, &p->job, chunk, &encoder->work.results[index]);
    dw_cpu_leave_exact(mode);
}

/* The digests of an entry's payload and new prev: what its chunks know of them, and what they leave
 * out. */
static void digest_entry(dw_draft *d, dw_outgoing *p, const dw_chunk_result *known)
{
    const dw_engine *engine = &d->encoder->engine;
    const uint8_t *payload = d->frame + p->entry.payload_offset;
    dw_audit audit = {d->info.audit, d->info.sequence};
    bool floats = dw_kind_is_floats(p->entry.kind);
    uint64_t left = floats ? p->entry.payload_bytes : dw_layout_undigested(&p->job.layout);
    p->entry.payload_digest =
        dw_digest_of_sum(known->payload_sum + engine->bytes_sum(engine, payload, 0, left));
    if (!dw_kind_has_state(p->entry.kind) || !d->info.audit) return;
    uint64_t rest =
        floats ? engine->state_sum(engine, p->fresh.data, d->info.prev,
                                   (uint64_t)d->info.t * d->info.c, audit)
               : engine->seam_sum(engine, &p->job.layout, p->fresh.data, d->info.prev, audit);
    p->entry.state_digest = dw_digest_of_sum(known->state_sum + rest);
}

void dw_draft_put_entry(const dw_draft *d, dw_outgoing *p, uint32_t i, uint8_t *tables)
{
    if (dw_kind_has_state(p->entry.kind)) {
        p->fresh.version = d->info.sequence;
        p->fresh.state_digest = p->entry.state_digest;
        p->fresh.audit = d->info.audit;
        p->fresh.chain = dw_frame_chain(&d->info, &p->entry);
    }
    dw_frame_put_entry(tables, i, &p->entry);
}

static void seal_entry(dw_draft *d, dw_outgoing *p, uint32_t i, const dw_chunk_result *known)
{
    digest_entry(d, p, known);
    dw_draft_put_entry(d, p, i, d->frame);
}

static void seal_frame(dw_draft *d)
{
    dw_held *tell = dw_draft_next_to_tell(d, d->encoder->predictor.oldest_forgotten);
    for (uint32_t i = 0; i < d->info.n_forgotten; i++, tell = dw_draft_next_to_tell(d, tell->newer))
        dw_frame_put_forgotten(d->frame, d->info.n, i, tell->key);
    dw_frame_seal(d->frame, &d->info);
}

static void count_entry(dw_counters *counters, dw_entry_kind kind)
{
    counters->delta_entries += kind == DW_ENTRY_DELTA;
    counters->key_entries +=
        kind == DW_ENTRY_KEY || kind == DW_ENTRY_KEY_RAW || kind == DW_ENTRY_SYNC;
    counters->stateless_entries += !dw_kind_has_state(kind);
}

/* The keys that the frame tells of: answered for by its reply, or gone where there are no replies.
 */
static void mark_told(dw_draft *d)
{
    dw_predictor *predictor = &d->encoder->predictor;
    dw_held *tell = dw_draft_next_to_tell(d, predictor->oldest_forgotten);
    for (uint32_t i = 0; i < d->info.n_forgotten; i++) {
        dw_held *next = dw_draft_next_to_tell(d, tell->newer);
        tell->told = d->info.sequence;
        if (!d->params.wants_reply) dw_predictor_remove(predictor, tell);
        tell = next;
    }
}

/* Nothing here can fail: the frame is written, and what it says becomes what is held. */
void dw_draft_commit(dw_draft *d, uint64_t total)
{
    dw_encoder *encoder = d->encoder;
    dw_counters *counters = &encoder->counters;
    dw_held shape = {
        .t = d->info.t, .c = d->info.c, .dtype = d->info.prev, .incarnation = d->info.incarnation};
    uint64_t raw = 0;
    for (uint32_t i = 0; i < d->info.n; i++) {
        dw_outgoing *p = &d->plans[i];
        count_entry(counters, p->entry.kind);
        if (p->entry.kind == DW_ENTRY_SYNC) {
            p->held->now = p->fresh;
            p->held->base = DW_BASE_NOW;
            p->held->incarnation = d->info.incarnation;
        } else if (dw_kind_has_state(p->entry.kind)) {
            dw_predictor_commit(&encoder->predictor, p->held, &shape, p->fresh,
                                d->params.wants_reply);
        } else if (p->added) { /* no room in the quota: nothing is held of it */
            dw_predictor_remove(&encoder->predictor, p->held);
        }
    }
    if (d->x) (void)dw_tensor_bytes(d->info.n, d->info.t, d->info.c, d->x->dtype, &raw);
    counters->raw_bytes += raw;
    counters->frames++;
    counters->encoded_bytes += total;
    counters->groups += d->sums.pieces;
    counters->direct_groups += d->sums.direct;
    counters->zero_groups += d->sums.zero;
    counters->poisoned_groups += d->sums.poisoned;
    counters->x_square += d->sums.x_square;
    counters->delta_square += d->sums.delta_square;
    counters->error_square += d->sums.error_square;
}

static void finish(dw_draft *d, uint64_t total)
{
    d->encoder->sequence = d->info.sequence;
    mark_told(d);
    dw_draft_commit(d, total);
}

static uint64_t now(const dw_encoder *encoder)
{
    return encoder->config.now_ns ? encoder->config.now_ns(encoder->config.now_context) : 0;
}

dw_status dw_encode(dw_encoder *encoder, const dw_key *keys, const dw_tensor *x, void *frame,
                    size_t cap, size_t *len)
{
    uint64_t total;
    if (!encoder) return DW_ERR_ARGUMENT;
    if (!keys || !x || !x->data || !frame || !len)
        return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, "an argument is NULL");
    if (encoder->remote)
        return dw_encoder_fail(encoder, DW_ERR_UNSUPPORTED,
                               "this encoder computes on a GPU: call dw_encode_async");
    dw_status status = dw_tensor_check(x);
    if (status)
        return dw_encoder_fail(
            encoder, status,
            "x is no tensor that can be walked: see its dtype, alignment, extents and strides");
    uint64_t started = now(encoder);
    if (encoder->sequence == UINT64_MAX)
        dw_encoder_begin_life(encoder); /* the numbers are used up */
    dw_draft d = {
        .encoder = encoder, .keys = keys, .x = x, .frame = frame, .most_forgotten = UINT32_MAX};
    status = dw_params_resolve(&d.params, &encoder->config, x->dtype);
    if (status) return dw_encoder_fail(encoder, status, NULL);
    dw_draft_describe(&d, x->n, x->t, x->c, x->dtype);
    if ((status = dw_draft_plan(&d, &encoder->plans, &encoder->plans_cap)) != DW_OK) return status;
    status = dw_draft_lay_out(&d, cap, &total);
    if (!status) status = prepare_chunks(&d);
    if (status) {
        dw_draft_unplan(&d, x->n);
        return status;
    }
    dw_work_run(&encoder->work, &encoder->config, encode_chunk, &d);
    dw_cpu_mode mode = dw_cpu_enter_exact(); /* the counters' sums too are ours to round */
    for (uint32_t i = 0; i < x->n; i++) {
        dw_chunk_result known = dw_work_join(&encoder->work, i);
        dw_sums_add(&d.sums, &known.sums);
        seal_entry(&d, &d.plans[i], i, &known);
    }
    seal_frame(&d);
    finish(&d, total);
    dw_cpu_leave_exact(mode);
    encoder->counters.busy_ns += now(encoder) - started;
    *len = (size_t)total;
    return DW_OK;
}

/* A sync entry: prev as it is, under a new version and chain. */
static dw_status plan_sync(dw_draft *d, const dw_key *keys, uint32_t n)
{
    dw_encoder *encoder = d->encoder;
    void *plans = encoder->plans;
    encoder->calls++;
    if (!dw_mem_grow(&encoder->allocator, &plans, &encoder->plans_cap, n, sizeof(dw_outgoing)))
        return dw_encoder_fail(encoder, DW_ERR_NO_MEMORY, NULL);
    d->plans = encoder->plans = plans;
    for (uint32_t i = 0; i < n; i++) {
        dw_outgoing *p = &d->plans[i];
        memset(p, 0, sizeof *p);
        p->held = dw_predictor_find(&encoder->predictor, keys[i]);
        if (!p->held || !p->held->now.data)
            return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, "a key is not held");
        const dw_held *first = encoder->plans[0].held;
        if (p->held->mark == encoder->calls || p->held->t != first->t || p->held->c != first->c ||
            p->held->dtype != first->dtype)
            return dw_encoder_fail(encoder, DW_ERR_ARGUMENT,
                                   "the keys are doubled or of several shapes");
        p->held->mark = encoder->calls;
        p->entry.key = keys[i];
        p->entry.kind = DW_ENTRY_SYNC;
        p->fresh.data = p->held->now.data;
    }
    return DW_OK;
}

dw_status dw_encoder_resync(dw_encoder *encoder, const dw_key *keys, uint32_t n, void *frame,
                            size_t cap, size_t *len)
{
    uint64_t total;
    if (!encoder) return DW_ERR_ARGUMENT;
    if (!keys || n == 0 || !frame || !len)
        return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, "an argument is NULL or zero");
    if (encoder->remote)
        return dw_encoder_fail(
            encoder, DW_ERR_UNSUPPORTED,
            "prev lies on a GPU, which has no frames of prev itself: encode x again");
    if (encoder->sequence == UINT64_MAX) dw_encoder_begin_life(encoder);
    dw_draft d = {.encoder = encoder, .keys = keys, .frame = frame, .most_forgotten = UINT32_MAX};
    dw_status status = plan_sync(&d, keys, n);
    if (status) return status;
    const dw_held *held = encoder->plans[0].held;
    status = dw_params_resolve(&d.params, &encoder->config, held->dtype);
    if (status) return dw_encoder_fail(encoder, status, NULL);
    dw_draft_describe(&d, n, held->t, held->c, held->dtype);
    d.info.prev = held->dtype;
    if ((status = dw_draft_lay_out(&d, cap, &total)) != DW_OK) return status;
    for (uint32_t i = 0; i < n; i++) {
        dw_outgoing *p = &d.plans[i];
        dw_float_job job = {.t = held->t,
                            .c = held->c,
                            .form = held->dtype,
                            .exact = 1,
                            .payload = d.frame + p->entry.payload_offset,
                            .bytes = p->entry.payload_bytes,
                            .tensor = p->fresh.data,
                            .dtype = held->dtype,
                            .stride = held->c,
                            .sums = &d.sums};
        encoder->engine.put_floats(&job);
        seal_entry(&d, p, i, &(dw_chunk_result){0});
    }
    seal_frame(&d);
    finish(&d, total);
    encoder->counters.resyncs += n;
    *len = (size_t)total;
    return DW_OK;
}

dw_status dw_encoder_forget(dw_encoder *encoder, dw_key key)
{
    if (!encoder) return DW_ERR_ARGUMENT;
    dw_held *held = dw_predictor_find(&encoder->predictor, key);
    if (!held) return DW_OK;
    if (held->busy)
        return dw_encoder_fail(
            encoder, DW_ERR_ARGUMENT,
            "the key is in a frame that is still in flight: finish or cancel that frame first");
    dw_predictor_forget(&encoder->predictor, held);
    return DW_OK;
}

dw_status dw_encoder_peek(const dw_encoder *encoder, dw_key key, dw_tensor *prev)
{
    if (!encoder || !prev) return DW_ERR_ARGUMENT;
    const dw_held *held = dw_predictor_find(&encoder->predictor, key);
    if (!held || !held->now.data) return DW_ERR_ARGUMENT;
    *prev = dw_tensor_3d(held->now.data, held->dtype, 1, held->t, held->c);
    return DW_OK;
}

dw_counters dw_encoder_counters(const dw_encoder *encoder)
{
    if (!encoder) return (dw_counters){0};
    dw_counters counters = encoder->counters;
    counters.keys_held = encoder->predictor.keys - encoder->predictor.n_forgotten;
    counters.state_bytes = dw_predictor_bytes(&encoder->predictor);
    return counters;
}

const char *dw_encoder_why(const dw_encoder *encoder)
{
    return encoder ? encoder->why.text : "";
}
