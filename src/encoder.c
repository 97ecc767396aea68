/* SPDX-License-Identifier: Apache-2.0
 * encoder.c - the way out: tensor, predictor, quantizer, packer, frame. */
#include <string.h>

#include "cpu.h"
#include "encoder.h"
#include "params.h"
#include "tensor.h"

/* A frame in the making. */
typedef struct draft {
    dw_encoder *encoder;
    dw_params params;
    dw_frame_info info;
    const dw_key *keys;
    const dw_tensor *x;
    uint8_t *frame;
    dw_sums sums;
} draft;

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
    dw_predictor_release(&encoder->predictor);
    dw_mem_release(&allocator, encoder->plans, encoder->plans_cap * sizeof *encoder->plans);
    dw_work_release(&encoder->work, &allocator);
    dw_mem_release(&allocator, encoder, sizeof *encoder);
}

static void describe(draft *d, uint32_t n, uint32_t t, uint32_t c, dw_dtype x)
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
static dw_entry_kind stateless_kind(const draft *d)
{
    return dw_dtype_of(d->info.key) ? DW_ENTRY_RAW : DW_ENTRY_DIRECT;
}

static dw_entry_kind key_kind(const draft *d)
{
    return dw_dtype_of(d->info.key) ? DW_ENTRY_KEY_RAW : DW_ENTRY_KEY;
}

/* Finds or adds the key of sample i and takes a slot for its next prev: all that can fail. */
static dw_status plan_state(draft *d, dw_outgoing *p, uint64_t *used)
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
    if (held->mark == encoder->calls) return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, "two samples of one call have the same key");
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
static void unplan(draft *d, uint32_t n)
{
    dw_encoder *encoder = d->encoder;
    uint64_t bytes = (uint64_t)d->info.t * d->info.c * dw_dtype_bytes(d->info.prev);
    for (uint32_t i = n; i-- > 0;) {
        dw_outgoing *p = &encoder->plans[i];
        dw_predictor_give(&encoder->predictor, p->fresh.data, bytes);
        if (p->added) dw_predictor_remove(&encoder->predictor, p->held);
    }
}

static dw_status plan_all(draft *d)
{
    dw_encoder *encoder = d->encoder;
    uint64_t used = encoder->predictor.held_bytes;
    encoder->calls++;
    void *plans = encoder->plans;
    if (!dw_mem_grow(&encoder->allocator, &plans, &encoder->plans_cap, d->info.n, sizeof(dw_outgoing)))
        return dw_encoder_fail(encoder, DW_ERR_NO_MEMORY, NULL);
    encoder->plans = plans;
    for (uint32_t i = 0; i < d->info.n; i++) {
        dw_outgoing *p = &encoder->plans[i];
        memset(p, 0, sizeof *p);
        p->entry.key = d->keys[i];
        p->entry.kind = d->info.codec == DW_CODEC_RAW ? DW_ENTRY_RAW : DW_ENTRY_DIRECT;
        dw_status status = d->info.codec == DW_CODEC_DELTA ? plan_state(d, p, &used) : DW_OK;
        if (status) {
            unplan(d, i + 1);
            return status;
        }
    }
    return DW_OK;
}

/* A telling whose frame was not answered for so many frames is taken for lost. */
enum { TELL_AGAIN_AFTER = 32 };

/* The next key at or behind `from` that this frame is to tell of: not one that it carries, nor one told lately. */
static dw_held *next_to_tell(const draft *d, dw_held *from)
{
    for (; from; from = from->newer) {
        bool lately = from->told && d->info.sequence - from->told < TELL_AGAIN_AFTER;
        if (from->mark != d->encoder->calls && !lately) return from;
    }
    return NULL;
}

