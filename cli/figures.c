/* SPDX-License-Identifier: Apache-2.0
 * figures.c - measures a tensor, and what is left of it when it has gone through a codec. */
#include "figures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "complain.h"
#include "ends.h"

/* A codec is measured again until this time has passed, or so many times; the fastest counts. The
 * first visit is slow, because it is the first to touch memory. */
static const double most_seconds = 0.2;
enum { LEAST_VISITS = 2, MOST_VISITS = 20 };

static float of_f16(uint16_t bits)
{
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    float size = exponent == 31 ? (mantissa ? NAN : INFINITY)
                 : exponent     ? ldexpf((float)(1024 + mantissa), exponent - 25)
                                : ldexpf((float)mantissa, -24);
    return bits >> 15 ? -size : size;
}

static double value(const dw_tensor *x, size_t i)
{
    if (x->dtype == DW_F32) return ((const float *)x->data)[i];
    uint16_t half = ((const uint16_t *)x->data)[i];
    uint32_t bits = (uint32_t)half << 16;
    float wide;
    if (x->dtype == DW_F16) return of_f16(half);
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

/* ---- Of the tensor --------------------------------------------------------------------------- */

static int by_size(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return a < b ? -1 : a > b;
}

/* Returns the largest norm over the median one, from their squares, which are sorted. */
static double over_median(double *squares, size_t n)
{
    qsort(squares, n, sizeof *squares, by_size);
    return sqrt(squares[n - 1] / squares[(n - 1) / 2]);
}

dw_status dw_subject_describe(dw_subject *s, dw_why *why)
{
    size_t rows = (size_t)s->x.n * s->x.t, c = s->x.c, finite = 0;
    double *of_rows = calloc(rows, sizeof *of_rows), *of_channels = calloc(c, sizeof *of_channels);
    double sum = 0, largest = 0;
    s->not_finite = s->zero_rows = 0;
    for (size_t r = 0; r < rows && of_rows && of_channels; r++) {
        for (size_t i = 0; i < c; i++) {
            double x = value(&s->x, r * c + i);
            if (!isfinite(x)) continue;
            finite++;
            of_rows[r] += x * x;
            of_channels[i] += x * x;
            largest = fmax(largest, fabs(x));
        }
        sum += of_rows[r];
        s->zero_rows += of_rows[r] == 0;
    }
    bool complete = of_rows && of_channels;
    if (complete) {
        s->not_finite = rows * c - finite;
        s->rms = sqrt(sum / (double)finite);
        s->largest = largest / s->rms;
        s->largest_row = over_median(of_rows, rows);
        s->largest_channel = over_median(of_channels, c);
    }
    free(of_rows);
    free(of_channels);
    return complete ? DW_OK : dw_say(why, DW_ERR_NO_MEMORY, "out of memory to look at the tensor");
}

/* ---- Of a codec ------------------------------------------------------------------------------ */

/* Compares y with x. */
static void compare(dw_figures *f, const dw_subject *s, const dw_tensor *y)
{
    size_t rows = (size_t)s->x.n * s->x.t, c = s->x.c, measured = 0, values = 0;
    double xx = 0, yy = 0, xy = 0, shift = 0, errors = 0;
    f->lost = 0;
    f->largest_error = 0;
    for (size_t r = 0; r < rows; r++) {
        double all = 0, gone = 0;
        for (size_t i = r * c; i < (r + 1) * c; i++) {
            double a = value(&s->x, i), b = value(y, i);
            if (!isfinite(a)) continue;
            if (!isfinite(b)) {
                f->lost++;
                continue;
            }
            all += a * a, gone += (a - b) * (a - b);
            yy += b * b, xy += a * b, shift += b - a;
            values++;
        }
        xx += all;
        if (all == 0) continue;
        measured++;
        errors += sqrt(gone / all);
        f->largest_error = fmax(f->largest_error, sqrt(gone / all));
    }
    f->error = errors / (double)measured;
    if (!measured) f->largest_error = NAN;
    f->cosine = xy / sqrt(xx * yy);
    f->bias = shift / (double)values / s->rms;
}

/* Takes what was counted before out of what the errors of a codec are judged by. */
static void subtract(dw_counters *counters, const dw_counters *before)
{
    counters->raw_bytes -= before->raw_bytes;
    counters->escaped_values -= before->escaped_values;
    counters->overflowed_values -= before->overflowed_values;
    counters->poisoned_groups -= before->poisoned_groups;
    counters->measured_rows -= before->measured_rows;
    counters->row_error_sum -= before->row_error_sum;
    counters->bulk_error_sum -= before->bulk_error_sum;
    counters->x_square -= before->x_square;
    counters->delta_square -= before->delta_square;
}

/* Fills in what the encoder and its frame say of the visit of x. */
static void take_counters(dw_figures *f, const dw_subject *s, const dw_ends *e,
                          const dw_config *config, const dw_counters *before)
{
    dw_counters counters = {.struct_size = sizeof counters};
    dw_entry_info entry;
    dw_why misfit;
    dw_encoder_count(e->encoder, &counters);
    subtract(&counters, before);
    f->escaped = counters.escaped_values;
    f->overflowed = counters.overflowed_values;
    f->poisoned = counters.poisoned_groups;
    f->bits = 8.0 * (double)e->len / ((double)s->x.n * s->x.t * s->x.c);
    f->is_first =
        dw_frame_entries(e->frame, e->len, 0, 1, &entry) == DW_OK && entry.role == DW_ROLE_KEY;
    if (dw_counters_misfit(&counters, config, s->kind, &misfit))
        snprintf(f->misfit, sizeof f->misfit, "%s", misfit.text);
}

/* Makes the next visit of x like the first measured one. */
static dw_status prepare(const dw_subject *s, dw_ends *e, const dw_tensor *y, dw_why *why)
{
    if (s->previous.data) return dw_ends_visit(e, &s->previous, y, why);
    dw_status status = dw_encoder_reset(e->encoder);
    return status == DW_OK ? status : dw_say(why, status, "%s", dw_status_string(status));
}

static dw_status measure(dw_figures *f, const dw_subject *s, const dw_config *config, dw_ends *e,
                         void *room, dw_why *why)
{
    dw_tensor y = s->x;
    dw_counters before = {.struct_size = sizeof before};
    double encode_s = INFINITY, decode_s = INFINITY, spent = 0;
    y.data = room;
    for (int v = 0; v < MOST_VISITS && (v < LEAST_VISITS || spent < most_seconds); v++) {
        dw_status status = v || s->previous.data ? prepare(s, e, &y, why) : DW_OK;
        if (status == DW_OK && v == 0) dw_encoder_count(e->encoder, &before);
        if (status == DW_OK) status = dw_ends_visit(e, &s->x, &y, why);
        if (status < 0) return status;
        if (v == 0) {
            take_counters(f, s, e, config, &before);
            compare(f, s, &y);
        }
        encode_s = fmin(encode_s, e->encode_s);
        decode_s = fmin(decode_s, e->decode_s);
        spent += e->encode_s + e->decode_s;
    }
    double bytes = (double)s->x.n * s->x.t * s->x.c * (double)dw_dtype_bytes(s->x.dtype);
    f->encode_gbs = bytes * 1e-9 / encode_s;
    f->decode_gbs = bytes * 1e-9 / decode_s;
    return DW_OK;
}

void dw_figures_measure(dw_figures *f, const dw_subject *s, const dw_chosen_codec *codec, void *y)
{
    dw_ends ends;
    dw_why why = {.offset = -1};
    *f = (dw_figures){.failed = ""};
    dw_status status = dw_ends_open(&ends, &codec->config, &s->x, &why);
    if (status == DW_OK) status = measure(f, s, &codec->config, &ends, y, &why);
    dw_ends_close(&ends);
    if (status < 0) snprintf(f->failed, sizeof f->failed, "%s", why.text);
}
