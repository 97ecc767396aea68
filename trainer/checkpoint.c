/* SPDX-License-Identifier: Apache-2.0
 * checkpoint.c - the files of a checkpoint that its manifest names: writes, reads and removes those
 * of parts and of ranks' states. */
#include "checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/sentence.h"

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

static void append_zeros(dw_file *file, size_t len)
{
    static const uint8_t zeros[4096];
    for (size_t now; len; len -= now) {
        now = len < sizeof zeros ? len : sizeof zeros;
        dw_file_append(file, zeros, now);
    }
}

/* params, grads, mean and square follow each other in memory; a checkpoint leaves grads out. */
dw_status dw_checkpoint_write(const dw_checkpoint_place *place, const dw_part *part,
                              uint64_t *digest, dw_why *why)
{
    char path[4200], temporary[4200];
    size_t vector = part->n * sizeof(float);
    dw_file file;
    snprintf(temporary, sizeof temporary, "%s/%s-%u.tmp", place->directory, part->name,
             place->writer);
    dw_status status = dw_file_begin(&file, temporary, sizeof(part_header), why);
    if (status < 0) return status;
    dw_file_append(&file, part->params, vector);
    if (place->has_outer) {
        append_zeros(&file, 2 * vector);
    } else {
        dw_file_append(&file, part->mean, vector);
        dw_file_append(&file, part->square, vector);
    }
    part_header header = {.format = FORMAT,
                          .index = part->index,
                          .layers = place->shape.layers,
                          .channels = place->shape.channels,
                          .heads = place->shape.heads,
                          .context = place->shape.context,
                          .n = part->n,
                          .step = place->step,
                          .digest = dw_file_digest(&file)};
    memcpy(header.magic, magic, sizeof magic);
    header.header_digest = XXH3_64bits(&header, offsetof(part_header, header_digest));
    part_path(path, sizeof path, place->directory, part->name, header.digest);
    *digest = header.digest;
    return dw_file_finish(&file, place->directory, path, &header, sizeof header, why);
}

dw_status dw_checkpoint_begin_state(const dw_checkpoint_place *place, dw_file *file, dw_why *why)
{
    char temporary[4200];
    snprintf(temporary, sizeof temporary, "%s/gradients-%u.tmp", place->directory, place->writer);
    return dw_file_begin(file, temporary, sizeof(state_header), why);
}

dw_status dw_checkpoint_finish_state(const dw_checkpoint_place *place, dw_file *file,
                                     uint64_t *digest, dw_why *why)
{
    char path[4200];
    state_header header = {.format = FORMAT,
                           .rank = place->writer,
                           .len = file->len,
                           .step = place->step,
                           .digest = dw_file_digest(file)};
    memcpy(header.magic, state_magic, sizeof state_magic);
    header.header_digest = XXH3_64bits(&header, offsetof(state_header, header_digest));
    state_path(path, sizeof path, place->directory, place->writer, header.digest);
    *digest = header.digest;
    return dw_file_finish(file, place->directory, path, &header, sizeof header, why);
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
        if (dw_parse_hex(hex, &digest) || (keep && digest == *keep)) continue;
        snprintf(path, sizeof path, "%s/%s", directory, found);
        unlink(path);
    }
    closedir(entries);
}

/* Removes the files of what codecs keep of ranks from `ranks` on, which an earlier run had. */
static void remove_gone(const char *directory, uint32_t ranks)
{
    DIR *entries = opendir(directory);
    if (!entries) return;
    char path[4200];
    for (struct dirent *entry; (entry = readdir(entries));) {
        const char *found = entry->d_name;
        unsigned rank;
        unsigned long long digest;
        int end = 0;
        if (sscanf(found, "codecs-%u-%16llx.state%n", &rank, &digest, &end) != 2 &&
            sscanf(found, "gradients-%u-%16llx.state%n", &rank, &digest, &end) != 2)
            continue;
        if (!end || found[end] || rank < ranks) continue;
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

void dw_checkpoint_tidy_state(const char *directory, uint32_t rank, uint32_t ranks)
{
    dw_checkpoint now;
    char name[32];
    if (!open_for_tidying(&now, directory)) return;
    const dw_checkpoint_states *states = &now.states;
    const dw_checkpoint_codecs *codecs = &now.codecs;
    uint32_t of_states = states->stages * states->replicas,
             of_codecs = codecs->stages * codecs->replicas;
    bool names_it = states->digests && rank < of_states;
    snprintf(name, sizeof name, "gradients-%u", rank);
    remove_others(directory, name, ".state", names_it ? &states->digests[rank] : NULL);
    names_it = codecs->digests && rank < of_codecs;
    snprintf(name, sizeof name, "codecs-%u", rank);
    remove_others(directory, name, ".state", names_it ? &codecs->digests[rank] : NULL);
    ranks = ranks > of_states ? ranks : of_states;
    if (rank == 0) remove_gone(directory, ranks > of_codecs ? ranks : of_codecs);
    dw_checkpoint_close(&now);
}