/* Places the payloads and sees that all of it fits; forgotten keys travel where there is room. */
static dw_status lay_out(draft *d, size_t cap, uint64_t *total)
{
    dw_encoder *encoder = d->encoder;
    uint64_t end, payload = 0, bytes;
    if (!dw_frame_table_end(d->info.n, 0, &end)) return dw_encoder_fail(encoder, DW_ERR_LIMIT, NULL);
    for (uint32_t i = 0; i < d->info.n; i++) {
        dw_outgoing *p = &encoder->plans[i];
        if (!dw_frame_payload_bytes(&d->info, p->entry.kind, &bytes)) return dw_encoder_fail(encoder, DW_ERR_LIMIT, NULL);
        p->entry.payload_bytes = bytes;
        if (!dw_size_add(payload, bytes, &payload)) return dw_encoder_fail(encoder, DW_ERR_LIMIT, NULL);
    }
    if (!dw_size_add(end, payload, total) || *total > cap)
        return dw_encoder_fail(encoder, DW_ERR_NO_ROOM, "the frame does not fit: dw_frame_bound tells the room that is enough");
    if (d->info.codec == DW_CODEC_DELTA) {
        dw_held *tell = next_to_tell(d, encoder->predictor.oldest_forgotten);
        for (; tell && d->info.n_forgotten < UINT32_MAX; tell = next_to_tell(d, tell->newer)) {
            if (!dw_frame_table_end(d->info.n, d->info.n_forgotten + 1, &bytes) || bytes + payload > cap) break;
            d->info.n_forgotten++;
        }
    }
    (void)dw_frame_table_end(d->info.n, d->info.n_forgotten, &end);
    d->info.payload_bytes = payload;
    *total = end + payload;
    for (uint32_t i = 0; i < d->info.n; i++) {
        encoder->plans[i].entry.payload_offset = end;
        end += encoder->plans[i].entry.payload_bytes;
    }
    return DW_OK;
}

/* Another number for every visit of every key, so that what rounding adds to one has nothing to do with another. */
static uint64_t dither_key(const draft *d, dw_key key)
{
    uint64_t words[4] = {d->encoder->config.seed, key.sample, key.slice, d->info.sequence};
    uint8_t bytes[sizeof words];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(words[i / 8] >> (8 * (i % 8)));
    return dw_digest_bytes(bytes, sizeof bytes);
}

/* What recorded activations and gradients lost least with, at the price of absmax (bench/README.md, Scales). One bit wants a search; and
 * only absmax has a level for every value, which stochastic rounding needs to be right on average. */
static dw_scale default_scale(uint32_t bits, bool is_stochastic)
{
    return is_stochastic ? DW_SCALE_ABSMAX : bits == 1 ? DW_SCALE_MSE : DW_SCALE_SIGNED;
}

static dw_encode_job code_job(const draft *d, const dw_outgoing *p, uint32_t i)
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

/* Cuts the frame into chunks, and finds room for what they tell: the last that can fail. */
static dw_status prepare_chunks(draft *d)
{
    dw_encoder *encoder = d->encoder;
    if (!dw_work_begin(&encoder->work, &encoder->allocator, d->info.n)) return dw_encoder_fail(encoder, DW_ERR_NO_MEMORY, NULL);
    for (uint32_t i = 0; i < d->info.n; i++) {
        dw_outgoing *p = &encoder->plans[i];
        bool floats = dw_kind_is_floats(p->entry.kind);
        if (!floats) p->job = code_job(d, p, i);
        dw_work_put(&encoder->work, floats ? 1 : dw_layout_chunks(&p->job.layout));
    }
    if (!dw_work_ready(&encoder->work, &encoder->allocator)) return dw_encoder_fail(encoder, DW_ERR_NO_MEMORY, NULL);
    return DW_OK;
}

static void encode_floats(const draft *d, const dw_outgoing *p, uint32_t i, dw_chunk_result *result)
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
    const draft *d = context;
    const dw_encoder *encoder = d->encoder;
    uint64_t chunk;
    uint32_t i = dw_work_entry(&encoder->work, index, &chunk);
    const dw_outgoing *p = &encoder->plans[i];
    dw_cpu_mode mode = dw_cpu_enter_exact();
    if (dw_kind_is_floats(p->entry.kind))
        encode_floats(d, p, i, &encoder->work.results[index]);
    else
        encoder->engine.encode(&encoder->engine, &p->job, chunk, &encoder->work.results[index]);
    dw_cpu_leave_exact(mode);
}

