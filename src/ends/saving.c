/* SPDX-License-Identifier: Apache-2.0
 * saving.c - saves and restores the state of a key, for encoder and decoder, and what an encoder
 * keeps beside its copies. */
#include "ends/saving.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "codecs/options.h"

/* A residual goes on under any incarnation, whose numbers begin anew. */
static dw_saved describe(const dw_saver *saver, const dw_held *held)
{
    bool begins_anew =
        saver->side == DW_SIDE_RESIDUAL && held->incarnation != saver->end->incarnation;
    return (dw_saved){.side = saver->side,
                      .dtype = held->dtype,
                      .is_base = held->base == DW_BASE_NOW,
                      .key = held->key,
                      .t = held->t,
                      .c = held->c,
                      .more = (uint32_t)(held->more / 4),
                      .audit = held->now.audit,
                      .incarnation = saver->side == DW_SIDE_RESIDUAL ? saver->end->incarnation
                                                                     : held->incarnation,
                      .sequence = saver->sequence ? *saver->sequence : 0,
                      .version = begins_anew ? 1 : held->now.version,
                      .chain = begins_anew ? 1 : held->now.chain,
                      .state_digest = held->now.state_digest,
                      .prev = held->now.data};
}

static const char in_flight[] = "the key is in a frame that is still in flight: finish or cancel "
                                "that frame first";
static const char no_room[] = "quota_bytes is used up";

static uint64_t values_bytes(const dw_saved *saved)
{
    return dw_saved_bytes(saved) - DW_SAVED_HEADER_BYTES;
}

/* room: of dw_saved_bytes(held) bytes; on an error nothing is written to it. */
static dw_status write_saved(const dw_saver *saver, const dw_saved *held, void *room)
{
    const dw_engine *engine = &saver->end->engine;
    dw_saved saved = *held;
    uint64_t bytes = values_bytes(held);
    if (!engine->copy) {
        dw_saved_write(room, held);
        return DW_OK;
    }
    void *values = dw_mem_allocate(&saver->end->host.allocator, bytes);
    if (!values) return dw_end_fail(saver->end, DW_ERR_NO_MEMORY, NULL);
    dw_status status = engine->copy(engine->context, values, held->prev, bytes, &saver->end->why);
    saved.prev = values;
    if (!status) dw_saved_write(room, &saved);
    dw_mem_release(&saver->end->host.allocator, values, bytes);
    return status;
}

/* Copies the saved values to a slot of the predictor, which may be device memory. */
static dw_status load_saved(const dw_saver *saver, const dw_saved *saved, void *slot)
{
    const dw_engine *engine = &saver->end->engine;
    uint64_t bytes = values_bytes(saved);
    if (!engine->copy) {
        dw_saved_load(slot, saved);
        return DW_OK;
    }
    void *values = dw_mem_allocate(&saver->end->host.allocator, bytes);
    if (!values) return dw_end_fail(saver->end, DW_ERR_NO_MEMORY, NULL);
    dw_saved_load(values, saved);
    dw_status status = engine->copy(engine->context, slot, values, bytes, &saver->end->why);
    dw_mem_release(&saver->end->host.allocator, values, bytes);
    return status;
}

static bool any_is_busy(const dw_predictor *predictor)
{
    for (uint64_t i = 0; i < predictor->table_cap; i++)
        if (predictor->table[i] && predictor->table[i]->busy) return true;
    return false;
}

/* ---- What an encoder keeps beside its copies ------------------------------------------------- */

/* Whether the frames to come depend on it: on the rate of those before, or, if the state of no key
 * says it, on incarnation and number of the last frame. Numbers are drawn with these; and an
 * encoder with a fixed incarnation would otherwise make frames that the decoder takes for old ones.
 */
