/* SPDX-License-Identifier: Apache-2.0
 * joint_checkpoint.c - all ranks agree on the digests of their files before any of them writes the
 * manifest. */
#include "joint_checkpoint.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/sentence.h"
#include "codec_states.h"
#include "outer.h"
#include "replicas.h"
#include "tied.h"

/* ---- Starting from a checkpoint -------------------------------------------------------------- */

/* Checks that the checkpoint is one of this model; if it is continued, also that steps are left,
 * and that its states of gradients, if it has any, are those of this grid and codec. */
static dw_status check_start(const dw_checkpoint *start, const dw_settings *settings, dw_why *why)
{
    const dw_train_config *config = &settings->config;
    const dw_model_shape *a = &start->shape, *b = &settings->shape;
    const dw_checkpoint_states *states = &start->states;
    char found[DW_SHAPE_TEXT_BYTES], wanted[DW_SHAPE_TEXT_BYTES];
    if (memcmp(a, b, sizeof *a))
        return dw_say(why, DW_ERR_MISMATCH, "%s holds a model of %s; asked for are %s",
                      start->directory, dw_model_shape_text(a, found),
                      dw_model_shape_text(b, wanted));
    if (!config->resume) return DW_OK;
    if (start->step >= config->steps)
        return dw_say(why, DW_ERR_ARGUMENT,
                      "%s has done %u steps of %u already; give more steps or epochs",
                      start->directory, start->step, config->steps);
    if (states->replicas &&
        (states->replicas != config->replicas || states->stages != config->stages ||
         strcmp(states->codec, settings->kept_text)))
        return dw_say(why, DW_ERR_MISMATCH,
                      "%.60s keeps the state of gradients of %u replicas of %u stages with %.80s; "
                      "continue with the same, or start from it with init",
                      start->directory, states->replicas, states->stages, states->codec);
    return DW_OK;
}

/* Adds to what is wrong with the files of a checkpoint what to do next. */
static dw_status advise(dw_status status, dw_why *why)
{
    static const char next[] = ": restore the file, give another checkpoint, or begin without one";
    size_t length = why ? strlen(why->text) : 0;
    bool is_of_files = status == DW_ERR_FORMAT || status == DW_ERR_CORRUPT || status == DW_ERR_IO;
    if (length && is_of_files && length + sizeof next <= sizeof why->text)
        memcpy(why->text + length, next, sizeof next);
    return status;
}

dw_status dw_joint_checkpoint_open(dw_checkpoint *start, const dw_settings *settings, dw_why *why)
{
    const dw_train_config *config = &settings->config;
    const char *directory = config->resume ? config->resume : config->init;
    dw_status status = DW_OK;
    if (directory) status = advise(dw_checkpoint_open(start, directory, why), why);
    if (status == DW_OK && directory) status = check_start(start, settings, why);
    if (status == DW_OK && config->save)
        status = dw_checkpoint_prepare(config->save, &settings->shape, why);
    return status;
}

/* A state consists of what local steps keep, and what the group that averages the gradients of a
 * stage keeps. If there is a group of tied embeddings, the second item is preceded by its length
 * (8 bytes, little-endian) and followed by what the group of tied embeddings keeps. */
static dw_status use_state(dw_stage *stage, const uint8_t *bytes, size_t len)
{
    size_t outer = dw_outer_bytes(stage), head = stage->tied ? sizeof(uint64_t) : 0;
    uint64_t codec = len - outer;
    bool is_whole = len >= outer + head;
    if (is_whole && head) memcpy(&codec, bytes + outer, head);
    if (!is_whole || codec > len - outer - head)
        return dw_say(&stage->why, DW_ERR_FORMAT,
                      "the checkpoint's state of this rank is too short: %zu bytes", len);
    dw_outer_load(stage, bytes);
    bytes += outer + head;
    dw_status status = dw_replicas_load(stage, bytes, (size_t)codec);
    if (status < 0) return status;
    return dw_tied_load(stage, bytes + codec, len - outer - head - (size_t)codec);
}

static dw_status load_state(dw_stage *stage, const dw_checkpoint *start)
{
    uint8_t *bytes;
    size_t len;
    if (!start->states.digests[stage->settings->config.rank]) return DW_OK; /* it kept nothing */
    dw_status status =
        dw_checkpoint_read_state(start, stage->settings->config.rank, &bytes, &len, &stage->why);
    if (status == DW_OK) status = use_state(stage, bytes, len);
    free(bytes);
    return status;
}

