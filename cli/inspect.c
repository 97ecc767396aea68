/* SPDX-License-Identifier: Apache-2.0
 * inspect.c - `deltawire inspect FILE`: what a frame or a reply says about itself. */
#include "inspect.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "complain.h"

static const struct argp_option options[] = {
    {"json", 'j', 0, 0, "Print one JSON object instead of lines of text", 0},
    {0},
};

typedef struct arguments {
    const char *file;
    bool json;
} arguments;

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    arguments *a = state->input;
    if (key == 'j')
        a->json = true;
    else if (key == ARGP_KEY_ARG && !a->file)
        a->file = value;
    else if (key == ARGP_KEY_ARG)
        argp_error(state, "only one file can be inspected at a time; \"%s\" is one too many",
                   value);
    else if (key == ARGP_KEY_NO_ARGS)
        argp_error(state, "the name of a file is missing");
    else
        return ARGP_ERR_UNKNOWN;
    return 0;
}

/* ---- Words for numbers. A hostile frame may hold any number, so each has a word. ------------- */

static const char *dtype_word(dw_dtype dtype)
{
    return dtype == DW_F32 ? "f32" : dtype == DW_F16 ? "f16" : dtype == DW_BF16 ? "bf16" : "none";
}

static const char *role_word(dw_role role)
{
    switch (role) {
    case DW_ROLE_STATELESS: return "stateless";
    case DW_ROLE_KEY: return "key";
    case DW_ROLE_DELTA: return "delta";
    case DW_ROLE_SKIP: return "skip";
    case DW_ROLE_SYNC: return "sync";
    }
    return "?";
}

static json_t *hex(uint64_t value)
{
    return json_sprintf("%016" PRIx64, value);
}

/* ---- One JSON object holds everything; the lines of text are made from it. ------------------- */

static json_t *describe_entries(const void *frame, size_t len, uint32_t n)
{
    json_t *list = json_array();
    dw_entry_info *entries = calloc(n, sizeof *entries);
    if (!entries || dw_frame_entries(frame, len, 0, n, entries) < 0) n = 0;
    for (uint32_t i = 0; i < n; i++) {
        dw_entry_info e = entries[i];
        json_array_append_new(
            list,
            json_pack("{s:o, s:I, s:s, s:s, s:o, s:o, s:o, s:I, s:I}", "sample",
                      json_sprintf("%" PRIu64, e.key.sample), "slice", (json_int_t)e.key.slice,
                      "role", role_word(e.role), "form", dw_form_string(e.form), "base_chain",
                      hex(e.base_chain), "payload_digest", hex(e.payload_digest), "state_digest",
                      hex(e.state_digest), "payload_offset", (json_int_t)e.payload_offset,
                      "payload_bytes", (json_int_t)e.payload_bytes));
    }
    free(entries);
    return list;
}

static json_t *describe_frame(const void *frame, size_t len, const dw_frame_info *info)
{
    char config[DW_CONFIG_TEXT_BYTES];
    json_t *forgotten = json_array();
    for (uint32_t i = 0; i < info->n_forgotten; i++) {
        dw_key k;
        if (dw_frame_forgotten(frame, len, i, &k) < 0) break;
        json_array_append_new(forgotten, json_sprintf("%" PRIu64 "/%u", k.sample, k.slice));
    }
    if (dw_config_agreement(&info->config, config, sizeof config)) config[0] = 0;
    json_t *object = json_pack(
        "{s:s, s:I, s:o, s:s, s:o, s:I, s:[I, I, I], s:s, s:b, s:I}", "message", "frame", "bytes",
        (json_int_t)info->length, "format",
        json_sprintf("%u.%u", info->version_major, info->version_minor), "config", config,
        "incarnation", hex(info->incarnation), "sequence", (json_int_t)info->sequence, "shape",
        (json_int_t)info->n, (json_int_t)info->t, (json_int_t)info->c, "x", dtype_word(info->x),
        "wants_reply", info->wants_reply, "behind", (json_int_t)(len - info->length));
    json_object_set_new(object, "forgotten", forgotten);
    json_object_set_new(object, "entries", describe_entries(frame, len, info->n));
    return object;
}

static json_t *describe_reply(const void *reply, size_t len, const dw_reply_info *info)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < info->n; i++) {
        dw_reply_entry e;
        if (dw_reply_entry_read(reply, len, i, &e) < 0) break;
        json_array_append_new(list, json_pack("{s:o, s:I, s:b, s:o, s:I, s:o}", "sample",
                                              json_sprintf("%" PRIu64, e.key.sample), "slice",
                                              (json_int_t)e.key.slice, "held", e.held,
                                              "incarnation", hex(e.incarnation), "version",
                                              (json_int_t)e.version, "chain", hex(e.chain)));
    }
    return json_pack("{s:s, s:I, s:b, s:o, s:I, s:o}", "message", "reply", "bytes", (json_int_t)len,
                     "accepted", info->accepted, "incarnation", hex(info->incarnation), "sequence",
                     (json_int_t)info->sequence, "entries", list);
}

