/* SPDX-License-Identifier: Apache-2.0
 * end.c - what encoder and decoder have in common: create, destroy, query. */
#include "ends/end.h"

#include <stdio.h>
#include <string.h>

#include "base/sentence.h"
#include "base/sized.h"
#include "codecs/copies.h"
#include "common/cpu.h"
#include "common/tensor.h"

dw_status dw_end_fail(dw_end *end, dw_status status, const char *sentence)
{
    snprintf(end->why.text, sizeof end->why.text, "%s",
             sentence ? sentence : dw_status_string(status));
    return status;
}

dw_status dw_end_fail_paging(dw_end *end, dw_status status)
{
    return status == DW_ERR_IO ? status : dw_end_fail(end, status, NULL);
}

static dw_status make_engine(dw_end *end, const dw_params *params, dw_why *why)
{
    const dw_host *host = &end->host;
    if (!host->cuda) return dw_engine_cpu(&end->engine, host, NULL) ? DW_OK : DW_ERR_NO_MEMORY;
    dw_status status = dw_engine_cuda(&end->engine, &end->config, host, why);
    if (status) return status;
    status = dw_params_on_device(params, why);
    if (status) {
        end->engine.release(end->engine.context);
        return status;
    }
    dw_predictor_use(&end->predictor, &end->engine.store);
    return DW_OK;
}

const char dw_end_busy[] = "a frame is still in flight, or captured: finish or cancel it first";

/* ---- Profiles -------------------------------------------------------------------------------- */

const dw_profile *dw_end_known(const dw_end *end, uint32_t digest)
{
    if (digest && digest == dw_profile_digest(end->config.profile)) return end->config.profile;
    for (uint32_t i = 0; i < DW_PROFILES_KEPT && digest; i++)
        if (digest == dw_profile_digest(end->learnt[i])) return end->learnt[i];
    return NULL;
}

dw_channels dw_end_channels(const dw_end *end, const dw_profile *profile)
{
    const dw_engine *engine = &end->engine;
    return engine->channels ? engine->channels(engine->context, profile)
                            : dw_profile_channels(profile);
}

static bool uses_profile(const dw_params *params)
{
    bool weighs = false;
    for (int use = 0; use < DW_USES; use++) weighs = weighs || params->use[use].weighs;
    return weighs;
}

/* Adds a copy of a profile. Plans refer to profiles, so the cache is cleared with the one that is
 * replaced. */
static dw_status add_profile(dw_end *end, const dw_profile *profile, const dw_profile **added)
{
    uint32_t place = end->n_learnt % DW_PROFILES_KEPT;
    dw_profile *copy = dw_profile_copy(profile, &end->host.allocator);
    dw_status status = copy ? DW_OK : dw_end_fail(end, DW_ERR_NO_MEMORY, NULL);
    if (!status && end->engine.learn)
        status = end->engine.learn(end->engine.context, 1 + place, copy, &end->why);
    if (status) {
        dw_profile_destroy(copy);
        return status;
    }
    if (end->learnt[place]) memset(&end->plans, 0, sizeof end->plans);
    dw_profile_destroy(end->learnt[place]);
    *added = end->learnt[place] = copy;
    end->n_learnt++;
    return DW_OK;
}

dw_status dw_end_learn(dw_end *end, const dw_profile *profile, dw_config *with)
{
    dw_params params;
    const dw_profile *known = dw_end_known(end, dw_profile_digest(profile));
    *with = end->config;
    with->profile = known ? known : profile;
    with->profile_digest = dw_profile_digest(profile);
    dw_status status = dw_params_resolve(&params, with, DW_F32, &end->why);
    if (!status && profile && !uses_profile(&params))
        status = dw_say(&end->why, DW_ERR_CONFIG,
                        "this codec has no use for a profile: profiles are for delta "
                        "and direct with form=step");
    if (status || !profile || known) return status;
    return add_profile(end, profile, &with->profile);
}

static dw_status take_host(dw_host *taken, const dw_host *given, dw_why *why)
{
    dw_status status = given ? dw_take_asked(taken, sizeof *taken, given, "dw_host", why) : DW_OK;
    if (status) return status;
    const dw_backing *backing = taken->backing;
    if (backing && (!backing->write || !backing->read || !backing->release))
        return dw_say(why, DW_ERR_ARGUMENT,
                      "host.backing has no function to write, read or release a copy");
    if (taken->place && !taken->cuda)
        return dw_say(why, DW_ERR_ARGUMENT,
                      "place is set but cuda is NULL; set cuda, or leave place at 0 for tensors in "
                      "main memory");
    if (taken->cuda && !taken->place) taken->place = DW_CUDA_DEVICE;
    return dw_mem_take_allocator(&taken->allocator, &taken->allocator, why);
}

