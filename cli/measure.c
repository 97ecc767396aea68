/* SPDX-License-Identifier: Apache-2.0
 * measure.c - takes tensors from files, sends each with every codec, and prints what came of it. */
#include "measure.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/printable.h"
#include "complain.h"
#include "ends.h"
#include "figures.h"
#include "tables.h"
#include "tensor_file.h"

static const char usual[] = "raw:bf16 mx direct:bits=8 direct:bits=4 "
                            "direct:form=step,step=0.25,entropy=rans "
                            "direct:form=step,step=0.5,entropy=rans ";
static const char usual_later[] = "delta:bits=4 delta:bits=2 delta:form=step,step=1,entropy=rans ";
static const double seconds_to_progress = 2;

typedef struct run {
    const dw_measure_options *options;
    char *list; /* what the texts of codecs point into */
    dw_chosen_codec *codecs;
    size_t n_codecs;
    dw_figures *figures; /* (n_codecs), of the tensor that is measured */
    dw_tensor_file earlier;
    FILE *picture;
    size_t tensors, seen, measured; /* of all files: chosen, of these looked at, and with figures */
    bool *found;                    /* (options->n_tensors): whether a file has it */
    double told;                    /* when progress was printed */
} run;

/* ---- Codecs ---------------------------------------------------------------------------------- */

/* Returns the list of codecs as a text that the caller frees, or NULL. "all" adds each codec that
 * exists, with its defaults, where the usual ones lack it. */
static char *codec_list(const dw_measure_options *o)
{
    bool all = o->codecs && !strcmp(o->codecs, "all");
    if (o->codecs && !all) return strdup(o->codecs);
    char *list = calloc(1, 8192);
    if (!list) return NULL;
    strcat(strcat(list, usual), o->delta_from || all ? usual_later : "");
    for (int c = 1; all; c++) {
        dw_config config = {.struct_size = sizeof config};
        char text[DW_CONFIG_TEXT_BYTES], word[DW_CONFIG_TEXT_BYTES + 2];
        config.codec = (dw_codec)c;
        if (dw_config_format(&config, text, sizeof text) < 0) break; /* there is no such codec */
        size_t name = strcspn(text, ":");
        snprintf(word, sizeof word, "%.*s", (int)name, text);
        if (!strstr(list, word)) strcat(strcat(list, text), " ");
    }
    return list;
}

static dw_status choose_codecs(run *r, dw_why *why)
{
    r->list = codec_list(r->options);
    /* Each codec has at least one character and one that separates it from the next. */
    size_t most = r->list ? strlen(r->list) / 2 + 1 : 0;
    r->codecs = calloc(most + 1, sizeof *r->codecs);
    r->figures = calloc(most + 1, sizeof *r->figures);
    r->found = calloc(r->options->n_tensors + 1, sizeof *r->found);
    if (!r->list || !r->codecs || !r->figures || !r->found)
        return dw_say(why, DW_ERR_NO_MEMORY, "out of memory for codecs");
    char *rest = NULL;
    for (char *text = strtok_r(r->list, " ;", &rest); text; text = strtok_r(NULL, " ;", &rest)) {
        dw_chosen_codec *codec = &r->codecs[r->n_codecs++];
        dw_why reason = {.offset = -1};
        codec->text = text;
        dw_status status = dw_config_parse(&codec->config, text, &reason);
        if (status < 0) return dw_fail_codec(why, status, text, &reason);
    }
    if (r->n_codecs) return DW_OK;
    return dw_say(why, DW_ERR_ARGUMENT,
                  "the list of codecs is empty: name some, such as \"mx "
                  "direct:bits=8\", or \"all\"");
}

/* ---- Files ----------------------------------------------------------------------------------- */

/* Returns whether a tensor is to be measured, and notes that there is one of this name. */
static bool is_chosen(run *r, const char *name)
{
    bool chosen = r->options->n_tensors == 0;
    for (size_t i = 0; i < r->options->n_tensors; i++)
        if (!strcmp(r->options->tensors[i], name)) chosen = r->found[i] = true;
    return chosen;
}

/* Complains about a file; returns the exit code. */
static int complain_of(const char *name, const dw_why *why)
{
    dw_complain("%s: %s", name, why->text);
    return DW_EXIT_FAILED;
}

static const char *name_of(const dw_measure_options *o, size_t i)
{
    return o->shown ? o->shown[i] : o->files[i];
}

/* Finds the previous visit of a tensor: the one of the same name, or the only one of either file.
 * Returns NULL if there is none of the same shape and dtype. */
