/* SPDX-License-Identifier: Apache-2.0
 * codec_states.c - saves what the codecs of boundaries keep, and gives it back to them. */
#include "codec_states.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/bytes.h"
#include "base/sentence.h"
#include "channel/saved.h"
#include "control.h"
#include "file.h"

enum { FORMAT = 1, FORMAT_WITH_SNAPSHOT = 2, HEAD_BYTES = 48, PIECE_BYTES = 16, NUMBER_BYTES = 8 };
enum { SAVED_BYTES = 96 };          /* of a saved state, before its values; docs/format.md, 7 */
enum { IS_WHOLE, IS_IN_SNAPSHOT };  /* kinds of pieces */
enum { FORWARD = 1, BACKWARD = 2 }; /* bits: of what may be used */

/* | offset | bytes | field                                              |
 * | 0      | 8     | "DW-CODE", 0                                       |
 * | 8      | 4     | 1, or 2: the format of this file                   |
 * | 12     | 4     | rank                                               |
 * | 16     | 8     | step                                               |
 * | 24     | 8     | bytes behind this header                           |
 * | 32     | 8     | XXH3 of these bytes                                |
 * | 40     | 8     | XXH3 of bytes 0 to 40                              | */
static const char magic[8] = "DW-CODE";

static dw_channel *channel_of(const dw_stage *stage, dw_codec_end end)
{
    return end <= DW_END_AFTER_RECEIVED ? stage->after.channel : stage->before.channel;
}

static int is_sent(dw_codec_end end)
{
    return end == DW_END_AFTER_SENT || end == DW_END_BEFORE_SENT;
}

static bool is_forward(dw_codec_end end)
{
    return end == DW_END_AFTER_SENT || end == DW_END_BEFORE_RECEIVED;
}

static void make_path(char path[4200], const char *directory, uint32_t rank, uint64_t digest)
{
    snprintf(path, 4200, "%s/codecs-%u-%016" PRIx64 ".state", directory, rank, digest);
}

/* ---- Saving ---------------------------------------------------------------------------------- */

typedef struct writer {
    dw_file file;
    dw_codec_end end;
    dw_storage *storage; /* NULL: there is none */
    bool keeps;          /* something in it */
    dw_why why;          /* what it said */
} writer;

static dw_status write_piece(void *context, dw_key key, const void *saved, size_t len)
{
    writer *w = context;
    uint8_t head[PIECE_BYTES] = {0}, name[DW_STORAGE_NAME_BYTES];
    bool keeps = w->storage && len > SAVED_BYTES + sizeof name;
    (void)key;
    if (keeps) {
        const uint8_t *values = (const uint8_t *)saved + SAVED_BYTES;
        dw_status status = dw_storage_keep(w->storage, values, len - SAVED_BYTES, name, &w->why);
        if (status < 0) return status;
        w->keeps = true;
    }
    dw_put32(head, w->end);
    dw_put32(head + 4, keeps ? IS_IN_SNAPSHOT : IS_WHOLE);
    dw_put64(head + 8, len);
    dw_file_append(&w->file, head, sizeof head);
    dw_file_append(&w->file, saved, keeps ? SAVED_BYTES : len);
    if (keeps) dw_file_append(&w->file, name, sizeof name);
    return w->file.error ? DW_ERR_IO : DW_OK; /* a full disk: dw_file_finish says it */
}

static dw_status write_ends(dw_stage *stage, writer *w)
{
    for (w->end = 0; w->end < DW_CODEC_ENDS; w->end++) {
        dw_channel *channel = channel_of(stage, w->end);
        dw_status status =
            channel ? dw_channel_export(channel, is_sent(w->end), write_piece, w) : DW_OK;
        if (status < 0 && *w->why.text)
            return dw_say(&stage->why, status, "state: %s", w->why.text);
        if (status < 0 && !w->file.error)
            return dw_say(&stage->why, status, "cannot save what the codecs keep: %.200s",
                          dw_channel_why(channel));
        if (status < 0) return DW_OK;
    }
    return DW_OK;
}

