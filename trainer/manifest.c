/* SPDX-License-Identifier: Apache-2.0
 * manifest.c - the manifest of a checkpoint: what it says, and that it was not changed. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/sentence.h"
#include "checkpoint.h"
#include "file.h"
#include "layout.h"

/* A program refuses a format that it does not know. So a manifest that names states has format 2:
 * with format 1, older programs would continue without the states. A manifest of a model with tied
 * embeddings or a bottleneck has format 3: older programs would take it for another model. One
 * that names states of the codecs of boundaries has format 4, for the same reason as format 2. */
enum { FORMAT = 1, FORMAT_WITH_STATES = 2, FORMAT_OF_VARIANTS = 3, FORMAT_WITH_CODECS = 4 };

/* ---- Writing --------------------------------------------------------------------------------- */

static json_t *hex_of(uint64_t digest)
{
    return json_sprintf("%016" PRIx64, digest);
}

static json_t *hex_list(const uint64_t *digests, uint32_t n)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++) json_array_append_new(list, hex_of(digests[i]));
    return list;
}

static json_t *states_of(const dw_checkpoint_states *states)
{
    return json_pack("{s:I, s:I, s:s, s:o}", "stages", (json_int_t)states->stages, "replicas",
                     (json_int_t)states->replicas, "codec", states->codec, "states",
                     hex_list(states->digests, states->stages * states->replicas));
}

static json_t *codecs_of(const dw_checkpoint_codecs *codecs)
{
    uint32_t ranks = codecs->stages * codecs->replicas;
    return json_pack("{s:I, s:I, s:s, s:s, s:s, s:o}", "stages", (json_int_t)codecs->stages,
                     "replicas", (json_int_t)codecs->replicas, "layout", codecs->layout, "forward",
                     codecs->forward, "backward", codecs->backward, "states",
                     hex_list(codecs->digests, ranks));
}

static json_t *manifest_of(const dw_checkpoint_place *place, const uint64_t *digests,
                           const dw_checkpoint_states *states, const dw_checkpoint_codecs *codecs)
{
    const dw_model_shape *shape = &place->shape;
    json_t *parts = json_object();
    for (uint32_t i = 0; i < dw_model_parts(shape); i++) {
        char name[DW_PART_NAME_BYTES];
        dw_part_name(shape, i, name);
        json_object_set_new(parts, name, hex_of(digests[i]));
    }
    bool is_variant = shape->tied || shape->bottleneck;
    int format = codecs             ? FORMAT_WITH_CODECS
                 : is_variant       ? FORMAT_OF_VARIANTS
                 : states->replicas ? FORMAT_WITH_STATES
                                    : FORMAT;
    json_t *model = json_pack("{s:I, s:I, s:I, s:I}", "layers", (json_int_t)shape->layers,
                              "channels", (json_int_t)shape->channels, "heads",
                              (json_int_t)shape->heads, "context", (json_int_t)shape->context);
    if (shape->tied) json_object_set_new(model, "tied", json_true());
    if (shape->bottleneck) {
        json_object_set_new(model, "bottleneck", json_integer(shape->bottleneck));
        json_object_set_new(model, "stages", json_integer(shape->stages));
    }
    json_t *manifest =
        json_pack("{s:i, s:o, s:I, s:o, s:s*}", "format", format, "model", model, "step",
                  (json_int_t)place->step, "parts", parts, "settings", place->settings);
    if (!manifest) return NULL;
    if ((!states->replicas || json_object_set_new(manifest, "gradients", states_of(states)) == 0) &&
        (!codecs || json_object_set_new(manifest, "boundaries", codecs_of(codecs)) == 0))
        return manifest;
    json_decref(manifest);
    return NULL;
}

/* XXH3 over the manifest without its digest field, in compact form with sorted keys, so that every
 * edit is detected. */
static int digest_manifest(json_t *manifest, uint64_t *digest)
{
    char *text = json_dumps(manifest, JSON_COMPACT | JSON_SORT_KEYS);
    if (!text) return -1;
    *digest = XXH3_64bits(text, strlen(text));
    free(text);
    return 0;
}