static const dw_file_tensor *earlier_of(const run *r, const dw_tensor_file *file,
                                        const dw_file_tensor *x)
{
    const dw_file_tensor *found = file->n == 1 && r->earlier.n == 1 ? r->earlier.tensors : NULL;
    for (size_t i = 0; i < r->earlier.n; i++)
        if (!strcmp(r->earlier.tensors[i].name, x->name)) {
            found = &r->earlier.tensors[i];
            break;
        }
    bool fits = found && !found->left_out && found->n == x->n && found->t == x->t &&
                found->c == x->c && found->dtype == x->dtype;
    return fits ? found : NULL;
}

static dw_status miss_earlier(const run *r, const dw_file_tensor *x, dw_why *why)
{
    return dw_say(why, DW_ERR_SHAPE,
                  "there is no tensor \"%.80s\" of the same shape and dtype in %.100s: name the "
                  "file of its previous visit, or choose others by --tensor",
                  x->name, r->options->delta_from);
}

/* Reads the header of every file, so that what is wrong is said before anything is printed, and
 * counts the tensors that are chosen. Returns the exit code. */
static int look_at_files(run *r)
{
    const dw_measure_options *o = r->options;
    dw_why why;
    r->tensors = 0;
    for (size_t i = 0; i < o->n_files; i++) {
        dw_tensor_file file;
        dw_status status = dw_tensor_file_open(&file, o->files[i], &why);
        if (status < 0) return complain_of(name_of(o, i), &why);
        for (size_t j = 0; j < file.n && status == DW_OK; j++) {
            const dw_file_tensor *x = &file.tensors[j];
            if (!is_chosen(r, x->name)) continue;
            r->tensors++;
            if (x->left_out || !o->delta_from) continue;
            if (!earlier_of(r, &file, x)) status = miss_earlier(r, x, &why);
        }
        dw_tensor_file_close(&file);
        if (status < 0) return complain_of(name_of(o, i), &why);
    }
    for (size_t i = 0; i < o->n_tensors; i++)
        if (!r->found[i]) {
            dw_complain("no file has a tensor \"%s\"; leave out --tensor to see all names",
                        o->tensors[i]);
            return DW_EXIT_FAILED;
        }
    if (r->tensors) return DW_EXIT_OK;
    dw_complain("the files have no tensors: nothing was measured");
    return DW_EXIT_FAILED;
}

/* Reads a tensor into new memory, which the caller frees. */
static dw_status read_tensor(const dw_tensor_file *file, const dw_file_tensor *in_file,
                             dw_tensor *x, dw_why *why)
{
    *x = dw_tensor_3d(malloc(in_file->end - in_file->begin), in_file->dtype, in_file->n, in_file->t,
                      in_file->c);
    if (!x->data) return dw_say(why, DW_ERR_NO_MEMORY, "out of memory for a tensor");
    return dw_tensor_file_read(file, in_file, x->data, why);
}

/* ---- Measuring ------------------------------------------------------------------------------- */

static void tell_progress(run *r, const char *name, const char *codec)
{
    double now = dw_now_s();
    if (r->told > 0 && now - r->told < seconds_to_progress) return;
    if (r->told > 0) dw_complain("tensor %zu of %zu, %s: %s", r->seen + 1, r->tensors, name, codec);
    r->told = now;
}

static void print(run *r, const dw_subject *s)
{
    const dw_measure_options *o = r->options;
    (o->json ? dw_json_print : dw_table_print)(s, r->codecs, r->figures, r->n_codecs);
    if (!r->picture || r->measured >= DW_PICTURE_PANELS) return;
    char title[400];
    snprintf(title, sizeof title, "%.190s%s%.190s", s->file, *s->in_file->name ? ": " : "",
             s->in_file->name);
    dw_make_printable(title); /* a character that was cut in two */
    dw_picture_panel(r->picture, r->measured, title, r->codecs, r->figures, r->n_codecs);
}

/* Measures a tensor with all codecs, and prints what came of it. */
static dw_status measure_tensor(run *r, const dw_tensor_file *file, dw_subject *s, dw_why *why)
{
    const dw_file_tensor *x = s->in_file, *earlier = earlier_of(r, file, x);
    dw_status status = read_tensor(file, x, &s->x, why);
    if (status == DW_OK && r->options->delta_from) /* NULL: the file was replaced meanwhile */
        status = earlier ? read_tensor(&r->earlier, earlier, &s->previous, why)
                         : miss_earlier(r, x, why);
    void *y = malloc(x->end - x->begin);
    if (status == DW_OK && !y) status = dw_say(why, DW_ERR_NO_MEMORY, "out of memory for a y");
    const char *base = strrchr(s->file, '/');
    bool is_gradient = strstr(x->name, "grad") || strstr(base ? base : s->file, "grad");
    s->kind = is_gradient ? DW_GRADIENTS : DW_ACTIVATIONS;
    if (status == DW_OK) status = dw_subject_describe(s, why);
    for (size_t i = 0; i < r->n_codecs && status == DW_OK; i++) {
        tell_progress(r, *x->name ? x->name : s->file, r->codecs[i].text);
        dw_figures_measure(&r->figures[i], s, &r->codecs[i], y);
    }
    if (status == DW_OK) {
        print(r, s);
        r->measured++;
    }
    free(s->x.data);
    free(s->previous.data);
    free(y);
    return status;
}

