/* SPDX-License-Identifier: Apache-2.0
 * decoder.c - the way in: frame, checks, unpacker, reconstruction, tensor. */
#include <stdio.h>
#include <string.h>

#include "cpu.h"
#include "decoder.h"
#include "params.h"
#include "tensor.h"

dw_status dw_decoder_create(dw_decoder **decoder, const dw_config *config)
{
    dw_params params;
    if (!decoder) return DW_ERR_ARGUMENT;
    *decoder = NULL;
    if (!config) return DW_ERR_ARGUMENT;
    dw_status status = dw_params_resolve(&params, config, DW_F32);
    if (status) return status;
    dw_allocator allocator = dw_mem_allocator(&config->allocator);
    dw_decoder *made = dw_mem_allocate(&allocator, sizeof *made);
    if (!made) return DW_ERR_NO_MEMORY;
    memset(made, 0, sizeof *made);
    made->config = *config;
    made->allocator = allocator;
    made->engine = dw_engine_cpu(NULL);
    dw_predictor_init(&made->predictor, &allocator, config->quota_bytes);
    *decoder = made;
    return DW_OK;
}

void dw_decoder_use(dw_decoder *decoder, const dw_engine *engine)
{
    decoder->engine = *engine;
}

void dw_decoder_destroy(dw_decoder *decoder)
{
    if (!decoder) return;
    dw_allocator allocator = decoder->allocator;
    dw_decoder_end_tickets(decoder);
    if (decoder->remote) decoder->remote->release(decoder->remote->context);
    dw_predictor_release(&decoder->predictor);
    dw_mem_release(&allocator, decoder->plans, decoder->plans_cap * sizeof *decoder->plans);
    dw_work_release(&decoder->work, &allocator);
    dw_mem_release(&allocator, decoder, sizeof *decoder);
}

static dw_float_job float_job(const dw_arrival *a, const dw_incoming *p, uint32_t i)
{
    return (dw_float_job){.t = a->info.t,
                          .c = a->info.c,
                          .form = dw_frame_form(&a->info, p->entry.kind),
                          .exact = p->entry.kind == DW_ENTRY_RAW,
                          .payload = (uint8_t *)(uintptr_t)a->frame + p->entry.payload_offset,
                          .bytes = p->entry.payload_bytes,
                          .tensor = a->y->data ? dw_tensor_sample(a->y, i) : NULL,
                          .dtype = a->y->dtype,
                          .stride = a->y->stride_t,
                          .next = p->fresh.data,
                          .prev_dtype = a->info.prev};
}

/* An equal part of the payload for each of its chunks. */
static void digest_chunk(void *context, size_t index)
{
    const dw_arrival *a = context;
    const dw_engine *engine = &a->decoder->engine;
    uint64_t part;
    uint32_t i = dw_work_entry(&a->decoder->work, index, &part);
    const dw_incoming *p = &a->plans[i];
    uint64_t blocks = p->entry.payload_bytes / 16, parts = dw_work_chunks(&a->decoder->work, i);
    uint64_t each = blocks / parts, rest = blocks % parts;
    uint64_t from = each * part + (part < rest ? part : rest), n = each + (part < rest);
    a->decoder->work.results[index] =
        (dw_chunk_result){.payload_sum = engine->bytes_sum(
                              engine, a->frame + p->entry.payload_offset, 16 * from, 16 * n)};
}

/* The new prev, in a fresh slot. Runs in any thread. */
static void advance_chunk(void *context, size_t index)
{
    const dw_arrival *a = context;
    const dw_engine *engine = &a->decoder->engine;
    uint64_t chunk;
    uint32_t i = dw_work_entry(&a->decoder->work, index, &chunk);
    const dw_incoming *p = &a->plans[i];
    dw_chunk_result *result = &a->decoder->work.results[index];
    *result = (dw_chunk_result){0};
    if (!dw_kind_has_state(p->entry.kind)) return;
    dw_cpu_mode mode = dw_cpu_enter_exact();
    if (dw_kind_is_floats(p->entry.kind)) {
        dw_float_job job = float_job(a, p, i);
        engine->take_floats(&job, 1);
    } else {
        engine->decode(engine, &p->job, chunk, result);
    }
    dw_cpu_leave_exact(mode);
}

/* y: from the new prev where there is state, else from the payload. */
static void write_chunk(void *context, size_t index)
{
    const dw_arrival *a = context;
    const dw_engine *engine = &a->decoder->engine;
    uint64_t chunk;
    uint32_t i = dw_work_entry(&a->decoder->work, index, &chunk);
    const dw_incoming *p = &a->plans[i];
    dw_chunk_result unused;
    dw_cpu_mode mode = dw_cpu_enter_exact();
    if (dw_kind_is_floats(p->entry.kind)) {
        dw_float_job job = float_job(a, p, i);
        engine->take_floats(&job, 0);
    } else if (p->fresh.data) {
        engine->emit(engine, &p->job, chunk);
    } else {
        engine->decode(engine, &p->job, chunk, &unused);
    }
    dw_cpu_leave_exact(mode);
}