dw_status dw_joint_checkpoint_load(dw_stage *stage, const dw_checkpoint *start)
{
    bool resumes = stage->settings->config.resume != NULL;
    dw_status status = DW_OK;
    for (uint32_t i = 0; i < stage->n_parts && status == DW_OK; i++)
        status = dw_checkpoint_read(start, dw_model_part(stage->model, i), resumes, &stage->why);
    if (status == DW_OK && resumes && start->states.replicas) status = load_state(stage, start);
    (void)advise(status, &stage->why);
    return status == DW_OK && resumes ? dw_codec_states_load(stage, start) : status;
}

/* ---- Saving ---------------------------------------------------------------------------------- */

/* Appends the state of this rank, as use_state describes it. *kept: whether there is any. */
static dw_status append_state(dw_stage *stage, dw_file *file, bool *kept)
{
    uint64_t codec = 0, copies = 0;
    uint8_t head[sizeof codec];
    dw_status status = DW_OK;
    dw_outer_save(stage, file);
    if (stage->tied) {
        status = dw_replicas_save(stage, NULL, &codec);
        dw_put64(head, codec);
        dw_file_append(file, head, sizeof head);
    }
    if (status == DW_OK) status = dw_replicas_save(stage, file, &codec);
    if (status == DW_OK) status = dw_tied_save(stage, file, &copies);
    *kept = dw_outer_bytes(stage) + codec + copies > 0;
    return status;
}

/* Writes it; *digest: of its bytes, 0: nothing is kept. */
static dw_status write_state(dw_stage *stage, const dw_checkpoint_place *place, uint64_t *digest)
{
    dw_file file;
    bool kept = false;
    *digest = 0;
    dw_status status = dw_checkpoint_begin_state(place, &file, &stage->why);
    if (status < 0) return status;
    status = append_state(stage, &file, &kept);
    if (status == DW_OK && kept)
        return dw_checkpoint_finish_state(place, &file, digest, &stage->why);
    dw_file_drop(&file);
    return status;
}

static json_t *text_of(uint64_t digest)
{
    return json_sprintf("%" PRIu64, digest);
}

/* Writes the parts of this rank, what the codec of its gradients keeps, and what those of its
 * boundaries keep. Sets *digests to their digests: strings, because JSON integers are signed. The
 * digest of a state that is empty is 0. */
static dw_status write_files(dw_stage *stage, const dw_checkpoint_place *place, json_t **digests)
{
    uint64_t digest = 0, state = 0, codecs = 0;
    dw_status status = DW_OK;
    json_t *parts = json_array();
    for (uint32_t i = 0; i < stage->n_parts && status == DW_OK; i++) {
        const dw_part *part = dw_model_part(stage->model, i);
        status = dw_checkpoint_write(place, part, &digest, &stage->why);
        json_array_append_new(parts, text_of(digest));
    }
    if (status == DW_OK) status = write_state(stage, place, &state);
    if (status == DW_OK) status = dw_codec_states_write(stage, place, &codecs);
    *digests = json_pack("{s:o, s:o, s:o}", "parts", parts, "state", text_of(state), "codecs",
                         text_of(codecs));
    if (status == DW_OK) return DW_OK;
    json_decref(*digests);
    *digests = NULL;
    return status;
}

static uint64_t digest_of(const json_t *text)
{
    return json_is_string(text) ? strtoull(json_string_value(text), NULL, 10) : 0;
}

/* Reads the digests of all ranks. Replicas hold the same parts, so theirs must be the same. */
static dw_status read_digests(dw_stage *stage, const json_t *ranks, uint64_t *parts,
                              dw_checkpoint_states *states)
{
    const dw_settings *settings = stage->settings;
    uint32_t n = 0, total = stage->total_parts;
    for (uint32_t rank = 0; rank < settings->ranks; rank++) {
        json_t *list = json_object_get(json_array_get(ranks, rank), "parts");
        json_t *state = json_object_get(json_array_get(ranks, rank), "state");
        for (size_t i = 0; i < json_array_size(list) && n < total * settings->config.replicas;
             i++, n++) {
            uint64_t digest = digest_of(json_array_get(list, i));
            if (n >= total && parts[n % total] != digest)
                return dw_say(&stage->why, DW_ERR_MISMATCH,
                              "rank %u and rank %u save different bytes for part %u of the model: "
                              "one of the two machines computes wrongly",
                              rank, rank % settings->config.stages, n % total);
            parts[n % total] = digest;
        }
        states->digests[rank] = digest_of(state);
        if (states->digests[rank]) states->replicas = settings->config.replicas;
    }
    if (n == total * settings->config.replicas) return DW_OK;
    return dw_say(&stage->why, DW_ERR_PROTOCOL,
                  "the other ranks did not save all parts of the model");
}

