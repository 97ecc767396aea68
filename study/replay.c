/* SPDX-License-Identifier: Apache-2.0
 * replay.c - sends recorded tensors through one codec after another, and prints the size and the
 * error of each. */
#include <argp.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trial.h"

enum { FAILED = 1, USAGE = 2 };

static const struct argp_option options[] = {
    {"json", 'j', "FILE", 0, "Write all that is known of each codec there, too", 0},
    {0},
};

static const char doc[] =
    "Sends what `deltawire train --record DIR` wrote through an encoder and a decoder per CODEC, "
    "under the same ids and in the same order, and prints the bytes of the frames per element, "
    "|x - last y| / |x| of a sample's later visits, and the relative error |x - y| / |x| of first "
    "visits, of later ones and of all, each over all elements."
    "\v"
    "  replay record/forward-0.record delta:bits=2 delta:bits=2,scale=mse\n"
    "\n"
    "Exits with 0, 1 (failed) or 2 (usage).";

typedef struct arguments {
    const char *record, *json;
    char **codecs;
    int n_codecs;
} arguments;

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    arguments *a = state->input;
    if (key == 'j')
        a->json = value;
    else if (key == ARGP_KEY_ARG && !a->record)
        a->record = value;
    else if (key == ARGP_KEY_ARG)
        return ARGP_ERR_UNKNOWN; /* the first argument and all after it: ARGP_KEY_ARGS */
    else if (key == ARGP_KEY_ARGS) {
        a->codecs = state->argv + state->next;
        a->n_codecs = state->argc - state->next;
    } else if (key == ARGP_KEY_END && !a->n_codecs)
        argp_error(state, "name a record and at least one codec");
    else
        return key == ARGP_KEY_END ? 0 : ARGP_ERR_UNKNOWN;
    return 0;
}

/* ---- Lines for people ------------------------------------------------------------------------ */

/* A codec may take minutes, so a line shows the progress if stderr is a terminal. */
static void show_progress(void *context, double share)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r%.60s %3.0f %% ", (const char *)context, 100 * share);
}

static void clear_progress(void)
{
    if (isatty(STDERR_FILENO)) fprintf(stderr, "\r%70s\r", "");
}

static double bytes_per_element(const dw_trial_sums *sums)
{
    return sums->elements ? (double)sums->frame_bytes / (double)sums->elements : (double)NAN;
}

static double error_of(const dw_trial_sums *sums)
{
    return dw_trial_relative(sums->error_square, sums->x_square);
}

static double change_of(const dw_trial_sums *sums)
{
    return dw_trial_relative(sums->change_square, sums->x_square);
}

static void print_head(const dw_bench_record *record, const char *path, int width)
{
    printf("%s: %s of rank %u, %zu tensors of %u x %u, %zu samples\n\n", path,
           record->direction == 1 ? "activations" : "gradients", record->rank, record->tensors,
           record->T, record->C, record->places);
    if (record->cut)
        printf("It ends within a tensor: the run that wrote it ended early. That tensor is "
               "left out.\n\n");
    printf("%-*s  bytes/element          change    error of visits\n", width, "");
    printf("%-*s   first    later     later     first     later       all\n", width, "codec");
}

static void print_number(double number, int decimals)
{
    if (isfinite(number))
        printf("%*.*f", decimals ? 10 : 9, decimals, number);
    else
        printf("%*s", decimals ? 10 : 9, "-");
}

static void print_trial(const dw_trial *trial, int width)
{
    dw_trial_sums all = dw_trial_all(trial);
    printf("%-*s", width, trial->codec);
    print_number(bytes_per_element(&trial->first), 4);
    print_number(bytes_per_element(&trial->later), 4);
    print_number(change_of(&trial->later), 5);
    print_number(error_of(&trial->first), 5);
    print_number(error_of(&trial->later), 5);
    print_number(error_of(&all), 5);
    putchar('\n');
    if (all.left_out)
        printf("%-*s  left out: %llu elements that are not finite\n", width, "",
               (unsigned long long)all.left_out);
    fflush(stdout);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* JSON has no NaN. */
static json_t *number_of(double number)
{
    return isfinite(number) ? json_real(number) : json_null();
}

static json_t *describe_sums(const dw_trial_sums *sums)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:o, s:o}", "tensors", (json_int_t)sums->tensors,
                     "elements", (json_int_t)sums->elements, "frame_bytes",
                     (json_int_t)sums->frame_bytes, "left_out", (json_int_t)sums->left_out,
                     "bytes_per_element", number_of(bytes_per_element(sums)), "error",
                     number_of(error_of(sums)));
}