/* Makes the snapshot, and names it. The one that the last checkpoint names stays: before the first
 * one of a run that uses no states, the last one of the storage. */
static dw_status write_snapshot(dw_stage *stage, writer *w)
{
    uint8_t number[NUMBER_BYTES];
    dw_storage_counters now = {.struct_size = sizeof now};
    if (!w->keeps || w->file.error) return DW_OK;
    (void)dw_storage_count(w->storage, &now);
    if (!stage->snapshot) stage->snapshot = now.snapshot;
    dw_status status = dw_storage_save(w->storage, stage->snapshot, &stage->next_snapshot, &w->why);
    if (status < 0) return dw_say(&stage->why, status, "state: %s", w->why.text);
    dw_put64(number, stage->next_snapshot);
    dw_file_append(&w->file, number, sizeof number);
    return DW_OK;
}

static void make_head(uint8_t head[HEAD_BYTES], const writer *w, const dw_checkpoint_place *place,
                      uint64_t digest)
{
    memcpy(head, magic, sizeof magic);
    dw_put32(head + 8, w->keeps ? FORMAT_WITH_SNAPSHOT : FORMAT);
    dw_put32(head + 12, place->writer);
    dw_put64(head + 16, place->step);
    dw_put64(head + 24, w->file.len);
    dw_put64(head + 32, digest);
    dw_put64(head + 40, XXH3_64bits(head, 40));
}

dw_status dw_codec_states_write(dw_stage *stage, const dw_checkpoint_place *place, uint64_t *digest)
{
    char path[4200], temporary[4200];
    uint8_t head[HEAD_BYTES];
    writer w = {.storage = stage->storage};
    *digest = 0;
    stage->next_snapshot = 0;
    if (!stage->before.channel && !stage->after.channel) return DW_OK;
    snprintf(temporary, sizeof temporary, "%s/codecs-%u.tmp", place->directory, place->writer);
    dw_status status = dw_file_begin(&w.file, temporary, sizeof head, &stage->why);
    if (status < 0) return status;
    status = write_ends(stage, &w);
    if (status == DW_OK) status = write_snapshot(stage, &w);
    if (w.keeps && !stage->next_snapshot) (void)dw_storage_save(w.storage, 0, NULL, NULL);
    if (status < 0 || !w.file.len) {
        dw_file_drop(&w.file);
        return status;
    }
    *digest = dw_file_digest(&w.file);
    make_head(head, &w, place, *digest);
    make_path(path, place->directory, place->writer, *digest);
    return dw_file_finish(&w.file, place->directory, path, head, sizeof head, &stage->why);
}

/* What keys mean, and which tensors they are of. The model is compared apart from it. */
static char *make_layout(const dw_settings *settings)
{
    const dw_train_config *config = &settings->config;
    char text[160];
    int len = snprintf(text, sizeof text, "samples %016" PRIx64 ", slices %u, repeat %u",
                       settings->samples_digest, config->slices, config->repeat);
    if (config->repeat > 1) /* keys are places in a batch */
        snprintf(text + len, sizeof text - (size_t)len, ", batch %u", config->batch);
    return strdup(text);
}

dw_status dw_codec_states_describe(dw_stage *stage, const uint64_t *digests,
                                   dw_checkpoint_codecs *codecs)
{
    const dw_settings *settings = stage->settings;
    uint32_t stages = settings->config.stages, ranks = settings->ranks;
    *codecs = (dw_checkpoint_codecs){.layout = make_layout(settings),
                                     .forward = strdup(settings->forward.text),
                                     .backward = strdup(settings->backward.text),
                                     .digests = calloc(ranks, sizeof *codecs->digests)};
    if (!codecs->layout || !codecs->forward || !codecs->backward || !codecs->digests)
        return dw_say(&stage->why, DW_ERR_NO_MEMORY, "out of memory for a manifest");
    for (uint32_t rank = 0; rank < ranks; rank++) {
        codecs->digests[rank] = digests[rank];
        if (digests[rank]) codecs->stages = stages;
    }
    codecs->replicas = settings->config.replicas;
    return DW_OK;
}

/* ---- Which states are of use ----------------------------------------------------------------- */