/* Cuts the frame into chunks, and finds room for what they tell. */
static dw_status prepare_chunks(dw_arrival *a)
{
    dw_decoder *decoder = a->decoder;
    if (!dw_work_begin(&decoder->work, &decoder->allocator, a->info.n))
        return dw_decoder_fail(decoder, DW_ERR_NO_MEMORY, NULL);
    for (uint32_t i = 0; i < a->info.n; i++) {
        dw_incoming *p = &a->plans[i];
        bool floats = dw_kind_is_floats(p->entry.kind);
        if (!floats) p->job = dw_arrival_job(a, p, i);
        dw_work_put(&decoder->work, floats ? 1 : dw_layout_chunks(&p->job.layout));
    }
    return dw_work_ready(&decoder->work, &decoder->allocator)
               ? DW_OK
               : dw_decoder_fail(decoder, DW_ERR_NO_MEMORY, NULL);
}

/* Step 6: the payloads are what was sent. */
static dw_status check_payloads(dw_arrival *a)
{
    dw_decoder *decoder = a->decoder;
    dw_work_run(&decoder->work, &decoder->config, digest_chunk, a);
    for (uint32_t i = 0; i < a->info.n; i++)
        if (dw_digest_of_sum(dw_work_join(&decoder->work, i).payload_sum) !=
            a->plans[i].entry.payload_digest)
            return dw_decoder_fail(
                decoder, DW_ERR_CORRUPT,
                "a payload's checksum does not match: its bytes were changed on the way");
    return DW_OK;
}

/* Steps 8 and 9: into fresh slots, then the digest. A mismatch costs the copy that the delta
 * started from: either it is rotten, or the two machines do not compute alike, and only a key frame
 * can tell. */
static dw_status reconstruct(dw_arrival *a)
{
    dw_decoder *decoder = a->decoder;
    const dw_engine *engine = &decoder->engine;
    dw_audit audit = {a->info.audit, a->info.sequence};
    dw_status status = DW_OK;
    if (a->info.codec == DW_CODEC_DELTA)
        dw_work_run(&decoder->work, &decoder->config, advance_chunk, a);
    for (uint32_t i = 0; i < a->info.n; i++) {
        dw_incoming *p = &a->plans[i];
        if (!dw_kind_has_state(p->entry.kind)) continue;
        p->fresh.version = a->info.sequence;
        p->fresh.chain = dw_frame_chain(&a->info, &p->entry);
        p->fresh.audit = a->info.audit;
        if (!a->info.audit) continue;
        uint64_t sum =
            dw_kind_is_floats(p->entry.kind)
                ? engine->state_sum(engine, p->fresh.data, a->info.prev,
                                    (uint64_t)a->info.t * a->info.c, audit)
                : engine->seam_sum(engine, &p->job.layout, p->fresh.data, a->info.prev, audit);
        p->fresh.state_digest = dw_digest_of_sum(sum + dw_work_join(&decoder->work, i).state_sum);
        if (p->fresh.state_digest == p->entry.state_digest) continue;
        status = DW_ERR_STATE;
        p->gives_up = p->entry.kind == DW_ENTRY_DELTA;
    }
    return status ? dw_decoder_fail(decoder, status, NULL) : DW_OK;
}

static void count_scales(dw_counters *counters, const uint8_t *scales, uint64_t n)
{
    uint64_t zero = 0, poisoned = 0; /* of their own: stores to counters would keep the loop from
                                        being vectorized */
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits = scales[2 * i] | (uint32_t)scales[2 * i + 1] << 8;
        zero += bits == 0;
        poisoned += (bits & 0x7f80u) == 0x7f80u;
    }
    counters->zero_groups += zero;
    counters->poisoned_groups += poisoned;
}

static void count_pieces(dw_counters *counters, const dw_incoming *p)
{
    const dw_layout *layout = &p->job.layout;
    const uint8_t *payload = p->job.payload;
    counters->groups += layout->pieces;
    if (layout->by_channel) count_scales(counters, payload + layout->choice_bytes, layout->pieces);
    for (uint64_t i = 0; !layout->by_channel && i < layout->tiles; i++) {
        dw_tile tile = dw_layout_tile(layout, i);
        count_scales(counters, payload + tile.offset, tile.segments);
    }
    for (uint64_t i = 0; layout->chooses && i < layout->pieces; i++)
        counters->direct_groups += payload[i / 8] >> i % 8 & 1;
}

