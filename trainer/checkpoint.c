/* SPDX-License-Identifier: Apache-2.0
 * checkpoint.c - writes and reads the files of parts and the manifest, in an order that keeps the
 * previous checkpoint usable until the new one is complete. */
#include "checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "sentence.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "checkpoint files are little-endian; swap the floats and the header here first"
#endif

/* Programs that know only format 1 would continue without the states. */
enum { FORMAT = 1, FORMAT_WITH_STATES = 2 };

typedef struct part_header {
    char magic[8];
    uint32_t format, index;
    uint32_t layers, channels, heads, context;
    uint64_t n, step;
    uint64_t digest;        /* XXH3 of the floats */
    uint64_t header_digest; /* XXH3 of all of this header before it */
} part_header;

typedef struct state_header {
    char magic[8];
    uint32_t format, rank;
    uint64_t len, step;
    uint64_t digest;        /* XXH3 of the bytes */
    uint64_t header_digest; /* XXH3 of all of this header before it */
} state_header;

_Static_assert(sizeof(part_header) == 64 && sizeof(state_header) == 48,
               "headers are as checkpoint.h says");
static const char magic[8] = "DW-PART", state_magic[8] = "DW-KEPT";

static void part_path(char *path, size_t cap, const char *directory, const char *name,
                      uint64_t digest)
{
    snprintf(path, cap, "%s/%s-%016" PRIx64 ".part", directory, name, digest);
}

static void state_path(char *path, size_t cap, const char *directory, uint32_t rank,
                       uint64_t digest)
{
    snprintf(path, cap, "%s/gradients-%u-%016" PRIx64 ".state", directory, rank, digest);
}

static void part_name(char name[24], const dw_model_shape *shape, uint32_t index)
{
    if (index == 0)
        strcpy(name, "embed");
    else if (index == shape->layers + 1)
        strcpy(name, "head");
    else
        snprintf(name, 24, "block-%02u", index - 1);
}

static int write_all(int fd, const void *data, size_t len)
{
    const char *from = data;
    while (len) {
        ssize_t wrote = write(fd, from, len);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return -1;
        from += wrote;
        len -= (size_t)wrote;
    }
    return 0;
}

/* Flushes the directory, so that the rename survives a power failure. */
static int flush_directory(const char *directory)
{
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return -1;
    int failed = fsync(fd);
    close(fd);
    return failed;
}

/* Writes the whole file under its name, or leaves no file of that name. */
static dw_status write_file(const char *directory, const char *path, const char *temporary,
                            const void *head, size_t head_len, const void *body, size_t body_len,
                            dw_why *why)
{
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return dw_say(why, DW_ERR_IO, "cannot write the checkpoint file %s: %s", temporary,
                      strerror(errno));
    bool failed = write_all(fd, head, head_len) || write_all(fd, body, body_len) || fsync(fd);
    int error = errno;
    if (close(fd) && !failed) {
        failed = true;
        error = errno;
    }
    if (!failed && (rename(temporary, path) || flush_directory(directory))) {
        failed = true;
        error = errno;
    }
    if (!failed) return DW_OK;
    unlink(temporary);
    return dw_say(why, DW_ERR_IO,
                  "cannot write the checkpoint file %s: %s; the checkpoint before it is untouched",
                  path, strerror(error));
}

dw_status dw_checkpoint_write(const dw_checkpoint_place *place, const dw_part *part,
                              uint64_t *digest, dw_why *why)
{
    char path[4200], temporary[4200];
    /* params, grads, mean and square follow each other in memory; a checkpoint leaves grads out. */
    size_t vector = part->n * sizeof(float);
    float *floats = malloc(3 * vector);
    if (!floats)
        return dw_say(why, DW_ERR_NO_MEMORY, "out of memory while writing a checkpoint to %s",
                      place->directory);
    memcpy(floats, part->params, vector);
    memcpy(floats + part->n, part->mean, vector);
    memcpy(floats + 2 * part->n, part->square, vector);
    part_header header = {.format = FORMAT,
                          .index = part->index,
                          .layers = place->shape.layers,
                          .channels = place->shape.channels,
                          .heads = place->shape.heads,
                          .context = place->shape.context,
                          .n = part->n,
                          .step = place->step,
                          .digest = XXH3_64bits(floats, 3 * vector)};
    memcpy(header.magic, magic, sizeof magic);
    header.header_digest = XXH3_64bits(&header, offsetof(part_header, header_digest));
    part_path(path, sizeof path, place->directory, part->name, header.digest);
    snprintf(temporary, sizeof temporary, "%s/%s-%u.tmp", place->directory, part->name,
             place->writer);
    dw_status status = write_file(place->directory, path, temporary, &header, sizeof header, floats,
                                  3 * vector, why);
    free(floats);
    if (status == DW_OK) *digest = header.digest;
    return status;
}