/* Says once for the whole run what is left out. */
static void tell_unused(dw_stage *stage, const dw_checkpoint *start, const char *whose,
                        const char *because)
{
    char text[DW_CONFIG_TEXT_BYTES + 512];
    if (stage->settings->config.rank || !stage->hooks->on_misfit) return;
    snprintf(text, sizeof text,
             "%.200s: what the %s keep is not used, because %.400s; they begin anew, so each "
             "sample is sent in full once",
             start->directory, whose, because);
    stage->hooks->on_misfit(stage->hooks->context, text);
}

static bool is_same_codec(dw_stage *stage, const dw_checkpoint *start, const char *way,
                          const char *then, const char *now)
{
    char whose[40], because[400];
    if (!strcmp(then, now)) return true;
    snprintf(whose, sizeof whose, "%s codecs", way);
    snprintf(because, sizeof because, "it was saved with --%s %.140s, and this run has %.140s", way,
             then, now);
    tell_unused(stage, start, whose, because);
    return false;
}

/* Which directions can go on: FORWARD, BACKWARD, or both. All ranks come to the same answer, for
 * they have the same settings and the same manifest. */
static dw_status find_usable(dw_stage *stage, const dw_checkpoint *start, uint32_t *found)
{
    const dw_settings *settings = stage->settings;
    const dw_checkpoint_codecs *codecs = &start->codecs;
    const dw_train_config *config = &settings->config;
    char because[400];
    char *layout = make_layout(settings);
    uint32_t usable = 0;
    if (!layout) return dw_say(&stage->why, DW_ERR_NO_MEMORY, "out of memory for a manifest");
    if (codecs->stages != config->stages || codecs->replicas != config->replicas) {
        snprintf(because, sizeof because,
                 "it was saved by %u replicas of %u stages, and this run has %u of %u",
                 codecs->replicas, codecs->stages, config->replicas, config->stages);
        tell_unused(stage, start, "codecs of boundaries", because);
    } else if (strcmp(layout, codecs->layout)) {
        snprintf(because, sizeof because, "it is of %.150s, and this run has %.150s",
                 codecs->layout, layout);
        tell_unused(stage, start, "codecs of boundaries", because);
    } else {
        if (is_same_codec(stage, start, "forward", codecs->forward, settings->forward.text))
            usable |= FORWARD;
        if (is_same_codec(stage, start, "backward", codecs->backward, settings->backward.text))
            usable |= BACKWARD;
    }
    free(layout);
    *found = usable;
    return DW_OK;
}

/* ---- Loading --------------------------------------------------------------------------------- */

typedef struct reader {
    const char *path;
    FILE *file;
    uint64_t left; /* bytes of pieces */
    bool is_apart; /* the values of the piece are in the snapshot, under this name */
    uint8_t name[DW_STORAGE_NAME_BYTES];
    uint64_t snapshot; /* 0: all states are in the file */
    dw_storage *storage;
    uint8_t *room;
    size_t cap;
    dw_why *why;
} reader;

static dw_status damaged(const reader *r, const char *what)
{
    return dw_say(r->why, DW_ERR_CORRUPT,
                  "the checkpoint file %s is damaged: %s; copy it again, or delete all ranks' "
                  "codecs-*.state to go on without",
                  r->path, what);
}

static dw_status make_room(reader *r, uint64_t len)
{
    if (len <= r->cap) return DW_OK;
    uint8_t *larger = realloc(r->room, (size_t)len);
    if (!larger) return dw_say(r->why, DW_ERR_NO_MEMORY, "out of memory while reading %s", r->path);
    r->room = larger;
    r->cap = (size_t)len;
    return DW_OK;
}

/* Reads the number of the snapshot, with which the file ends. */
static dw_status read_number(reader *r)
{
    uint8_t number[NUMBER_BYTES];
    if (r->left < sizeof number || fseek(r->file, -(long)sizeof number, SEEK_END) ||
        fread(number, sizeof number, 1, r->file) != 1)
        return damaged(r, "it names no snapshot");
    r->left -= sizeof number;
    r->snapshot = dw_get64(number);
    return DW_OK;
}