/* Step 10. Nothing here can fail. */
void dw_arrival_commit(dw_arrival *a)
{
    dw_decoder *decoder = a->decoder;
    dw_counters *counters = &decoder->counters;
    dw_held shape = {
        .t = a->info.t, .c = a->info.c, .dtype = a->info.prev, .incarnation = a->info.incarnation};
    uint64_t raw = 0;
    bool state = false;
    for (uint32_t i = 0; i < a->info.n; i++) {
        dw_incoming *p = &a->plans[i];
        counters->delta_entries += p->entry.kind == DW_ENTRY_DELTA;
        counters->stateless_entries += !dw_kind_has_state(p->entry.kind);
        counters->key_entries +=
            dw_kind_has_state(p->entry.kind) && p->entry.kind != DW_ENTRY_DELTA;
        if (!dw_kind_has_state(p->entry.kind)) continue;
        dw_predictor_commit(&decoder->predictor, p->held, &shape, p->fresh, false);
        state = true;
    }
    for (uint32_t i = 0; i < a->info.n_forgotten; i++) {
        dw_held *held = dw_arrival_to_forget(a, i);
        if (held && held->busy)
            held->doomed = true;
        else if (held)
            dw_predictor_remove(&decoder->predictor, held);
    }
    if (state && decoder->incarnation != a->info.incarnation) {
        if (decoder->incarnation)
            decoder->retired[decoder->n_retired++ % DW_RETIRED] = decoder->incarnation;
        decoder->incarnation = a->info.incarnation;
        dw_predictor_remove_lives_but(&decoder->predictor, a->info.incarnation);
    }
    (void)dw_tensor_bytes(a->info.n, a->info.t, a->info.c, a->y->dtype, &raw);
    counters->frames++;
    counters->raw_bytes += raw;
    counters->encoded_bytes += a->len;
}

static void commit(dw_arrival *a)
{
    for (uint32_t i = 0; i < a->info.n; i++)
        if (!dw_kind_is_floats(a->plans[i].entry.kind))
            count_pieces(&a->decoder->counters, &a->plans[i]);
    dw_arrival_commit(a);
}

static uint64_t now(const dw_decoder *decoder)
{
    return decoder->config.now_ns ? decoder->config.now_ns(decoder->config.now_context) : 0;
}

static dw_status receive(dw_arrival *a)
{
    dw_status status = dw_arrival_agrees(a);
    if (status) return status;
    status = dw_arrival_plan(a, &a->decoder->plans, &a->decoder->plans_cap);
    if (!status) status = prepare_chunks(a);
    if (!status) status = check_payloads(a);
    if (!status) status = dw_arrival_admit(a);
    if (!status) status = reconstruct(a);
    if (!status && a->y->data) dw_work_run(&a->decoder->work, &a->decoder->config, write_chunk, a);
    if (status)
        dw_arrival_give_up(a);
    else
        commit(a);
    return status;
}

dw_status dw_decode(dw_decoder *decoder, const void *frame, size_t len, const dw_tensor *y,
                    void *reply, size_t reply_cap, size_t *reply_len)
{
    const char *why;
    bool tables_intact;
    if (reply_len) *reply_len = 0;
    if (!decoder) return DW_ERR_ARGUMENT;
    if (decoder->remote)
        return dw_decoder_fail(decoder, DW_ERR_UNSUPPORTED,
                               "this decoder computes on a GPU: call dw_decode_async");
    if (!frame || !y || (reply && !reply_len))
        return dw_decoder_fail(decoder, DW_ERR_ARGUMENT, "an argument is NULL");
    dw_status status = dw_tensor_check(y);
    if (status || dw_tensor_overlaps(y))
        return dw_decoder_fail(
            decoder, status ? status : DW_ERR_ARGUMENT,
            "y is no tensor that can be written: see its dtype, alignment, extents and strides");
    if (reply && reply_cap < dw_reply_bound(y->n))
        return dw_decoder_fail(
            decoder, DW_ERR_NO_ROOM,
            "the reply does not fit: dw_reply_bound tells the room that is enough");
    uint64_t started = now(decoder);
    decoder->calls++;
    dw_arrival a = {.decoder = decoder, .frame = frame, .body = frame, .len = len, .y = y};
    status = dw_frame_open(frame, len, &a.info, &tables_intact, &why);
    if (status)
        snprintf(decoder->why.text, sizeof decoder->why.text, "the frame cannot be read: %s", why);
    bool answers = tables_intact && reply && reply_cap >= dw_reply_bound(a.info.n) &&
                   dw_decoder_asks_for_reply(&a);
    if (!status) status = receive(&a);
    if (answers) *reply_len = dw_decoder_write_reply(&a, status != DW_OK, reply);
    if (status) decoder->counters.rejected_frames++;
    decoder->counters.busy_ns += now(decoder) - started;
    return status;
}

dw_status dw_decoder_peek(const dw_decoder *decoder, dw_key key, dw_tensor *prev)
{
    if (!decoder || !prev) return DW_ERR_ARGUMENT;
    const dw_held *held = dw_predictor_find(&decoder->predictor, key);
    if (!held || !held->now.data) return DW_ERR_ARGUMENT;
    *prev = dw_tensor_3d(held->now.data, held->dtype, 1, held->t, held->c);
    return DW_OK;
}

dw_counters dw_decoder_counters(const dw_decoder *decoder)
{
    if (!decoder) return (dw_counters){0};
    dw_counters counters = decoder->counters;
    counters.keys_held = decoder->predictor.keys;
    counters.state_bytes = dw_predictor_bytes(&decoder->predictor);
    return counters;
}

const char *dw_decoder_why(const dw_decoder *decoder)
{
    return decoder ? decoder->why.text : "";
}