dw_status dw_checkpoint_commit(const dw_checkpoint_place *place, const uint64_t *digests,
                               const dw_checkpoint_states *states,
                               const dw_checkpoint_codecs *codecs, dw_why *why)
{
    char path[4200], temporary[4200];
    snprintf(path, sizeof path, "%s/manifest.json", place->directory);
    snprintf(temporary, sizeof temporary, "%s/manifest-%u.tmp", place->directory, place->writer);
    json_t *manifest = manifest_of(place, digests, states, codecs);
    uint64_t digest = 0;
    char *text = NULL;
    if (manifest && digest_manifest(manifest, &digest) == 0 &&
        json_object_set_new(manifest, "digest", hex_of(digest)) == 0)
        text = json_dumps(manifest, JSON_INDENT(2));
    dw_status status =
        text ? dw_file_write(place->directory, path, temporary, text, strlen(text), "\n", 1, why)
             : dw_say(why, DW_ERR_NO_MEMORY, "out of memory while writing a checkpoint to %s",
                      place->directory);
    free(text);
    json_decref(manifest);
    return status;
}

/* ---- Reading --------------------------------------------------------------------------------- */

int dw_parse_hex(const char *text, uint64_t *value)
{
    if (!text || strspn(text, "0123456789abcdef") != 16 || text[16]) return -1;
    *value = strtoull(text, NULL, 16);
    return 0;
}

/* Reads a list of digests, of which there are n. Returns -1 if it is anything else. */
static int read_hex_list(const json_t *list, uint64_t *digests, size_t n)
{
    if (json_array_size(list) != n) return -1;
    for (size_t i = 0; i < n; i++)
        if (dw_parse_hex(json_string_value(json_array_get(list, i)), &digests[i])) return -1;
    return 0;
}

/* Reads the field of a manifest of format 2 that names the states. */
static dw_status read_states(dw_checkpoint *checkpoint, json_t *gradients, dw_why *why)
{
    dw_checkpoint_states *states = &checkpoint->states;
    json_int_t stages = 0, replicas = 0;
    const char *codec = "";
    json_t *digests = NULL;
    if (json_unpack(gradients, "{s:I, s:I, s:s, s:o}", "stages", &stages, "replicas", &replicas,
                    "codec", &codec, "states", &digests) ||
        stages < 1 || stages > 9999 || replicas < 1 || replicas > 256 ||
        strlen(codec) >= sizeof states->codec)
        return dw_say(why, DW_ERR_FORMAT, "%s/manifest.json does not name the states of a grid",
                      checkpoint->directory);
    snprintf(states->codec, sizeof states->codec, "%s", codec);
    states->digests = calloc((size_t)(stages * replicas), sizeof *states->digests);
    if (!states->digests)
        return dw_say(why, DW_ERR_NO_MEMORY, "out of memory while reading the checkpoint %s",
                      checkpoint->directory);
    if (read_hex_list(digests, states->digests, (size_t)(stages * replicas)))
        return dw_say(why, DW_ERR_FORMAT, "%s/manifest.json does not name the states of a grid",
                      checkpoint->directory);
    states->stages = (uint32_t)stages;
    states->replicas = (uint32_t)replicas;
    return DW_OK;
}