/* The digests of an entry's payload and new prev: what its chunks know of them, and what they leave out. */
static void digest_entry(draft *d, dw_outgoing *p, const dw_chunk_result *known)
{
    const dw_engine *engine = &d->encoder->engine;
    const uint8_t *payload = d->frame + p->entry.payload_offset;
    dw_audit audit = {d->info.audit, d->info.sequence};
    bool floats = dw_kind_is_floats(p->entry.kind);
    uint64_t left = floats ? p->entry.payload_bytes : dw_layout_undigested(&p->job.layout);
    p->entry.payload_digest = dw_digest_of_sum(known->payload_sum + engine->bytes_sum(engine, payload, 0, left));
    if (!dw_kind_has_state(p->entry.kind) || !d->info.audit) return;
    uint64_t rest = floats ? engine->state_sum(engine, p->fresh.data, d->info.prev, (uint64_t)d->info.t * d->info.c, audit)
                           : engine->seam_sum(engine, &p->job.layout, p->fresh.data, d->info.prev, audit);
    p->entry.state_digest = dw_digest_of_sum(known->state_sum + rest);
}

static void seal_entry(draft *d, dw_outgoing *p, uint32_t i, const dw_chunk_result *known)
{
    digest_entry(d, p, known);
    if (dw_kind_has_state(p->entry.kind)) {
        p->fresh.version = d->info.sequence;
        p->fresh.state_digest = p->entry.state_digest;
        p->fresh.audit = d->info.audit;
        p->fresh.chain = dw_frame_chain(&d->info, &p->entry);
    }
    dw_frame_put_entry(d->frame, i, &p->entry);
}

static void seal_frame(draft *d)
{
    dw_held *tell = next_to_tell(d, d->encoder->predictor.oldest_forgotten);
    for (uint32_t i = 0; i < d->info.n_forgotten; i++, tell = next_to_tell(d, tell->newer))
        dw_frame_put_forgotten(d->frame, d->info.n, i, tell->key);
    dw_frame_seal(d->frame, &d->info);
}

static void count_entry(dw_counters *counters, dw_entry_kind kind)
{
    counters->delta_entries += kind == DW_ENTRY_DELTA;
    counters->key_entries += kind == DW_ENTRY_KEY || kind == DW_ENTRY_KEY_RAW || kind == DW_ENTRY_SYNC;
    counters->stateless_entries += !dw_kind_has_state(kind);
}

/* The keys that the frame tells of: answered for by its reply, or gone where there are no replies. */
static void mark_told(draft *d)
{
    dw_predictor *predictor = &d->encoder->predictor;
    dw_held *tell = next_to_tell(d, predictor->oldest_forgotten);
    for (uint32_t i = 0; i < d->info.n_forgotten; i++) {
        dw_held *next = next_to_tell(d, tell->newer);
        tell->told = d->info.sequence;
        if (!d->params.wants_reply) dw_predictor_remove(predictor, tell);
        tell = next;
    }
}

/* Nothing here can fail: the frame is written, and what it says becomes what is held. */
static void commit(draft *d, uint64_t total)
{
    dw_encoder *encoder = d->encoder;
    dw_counters *counters = &encoder->counters;
    dw_held shape = {.t = d->info.t, .c = d->info.c, .dtype = d->info.prev, .incarnation = encoder->incarnation};
    encoder->sequence = d->info.sequence;
    mark_told(d);
    for (uint32_t i = 0; i < d->info.n; i++) {
        dw_outgoing *p = &encoder->plans[i];
        count_entry(counters, p->entry.kind);
        if (p->entry.kind == DW_ENTRY_SYNC) {
            p->held->now = p->fresh;
            p->held->base = DW_BASE_NOW;
            p->held->incarnation = encoder->incarnation;
        } else if (dw_kind_has_state(p->entry.kind)) {
            dw_predictor_commit(&encoder->predictor, p->held, &shape, p->fresh, d->params.wants_reply);
        } else if (p->added) { /* no room in the quota: nothing is held of it */
            dw_predictor_remove(&encoder->predictor, p->held);
        }
    }
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

static uint64_t now(const dw_encoder *encoder)
{
    return encoder->config.now_ns ? encoder->config.now_ns(encoder->config.now_context) : 0;
}

dw_status dw_encode(dw_encoder *encoder, const dw_key *keys, const dw_tensor *x, void *frame, size_t cap, size_t *len)
{
    uint64_t total, raw = 0;
    if (!encoder) return DW_ERR_ARGUMENT;
    if (!keys || !x || !x->data || !frame || !len) return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, "an argument is NULL");
    dw_status status = dw_tensor_check(x);
    if (status) return dw_encoder_fail(encoder, status, "x is no tensor that can be walked: see its dtype, alignment, extents and strides");
    uint64_t started = now(encoder);
    if (encoder->sequence == UINT64_MAX) dw_encoder_begin_life(encoder); /* the numbers are used up */
    draft d = {.encoder = encoder, .keys = keys, .x = x, .frame = frame};
    status = dw_params_resolve(&d.params, &encoder->config, x->dtype);
    if (status) return dw_encoder_fail(encoder, status, NULL);
    describe(&d, x->n, x->t, x->c, x->dtype);
    if ((status = plan_all(&d)) != DW_OK) return status;
    status = lay_out(&d, cap, &total);
    if (!status) status = prepare_chunks(&d);
    if (status) {
        unplan(&d, x->n);
        return status;
    }
    dw_work_run(&encoder->work, &encoder->config, encode_chunk, &d);
    dw_cpu_mode mode = dw_cpu_enter_exact(); /* the counters' sums too are ours to round */
    for (uint32_t i = 0; i < x->n; i++) {
        dw_chunk_result known = dw_work_join(&encoder->work, i);
        dw_sums_add(&d.sums, &known.sums);
        seal_entry(&d, &encoder->plans[i], i, &known);
    }
    seal_frame(&d);
    commit(&d, total);
    dw_cpu_leave_exact(mode);
    (void)dw_tensor_bytes(x->n, x->t, x->c, x->dtype, &raw);
    encoder->counters.raw_bytes += raw;
    encoder->counters.busy_ns += now(encoder) - started;
    *len = (size_t)total;
    return DW_OK;
}