/* Reads the header, and all bytes once to compare their digest, before any codec gets one. */
static dw_status verify(reader *r, uint32_t rank, uint64_t digest)
{
    enum { AT_A_TIME = 1 << 18 };
    uint8_t head[HEAD_BYTES];
    XXH3_state_t sum;
    if (fread(head, sizeof head, 1, r->file) != 1 || memcmp(head, magic, sizeof magic) ||
        dw_get64(head + 40) != XXH3_64bits(head, 40) || dw_get32(head + 8) < FORMAT ||
        dw_get32(head + 8) > FORMAT_WITH_SNAPSHOT)
        return damaged(r, "its header is not whole");
    if (dw_get32(head + 12) != rank || dw_get64(head + 32) != digest) {
        char what[100];
        snprintf(what, sizeof what, "rank %u saved this after step %llu, for another checkpoint",
                 dw_get32(head + 12), (unsigned long long)dw_get64(head + 16));
        return damaged(r, what);
    }
    dw_status status = make_room(r, AT_A_TIME);
    if (status < 0) return status;
    XXH3_64bits_reset(&sum);
    uint64_t len = 0;
    for (size_t got; (got = fread(r->room, 1, AT_A_TIME, r->file)) > 0; len += got)
        XXH3_64bits_update(&sum, r->room, got);
    if (ferror(r->file))
        return dw_say(r->why, DW_ERR_IO, "cannot read the checkpoint file %s: %s", r->path,
                      strerror(errno));
    if (len != dw_get64(head + 24) || XXH3_64bits_digest(&sum) != digest)
        return damaged(r, "its digest does not match");
    r->left = len;
    return dw_get32(head + 8) == FORMAT_WITH_SNAPSHOT ? read_number(r) : DW_OK;
}

/* Opens and verifies the file. */
static dw_status open_file(reader *r, uint32_t rank, uint64_t digest)
{
    r->file = fopen(r->path, "rb");
    if (!r->file)
        return dw_say(r->why, DW_ERR_IO, "cannot read the checkpoint file %s: %s", r->path,
                      strerror(errno));
    dw_status status = verify(r, rank, digest);
    if (status == DW_OK && fseek(r->file, HEAD_BYTES, SEEK_SET))
        status = damaged(r, "its header is not whole");
    return status;
}

/* Reads the values of a piece that is used, if they are in the snapshot. */
static dw_status fetch(reader *r, size_t len)
{
    dw_why why;
    if (!r->is_apart) return DW_OK;
    dw_status status = dw_storage_fetch(r->storage, r->snapshot, r->name, r->room + SAVED_BYTES,
                                        len - SAVED_BYTES, &why);
    if (status == DW_OK) return DW_OK;
    return dw_say(r->why, status,
                  "state: %.150s; restore the file, or delete all ranks' codecs-*.state to go on "
                  "without",
                  why.text);
}

/* Reads one piece. */
static dw_status next_piece(reader *r, dw_codec_end *end, size_t *len)
{
    uint8_t head[PIECE_BYTES];
    if (r->left < sizeof head || fread(head, sizeof head, 1, r->file) != 1)
        return damaged(r, "it ends within a piece");
    uint64_t bytes = dw_get64(head + 8);
    r->is_apart = r->snapshot && dw_get32(head + 4) == IS_IN_SNAPSHOT;
    uint64_t here = r->is_apart ? SAVED_BYTES + sizeof r->name : bytes;
    r->left -= sizeof head;
    if (here > r->left || dw_get32(head) >= DW_CODEC_ENDS || (r->is_apart && bytes <= SAVED_BYTES))
        return damaged(r, "a piece has no place");
    *end = (dw_codec_end)dw_get32(head);
    *len = (size_t)bytes;
    dw_status status = make_room(r, bytes);
    if (status < 0) return status;
    r->left -= here;
    bytes = r->is_apart ? SAVED_BYTES : bytes;
    if (fread(r->room, 1, (size_t)bytes, r->file) != bytes ||
        (r->is_apart && fread(r->name, sizeof r->name, 1, r->file) != 1))
        return damaged(r, "it ends within a piece");
    return DW_OK;
}