/* Lets copies of prev move to the backing store. The CPU reaches slots in pinned memory. */
static void page(dw_end *end)
{
    dw_slot_copier copier = {.context = end->engine.context};
    if (end->host.place == DW_CUDA_DEVICE) copier.copy = end->engine.copy;
    dw_predictor_page(&end->predictor, end->host.backing, &copier, &end->why);
}

static dw_status make(dw_end **made, size_t bytes, const dw_config *given,
                      const dw_host *given_host, dw_why *why)
{
    dw_config config;
    dw_host host = {.struct_size = sizeof host};
    dw_params params;
    dw_status status = dw_config_take(&config, given, why);
    if (!status) status = dw_params_resolve(&params, &config, DW_F32, why);
    if (!status && config.profile_digest && !config.profile) /* it was made of a text */
        status = dw_say(why, DW_ERR_CONFIG,
                        "the option profile names a profile, but the config has none: set "
                        "its field `profile` (profile.h), or, in Python, give profile=");
    if (!status) status = take_host(&host, given_host, why);
    if (status) return status;
    dw_end *end = dw_mem_allocate(&host.allocator, bytes);
    if (!end) return DW_ERR_NO_MEMORY;
    memset(end, 0, bytes);
    end->config = config;
    end->host = host;
    dw_predictor_init(&end->predictor, &host.allocator, config.quota_bytes);
    status = make_engine(end, &params, why);
    if (status) {
        dw_predictor_release(&end->predictor);
        dw_mem_release(&host.allocator, end, bytes);
        return status;
    }
    if (host.backing) page(end);
    *made = end;
    return DW_OK;
}

dw_status dw_end_make(dw_end **made, size_t bytes, const dw_config *config, const dw_host *host,
                      dw_why *why)
{
    if (why) *why = (dw_why){.offset = -1};
    dw_status status = DW_ERR_ARGUMENT;
    if (made) *made = NULL;
    if (made && config) status = make(made, bytes, config, host, why);
    if (status && why && why->text[0] == 0)
        snprintf(why->text, sizeof why->text, "%s", dw_status_string(status));
    return status;
}

void dw_end_destroy(dw_end *end, size_t bytes)
{
    dw_allocator allocator = end->host.allocator;
    dw_predictor_release(&end->predictor); /* gives slots back to the engine */
    end->engine.release(end->engine.context);
    for (uint32_t i = 0; i < DW_PROFILES_KEPT; i++) dw_profile_destroy(end->learnt[i]);
    dw_mem_release(&allocator, end->peeked, end->peeked_cap);
    dw_mem_release(&allocator, end, bytes);
}

uint64_t dw_end_now(const dw_end *end)
{
    return end->host.now_ns ? end->host.now_ns(end->host.now_context) : 0;
}

bool dw_end_enlarge(dw_end *end, void *array, uint64_t *cap, uint64_t need, size_t element)
{
    void *grown;
    memcpy(&grown, array, sizeof grown);
    bool done = dw_mem_grow(&end->host.allocator, &grown, cap, need, element);
    memcpy(array, &grown, sizeof grown);
    return done;
}

enum { WORK_ALIGNMENT = 64 };

/* The sizes of the parts of an entry's memory, all multiples of WORK_ALIGNMENT. */
typedef struct work_bytes {
    uint64_t plain, scratch, room, prev; /* next takes as much as prev */
} work_bytes;

static work_bytes work_bytes_of(const dw_plan *plan)
{
    work_bytes bytes = {.room = dw_round_up(plan->room_bytes, WORK_ALIGNMENT)};
    uint64_t elements = (uint64_t)plan->t * plan->c;
    if (dw_compact_bits(plan->kept))
        bytes.prev = dw_round_up(elements * dw_dtype_bytes(plan->prev), WORK_ALIGNMENT);
    if (!plan->behind) return bytes;
    bytes.plain = dw_round_up(plan->plain_bytes, WORK_ALIGNMENT);
    bytes.scratch = dw_round_up(plan->scratch_bytes, WORK_ALIGNMENT);
    return bytes;
}

bool dw_end_add_work(const dw_plan *plan, uint64_t *bytes)
{
    work_bytes of = work_bytes_of(plan);
    return dw_size_add(*bytes, of.plain, bytes) && dw_size_add(*bytes, of.scratch, bytes) &&
           dw_size_add(*bytes, of.room, bytes) && dw_size_add(*bytes, of.prev, bytes) &&
           dw_size_add(*bytes, of.prev, bytes);
}

