/* SPDX-License-Identifier: Apache-2.0
 * quality.c - the program `quality`: sends one set of recorded tensors through every codec and
 * every baseline, and writes down their size, error and speed. */
#include <argp.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "families.h"
#include "measure.h"

enum { FAILED = 1, USAGE = 2, WORDS = 64, TEXT = 256 };

static const struct argp_option options[] = {
    {"codec", 'c', "CODEC", 0, "Measure this codec, too; may be given several times", 0},
    {"json", 'j', "FILE", 0, "Write all figures to FILE, in JSON", 0},
    {"only", 'o', "WORDS", 0,
     "Measure only codecs and baselines whose text, or the name of whose family, contains one of "
     "these words, which are separated by commas",
     0},
    {"samples", 's', "N", 0, "Send only the first N samples of the set (default: all)", 0},
    {0},
};

static const char doc[] =
    "Sends each tensor of SET through all codecs of deltawire and through the baselines. Prints "
    "the mean size, error and speed of samples that were sent before. SET is a file that "
    "`deltawire train --record` wrote.\v"
    "Exit status: 0 success, 1 failure, 2 wrong usage.";

typedef struct arguments {
    const char *set, *json, *only;
    const char *codecs[WORDS];
    int n_codecs;
    size_t samples;
} arguments;

/* A run of the program: its arguments, the tensors, and the rows of results so far. A row has the
 * figures of one codec, or of one baseline with one setting. */
typedef struct run {
    const arguments *a;
    dw_bench_record set;
    json_t *rows;
} run;

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    arguments *a = state->input;
    char *end = NULL;
    switch (key) {
    case 'c':
        if (a->n_codecs == WORDS) argp_error(state, "at most %d codecs", WORDS);
        a->codecs[a->n_codecs++] = value;
        return 0;
    case 'j': a->json = value; return 0;
    case 'o':
        if (strlen(value) >= TEXT) argp_error(state, "--only takes at most %d bytes", TEXT - 1);
        a->only = value;
        return 0;
    case 's':
        a->samples = strtoul(value, &end, 10);
        if (!a->samples || *end) argp_error(state, "--samples takes a number from 1 on");
        return 0;
    case ARGP_KEY_ARG:
        if (a->set) return ARGP_ERR_UNKNOWN;
        a->set = value;
        return 0;
    case ARGP_KEY_END:
        if (!a->set) argp_error(state, "name a set of tensors");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* Returns whether a row is to be measured: always without --only, otherwise if the name of its
 * family or the text of its codec contains one of the words. */
static bool is_asked_for(const arguments *a, const char *family, const char *codec)
{
    char words[TEXT];
    if (!a->only) return true;
    snprintf(words, sizeof words, "%s", a->only);
    for (char *rest, *word = strtok_r(words, ",", &rest); word; word = strtok_r(NULL, ",", &rest))
        if (strstr(family, word) || strstr(codec, word)) return true;
    return false;
}

/* Returns a number as JSON. NaN and infinities, which JSON does not have, become null. */
static json_t *number_of(double number)
{
    return isfinite(number) ? json_real(number) : json_null();
}

/* Returns the figures of one kind of visits as a JSON object. */
static json_t *describe(const dw_quality *q)
{
    return json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "tensors",
                     (json_int_t)q->tensors, "not_finite", (json_int_t)q->not_finite, "bits",
                     number_of(q->bits), "error", number_of(q->error), "cosine",
                     number_of(q->cosine), "bias", number_of(q->bias), "bias_sigma",
                     number_of(q->bias_sigma), "gain", number_of(q->gain), "gain_sigma",
                     number_of(q->gain_sigma), "encode_GBps", number_of(q->encode_GBps),
                     "decode_GBps", number_of(q->decode_GBps));
}

/* What the results say of a codec or baseline besides its figures.
 *
 * | family  | the name of the family or baseline, which several rows share              |
 * | codec   | the text of the codec with its setting                                    |
 * | setting | the value of the option that varies, or NaN if it is not a number         |
 * | ours    | whether it is a codec of deltawire, not a baseline                        |
 * | state   | whether both ends keep earlier visits, so that only changes are sent      |
 * | between | whether the setting may be any number between two that are measured, too  | */
typedef struct row {
    const char *family, *codec;
    double setting;
    bool ours, state, between;
} row;

/* Measures a codec or baseline, prints its figures, and adds them as a row to the results. `way` is
 * the opened way through it; `status` and `why` say whether it could be opened. Returns 0, or
 * FAILED after it has printed why. */
static int add(run *r, const row *of, dw_status status, dw_way *way, dw_why *why)
{
    dw_measured m;
    if (status == DW_OK) status = dw_measure(&m, &r->set, r->a->samples, way, why);
    if (status < 0) {
        fprintf(stderr, "quality: %s: %s\n", of->codec, why->text);
        return FAILED;
    }
    printf("%-66s %7.3f %9.5f %9.6f %9.1e %7.1e %8.4f %6.2f %6.2f\n", of->codec, m.later.bits,
           m.later.error, m.later.cosine, m.later.bias, m.later.bias_sigma, m.later.gain,
           m.later.encode_GBps, m.later.decode_GBps);
    fflush(stdout);
    json_array_append_new(r->rows,
                          json_pack("{s:s, s:s, s:o, s:b, s:b, s:b, s:I, s:o, s:o}", "family",
                                    of->family, "codec", of->codec, "setting",
                                    number_of(of->setting), "ours", of->ours, "state", of->state,
                                    "between", of->between, "outside", (json_int_t)m.outside,
                                    "first", describe(&m.first), "later", describe(&m.later)));
    return 0;
}