static int measure_file(run *r, size_t at)
{
    const dw_measure_options *o = r->options;
    dw_why why;
    dw_tensor_file file;
    dw_status status = dw_tensor_file_open(&file, o->files[at], &why);
    char *shown = strdup(name_of(o, at));
    if (shown) dw_make_printable(shown);
    for (size_t i = 0; status == DW_OK && i < file.n; i++) {
        const dw_file_tensor *x = &file.tensors[i];
        if (!is_chosen(r, x->name)) continue;
        if (o->json) printf(r->seen ? ",\n  " : "\n  ");
        dw_subject subject = {.file = shown ? shown : "", .in_file = x};
        if (x->left_out)
            (o->json ? dw_json_print_left_out : dw_table_print_left_out)(subject.file, x);
        else
            status = measure_tensor(r, &file, &subject, &why);
        r->seen++;
        fflush(stdout);
    }
    free(shown);
    dw_tensor_file_close(&file);
    return status < 0 ? complain_of(name_of(o, at), &why) : DW_EXIT_OK;
}

static int measure_files(run *r)
{
    const dw_measure_options *o = r->options;
    int code = DW_EXIT_OK;
    if (o->json) printf("{\"tensors\": [");
    for (size_t i = 0; i < o->n_files && code == DW_EXIT_OK; i++) code = measure_file(r, i);
    if (o->json) printf("]}\n");
    if (code == DW_EXIT_OK && r->measured == 0) {
        dw_complain("all tensors are left out, for the reasons above: nothing was measured");
        code = DW_EXIT_FAILED;
    }
    return code;
}

/* Whether a path names the same file as another. */
static bool is_same_file(const char *path, const char *other)
{
    struct stat one, two;
    return stat(path, &one) == 0 && other && stat(other, &two) == 0 && one.st_dev == two.st_dev &&
           one.st_ino == two.st_ino;
}

static int open_picture(run *r)
{
    const char *path = r->options->picture;
    if (!path) return DW_EXIT_OK;
    bool is_input = is_same_file(path, r->options->delta_from);
    for (size_t i = 0; i < r->options->n_files; i++)
        is_input = is_input || is_same_file(path, r->options->files[i]);
    if (is_input) {
        dw_complain("--picture %s names a file of tensors: give the picture another name", path);
        return DW_EXIT_USAGE;
    }
    r->picture = fopen(path, "w");
    if (!r->picture) {
        dw_complain("cannot write the picture %s: %s", path, strerror(errno));
        return DW_EXIT_FAILED;
    }
    size_t panels = r->tensors < DW_PICTURE_PANELS ? r->tensors : DW_PICTURE_PANELS;
    dw_picture_begin(r->picture, panels, r->n_codecs);
    return DW_EXIT_OK;
}

static int close_picture(run *r)
{
    if (!r->picture) return DW_EXIT_OK;
    dw_picture_end(r->picture);
    bool failed = ferror(r->picture);
    failed = fclose(r->picture) || failed;
    if (failed)
        dw_complain("the picture %s is incomplete: %s", r->options->picture, strerror(errno));
    if (r->measured > DW_PICTURE_PANELS)
        dw_complain("the picture shows the first %d of %zu tensors; choose others by --tensor",
                    DW_PICTURE_PANELS, r->measured);
    return failed ? DW_EXIT_FAILED : DW_EXIT_OK;
}

int dw_measure(const dw_measure_options *options)
{
    run r = {.options = options, .earlier = {.fd = -1}};
    dw_why why = {.offset = -1};
    int code = DW_EXIT_OK;
    dw_check_stdout_at_exit();
    dw_status status = choose_codecs(&r, &why);
    if (status < 0) {
        dw_complain("%s", why.text);
        code = dw_exit_code(status);
    }
    if (code == DW_EXIT_OK && options->delta_from) {
        status = dw_tensor_file_open(&r.earlier, options->delta_from, &why);
        if (status < 0) code = complain_of(options->delta_from, &why);
    }
    if (code == DW_EXIT_OK) code = look_at_files(&r);
    if (code == DW_EXIT_OK) code = open_picture(&r);
    if (code == DW_EXIT_OK) code = measure_files(&r);
    int drawn = close_picture(&r);
    dw_tensor_file_close(&r.earlier);
    free(r.list);
    free(r.codecs);
    free(r.figures);
    free(r.found);
    return code == DW_EXIT_OK ? drawn : code;
}
