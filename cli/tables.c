/* SPDX-License-Identifier: Apache-2.0
 * tables.c - prints figures as tables, which fit 100 columns, and as JSON. */
#include "tables.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

enum { COLUMNS = 100, CODEC_WIDTH = 39 };

/* The numbers of a codec, in the order of their columns, whose widths and that of the codec add up
 * to COLUMNS. */
static const struct {
    const char *name, *heading, *format;
    size_t offset;
    int width;
} columns[] = {{"bits", "bits", "%.2f", offsetof(dw_figures, bits), 7},
               {"error", "error", "%.3g", offsetof(dw_figures, error), 9},
               {"largest_error", "largest", "%.3g", offsetof(dw_figures, largest_error), 9},
               {"cosine", "cosine", "%.5f", offsetof(dw_figures, cosine), 9},
               {"bias", "bias", "%.1e", offsetof(dw_figures, bias), 9},
               {"encode_gb_s", "enc GB/s", "%.2f", offsetof(dw_figures, encode_gbs), 9},
               {"decode_gb_s", "dec GB/s", "%.2f", offsetof(dw_figures, decode_gbs), 9}};

/* What is counted. In tables it is mentioned where there is something. */
static const struct {
    const char *name, *sentence;
    size_t offset;
} counts[] = {
    {"escaped_values", "escaped values, which are sent as floats", offsetof(dw_figures, escaped)},
    {"overflowed_values", "overflowed values, which 16-bit floats cannot hold",
     offsetof(dw_figures, overflowed)},
    {"poisoned_groups", "poisoned groups, which have NaN or infinities in them",
     offsetof(dw_figures, poisoned)},
    {"lost_values", "finite values that arrived as NaN or infinity, and are in no error",
     offsetof(dw_figures, lost)}};

static const struct {
    const char *name;
    size_t offset;
} of_subject[] = {{"rms", offsetof(dw_subject, rms)},
                  {"largest_value", offsetof(dw_subject, largest)},
                  {"largest_row", offsetof(dw_subject, largest_row)},
                  {"largest_channel", offsetof(dw_subject, largest_channel)}};

#define LENGTH(array) (sizeof(array) / sizeof *(array))

static double number_at(const void *of, size_t offset)
{
    return *(const double *)(const void *)((const char *)of + offset);
}

static uint64_t count_at(const dw_figures *figures, size_t offset)
{
    return *(const uint64_t *)(const void *)((const char *)figures + offset);
}

static const char *kind_word(dw_tensor_kind kind)
{
    return kind == DW_GRADIENTS ? "gradients" : "activations";
}

/* ---- Tables ---------------------------------------------------------------------------------- */

/* Prints a sentence in lines that begin with so many blanks. */
static void print_wrapped(int indent, const char *text)
{
    for (int column = 0; *text; text += strspn(text, " ")) {
        int word = (int)strcspn(text, " ");
        if (column && column + 1 + word > COLUMNS) {
            putchar('\n');
            column = 0;
        }
        int before = column ? 1 : indent;
        printf("%*s%.*s", before, "", word, text);
        column += before + word;
        text += word;
    }
    putchar('\n');
}

static void print_name(const char *file, const dw_file_tensor *x)
{
    printf("%s%s%s, %s (", file, *x->name ? ": " : "", x->name, x->type);
    for (size_t i = 0; i < x->n_dims; i++) printf("%s%" PRIu64, i ? ", " : "", x->dims[i]);
    putchar(')');
}

void dw_table_print_left_out(const char *file, const dw_file_tensor *x)
{
    print_name(file, x);
    printf(":\n  it is left out, because %s\n\n", x->left_out);
}

static void print_subject(const dw_subject *s)
{
    char text[400];
    print_name(s->file, s->in_file);
    printf(", as (%u, %u, %u)\n", s->x.n, s->x.t, s->x.c);
    snprintf(text, sizeof text,
             "rms %.3g; the largest value is %.3g times as large, the largest row %.3g times as "
             "the median row, the largest channel %.3g times as the median channel; judged as %s%s",
             s->rms, s->largest, s->largest_row, s->largest_channel, kind_word(s->kind),
             s->previous.data ? ", which follow a visit in --delta-from" : "");
    print_wrapped(2, text);
    if (s->not_finite)
        printf("  values that are NaN or infinite, and in no figure: %" PRIu64 "\n", s->not_finite);
    if (s->zero_rows) printf("  rows of zeros, which have no error: %" PRIu64 "\n", s->zero_rows);
}