/* Writes `text` to `to`, which has TEXT bytes, with `word` in the place of %s. */
static void fill_in(char *to, const char *text, const char *word)
{
    const char *gap = strstr(text, "%s");
    if (gap)
        snprintf(to, TEXT, "%.*s%s%s", (int)(gap - text), text, word, gap + 2);
    else
        snprintf(to, TEXT, "%s", text);
}

/* Opens and measures a codec of deltawire, unless --only leaves it out. The parameters are fields
 * of the row. Returns 0 or FAILED. */
static int add_codec(run *r, const char *family, const char *codec, double setting, bool between)
{
    dw_config config;
    dw_why why = {.offset = -1};
    dw_way *way = NULL;
    if (!is_asked_for(r->a, family, codec)) return 0;
    dw_status status = dw_config_parse(&config, codec, &why);
    if (status == DW_OK) status = dw_way_of_codec(&way, &r->set, codec, &why);
    bool state = status == DW_OK && config.codec == DW_CODEC_DELTA;
    const row of = {family, codec, setting, true, state, between};
    return add(r, &of, status, way, &why);
}

/* Measures a family of codecs with each of its settings. Returns 0 or FAILED. */
static int add_family(run *r, const dw_family *family)
{
    char words[TEXT], codec[TEXT];
    int code = 0;
    snprintf(words, sizeof words, "%s", family->settings);
    for (char *rest, *word = strtok_r(words, " ", &rest); word && !code;
         word = strtok_r(NULL, " ", &rest)) {
        char *end;
        double setting = strtod(word, &end);
        fill_in(codec, family->codec, word);
        code = add_codec(r, family->name, codec, *end ? (double)NAN : setting, family->between);
    }
    return code;
}

/* Measures a baseline with each of its settings; with delta, on the changes since a sample's
 * previous visit ("changes by NAME"). Returns 0 or FAILED. */
static int add_peer(run *r, const dw_peer *peer, bool delta)
{
    char words[TEXT], text[TEXT], codec[2 * TEXT], family[TEXT];
    int code = 0;
    snprintf(words, sizeof words, "%s", peer->settings);
    snprintf(family, sizeof family, "%s%s", delta ? "changes by " : "", peer->name);
    for (char *rest, *word = strtok_r(words, " ", &rest); word && !code;
         word = strtok_r(NULL, " ", &rest)) {
        double setting = strtod(word, NULL);
        dw_why why = {.offset = -1};
        dw_way *way = NULL;
        fill_in(text, peer->codec, word);
        snprintf(codec, sizeof codec, "%s%s", delta ? "changes by " : "", text);
        if (!is_asked_for(r->a, family, codec)) continue;
        dw_status status = dw_way_of_peer(&way, &r->set, peer, setting, delta, &why);
        const row of = {family, codec, setting, false, delta, peer->between};
        code = add(r, &of, status, way, &why);
    }
    return code;
}

/* Measures all codecs of deltawire, those of --codec, and all baselines, without and with delta.
 * Stops at the first failure. Returns 0 or FAILED. */
static int measure_all(run *r)
{
    int code = 0;
    printf("%-66s %7s %9s %9s %9s %7s %8s %6s %6s\n", "later visits", "bits", "error", "cosine",
           "bias", "sigma", "gain", "encode", "decode");
    for (const dw_family *family = dw_families; family->name && !code; family++)
        code = add_family(r, family);
    for (int i = 0; i < r->a->n_codecs && !code; i++)
        code = add_codec(r, r->a->codecs[i], r->a->codecs[i], (double)NAN, false);
    for (int delta = 0; delta < 2; delta++)
        for (const dw_peer *const *peer = dw_peers; *peer && !code; peer++)
            code = add_peer(r, *peer, delta);
    if (*dw_peers_missing)
        printf("The baselines of %s are left out, because this build does not have that library.\n",
               dw_peers_missing);
    return code;
}

/* Writes all rows, and what is known of the set, to the file that --json names. Returns 0, or
 * FAILED after it has printed why. */
static int write_json(run *r)
{
    size_t samples = r->a->samples < r->set.places ? r->a->samples : r->set.places;
    json_t *whole =
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:s, s:O}", "set", r->a->set, "direction",
                  r->set.direction == 1 ? "forward" : "backward", "rank", (json_int_t)r->set.rank,
                  "tokens", (json_int_t)r->set.T, "channels", (json_int_t)r->set.C, "samples",
                  (json_int_t)samples, "change", number_of(dw_measure_change(&r->set, samples)),
                  "left_out", dw_peers_missing, "rows", r->rows);
    errno = 0;
    bool failed = !whole || json_dump_file(whole, r->a->json, JSON_INDENT(1));
    if (failed)
        fprintf(stderr, "quality: cannot write %s: %s\n", r->a->json,
                strerror(errno ? errno : EIO));
    json_decref(whole);
    return failed ? FAILED : 0;
}

int main(int argc, char **argv)
{
    static const struct argp parser = {options, parse_option, "SET", doc, NULL, NULL, NULL};
    arguments a = {.samples = SIZE_MAX};
    run r = {.a = &a};
    dw_why why = {.offset = -1};
    argp_err_exit_status = USAGE;
    argp_parse(&parser, argc, argv, 0, NULL, &a);
    if (dw_bench_record_open(&r.set, a.set, &why) < 0) {
        fprintf(stderr, "quality: %s\n", why.text);
        return FAILED;
    }
    r.rows = json_array();
    int code = r.rows ? measure_all(&r) : FAILED;
    if (!code && a.json) code = write_json(&r);
    json_decref(r.rows);
    dw_bench_record_close(&r.set);
    return code;
}
