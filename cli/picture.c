/* SPDX-License-Identifier: Apache-2.0
 * picture.c - draws error against bits as SVG: a panel for each tensor, a mark for each codec, and
 * the names of the codecs beside the marks, in the order of their errors. */
#include <math.h>
#include <stdlib.h>

#include "tables.h"

/* Pixels: of the picture, the plot's left edge and width, a line of names, the space above a plot
 * and below it. */
enum { WIDTH = 900, LEFT = 60, PLOT = 480, LINE = 15, ABOVE = 36, BELOW = 40, LEAST_HEIGHT = 240 };

static int plot_height(size_t codecs)
{
    int names = codecs < 1000 ? (int)codecs * LINE : 1000 * LINE;
    return names > LEAST_HEIGHT ? names : LEAST_HEIGHT;
}

static void write_text(FILE *file, const char *text)
{
    for (; *text; text++) {
        const char *entity = *text == '&'   ? "&amp;"
                             : *text == '<' ? "&lt;"
                             : *text == '>' ? "&gt;"
                                            : NULL;
        if (entity)
            fputs(entity, file);
        else
            fputc(*text, file);
    }
}

void dw_picture_begin(FILE *file, size_t panels, size_t codecs)
{
    int height = (int)panels * (plot_height(codecs) + ABOVE + BELOW);
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"11\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            WIDTH, height, WIDTH, height);
}

void dw_picture_end(FILE *file)
{
    fputs("</svg>\n", file);
}

/* A codec that can be drawn. */
typedef struct mark {
    const dw_chosen_codec *codec;
    double bits, error;
    bool exact; /* y is x */
} mark;

static int by_error(const void *one, const void *other)
{
    double a = ((const mark *)one)->error, b = ((const mark *)other)->error;
    return a > b ? -1 : a < b;
}

/* The scales of a panel: decades of the error, and bits. */
typedef struct scales {
    int least, most, bits, top, height;
} scales;

static double x_of(const scales *s, double bits)
{
    return LEFT + PLOT * bits / s->bits;
}

/* An error of 0 lies on the lower edge. */
static double y_of(const scales *s, double error)
{
    double up = error > 0 ? (log10(error) - s->least) / (s->most - s->least) : 0;
    return s->top + s->height * (1 - up);
}

static scales scales_of(const mark *marks, size_t n, size_t i, size_t codecs)
{
    scales s = {.least = 0, .most = 0, .bits = 1, .height = plot_height(codecs)};
    s.top = (int)i * (s.height + ABOVE + BELOW) + ABOVE;
    for (size_t j = 0; j < n; j++) {
        s.bits = (int)fmax(s.bits, ceil(marks[j].bits));
        if (!(marks[j].error > 0)) continue;
        s.least = (int)fmin(s.least, floor(log10(marks[j].error)));
        s.most = (int)fmax(s.most, ceil(log10(marks[j].error)));
    }
    s.least -= s.least == s.most;
    return s;
}

static void draw_axes(FILE *file, const scales *s)
{
    int step = s->bits <= 10 ? 1 : s->bits <= 40 ? 4 : (s->bits + 9) / 10;
    int bottom = s->top + s->height;
    for (int d = s->least; d <= s->most; d++) {
        double y = y_of(s, pow(10, d));
        fprintf(file,
                "<path d=\"M%d %.1fh%d\" stroke=\"#ddd\"/>"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">1e%d</text>\n",
                LEFT, y, PLOT, LEFT - 6, y + 4, d);
    }
    for (int b = 0; b <= s->bits; b += step)
        fprintf(file,
                "<path d=\"M%.1f %dv%d\" stroke=\"#ddd\"/>"
                "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n",
                x_of(s, b), s->top, s->height, x_of(s, b), bottom + 15, b);
    fprintf(file, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">bits of a value</text>\n",
            LEFT + PLOT / 2, bottom + 30);
    fprintf(file,
            "<text transform=\"translate(14 %d) rotate(-90)\" text-anchor=\"middle\">"
            "error of a row</text>\n",
            s->top + s->height / 2);
}

void dw_picture_panel(FILE *file, size_t i, const char *title, const dw_chosen_codec *codecs,
                      const dw_figures *figures, size_t n)
{
    mark *marks = calloc(n + 1, sizeof *marks);
    size_t used = 0;
    for (size_t j = 0; j < n && marks; j++)
        if (!*figures[j].failed && isfinite(figures[j].error))
            marks[used++] = (mark){&codecs[j], figures[j].bits, figures[j].error,
                                   figures[j].error == 0 && !figures[j].lost};
    if (used) qsort(marks, used, sizeof *marks, by_error);
    scales s = scales_of(marks, used, i, n);
    fprintf(file, "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">", LEFT, s.top - 12);
    write_text(file, title);
    fputs("</text>\n", file);
    draw_axes(file, &s);
    for (size_t j = 0; j < used; j++) {
        double x = x_of(&s, marks[j].bits), y = y_of(&s, marks[j].error);
        double name = s.top + s.height * ((double)j + 0.5) / (double)used;
        fprintf(file,
                "<path d=\"M%.1f %.1fL%d %.1f\" stroke=\"#9bd\" stroke-width=\"0.7\"/>"
                "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"#136\"/><text x=\"%d\" "
                "y=\"%.1f\">",
                x, y, LEFT + PLOT + 16, name, x, y, LEFT + PLOT + 20, name + 4);
        write_text(file, marks[j].codec->text);
        fputs(marks[j].exact ? " (exact)</text>\n" : "</text>\n", file);
    }
    free(marks);
}