/* Reads the field of a manifest of format 4 that names the states of the codecs of boundaries. */
static dw_status read_codecs(dw_checkpoint *checkpoint, json_t *boundaries, dw_why *why)
{
    dw_checkpoint_codecs *codecs = &checkpoint->codecs;
    json_int_t stages = 0, replicas = 0;
    const char *layout = NULL, *forward = NULL, *backward = NULL;
    json_t *digests = NULL;
    if (json_unpack(boundaries, "{s:I, s:I, s:s, s:s, s:s, s:o}", "stages", &stages, "replicas",
                    &replicas, "layout", &layout, "forward", &forward, "backward", &backward,
                    "states", &digests) ||
        stages < 1 || stages > 9999 || replicas < 1 || replicas > 256)
        return dw_say(why, DW_ERR_FORMAT, "%s/manifest.json does not name the states of codecs",
                      checkpoint->directory);
    size_t ranks = (size_t)(stages * replicas);
    codecs->layout = strdup(layout);
    codecs->forward = strdup(forward);
    codecs->backward = strdup(backward);
    codecs->digests = calloc(ranks, sizeof *codecs->digests);
    if (!codecs->layout || !codecs->forward || !codecs->backward || !codecs->digests)
        return dw_say(why, DW_ERR_NO_MEMORY, "out of memory while reading the checkpoint %s",
                      checkpoint->directory);
    if (read_hex_list(digests, codecs->digests, ranks))
        return dw_say(why, DW_ERR_FORMAT, "%s/manifest.json does not name the states of codecs",
                      checkpoint->directory);
    codecs->stages = (uint32_t)stages;
    codecs->replicas = (uint32_t)replicas;
    return DW_OK;
}

/* Reads the fields of a manifest whose digest has been verified. */
static dw_status read_manifest(dw_checkpoint *checkpoint, json_t *manifest, dw_why *why)
{
    json_int_t format = 0, L = 0, C = 0, H = 0, T = 0, R = 0, K = 0, step = -1;
    json_t *parts = NULL;
    int tied = 0;
    if (json_unpack(manifest, "{s:I, s:{s:I, s:I, s:I, s:I, s?b, s?I, s?I}, s:I, s:o}", "format",
                    &format, "model", "layers", &L, "channels", &C, "heads", &H, "context", &T,
                    "tied", &tied, "bottleneck", &R, "stages", &K, "step", &step, "parts",
                    &parts) ||
        R < 0 || K < 0 || R > UINT32_MAX || K > UINT32_MAX || L < 0 || C < 0 || H < 0 || T < 0 ||
        L > UINT32_MAX || C > UINT32_MAX || H > UINT32_MAX || T > UINT32_MAX || step < 0 ||
        step > UINT32_MAX)
        return dw_say(why, DW_ERR_FORMAT, "%s/manifest.json is not a checkpoint's manifest",
                      checkpoint->directory);
    if (format < FORMAT || format > FORMAT_WITH_CODECS)
        return dw_say(why, DW_ERR_VERSION,
                      "%s holds a checkpoint of format %d; this program reads formats %d to %d",
                      checkpoint->directory, (int)format, FORMAT, FORMAT_WITH_CODECS);
    checkpoint->shape = (dw_model_shape){(uint32_t)L,    (uint32_t)C, (uint32_t)H, (uint32_t)T,
                                         (uint32_t)tied, (uint32_t)R, (uint32_t)K};
    checkpoint->step = (uint32_t)step;
    dw_why shape_why;
    if (dw_model_shape_check(&checkpoint->shape, &shape_why) < 0)
        return dw_say(why, DW_ERR_FORMAT, "%s/manifest.json: %.180s", checkpoint->directory,
                      shape_why.text);
    checkpoint->n_parts = dw_model_parts(&checkpoint->shape);
    checkpoint->digests = calloc(checkpoint->n_parts, sizeof *checkpoint->digests);
    if (!checkpoint->digests)
        return dw_say(why, DW_ERR_NO_MEMORY, "out of memory while reading the checkpoint %s",
                      checkpoint->directory);
    for (uint32_t i = 0; i < checkpoint->n_parts; i++) {
        char name[DW_PART_NAME_BYTES];
        dw_part_name(&checkpoint->shape, i, name);
        if (dw_parse_hex(json_string_value(json_object_get(parts, name)), &checkpoint->digests[i]))
            return dw_say(why, DW_ERR_FORMAT, "%s/manifest.json does not name the part %s",
                          checkpoint->directory, name);
    }
    const char *settings = json_string_value(json_object_get(manifest, "settings"));
    snprintf(checkpoint->settings, sizeof checkpoint->settings, "%s", settings ? settings : "");
    json_t *states = json_object_get(manifest, "gradients");
    bool has_states = format == FORMAT_WITH_STATES || (format >= FORMAT_OF_VARIANTS && states);
    dw_status status = has_states ? read_states(checkpoint, states, why) : DW_OK;
    if (status < 0 || format != FORMAT_WITH_CODECS) return status;
    return read_codecs(checkpoint, json_object_get(manifest, "boundaries"), why);
}