dw_status dw_checkpoint_write_state(const dw_checkpoint_place *place, const void *bytes, size_t len,
                                    uint64_t *digest, dw_why *why)
{
    char path[4200], temporary[4200];
    state_header header = {.format = FORMAT,
                           .rank = place->writer,
                           .len = len,
                           .step = place->step,
                           .digest = XXH3_64bits(bytes, len)};
    memcpy(header.magic, state_magic, sizeof state_magic);
    header.header_digest = XXH3_64bits(&header, offsetof(state_header, header_digest));
    state_path(path, sizeof path, place->directory, place->writer, header.digest);
    snprintf(temporary, sizeof temporary, "%s/gradients-%u.tmp", place->directory, place->writer);
    *digest = header.digest;
    return write_file(place->directory, path, temporary, &header, sizeof header, bytes, len, why);
}

static json_t *hex_of(uint64_t digest)
{
    return json_sprintf("%016" PRIx64, digest);
}

static json_t *states_of(const dw_checkpoint_states *states)
{
    json_t *digests = json_array();
    for (uint32_t i = 0; i < states->stages * states->replicas; i++)
        json_array_append_new(digests, hex_of(states->digests[i]));
    return json_pack("{s:I, s:I, s:s, s:o}", "stages", (json_int_t)states->stages, "replicas",
                     (json_int_t)states->replicas, "codec", states->codec, "states", digests);
}

static json_t *manifest_of(const dw_checkpoint_place *place, const uint64_t *digests,
                           const dw_checkpoint_states *states)
{
    const dw_model_shape *shape = &place->shape;
    json_t *parts = json_object();
    for (uint32_t i = 0; i < dw_model_parts(shape); i++) {
        char name[24];
        part_name(name, shape, i);
        json_object_set_new(parts, name, hex_of(digests[i]));
    }
    json_t *manifest =
        json_pack("{s:i, s:{s:I, s:I, s:I, s:I}, s:I, s:o}", "format",
                  states->replicas ? FORMAT_WITH_STATES : FORMAT, "model", "layers",
                  (json_int_t)shape->layers, "channels", (json_int_t)shape->channels, "heads",
                  (json_int_t)shape->heads, "context", (json_int_t)shape->context, "step",
                  (json_int_t)place->step, "parts", parts);
    if (!manifest || !states->replicas) return manifest;
    if (json_object_set_new(manifest, "gradients", states_of(states)) == 0) return manifest;
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
                               const dw_checkpoint_states *states, dw_why *why)
{
    char path[4200], temporary[4200];
    snprintf(path, sizeof path, "%s/manifest.json", place->directory);
    snprintf(temporary, sizeof temporary, "%s/manifest-%u.tmp", place->directory, place->writer);
    json_t *manifest = manifest_of(place, digests, states);
    uint64_t digest = 0;
    char *text = NULL;
    if (manifest && digest_manifest(manifest, &digest) == 0 &&
        json_object_set_new(manifest, "digest", hex_of(digest)) == 0)
        text = json_dumps(manifest, JSON_INDENT(2));
    dw_status status =
        text ? write_file(place->directory, path, temporary, text, strlen(text), "\n", 1, why)
             : dw_say(why, DW_ERR_NO_MEMORY, "out of memory while writing a checkpoint to %s",
                      place->directory);
    free(text);
    json_decref(manifest);
    return status;
}

static int parse_hex(const char *text, uint64_t *value)
{
    if (!text || strspn(text, "0123456789abcdef") != 16 || text[16]) return -1;
    *value = strtoull(text, NULL, 16);
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
        strlen(codec) >= sizeof states->codec ||
        json_array_size(digests) != (size_t)(stages * replicas))
        return dw_say(why, DW_ERR_FORMAT, "%s/manifest.json does not name the states of a grid",
                      checkpoint->directory);
    snprintf(states->codec, sizeof states->codec, "%s", codec);
    states->digests = calloc((size_t)(stages * replicas), sizeof *states->digests);
    if (!states->digests)
        return dw_say(why, DW_ERR_NO_MEMORY, "out of memory while reading the checkpoint %s",
                      checkpoint->directory);
    for (size_t i = 0; i < (size_t)(stages * replicas); i++)
        if (parse_hex(json_string_value(json_array_get(digests, i)), &states->digests[i]))
            return dw_say(why, DW_ERR_FORMAT, "%s/manifest.json does not name the states of a grid",
                          checkpoint->directory);
    states->stages = (uint32_t)stages;
    states->replicas = (uint32_t)replicas;
    return DW_OK;
}