/* A sync entry: prev as it is, under a new version and chain. */
static dw_status plan_sync(draft *d, const dw_key *keys, uint32_t n)
{
    dw_encoder *encoder = d->encoder;
    void *plans = encoder->plans;
    encoder->calls++;
    if (!dw_mem_grow(&encoder->allocator, &plans, &encoder->plans_cap, n, sizeof(dw_outgoing)))
        return dw_encoder_fail(encoder, DW_ERR_NO_MEMORY, NULL);
    encoder->plans = plans;
    for (uint32_t i = 0; i < n; i++) {
        dw_outgoing *p = &encoder->plans[i];
        memset(p, 0, sizeof *p);
        p->held = dw_predictor_find(&encoder->predictor, keys[i]);
        if (!p->held || !p->held->now.data) return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, "a key is not held");
        const dw_held *first = encoder->plans[0].held;
        if (p->held->mark == encoder->calls || p->held->t != first->t || p->held->c != first->c ||
            p->held->dtype != first->dtype)
            return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, "the keys are doubled or of several shapes");
        p->held->mark = encoder->calls;
        p->entry.key = keys[i];
        p->entry.kind = DW_ENTRY_SYNC;
        p->fresh.data = p->held->now.data;
    }
    return DW_OK;
}

dw_status dw_encoder_resync(dw_encoder *encoder, const dw_key *keys, uint32_t n, void *frame, size_t cap, size_t *len)
{
    uint64_t total;
    if (!encoder) return DW_ERR_ARGUMENT;
    if (!keys || n == 0 || !frame || !len) return dw_encoder_fail(encoder, DW_ERR_ARGUMENT, "an argument is NULL or zero");
    if (encoder->sequence == UINT64_MAX) dw_encoder_begin_life(encoder);
    draft d = {.encoder = encoder, .keys = keys, .frame = frame};
    dw_status status = plan_sync(&d, keys, n);
    if (status) return status;
    const dw_held *held = encoder->plans[0].held;
    status = dw_params_resolve(&d.params, &encoder->config, held->dtype);
    if (status) return dw_encoder_fail(encoder, status, NULL);
    describe(&d, n, held->t, held->c, held->dtype);
    d.info.prev = held->dtype;
    if ((status = lay_out(&d, cap, &total)) != DW_OK) return status;
    for (uint32_t i = 0; i < n; i++) {
        dw_outgoing *p = &encoder->plans[i];
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
    commit(&d, total);
    encoder->counters.resyncs += n;
    *len = (size_t)total;
    return DW_OK;
}

dw_status dw_encoder_forget(dw_encoder *encoder, dw_key key)
{
    if (!encoder) return DW_ERR_ARGUMENT;
    dw_held *held = dw_predictor_find(&encoder->predictor, key);
    if (!held) return DW_OK;
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
    counters.state_bytes = encoder->predictor.pool.taken_bytes;
    return counters;
}

const char *dw_encoder_why(const dw_encoder *encoder)
{
    return encoder ? encoder->why.text : "";
}
