/* SPDX-License-Identifier: Apache-2.0
 * boundaries.c - finds the entry of each boundary in the setting, and parses its codec. */
#include "boundaries.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/sentence.h"

/* In place of the number of a boundary: the entry has none, or one of too many digits. */
static const uint32_t NUMBERLESS = UINT32_MAX, TOO_LARGE = UINT32_MAX - 1;
enum { MOST_DIGITS = 9, ENTRY_BYTES = 4 * DW_CONFIG_TEXT_BYTES };

/* An entry: its number is what stands before `codec`, which is len characters. */
typedef struct entry {
    uint32_t boundary; /* NUMBERLESS: it has no number */
    const char *begin, *codec;
    size_t len;
} entry;

/* The setting, and whose it is. */
typedef struct setting {
    const char *text, *way; /* way: "forward" or "backward" */
    uint32_t stages;
} setting;

/* Returns the length of the number of a boundary with its colon at the beginning of the text; 0:
 * there is none. */
static size_t number_length(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    return digits > 0 && text[digits] == ':' ? digits + 1 : 0;
}

/* Reads the entry at *at, and moves *at behind it and its comma; to NULL after the last entry. */
static entry next_entry(const char **at)
{
    size_t number = number_length(*at);
    entry found = {.boundary = NUMBERLESS, .begin = *at, .codec = *at + number};
    if (number) found.boundary = 0;
    for (size_t i = 0; i + 1 < number; i++)
        found.boundary =
            i < MOST_DIGITS ? found.boundary * 10 + (uint32_t)((*at)[i] - '0') : TOO_LARGE;
    const char *end = found.codec;
    while (*end && !(*end == ',' && number_length(end + 1))) end++;
    found.len = (size_t)(end - found.codec);
    *at = *end ? end + 1 : NULL;
    return found;
}

static dw_status parse_entry(const setting *s, const entry *e, dw_codec_setting *codec, dw_why *why)
{
    char text[ENTRY_BYTES], name[40];
    if (e->boundary == NUMBERLESS)
        snprintf(name, sizeof name, "%s", s->way);
    else
        snprintf(name, sizeof name, "boundary %u's %s", e->boundary, s->way);
    if (e->len >= sizeof text)
        return dw_say(why, DW_ERR_ARGUMENT, "%s codec \"%.60s...\" is too long", name, e->codec);
    memcpy(text, e->codec, e->len);
    text[e->len] = '\0';
    return dw_codec_setting_parse(codec, text, name, why);
}

/* Finds the entry of a boundary, or the one that stands for it. Returns false if there is none. */
static bool find_entry(const setting *s, uint32_t boundary, entry *found)
{
    bool is_found = false;
    for (const char *at = s->text; at;) {
        entry e = next_entry(&at);
        if (e.boundary != boundary && e.boundary != NUMBERLESS) continue;
        *found = e;
        is_found = true;
        if (e.boundary == boundary) break;
    }
    return is_found;
}

/* Checks every entry, also those of boundaries that are not this rank's. */
static dw_status check_entries(const setting *s, dw_why *why)
{
    dw_codec_setting unused;
    dw_status status = DW_OK;
    for (const char *at = s->text; at && status == DW_OK;) {
        entry e = next_entry(&at), first = e;
        if (e.boundary != NUMBERLESS && s->stages < 2)
            return dw_say(why, DW_ERR_ARGUMENT,
                          "%s names a boundary, but a single stage has none; give more stages, or "
                          "leave out the number",
                          s->way);
        if (e.boundary != NUMBERLESS && e.boundary > s->stages - 2)
            return dw_say(why, DW_ERR_ARGUMENT,
                          "%s names boundary %.*s; %u stages have the boundaries 0 to %u", s->way,
                          (int)(e.codec - e.begin - 1), e.begin, s->stages, s->stages - 2);
        find_entry(s, e.boundary, &first);
        if (first.begin != e.begin)
            return dw_say(why, DW_ERR_ARGUMENT, "%s gives boundary %u a codec twice; give it once",
                          s->way, e.boundary);
        status = parse_entry(s, &e, &unused, why);
    }
    return status;
}

static dw_status parse_boundary(const setting *s, uint32_t boundary, dw_codec_setting *codec,
                                dw_why *why)
{
    entry e = {.boundary = NUMBERLESS, .codec = "raw:f32", .len = 7}; /* without any entry */
    find_entry(s, boundary, &e);
    return parse_entry(s, &e, codec, why);
}

/* Sets *are_equal: whether all boundaries have the same codec, which is then *first. */
static dw_status compare_all(const setting *s, dw_codec_setting *first, bool *are_equal,
                             dw_why *why)
{
    dw_codec_setting one;
    dw_status status = parse_boundary(s, 0, first, why);
    *are_equal = true;
    for (uint32_t b = 1; b + 1 < s->stages && status == DW_OK && *are_equal; b++) {
        status = parse_boundary(s, b, &one, why);
        if (status == DW_OK) *are_equal = strcmp(one.text, first->text) == 0;
    }
    return status;
}

/* Writes the canonical text. It says the codecs of all boundaries, so that ranks can compare it. */
static dw_status write_text(const setting *s, char *text, dw_why *why)
{
    dw_codec_setting one;
    bool are_equal;
    size_t used = 0;
    dw_status status = compare_all(s, &one, &are_equal, why);
    if (status < 0) return status;
    if (are_equal) memcpy(text, one.text, strlen(one.text) + 1);
    for (uint32_t b = 0; b + 1 < s->stages && !are_equal; b++) {
        status = parse_boundary(s, b, &one, why);
        if (status < 0) return status;
        used += (size_t)snprintf(text + used, DW_BOUNDARIES_TEXT_BYTES - used, "%s%u:%s",
                                 b ? "," : "", b, one.text);
        if (used >= DW_BOUNDARIES_TEXT_BYTES)
            return dw_say(why, DW_ERR_LIMIT,
                          "the %s codecs of %u boundaries are longer than %d characters; give "
                          "fewer boundaries one of their own",
                          s->way, s->stages - 1, DW_BOUNDARIES_TEXT_BYTES - 1);
    }
    return DW_OK;
}

dw_status dw_boundaries_parse(dw_boundaries *boundaries, const char *text, const char *way,
                              uint32_t stage, uint32_t stages, dw_why *why)
{
    const setting s = {text, way, stages};
    dw_status status = check_entries(&s, why);
    uint32_t before = stage ? stage - 1 : 0, after = stage + 1 < stages ? stage : 0;
    if (status == DW_OK) status = parse_boundary(&s, before, &boundaries->before, why);
    if (status == DW_OK) status = parse_boundary(&s, after, &boundaries->after, why);
    return status < 0 ? status : write_text(&s, boundaries->text, why);
}