/* Reads the fields of a manifest whose digest has been verified. */
static dw_status read_manifest(dw_checkpoint *checkpoint, json_t *manifest, dw_why *why)
{
    json_int_t format = 0, L = 0, C = 0, H = 0, T = 0, step = -1;
    json_t *parts = NULL;
    if (json_unpack(manifest, "{s:I, s:{s:I, s:I, s:I, s:I}, s:I, s:o}", "format", &format, "model",
                    "layers", &L, "channels", &C, "heads", &H, "context", &T, "step", &step,
                    "parts", &parts) ||
        L < 0 || C < 0 || H < 0 || T < 0 || L > UINT32_MAX || C > UINT32_MAX || H > UINT32_MAX ||
        T > UINT32_MAX || step < 0 || step > UINT32_MAX)
        return dw_say(why, DW_ERR_FORMAT, "%s/manifest.json is not a checkpoint's manifest",
                      checkpoint->directory);
    if (format != FORMAT && format != FORMAT_WITH_STATES)
        return dw_say(why, DW_ERR_VERSION,
                      "%s holds a checkpoint of format %d; this program reads formats %d and %d",
                      checkpoint->directory, (int)format, FORMAT, FORMAT_WITH_STATES);
    checkpoint->shape = (dw_model_shape){(uint32_t)L, (uint32_t)C, (uint32_t)H, (uint32_t)T};
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
        char name[24];
        part_name(name, &checkpoint->shape, i);
        if (parse_hex(json_string_value(json_object_get(parts, name)), &checkpoint->digests[i]))
            return dw_say(why, DW_ERR_FORMAT, "%s/manifest.json does not name the part %s",
                          checkpoint->directory, name);
    }
    return format == FORMAT ? DW_OK
                            : read_states(checkpoint, json_object_get(manifest, "gradients"), why);
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
    bool unreadable = parse_hex(json_string_value(json_object_get(manifest, "digest")), &stored);
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

void dw_checkpoint_close(dw_checkpoint *checkpoint)
{
    free(checkpoint->digests);
    free(checkpoint->states.digests);
    checkpoint->digests = checkpoint->states.digests = NULL;
}

/* Reads the file into floats (3 n); anything that is not exactly the part is an error. */
static dw_status read_floats(const char *path, const dw_checkpoint *checkpoint, const dw_part *part,
                             float *floats, dw_why *why)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return dw_say(why, DW_ERR_IO, "cannot read the checkpoint file %s: %s", path,
                      strerror(errno));
    part_header header;
    size_t n = 3 * part->n;
    size_t heads = fread(&header, sizeof header, 1, file);
    size_t got = heads ? fread(floats, sizeof *floats, n, file) : 0;
    bool more = got == n && fgetc(file) != EOF;
    bool failed = ferror(file);
    int error = errno;
    fclose(file);
    if (failed)
        return dw_say(why, DW_ERR_IO, "cannot read the checkpoint file %s: %s", path,
                      strerror(error));
    if (!heads || memcmp(header.magic, magic, sizeof magic) ||
        header.header_digest != XXH3_64bits(&header, offsetof(part_header, header_digest)))
        return dw_say(why, DW_ERR_CORRUPT,
                      "the checkpoint file %s is damaged: its header is not whole", path);
    if (header.format != FORMAT || header.index != part->index || header.n != part->n)
        return dw_say(why, DW_ERR_FORMAT, "the checkpoint file %s belongs to another model or part",
                      path);
    uint64_t digest = XXH3_64bits(floats, n * sizeof *floats);
    if (got != n || more || digest != header.digest || digest != checkpoint->digests[part->index])
        return dw_say(why, DW_ERR_CORRUPT,
                      "the checkpoint file %s is damaged: its digest does not match", path);
    return DW_OK;
}

dw_status dw_checkpoint_read(const dw_checkpoint *checkpoint, dw_part *part, bool optimizer,
                             dw_why *why)
{
    char path[4200];
    if (part->index >= checkpoint->n_parts)
        return dw_say(why, DW_ERR_FORMAT, "the checkpoint %s has no part %s", checkpoint->directory,
                      part->name);
    part_path(path, sizeof path, checkpoint->directory, part->name,
              checkpoint->digests[part->index]);
    float *floats = dw_floats(3 * part->n);
    if (!floats) return dw_say(why, DW_ERR_NO_MEMORY, "out of memory while reading %s", path);
    dw_status status = read_floats(path, checkpoint, part, floats, why);
    if (status == DW_OK) {
        memcpy(part->params, floats, part->n * sizeof *floats);
        if (optimizer) {
            memcpy(part->mean, floats + part->n, part->n * sizeof *floats);
            memcpy(part->square, floats + 2 * part->n, part->n * sizeof *floats);
        }
    }
    free(floats);
    return status;
}