static void print_notes(const dw_figures *f)
{
    char text[400];
    for (size_t i = 0; i < LENGTH(counts); i++) {
        uint64_t n = count_at(f, counts[i].offset);
        if (n) printf("    %s: %" PRIu64 "\n", counts[i].sentence, n);
    }
    if (f->is_first)
        printf("    a first visit, with its key entry; --delta-from measures a later one\n");
    snprintf(text, sizeof text, "does not fit: %s", f->misfit);
    if (*f->misfit) print_wrapped(4, text);
}

void dw_table_print(const dw_subject *s, const dw_chosen_codec *codecs, const dw_figures *figures,
                    size_t n)
{
    print_subject(s);
    printf("%-*s", CODEC_WIDTH, "codec");
    for (size_t i = 0; i < LENGTH(columns); i++)
        printf("%*s", columns[i].width, columns[i].heading);
    putchar('\n');
    for (size_t i = 0; i < n; i++) {
        const dw_figures *f = &figures[i];
        if (*f->failed) {
            puts(codecs[i].text);
            print_wrapped(4, f->failed);
            continue;
        }
        printf("%-*s", CODEC_WIDTH, codecs[i].text);
        if (strlen(codecs[i].text) > CODEC_WIDTH) printf("\n%*s", CODEC_WIDTH, "");
        for (size_t j = 0; j < LENGTH(columns); j++) {
            double x = number_at(f, columns[j].offset);
            char text[32] = "-"; /* what no value says anything about */
            if (isfinite(x)) snprintf(text, sizeof text, columns[j].format, x);
            printf("%*s", columns[j].width, text);
        }
        putchar('\n');
        print_notes(f);
    }
    putchar('\n');
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Prints "name": "text". The text has no control characters. */
static void print_text(const char *name, const char *text)
{
    printf("\"%s\": \"", name);
    for (; *text; text++) printf(*text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    putchar('"');
}

static void print_number(const char *name, double x)
{
    if (isfinite(x))
        printf(", \"%s\": %.9g", name, x);
    else
        printf(", \"%s\": null", name);
}

static void print_json_name(const char *file, const dw_file_tensor *x)
{
    printf("{");
    print_text("file", file);
    printf(", ");
    print_text("name", x->name);
    printf(", ");
    print_text("dtype", x->type);
    printf(", \"dims\": [");
    for (size_t i = 0; i < x->n_dims; i++) printf("%s%" PRIu64, i ? ", " : "", x->dims[i]);
    printf("], ");
}

void dw_json_print_left_out(const char *file, const dw_file_tensor *x)
{
    print_json_name(file, x);
    print_text("left_out", x->left_out);
    printf("}");
}

static void print_codec(const dw_chosen_codec *codec, const dw_figures *f)
{
    printf("\n    {");
    print_text("codec", codec->text);
    if (*f->failed) {
        printf(", ");
        print_text("failed", f->failed);
    }
    for (size_t i = 0; i < LENGTH(columns) && !*f->failed; i++)
        print_number(columns[i].name, number_at(f, columns[i].offset));
    for (size_t i = 0; i < LENGTH(counts) && !*f->failed; i++)
        printf(", \"%s\": %" PRIu64, counts[i].name, count_at(f, counts[i].offset));
    if (f->is_first) printf(", \"first_visit\": true");
    if (*f->misfit) {
        printf(", ");
        print_text("misfit", f->misfit);
    }
    printf("}");
}

void dw_json_print(const dw_subject *s, const dw_chosen_codec *codecs, const dw_figures *figures,
                   size_t n)
{
    print_json_name(s->file, s->in_file);
    printf("\"shape\": [%u, %u, %u]", s->x.n, s->x.t, s->x.c);
    for (size_t i = 0; i < LENGTH(of_subject); i++)
        print_number(of_subject[i].name, number_at(s, of_subject[i].offset));
    printf(", \"not_finite\": %" PRIu64 ", \"zero_rows\": %" PRIu64 ", \"later_visit\": %s, ",
           s->not_finite, s->zero_rows, s->previous.data ? "true" : "false");
    print_text("judged_as", kind_word(s->kind));
    printf(", \"codecs\": [");
    for (size_t i = 0; i < n; i++) {
        if (i) printf(",");
        print_codec(&codecs[i], &figures[i]);
    }
    printf("]}");
}