/* Reads what all ranks wrote of the codecs of boundaries. */
static dw_status read_codecs(dw_stage *stage, const json_t *ranks, dw_checkpoint_codecs *codecs)
{
    uint32_t n = stage->settings->ranks;
    uint64_t *digests = calloc(n, sizeof *digests);
    if (!digests) return dw_say(&stage->why, DW_ERR_NO_MEMORY, "out of memory for a manifest");
    for (uint32_t rank = 0; rank < n; rank++)
        digests[rank] = digest_of(json_object_get(json_array_get(ranks, rank), "codecs"));
    dw_status status = dw_codec_states_describe(stage, digests, codecs);
    free(digests);
    return status;
}

/* When all ranks have written their files, all digests are sent to all ranks, and each rank then
 * writes the manifest. */
static dw_status agree_on_manifest(dw_stage *stage, const dw_checkpoint_place *place, json_t *own)
{
    json_t *lists, *value;
    dw_status status = dw_stage_gather(stage, own, &lists);
    if (status == DW_OK) status = dw_stage_spread(stage, lists, &value);
    if (status != DW_OK) return status;
    uint64_t *parts = calloc(stage->total_parts, sizeof *parts);
    dw_checkpoint_states states = {.stages = stage->settings->config.stages,
                                   .digests = calloc(stage->settings->ranks, sizeof(uint64_t))};
    snprintf(states.codec, sizeof states.codec, "%s", stage->settings->kept_text);
    if (!parts || !states.digests)
        status = dw_say(&stage->why, DW_ERR_NO_MEMORY, "out of memory for a manifest");
    else
        status = read_digests(stage, value, parts, &states);
    dw_checkpoint_codecs codecs = {.stages = 0};
    if (status == DW_OK) status = read_codecs(stage, value, &codecs);
    if (status == DW_OK)
        status = dw_checkpoint_commit(place, parts, &states, codecs.stages ? &codecs : NULL,
                                      &stage->why);
    dw_checkpoint_free_codecs(&codecs);
    json_decref(value);
    free(parts);
    free(states.digests);
    return status;
}

/* What must be the same, beside what is compared with the checkpoint elsewhere, for a run to go on
 * as if it had never stopped. */
static void describe_settings(const dw_train_config *config,
                              char text[DW_CHECKPOINT_SETTINGS_BYTES])
{
    snprintf(text, DW_CHECKPOINT_SETTINGS_BYTES,
             "--seed %" PRIu64 " --batch %u --micro-batches %u --lr %.12g --warmup %u "
             "--beta1 %.12g --beta2 %.12g --weight-decay %.12g --clip %.12g",
             config->seed, config->batch, config->micro_batches, config->lr, config->warmup,
             config->beta1, config->beta2, config->weight_decay, config->clip);
}

void dw_joint_checkpoint_compare(const dw_stage *stage, const dw_checkpoint *start)
{
    const dw_train_config *config = &stage->settings->config;
    char now[DW_CHECKPOINT_SETTINGS_BYTES], text[3 * sizeof now];
    describe_settings(config, now);
    if (!config->resume || config->rank || !*start->settings || !strcmp(start->settings, now) ||
        !stage->hooks->on_misfit)
        return;
    snprintf(text, sizeof text,
             "%.200s was saved by a run with other settings, so this one will not have its losses: "
             "%s. Now: %s",
             start->directory, start->settings, now);
    stage->hooks->on_misfit(stage->hooks->context, text);
}

dw_status dw_joint_checkpoint_save(dw_stage *stage, uint32_t step)
{
    const dw_train_config *config = &stage->settings->config;
    char settings[DW_CHECKPOINT_SETTINGS_BYTES];
    describe_settings(config, settings);
    dw_checkpoint_place place = {.directory = config->save,
                                 .shape = stage->settings->shape,
                                 .step = step,
                                 .writer = config->rank,
                                 .has_outer = stage->settings->has_outer,
                                 .settings = settings};
    json_t *digests = NULL;
    dw_status status = write_files(stage, &place, &digests);
    /* Once others have all digests, they may have replaced the manifest. So if this rank has not,
     * neither its old files nor its new ones may go. */
    bool is_known = status < 0;
    if (status == DW_OK) status = agree_on_manifest(stage, &place, digests);
    is_known = is_known || status == DW_OK;
    if (status == DW_OK) stage->snapshot = stage->next_snapshot;
    for (uint32_t i = 0; i < stage->n_parts && is_known; i++)
        dw_checkpoint_tidy(config->save, dw_model_part(stage->model, i));
    if (is_known) dw_checkpoint_tidy_state(config->save, config->rank, stage->settings->ranks);
    if (status == DW_OK && config->rank == 0 && stage->hooks->on_save)
        stage->hooks->on_save(stage->hooks->context, config->save, step);
    return status;
}