/* Reads what is behind the header, which says how long it is. */
static dw_status read_kept(FILE *file, const char *path, const state_header *header,
                           uint8_t **bytes, dw_why *why)
{
    struct stat about;
    bool whole =
        fstat(fileno(file), &about) == 0 && (uint64_t)about.st_size == sizeof *header + header->len;
    uint8_t *room = whole ? malloc(header->len ? header->len : 1) : NULL;
    if (whole && !room)
        return dw_say(why, DW_ERR_NO_MEMORY, "out of memory while reading %s", path);
    if (whole && fread(room, 1, header->len, file) == header->len &&
        XXH3_64bits(room, header->len) == header->digest) {
        *bytes = room;
        return DW_OK;
    }
    free(room);
    return dw_say(why, DW_ERR_CORRUPT,
                  "the checkpoint file %s is damaged: its digest does not match", path);
}

dw_status dw_checkpoint_read_state(const dw_checkpoint *checkpoint, uint32_t rank, uint8_t **bytes,
                                   size_t *len, dw_why *why)
{
    char path[4200];
    state_header header;
    *bytes = NULL;
    *len = 0;
    state_path(path, sizeof path, checkpoint->directory, rank, checkpoint->states.digests[rank]);
    FILE *file = fopen(path, "rb");
    if (!file)
        return dw_say(why, DW_ERR_IO, "cannot read the checkpoint file %s: %s", path,
                      strerror(errno));
    dw_status status;
    if (fread(&header, sizeof header, 1, file) != 1 ||
        memcmp(header.magic, state_magic, sizeof state_magic) || header.format != FORMAT ||
        header.rank != rank || header.digest != checkpoint->states.digests[rank] ||
        header.header_digest != XXH3_64bits(&header, offsetof(state_header, header_digest)))
        status = dw_say(why, DW_ERR_CORRUPT,
                        "the checkpoint file %s is damaged: its header is not whole", path);
    else
        status = read_kept(file, path, &header, bytes, why);
    fclose(file);
    if (status == DW_OK) *len = header.len;
    return status;
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
    if (dw_checkpoint_open(&old, directory, NULL) < 0)
        return DW_OK; /* none, or a damaged one, which may be replaced */
    bool same = !memcmp(&old.shape, shape, sizeof *shape);
    dw_checkpoint_close(&old);
    if (same) return DW_OK;
    return dw_say(why, DW_ERR_MISMATCH,
                  "%s holds a checkpoint of another model (%u layers, %u channels, %u heads, "
                  "context %u); save to another directory",
                  directory, old.shape.layers, old.shape.channels, old.shape.heads,
                  old.shape.context);
}

/* Removes the files NAME-<digest>SUFFIX but the one with the digest *keep; NULL: all. */
static void remove_others(const char *directory, const char *name, const char *suffix,
                          const uint64_t *keep)
{
    DIR *entries = opendir(directory);
    if (!entries) return;
    size_t prefix = strlen(name);
    char path[4200], hex[17];
    uint64_t digest;
    for (struct dirent *entry; (entry = readdir(entries));) {
        const char *found = entry->d_name;
        if (strncmp(found, name, prefix) || found[prefix] != '-' ||
            strlen(found) != prefix + 1 + 16 + strlen(suffix) ||
            strcmp(found + prefix + 17, suffix))
            continue;
        memcpy(hex, found + prefix + 1, 16);
        hex[16] = 0;
        if (parse_hex(hex, &digest) || (keep && digest == *keep)) continue;
        snprintf(path, sizeof path, "%s/%s", directory, found);
        unlink(path);
    }
    closedir(entries);
}

/* Opens the checkpoint that there is. Returns false if its manifest cannot be read: then nothing
 * may be removed, because it may still be repaired by hand. No manifest: *now has no parts. */
static bool open_for_tidying(dw_checkpoint *now, const char *directory)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/manifest.json", directory);
    return dw_checkpoint_open(now, directory, NULL) == DW_OK || access(path, F_OK) != 0;
}

void dw_checkpoint_tidy(const char *directory, const dw_part *part)
{
    dw_checkpoint now;
    if (!open_for_tidying(&now, directory)) return;
    bool names_it = now.digests && part->index < now.n_parts;
    remove_others(directory, part->name, ".part", names_it ? &now.digests[part->index] : NULL);
    dw_checkpoint_close(&now);
}

void dw_checkpoint_tidy_state(const char *directory, uint32_t rank)
{
    dw_checkpoint now;
    char name[32];
    if (!open_for_tidying(&now, directory)) return;
    const dw_checkpoint_states *states = &now.states;
    bool names_it = states->digests && rank < states->stages * states->replicas;
    snprintf(name, sizeof name, "gradients-%u", rank);
    remove_others(directory, name, ".state", names_it ? &states->digests[rank] : NULL);
    dw_checkpoint_close(&now);
}