static bool has_stream(const dw_saver *saver, bool any_is_saved)
{
    const dw_config *config = &saver->end->config;
    bool draws = config->rounding == DW_ROUNDING_STOCHASTIC ||
                 config->rounding == DW_ROUNDING_DITHER || config->codec == DW_CODEC_RANDK ||
                 config->codec == DW_CODEC_COCKTAIL;
    bool repeats = config->incarnation && config->codec == DW_CODEC_DELTA;
    bool has_begun = config->incarnation && config->incarnation != saver->end->incarnation;
    return saver->sequence && (*saver->sequence || has_begun) &&
           (saver->rate->step > 0 || ((draws || repeats) && !any_is_saved));
}

static void put_number(uint8_t *to, double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    dw_put64(to, bits);
}

static double get_number(const uint8_t *from)
{
    uint64_t bits = dw_get64(from);
    double number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

static dw_status save_stream(const dw_saver *saver, dw_saved_visit *visit, void *context)
{
    uint8_t words[4 * DW_SAVED_RATE_WORDS], numbers[sizeof words];
    uint8_t saved[DW_SAVED_HEADER_BYTES + sizeof words];
    dw_saved stream = {.side = DW_SIDE_STREAM,
                       .dtype = DW_F32,
                       .key = DW_STREAM_KEY,
                       .more = saver->rate->step > 0 ? DW_SAVED_RATE_WORDS : 0,
                       .incarnation = saver->end->incarnation,
                       .sequence = *saver->sequence,
                       .prev = words};
    put_number(numbers, saver->rate->step);
    put_number(numbers + 8, saver->rate->debt);
    for (int i = 0; i < DW_SAVED_RATE_WORDS; i++) { /* to words in the machine's byte order */
        uint32_t word = dw_get32(numbers + 4 * i);
        memcpy(words + 4 * i, &word, sizeof word);
    }
    dw_saved_write(saved, &stream);
    return visit(context, stream.key, saved, (size_t)dw_saved_bytes(&stream));
}

/* Numbers that rate.c cannot have made are refused. */
static dw_status restore_stream(const dw_saver *saver, const dw_saved *saved)
{
    if (saved->more && saver->rate->step > 0) {
        double step = get_number(saved->prev), debt = get_number((const uint8_t *)saved->prev + 8);
        double most = (double)dw_option_step_most(&saver->end->config) / 1000;
        if (!(step >= 0.01 && step <= most && debt >= -1e3 && debt <= 1e3))
            return dw_end_fail(
                saver->end, DW_ERR_FORMAT,
                "the saved state cannot be read: its rate needs a step that this config has not");
        *saver->rate = (dw_rate){.step = step, .debt = debt};
    }
    return DW_OK;
}

/* A key whose copy the encoder has forgotten, or lost, and of which it has not told the decoder
 * yet. */
static dw_status save_forgotten(const dw_saver *saver, const dw_held *held, dw_saved_visit *visit,
                                void *context)
{
    uint8_t saved[DW_SAVED_HEADER_BYTES];
    dw_saved_write(saved, &(dw_saved){.side = DW_SIDE_FORGOTTEN,
                                      .dtype = DW_F32,
                                      .key = held->key,
                                      .incarnation = held->incarnation,
                                      .sequence = *saver->sequence,
                                      .counted = held->counted});
    return visit(context, held->key, saved, sizeof saved);
}

static dw_status restore_forgotten(const dw_saver *saver, const dw_saved *saved)
{
    dw_predictor *predictor = &saver->end->predictor;
    dw_held *held = dw_predictor_find(predictor, saved->key);
    uint64_t own = held ? held->counted : 0, sum;
    uint64_t others = predictor->held_bytes + predictor->reserved_bytes - own;
    if (held && held->busy) return dw_end_fail(saver->end, DW_ERR_ARGUMENT, in_flight);
    if (!dw_size_add(others, saved->counted, &sum) ||
        (predictor->quota_bytes && sum > predictor->quota_bytes))
        return dw_end_fail(saver->end, DW_ERR_LIMIT, no_room);
    dw_status status = dw_predictor_add(predictor, saved->key, &held);
    if (status) return dw_end_fail(saver->end, status, NULL);
    held->incarnation = saved->incarnation;
    dw_predictor_forget(predictor, held);
    dw_predictor_count(predictor, held, saved->counted);
    return DW_OK;
}

/* ---- Visits ---------------------------------------------------------------------------------- */

/* Memory for the state of one key after the other. */
typedef struct saving_room {
    void *bytes;
    uint64_t cap;
} saving_room;

/* A copy of an earlier incarnation is no base any more, and one end can have only one of them. A
 * residual has none. */
static bool is_worth_saving(const dw_saver *saver, const dw_held *held)
{
    return saver->side != DW_SIDE_ENCODER || held->incarnation == saver->end->incarnation;
}

/* Visits a key. *is_held: whether there was a copy to visit, or only_copies is false and there was
 * anything. */
static dw_status save_one(const dw_saver *saver, dw_held *held, bool only_copies, saving_room *room,
                          dw_saved_visit *visit, void *context, bool *is_held)
{
    *is_held = false;
    if (!is_worth_saving(saver, held)) return DW_OK;
    dw_status status = dw_predictor_page_in(&saver->end->predictor, held, &held->now);
    if (status) return dw_end_fail_paging(saver->end, status);
    *is_held = held->now.data != NULL;
    if (!*is_held && saver->side == DW_SIDE_ENCODER && !only_copies) {
        *is_held = true;
        return save_forgotten(saver, held, visit, context);
    }
    if (!*is_held) return DW_OK;
    dw_saved saved = describe(saver, held);
    uint64_t bytes = dw_saved_bytes(&saved);
    if (!dw_mem_grow(&saver->end->host.allocator, &room->bytes, &room->cap, bytes, 1))
        return dw_end_fail(saver->end, DW_ERR_NO_MEMORY, NULL);
    status = write_saved(saver, &saved, room->bytes);
    return status ? status : visit(context, held->key, room->bytes, (size_t)bytes);
}

/* Visits keys in the order of the hash table, so the visitor must not change what is held. */
dw_status dw_save(const dw_saver *saver, const dw_key *key, dw_saved_visit *visit, void *context)
{
    dw_predictor *predictor = &saver->end->predictor;
    dw_held *only = key ? dw_predictor_find(predictor, *key) : NULL;
    saving_room room = {NULL, 0};
    bool is_held = false, any_is_held = false;
    dw_status status = DW_OK;
    if (!visit) return dw_end_fail(saver->end, DW_ERR_ARGUMENT, "an argument is NULL");
    if (key ? only && only->busy : any_is_busy(predictor))
        return dw_end_fail(saver->end, DW_ERR_ARGUMENT, in_flight);
    if (only) status = save_one(saver, only, true, &room, visit, context, &is_held);
    if (key && !status && !is_held)
        status = dw_end_fail(saver->end, DW_ERR_ARGUMENT,
                             !only             ? "the key is not held"
                             : only->forgotten ? "the key was forgotten"
                                               : "the key's copy is of an earlier incarnation, or "
                                                 "was lost");
    for (uint64_t i = 0; !key && i < predictor->table_cap && !status; i++) {
        if (!predictor->table[i]) continue;
        status = save_one(saver, predictor->table[i], false, &room, visit, context, &is_held);
        any_is_held |= is_held;
    }
    dw_mem_release(&saver->end->host.allocator, room.bytes, room.cap);
    return !status && !key && has_stream(saver, any_is_held) ? save_stream(saver, visit, context)
                                                             : status;
}

/* An end that has seen no frame takes over the saved incarnation. One that has state of another
 * incarnation refuses. */
static dw_status check_incarnation(const dw_saver *saver, const dw_saved *saved)
{
    bool is_beside = (saved->side == DW_SIDE_STREAM && saver->sequence) ||
                     (saved->side == DW_SIDE_FORGOTTEN && saver->side == DW_SIDE_ENCODER);
    if (saved->side != saver->side && !is_beside) {
        static const char *const sides[] = {[DW_SIDE_ENCODER] = "an encoder without feedback",
                                            [DW_SIDE_DECODER] = "a decoder",
                                            [DW_SIDE_RESIDUAL] = "an encoder with feedback",
                                            [DW_SIDE_STREAM] = "an encoder",
                                            [DW_SIDE_FORGOTTEN] = "an encoder without feedback"};
        snprintf(saver->end->why.text, sizeof saver->end->why.text,
                 "the state was saved by %s, and this is %s", sides[saved->side],
                 sides[saver->side]);
        return DW_ERR_MISMATCH;
    }
    bool is_new = saver->end->predictor.keys == 0 &&
                  (saver->sequence ? *saver->sequence : saver->end->incarnation) == 0;
    if (is_new || saver->end->incarnation == saved->incarnation) return DW_OK;
    return dw_end_fail(
        saver->end, DW_ERR_MISMATCH,
        "the state was saved under another incarnation: import into an encoder or decoder "
        "that has seen no frame");
}

static dw_status place(const dw_saver *saver, const dw_saved *saved)
{
    dw_predictor *predictor = &saver->end->predictor;
    dw_held *held = dw_predictor_find(predictor, saved->key);
    bool added = !held;
    uint64_t used = predictor->held_bytes + predictor->reserved_bytes;
    uint64_t bytes = values_bytes(saved);
    dw_copy fresh = {.version = saved->version,
                     .chain = saved->chain,
                     .state_digest = saved->state_digest,
                     .audit = saved->audit};
    dw_status status = held ? DW_OK : dw_predictor_add(predictor, saved->key, &held);
    if (status) return dw_end_fail(saver->end, status, NULL);
    if (held->busy) return dw_end_fail(saver->end, DW_ERR_ARGUMENT, in_flight);
    uint64_t growth = bytes > held->counted ? bytes - held->counted : 0;
    status = dw_predictor_take(predictor, bytes, growth, &used, &fresh.data);
    if (status) {
        if (status == DW_ERR_LIMIT)
            (void)dw_end_fail(saver->end, status, no_room);
        else
            (void)dw_end_fail_paging(saver->end, status);
    } else {
        status = load_saved(saver, saved, fresh.data);
        if (status) dw_predictor_give(predictor, fresh.data, bytes);
    }
    if (status) {
        if (added) dw_predictor_remove(predictor, held);
        return status;
    }
    dw_held shape = {.t = saved->t,
                     .c = saved->c,
                     .dtype = saved->dtype,
                     .more = 4 * (uint64_t)saved->more,
                     .incarnation = saved->incarnation};
    dw_predictor_commit(predictor, held, &shape, fresh, false);
    dw_paging_list(&predictor->paging, held);
    if (!saved->is_base) held->base = DW_BASE_NOTHING;
    return DW_OK;
}

dw_status dw_restore(const dw_saver *saver, const void *from, size_t len)
{
    dw_saved saved;
    const char *why;
    if (!from) return dw_end_fail(saver->end, DW_ERR_ARGUMENT, "an argument is NULL");
    dw_status status = dw_saved_read(from, len, &saved, &why);
    if (status) {
        snprintf(saver->end->why.text, sizeof saver->end->why.text,
                 "the saved state cannot be read: %s", why);
        return status;
    }
    if (saver->sequence && (saved.sequence > DW_SEQUENCE_MOST || saved.version > DW_SEQUENCE_MOST))
        return dw_end_fail(saver->end, DW_ERR_FORMAT,
                           "the saved state cannot be read: no encoder has made so many frames");
    status = check_incarnation(saver, &saved);
    if (!status)
        status = saved.side == DW_SIDE_STREAM      ? restore_stream(saver, &saved)
                 : saved.side == DW_SIDE_FORGOTTEN ? restore_forgotten(saver, &saved)
                                                   : place(saver, &saved);
    if (status) return status;
    saver->end->incarnation = saved.incarnation;
    if (saver->sequence && saved.sequence > *saver->sequence) *saver->sequence = saved.sequence;
    if (saver->sequence && saved.version > *saver->sequence) *saver->sequence = saved.version;
    return DW_OK;
}