static void print_value(json_t *value)
{
    if (json_is_string(value)) {
        fputs(json_string_value(value), stdout);
    } else if (json_is_array(value)) {
        size_t i;
        json_t *item;
        json_array_foreach(value, i, item)
        {
            if (i) fputs(" ", stdout);
            print_value(item);
        }
    } else if (json_is_boolean(value)) {
        fputs(json_is_true(value) ? "yes" : "no", stdout);
    } else {
        printf("%" JSON_INTEGER_FORMAT, json_integer_value(value));
    }
}

static void print_lines(json_t *object)
{
    const char *name;
    json_t *value, *entry;
    size_t i;
    json_object_foreach(object, name, value)
    {
        if (!strcmp(name, "entries") || (json_is_array(value) && !json_array_size(value))) continue;
        printf("%-14s ", name);
        print_value(value);
        putchar('\n');
    }
    json_array_foreach(json_object_get(object, "entries"), i, entry)
    {
        printf("entry %zu\n", i);
        json_object_foreach(entry, name, value)
        {
            printf("  %-14s ", name);
            print_value(value);
            putchar('\n');
        }
    }
}

/* ---- The file -------------------------------------------------------------------------------- */

/* Whether the first bytes show that this is neither a frame nor a reply. */
static bool is_neither(const uint8_t *bytes, size_t len)
{
    return len >= 4 && memcmp(bytes, "DWF1", 4) != 0 && memcmp(bytes, "DWR1", 4) != 0;
}

static int read_file(const char *path, uint8_t **bytes, size_t *len)
{
    FILE *file = fopen(path, "rb");
    if (!file) return -1;
    uint8_t *room = NULL;
    size_t used = 0, cap = 0, got;
    do {
        if (used == cap) {
            cap = cap ? 2 * cap : 65536;
            uint8_t *larger = realloc(room, cap);
            if (!larger) break;
            room = larger;
        }
        got = fread(room + used, 1, cap - used, file);
        used += got;
        if (is_neither(room, used)) break; /* /dev/zero, for instance, has no end */
    } while (got);
    bool failed = ferror(file) || (!feof(file) && !is_neither(room, used));
    int error = errno;
    fclose(file);
    if (failed) {
        free(room);
        errno = error;
        return -1;
    }
    *bytes = room;
    *len = used;
    return 0;
}

/* Frames and replies begin with different magic bytes, so at most one of the two readings returns
 * something else than FORMAT. */
static json_t *describe(const uint8_t *bytes, size_t len, dw_why *why)
{
    dw_frame_info frame = {.struct_size = sizeof frame};
    dw_reply_info reply = {.struct_size = sizeof reply};
    dw_why reply_why = {.offset = -1};
    dw_status status = dw_frame_read(bytes, len, &frame, why);
    if (status == DW_OK) return describe_frame(bytes, len, &frame);
    dw_status reply_status = dw_reply_read(bytes, len, &reply, &reply_why);
    if (reply_status == DW_OK) return describe_reply(bytes, len, &reply);
    if (status == DW_ERR_FORMAT && reply_status != DW_ERR_FORMAT) *why = reply_why;
    return NULL;
}

int dw_cli_inspect(int argc, char **argv)
{
    static const char doc[] =
        "Prints what a frame or a reply of the deltawire format contains.\v"
        "Exit status: 0 FILE holds a whole frame or reply, 1 it does not or cannot be read, "
        "2 wrong usage.";
    static const struct argp parser = {options, parse_option, "FILE", doc, NULL, NULL, NULL};
    arguments a = {0};
    char name[] = "deltawire inspect";
    argv[0] = name;
    argp_err_exit_status = DW_EXIT_USAGE;
    argp_parse(&parser, argc, argv, 0, NULL, &a);
    uint8_t *bytes = NULL;
    size_t len = 0;
    if (read_file(a.file, &bytes, &len)) {
        dw_complain("cannot read %s: %s", a.file, strerror(errno));
        return DW_EXIT_FAILED;
    }
    dw_why why = {.offset = -1};
    json_t *object = describe(bytes, len, &why);
    free(bytes);
    if (!object) {
        dw_complain("%s: %s", a.file, *why.text ? why.text : "this is neither a frame nor a reply");
        return DW_EXIT_FAILED;
    }
    if (a.json) {
        json_dumpf(object, stdout, JSON_INDENT(2));
        putchar('\n');
    } else {
        print_lines(object);
    }
    json_decref(object);
    return DW_EXIT_OK;
}