dw_status dw_checkpoint_open(dw_checkpoint *checkpoint, const char *directory, dw_why *why)
{
    memset(checkpoint, 0, sizeof *checkpoint);
    char path[4200];
    if (strlen(directory) >= sizeof checkpoint->directory)
        return dw_say(why, DW_ERR_LIMIT,
                      "the checkpoint's directory name is longer than 4095 bytes");
    strcpy(checkpoint->directory, directory);
    snprintf(path, sizeof path, "%s/manifest.json", directory);
    if (access(path, R_OK))
        return dw_say(why, DW_ERR_IO, "no checkpoint in %s: cannot read %s: %s", directory, path,
                      strerror(errno));
    json_error_t error;
    json_t *manifest = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!manifest || !json_is_object(manifest)) {
        json_decref(manifest);
        return dw_say(why, DW_ERR_FORMAT, "%s is not a checkpoint's manifest: %.100s", path,
                      manifest ? "no object" : error.text);
    }
    uint64_t stored = 0, digest = 0;
    bool unreadable = dw_parse_hex(json_string_value(json_object_get(manifest, "digest")), &stored);
    json_object_del(manifest, "digest");
    dw_status status;
    if (unreadable || digest_manifest(manifest, &digest) || digest != stored)
        status = dw_say(why, DW_ERR_CORRUPT, "%s was changed or damaged: its digest does not match",
                        path);
    else
        status = read_manifest(checkpoint, manifest, why);
    checkpoint->digest = digest;
    json_decref(manifest);
    if (status < 0) dw_checkpoint_close(checkpoint);
    return status;
}

void dw_checkpoint_free_codecs(dw_checkpoint_codecs *codecs)
{
    free(codecs->layout);
    free(codecs->forward);
    free(codecs->backward);
    free(codecs->digests);
    *codecs = (dw_checkpoint_codecs){.stages = 0};
}

void dw_checkpoint_close(dw_checkpoint *checkpoint)
{
    free(checkpoint->digests);
    free(checkpoint->states.digests);
    dw_checkpoint_free_codecs(&checkpoint->codecs);
    checkpoint->digests = checkpoint->states.digests = NULL;
}

dw_status dw_checkpoint_prepare(const char *directory, const dw_model_shape *shape, dw_why *why)
{
    if (mkdir(directory, 0777) && errno != EEXIST)
        return dw_say(why, DW_ERR_IO, "cannot make the checkpoint directory %s: %s", directory,
                      strerror(errno));
    if (access(directory, W_OK | X_OK))
        return dw_say(why, DW_ERR_IO, "cannot write checkpoints to %s: %s", directory,
                      strerror(errno));
    dw_checkpoint old;
    dw_why found;
    dw_status status = dw_checkpoint_open(&old, directory, &found);
    char path[4200];
    snprintf(path, sizeof path, "%s/manifest.json", directory);
    if (status == DW_ERR_CORRUPT || status == DW_ERR_FORMAT || access(path, F_OK))
        return DW_OK; /* none, or a damaged one, which may be replaced */
    if (status < 0) return dw_say(why, status, "%s", found.text);
    bool same = !memcmp(&old.shape, shape, sizeof *shape);
    dw_checkpoint_close(&old);
    if (same) return DW_OK;
    char text[DW_SHAPE_TEXT_BYTES];
    return dw_say(why, DW_ERR_MISMATCH,
                  "%s holds a checkpoint of another model (%s); save to another directory",
                  directory, dw_model_shape_text(&old.shape, text));
}
