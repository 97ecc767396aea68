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

enum { FORMAT = 1 };

typedef struct part_header {
    char magic[8];
    uint32_t format, index;
    uint32_t layers, channels, heads, context;
    uint64_t n, step;
    uint64_t digest;        /* XXH3 of the floats */
    uint64_t header_digest; /* XXH3 of all of this header before it */
} part_header;

_Static_assert(sizeof(part_header) == 64, "a part file's header is 64 bytes");
static const char magic[8] = "DW-PART";

static void part_path(char *path, size_t cap, const char *directory, const char *name,
                      uint64_t digest)
{
    snprintf(path, cap, "%s/%s-%016" PRIx64 ".part", directory, name, digest);
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

dw_status dw_checkpoint_write(const char *directory, const dw_model_shape *shape,
                              const dw_part *part, uint32_t step, uint64_t *digest, dw_why *why)
{
    char path[4200], temporary[4200];
    /* params, grads, mean and square follow each other in memory; a checkpoint leaves grads out. */
    size_t vector = part->n * sizeof(float);
    float *floats = malloc(3 * vector);
    if (!floats)
        return dw_say(why, DW_ERR_NO_MEMORY, "out of memory while writing a checkpoint to %s",
                      directory);
    memcpy(floats, part->params, vector);
    memcpy(floats + part->n, part->mean, vector);
    memcpy(floats + 2 * part->n, part->square, vector);
    part_header header = {.format = FORMAT,
                          .index = part->index,
                          .layers = shape->layers,
                          .channels = shape->channels,
                          .heads = shape->heads,
                          .context = shape->context,
                          .n = part->n,
                          .step = step,
                          .digest = XXH3_64bits(floats, 3 * vector)};
    memcpy(header.magic, magic, sizeof magic);
    header.header_digest = XXH3_64bits(&header, offsetof(part_header, header_digest));
    part_path(path, sizeof path, directory, part->name, header.digest);
    snprintf(temporary, sizeof temporary, "%s/%s.tmp", directory, part->name);
    dw_status status =
        write_file(directory, path, temporary, &header, sizeof header, floats, 3 * vector, why);
    free(floats);
    if (status == DW_OK) *digest = header.digest;
    return status;
}

static json_t *manifest_of(const dw_model_shape *shape, uint32_t step, const uint64_t *digests)
{
    json_t *parts = json_object();
    for (uint32_t i = 0; i < dw_model_parts(shape); i++) {
        char name[24], hex[17];
        part_name(name, shape, i);
        snprintf(hex, sizeof hex, "%016" PRIx64, digests[i]);
        json_object_set_new(parts, name, json_string(hex));
    }
    return json_pack("{s:i, s:{s:I, s:I, s:I, s:I}, s:I, s:o}", "format", FORMAT, "model", "layers",
                     (json_int_t)shape->layers, "channels", (json_int_t)shape->channels, "heads",
                     (json_int_t)shape->heads, "context", (json_int_t)shape->context, "step",
                     (json_int_t)step, "parts", parts);
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

dw_status dw_checkpoint_commit(const char *directory, const dw_model_shape *shape, uint32_t step,
                               const uint64_t *digests, uint32_t writer, dw_why *why)
{
    char path[4200], temporary[4200], hex[17];
    snprintf(path, sizeof path, "%s/manifest.json", directory);
    snprintf(temporary, sizeof temporary, "%s/manifest-%u.tmp", directory, writer);
    json_t *manifest = manifest_of(shape, step, digests);
    uint64_t digest = 0;
    char *text = NULL;
    if (manifest && digest_manifest(manifest, &digest) == 0) {
        snprintf(hex, sizeof hex, "%016" PRIx64, digest);
        if (json_object_set_new(manifest, "digest", json_string(hex)) == 0)
            text = json_dumps(manifest, JSON_INDENT(2));
    }
    dw_status status =
        text ? write_file(directory, path, temporary, text, strlen(text), "\n", 1, why)
             : dw_say(why, DW_ERR_NO_MEMORY, "out of memory while writing a checkpoint to %s",
                      directory);
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
    if (format != FORMAT)
        return dw_say(why, DW_ERR_VERSION,
                      "%s holds a checkpoint of format %d; this program reads format %d",
                      checkpoint->directory, (int)format, FORMAT);
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
    return DW_OK;
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
    checkpoint->digests = NULL;
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

void dw_checkpoint_tidy(const char *directory, const dw_part *part)
{
    dw_checkpoint now;
    uint64_t keep = 0, digest;
    bool whole = dw_checkpoint_open(&now, directory, NULL) == DW_OK;
    if (whole) keep = part->index < now.n_parts ? now.digests[part->index] : 0;
    /* Removes nothing if the manifest cannot be read, because it may still be repaired by hand. */
    char path[4200];
    snprintf(path, sizeof path, "%s/manifest.json", directory);
    bool broken = !whole && access(path, F_OK) == 0;
    if (whole) dw_checkpoint_close(&now);
    DIR *entries = broken ? NULL : opendir(directory);
    if (!entries) return;
    size_t prefix = strlen(part->name);
    for (struct dirent *entry; (entry = readdir(entries));) {
        const char *name = entry->d_name;
        char hex[17];
        if (strncmp(name, part->name, prefix) || name[prefix] != '-' ||
            strlen(name) != prefix + 1 + 16 + 5 || strcmp(name + prefix + 17, ".part"))
            continue;
        memcpy(hex, name + prefix + 1, 16);
        hex[16] = 0;
        if (parse_hex(hex, &digest) || (whole && digest == keep)) continue;
        snprintf(path, sizeof path, "%s/%s", directory, name);
        unlink(path);
    }
    closedir(entries);
}