dw_work dw_end_work(const dw_plan *plan, uint8_t *memory, uint64_t at)
{
    work_bytes of = work_bytes_of(plan);
    dw_work work = {0};
    if (plan->behind) {
        work.plain = memory + at;
        work.scratch = memory + at + of.plain;
    }
    at += of.plain + of.scratch;
    if (of.room) work.room = memory + at;
    at += of.room;
    if (of.prev) {
        work.prev = memory + at;
        work.next = memory + at + of.prev;
    }
    return work;
}

dw_copies dw_end_expand(const dw_plan *plan, const dw_work *work, const void **prev, void **next)
{
    dw_copies copies = {.bits = dw_compact_bits(plan->kept),
                        .elements = (uint64_t)plan->t * plan->c};
    if (!copies.bits) return copies;
    copies.held = *prev;
    copies.base = work->prev;
    copies.fresh = *next;
    copies.made = work->next;
    if (*prev && work->prev) *prev = work->prev;
    if (*next && work->next) *next = work->next;
    return copies;
}

dw_status dw_end_prefetch(dw_end *end, const dw_key *keys, size_t n)
{
    if (!keys && n) return dw_end_fail(end, DW_ERR_ARGUMENT, "an argument is NULL");
    for (size_t i = 0; i < n; i++) {
        const dw_held *held = dw_predictor_find(&end->predictor, keys[i]);
        if (held) dw_paging_prefetch(&end->predictor.paging, held);
    }
    return DW_OK;
}

/* Expands what a compact copy holds to end->peeked. On a device it is copied to main memory, behind
 * the place of the result, and the result to a slot of the device, *to. */
static dw_status expand_held(dw_end *end, const dw_held *held, void **to)
{
    const dw_engine *engine = &end->engine;
    uint64_t elements = (uint64_t)held->t * held->c, size = sizeof(uint16_t) * elements,
             held_bytes = engine->copy ? dw_prev_bytes(held->dtype, elements) : 0;
    if (!dw_end_grow(end, &end->peeked, &end->peeked_cap, size + held_bytes, 1))
        return DW_ERR_NO_MEMORY;
    dw_copies copies = {.bits = dw_compact_bits(held->dtype),
                        .elements = elements,
                        .held = held->now.data,
                        .base = end->peeked};
    *to = end->peeked;
    if (engine->copy) {
        void *copied = (uint8_t *)end->peeked + size;
        dw_status status =
            engine->copy(engine->context, copied, held->now.data, held_bytes, &end->why);
        if (status) return status;
        copies.held = copied;
    }
    dw_cpu_mode mode = dw_cpu_enter_exact();
    dw_copies_expand(dw_engine_kernels(engine), &copies, 0, 1);
    dw_cpu_leave_exact(mode);
    if (!engine->copy) return DW_OK;
    if (end->shown) engine->store.give(engine->store.context, end->shown, end->shown_bytes);
    end->shown_bytes = size;
    *to = end->shown = engine->store.take(engine->store.context, size);
    return *to ? engine->copy(engine->context, *to, end->peeked, size, &end->why)
               : DW_ERR_NO_MEMORY;
}

dw_status dw_end_peek(dw_end *end, dw_key key, dw_tensor *prev)
{
    if (!prev) return dw_end_fail(end, DW_ERR_ARGUMENT, "an argument is NULL");
    dw_held *held = dw_predictor_find(&end->predictor, key);
    dw_status status = held ? dw_predictor_page_in(&end->predictor, held, &held->now) : DW_OK;
    if (status) return dw_end_fail_paging(end, status);
    if (!held || !held->now.data) return dw_end_fail(end, DW_ERR_ARGUMENT, "the key is not held");
    void *values = held->now.data;
    if (dw_compact_bits(held->dtype)) status = expand_held(end, held, &values);
    if (status == DW_ERR_NO_MEMORY) return dw_end_fail(end, status, NULL);
    if (!status) *prev = dw_tensor_3d(values, dw_prev_dtype(held->dtype), 1, held->t, held->c);
    return status;
}

dw_status dw_end_count(dw_end *end, dw_counters *counters)
{
    if (!counters) return dw_end_fail(end, DW_ERR_ARGUMENT, "an argument is NULL");
    dw_counters found = end->counters;
    found.keys_held = end->predictor.keys - end->predictor.n_forgotten;
    found.state_bytes = dw_predictor_bytes(&end->predictor);
    found.slack_bytes = dw_predictor_slack(&end->predictor);
    found.lost_copies = end->predictor.paging.lost;
    return dw_give_told(counters, &found, sizeof found, "dw_counters", &end->why);
}