static dw_status import_all(dw_stage *stage, reader *r, uint32_t usable)
{
    dw_codec_end end = DW_CODEC_ENDS;
    size_t len = 0;
    dw_status status = DW_OK;
    while (r->left && status == DW_OK) {
        status = next_piece(r, &end, &len);
        if (status < 0) return status;
        dw_channel *channel = channel_of(stage, end);
        if (!channel) return damaged(r, "a piece has no place");
        if (!(usable & (is_forward(end) ? FORWARD : BACKWARD))) continue;
        status = fetch(r, len);
        if (status < 0) return status;
        status = dw_channel_import(channel, is_sent(end), r->room, len);
        if (status < 0)
            return dw_say(&stage->why, status, "what the codecs keep in %.200s cannot be used: %s",
                          r->path, dw_channel_why(channel));
    }
    return DW_OK;
}

/* Why the states that this rank saved cannot be had; empty: they can, or it saved none. */
static void find_out(dw_stage *stage, const reader *r, char why[300])
{
    dw_storage_counters now = {.struct_size = sizeof now};
    uint32_t rank = stage->settings->config.rank;
    if (!r->snapshot) return;
    if (!stage->storage) {
        snprintf(why, 300, "rank %u saved them in the file of --state, and this run has none",
                 rank);
        return;
    }
    (void)dw_storage_count(stage->storage, &now);
    if (now.snapshot == r->snapshot || now.snapshot_before == r->snapshot)
        stage->snapshot = r->snapshot;
    else
        snprintf(why, 300,
                 "the file of --state of rank %u does not have the snapshot that it saved", rank);
}

/* What all ranks learn of all: whether their files are there, and their snapshots. DW_OK with
 * *there false: nobody uses states. */
static dw_status agree_on_files(dw_stage *stage, const dw_checkpoint *start, const reader *r,
                                bool *there)
{
    const dw_checkpoint_codecs *codecs = &start->codecs;
    bool misses = codecs->digests[stage->settings->config.rank] && !r->file;
    char why[300] = "";
    json_t *all, *value;
    find_out(stage, r, why);
    dw_status status = dw_stage_gather(stage, misses ? json_true() : json_string(why), &all);
    if (status < 0) return status;
    uint32_t missing = 0, needed = 0;
    const char *because = "";
    for (uint32_t rank = 0; rank < stage->settings->ranks; rank++) {
        const json_t *told = json_array_get(all, rank);
        missing += json_is_true(told);
        needed += codecs->digests[rank] != 0;
        if (!*because && json_is_string(told)) because = json_string_value(told);
    }
    if (missing && missing == needed) because = "the codecs-*.state are not there";
    bool is_rank_0 = stage->settings->config.rank == 0;
    status = dw_stage_spread(stage, is_rank_0 ? json_string(because) : NULL, &value);
    json_decref(all);
    if (status < 0) return status;
    because = json_string_value(value);
    *there = because && !*because;
    if (!*there)
        tell_unused(stage, start, "codecs of boundaries", because ? because : "");
    else if (misses)
        status = dw_say(&stage->why, DW_ERR_IO,
                        "cannot read the checkpoint file %s: %s; copy it from where rank %u saved "
                        "it, or delete all ranks' codecs-*.state to go on without",
                        r->path, strerror(ENOENT), stage->settings->config.rank);
    json_decref(value);
    return status;
}

/* ---- Comparing ------------------------------------------------------------------------------- */

static dw_status look(void *stage)
{
    return dw_stage_check(stage);
}

/* Compares with both neighbours, even stages with the one after them first: so each boundary waits
 * for one other at most. dropped: the keys that this rank has dropped at each end. */