static int write_json(const char *path, const dw_bench_record *record, const char *record_path,
                      const dw_trial *trials, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        dw_trial_sums all = dw_trial_all(&trials[i]);
        json_array_append_new(list, json_pack("{s:s, s:o, s:o, s:o, s:o}", "codec", trials[i].codec,
                                              "change", number_of(change_of(&trials[i].later)),
                                              "first", describe_sums(&trials[i].first), "later",
                                              describe_sums(&trials[i].later), "all",
                                              describe_sums(&all)));
    }
    json_t *whole =
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:b, s:o}", "record", record_path,
                  "direction", record->direction == 1 ? "forward" : "backward", "rank",
                  (json_int_t)record->rank, "tokens", (json_int_t)record->T, "channels",
                  (json_int_t)record->C, "tensors", (json_int_t)record->tensors, "samples",
                  (json_int_t)record->places, "cut", record->cut, "codecs", list);
    errno = 0;
    bool failed = !whole || json_dump_file(whole, path, JSON_INDENT(1));
    if (failed)
        fprintf(stderr, "replay: cannot write %s: %s\n", path, strerror(errno ? errno : EIO));
    json_decref(whole);
    return failed;
}

/* ---- The run --------------------------------------------------------------------------------- */

static int width_of(const arguments *a)
{
    size_t width = 10;
    for (int i = 0; i < a->n_codecs; i++)
        if (strlen(a->codecs[i]) > width) width = strlen(a->codecs[i]);
    return (int)width;
}

/* Checks all codecs first, so that a misspelt one is reported before the others have run. */
static int check_codecs(const arguments *a)
{
    for (int i = 0; i < a->n_codecs; i++) {
        dw_config config;
        dw_why why = {.offset = -1};
        if (dw_config_parse(&config, a->codecs[i], &why) == DW_OK) continue;
        fprintf(stderr, "replay: codec \"%s\": %s\n", a->codecs[i], why.text);
        return USAGE;
    }
    return 0;
}

static int try_all(const arguments *a, const dw_bench_record *record, dw_trial *trials)
{
    int width = width_of(a);
    print_head(record, a->record, width);
    for (int i = 0; i < a->n_codecs; i++) {
        dw_why why = {.offset = -1};
        dw_status status =
            dw_trial_run(&trials[i], record, a->codecs[i], show_progress, a->codecs[i], &why);
        clear_progress();
        if (status < 0) {
            fprintf(stderr, "replay: codec \"%s\": %s\n", a->codecs[i], why.text);
            return FAILED;
        }
        print_trial(&trials[i], width);
    }
    return a->json && write_json(a->json, record, a->record, trials, a->n_codecs) ? FAILED : 0;
}

int main(int argc, char **argv)
{
    static const struct argp parser = {options, parse_option, "RECORD CODEC...", doc, NULL,
                                       NULL,    NULL};
    arguments a = {0};
    dw_bench_record record;
    dw_why why = {.offset = -1};
    argp_err_exit_status = USAGE;
    argp_parse(&parser, argc, argv, 0, NULL, &a);
    int code = check_codecs(&a);
    if (code) return code;
    if (dw_bench_record_open(&record, a.record, &why) < 0) {
        fprintf(stderr, "replay: %s\n", why.text);
        return FAILED;
    }
    dw_trial *trials = calloc((size_t)a.n_codecs, sizeof *trials);
    if (trials)
        code = try_all(&a, &record, trials);
    else
        fprintf(stderr, "replay: out of memory\n");
    free(trials);
    dw_bench_record_close(&record);
    return trials ? code : FAILED;
}
