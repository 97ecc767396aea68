/* SPDX-License-Identifier: Apache-2.0
 * measure.c - sends tensors, sums up squares, products and errors over all their elements in
 * binary64, and computes the figures from these sums. */
#include "measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* What is summed over the tensors of one kind. The field xx is the sum of x^2, yy of y^2, xy of
 * x y, e of y - x, ee of (y - x)^2, and exex of ((y - x) x)^2, over `elements` elements. The
 * `not_finite` other elements are in no sum. */
typedef struct sums {
    uint64_t tensors, elements, not_finite, bytes;
    double xx, yy, xy, e, ee, exex;
    double *encode_s, *decode_s; /* (tensors): the seconds of each call */
} sums;

/* Adds one row of n elements to the sums: `from` is what was sent (x), `arrived` is what arrived
 * (y). The row is summed by itself first, so that the small sums of a row do not lose digits when
 * they meet the large sums of a long set. */
static void add_row(sums *to, const float *from, const float *arrived, uint32_t n)
{
    double xx = 0, yy = 0, xy = 0, sum = 0, ee = 0, exex = 0;
    uint32_t finite = 0;
    for (uint32_t i = 0; i < n; i++) {
        double x = from[i], y = arrived[i], e = y - x;
        if (!isfinite(e)) continue;
        finite++;
        xx += x * x;
        yy += y * y;
        xy += x * y;
        sum += e;
        ee += e * e;
        exex += e * x * (e * x);
    }
    to->elements += finite;
    to->not_finite += n - finite;
    to->xx += xx;
    to->yy += yy;
    to->xy += xy;
    to->e += sum;
    to->ee += ee;
    to->exex += exex;
}

/* Compares two doubles for qsort. */
static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Sorts the values and returns the middle one, or 0 if there are none. */
static double median(double *values, size_t n)
{
    if (!n) return 0;
    qsort(values, n, sizeof *values, ascending);
    return values[n / 2];
}

/* Returns GB/s, or 0 if the time is too short to be measured. */
static double speed(double bytes, double seconds)
{
    return seconds > 0 ? bytes / seconds / 1e9 : 0;
}

/* Computes the figures of one kind of visits from their sums. measure.h defines each figure. */
static dw_quality quality_of(const sums *of, const dw_bench_record *set)
{
    double n = (double)of->elements, values = (double)set->T * set->C;
    double rms = sqrt(of->xx / n);
    dw_quality q = {.tensors = of->tensors, .not_finite = of->not_finite};
    q.bits = 8 * (double)of->bytes / ((double)of->tensors * values);
    q.error = sqrt(of->ee / of->xx);
    q.cosine = of->xy / sqrt(of->xx * of->yy);
    q.bias = of->e / n / rms;
    q.bias_sigma = sqrt(of->ee / n) / sqrt(n) / rms;
    q.gain = of->xy / of->xx;
    q.gain_sigma = sqrt(of->exex) / of->xx;
    q.encode_GBps = speed(4 * values, median(of->encode_s, of->tensors));
    q.decode_GBps = speed(4 * values, median(of->decode_s, of->tensors));
    return q;
}

/* Sends all visits of the samples whose place is below `samples`, in the order of the set, and adds
 * each to kinds[0] if it is a first visit and to kinds[1] if it is a later one. y is memory for one
 * tensor. */
static dw_status send_all(sums kinds[2], const dw_bench_record *set, size_t samples, dw_way *way,
                          float *y, dw_why *why)
{
    for (size_t i = 0; i < set->tensors; i++) {
        const dw_bench_visit *visit = &set->visits[i];
        if (visit->place >= samples) continue;
        sums *to = &kinds[!visit->first];
        dw_cost cost;
        dw_status status = way->send(way, visit, y, &cost, why);
        if (status < 0) return status;
        to->encode_s[to->tensors] = cost.encode_s;
        to->decode_s[to->tensors] = cost.decode_s;
        to->tensors++;
        to->bytes += cost.bytes;
        for (uint32_t t = 0; t < set->T; t++)
            add_row(to, visit->x + (size_t)t * set->C, y + (size_t)t * set->C, set->C);
    }
    return DW_OK;
}

dw_status dw_measure(dw_measured *measured, const dw_bench_record *set, size_t samples, dw_way *way,
                     dw_why *why)
{
    sums kinds[2] = {{0}};
    float *y = malloc((size_t)set->T * set->C * sizeof *y);
    double *times = malloc(4 * set->tensors * sizeof *times);
    dw_status status = y && times ? DW_OK : DW_ERR_NO_MEMORY;
    if (status < 0)
        snprintf(why->text, sizeof why->text, "%s", dw_status_string(status));
    else
        for (int kind = 0; kind < 2; kind++) {
            kinds[kind].encode_s = times + (size_t)(2 * kind) * set->tensors;
            kinds[kind].decode_s = times + (size_t)(2 * kind + 1) * set->tensors;
        }
    if (status == DW_OK) status = send_all(kinds, set, samples, way, y, why);
    if (status == DW_OK) {
        measured->first = quality_of(&kinds[0], set);
        measured->later = quality_of(&kinds[1], set);
        measured->outside = way->outside(way);
    }
    way->close(way);
    free(times);
    free(y);
    return status;
}

double dw_measure_change(const dw_bench_record *set, size_t samples)
{
    const float **last = calloc(set->places, sizeof *last);
    double change = 0, whole = 0;
    if (!last) return NAN;
    for (size_t i = 0; i < set->tensors; i++) {
        const dw_bench_visit *visit = &set->visits[i];
        if (visit->place >= samples) continue;
        for (size_t k = 0; last[visit->place] && k < (size_t)set->T * set->C; k++) {
            double x = visit->x[k], e = x - (double)last[visit->place][k];
            whole += x * x;
            change += e * e;
        }
        last[visit->place] = visit->x;
    }
    free(last);
    return sqrt(change / whole);
}