static dw_status compare_ends(dw_stage *stage, uint64_t dropped[DW_CODEC_ENDS])
{
    bool is_even = stage->settings->stage % 2 == 0;
    dw_status status = DW_OK;
    memset(dropped, 0, DW_CODEC_ENDS * sizeof *dropped);
    for (int i = 0; i < 2 && status == DW_OK; i++) {
        bool is_after = is_even == (i == 0);
        dw_neighbour *neighbour = is_after ? &stage->after : &stage->before;
        dw_counters sent = {.struct_size = sizeof sent}, received = {.struct_size = sizeof sent};
        if (!neighbour->channel) continue;
        status = dw_channel_compare(neighbour->channel,
                                    (int)stage->settings->config.open_timeout_ms, look, stage);
        if (status < 0)
            return dw_control_lost(stage, neighbour, status, dw_channel_why(neighbour->channel));
        status = dw_channel_count(neighbour->channel, &sent, &received);
        dropped[is_after ? DW_END_AFTER_SENT : DW_END_BEFORE_SENT] = sent.dropped_keys;
        dropped[is_after ? DW_END_AFTER_RECEIVED : DW_END_BEFORE_RECEIVED] = received.dropped_keys;
    }
    return status;
}

static uint64_t told(const json_t *all, size_t rank, dw_codec_end end)
{
    return (uint64_t)json_integer_value(json_array_get(json_array_get(all, rank), end));
}

/* An end that does not hold a key at all has dropped nothing: so what counts at a boundary is the
 * end that has dropped more. */
static uint64_t sum_of_dropped(const json_t *all)
{
    uint64_t sum = 0;
    for (size_t rank = 0; rank + 1 < json_array_size(all); rank++)
        for (int back = 0; back < 2; back++) {
            uint64_t here = told(all, rank, back ? DW_END_AFTER_RECEIVED : DW_END_AFTER_SENT),
                     there =
                         told(all, rank + 1, back ? DW_END_BEFORE_SENT : DW_END_BEFORE_RECEIVED);
            sum += here > there ? here : there;
        }
    return sum;
}

/* When all ranks have loaded theirs: both ends of each boundary drop the keys that differ. */
static dw_status drop_differing(dw_stage *stage, const dw_checkpoint *start)
{
    uint64_t dropped[DW_CODEC_ENDS];
    char text[512];
    json_t *all;
    dw_status status = dw_control_assemble(stage);
    if (status == DW_OK) status = compare_ends(stage, dropped);
    if (status == DW_OK) {
        json_t *own = json_pack("[I, I, I, I]", (json_int_t)dropped[0], (json_int_t)dropped[1],
                                (json_int_t)dropped[2], (json_int_t)dropped[3]);
        status = dw_stage_gather(stage, own, &all);
    }
    if (status < 0) return status;
    uint64_t sum = sum_of_dropped(all);
    json_decref(all);
    snprintf(
        text, sizeof text,
        "%.200s: what is kept of %llu keys is not used, because the two ends of their boundary "
        "held different states of them; each is sent in full once",
        start->directory, (unsigned long long)sum);
    if (sum && stage->hooks->on_misfit) stage->hooks->on_misfit(stage->hooks->context, text);
    return DW_OK;
}

dw_status dw_codec_states_load(dw_stage *stage, const dw_checkpoint *start)
{
    uint32_t rank = stage->settings->config.rank;
    const dw_checkpoint_codecs *codecs = &start->codecs;
    if (!codecs->stages) return DW_OK;
    uint32_t usable = 0;
    bool there = false;
    char path[4200], why[300] = "";
    dw_status status = find_usable(stage, start, &usable);
    if (status < 0) return status;
    reader r = {.path = path, .storage = stage->storage, .why = &stage->why};
    bool is_saved = rank < codecs->stages * codecs->replicas && codecs->digests[rank];
    make_path(path, start->directory, rank, is_saved ? codecs->digests[rank] : 0);
    if (is_saved && access(path, F_OK) == 0) status = open_file(&r, rank, codecs->digests[rank]);
    if (usable) {
        if (status == DW_OK) status = agree_on_files(stage, start, &r, &there);
        if (status == DW_OK && there) status = import_all(stage, &r, usable);
    } else {
        /* The checkpoint names its snapshot until another one takes its place. */
        if (status == DW_OK) find_out(stage, &r, why);
        status = DW_OK;
    }
    if (r.file) fclose(r.file);
    free(r.room);
    return status < 0 || !there ? status : drop_differing(stage, start);
}
