/* SPDX-License-Identifier: Apache-2.0
 * products.c - products of a large matrix and a few vectors, in a fixed order. */
#include "codecs/products.h"

#include <math.h>
#include <string.h>

#include "arithmetic/half.h"
#include "codecs/elements.h"

enum { LANES = DW_PRODUCT_LANES };

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* These three work on LANES elements at a time, and on memory that does not overlap, because then
 * compilers need no special options to use vectors. */
static void multiply(float factor, uint64_t n, float *values)
{
    uint64_t whole = n / LANES * LANES;
    for (uint64_t i = 0; i < whole; i += LANES)
        for (int lane = 0; lane < LANES; lane++) values[i + lane] *= factor;
    for (uint64_t i = whole; i < n; i++) values[i] *= factor;
}

static void copy_multiple(float factor, const float *restrict from, uint64_t n, float *restrict to)
{
    uint64_t whole = n / LANES * LANES;
    for (uint64_t i = 0; i < whole; i += LANES)
        for (int lane = 0; lane < LANES; lane++) to[i + lane] = factor * from[i + lane];
    for (uint64_t i = whole; i < n; i++) to[i] = factor * from[i];
}

static void add_multiple(float factor, const float *restrict from, uint64_t n, float *restrict to)
{
    uint64_t whole = n / LANES * LANES;
    for (uint64_t i = 0; i < whole; i += LANES)
        for (int lane = 0; lane < LANES; lane++) to[i + lane] += factor * from[i + lane];
    for (uint64_t i = whole; i < n; i++) to[i] += factor * from[i];
}

/* How many values row number `row` has. */
static uint64_t row_length(const dw_matrix *m, uint64_t row)
{
    return least(m->n - row * m->columns, m->columns);
}

/* Values [column, column + n) of a row, multiplied by the scale; n is at most DW_ELEMENTS_BLOCK. */
static void load(const dw_matrix *m, uint64_t row, uint64_t column, uint64_t n, float *block)
{
    const float *values = dw_elements_load(m->job, row * m->columns + column, n, block);
    if (values == block)
        multiply(m->scale, n, block);
    else
        copy_multiple(m->scale, values, n, block);
}

/* ---- Products with M ------------------------------------------------------------------------- */

static void add_to_lanes(const float *a, const float *b, uint64_t n, float *lanes)
{
    float sums[LANES];
    uint64_t whole = n / LANES * LANES;
    memcpy(sums, lanes, sizeof sums);
    for (uint64_t i = 0; i < whole; i += LANES)
        for (int lane = 0; lane < LANES; lane++) sums[lane] += a[i + lane] * b[i + lane];
    for (uint64_t i = whole; i < n; i++) sums[i - whole] += a[i] * b[i];
    memcpy(lanes, sums, sizeof sums);
}

void dw_product_rows(const dw_matrix *m, uint32_t r, const float *q, float *p, float *lanes)
{
    float block[DW_ELEMENTS_BLOCK];
    for (uint64_t row = 0; row < m->rows; row++) {
        uint64_t length = row_length(m, row);
        memset(lanes, 0, (size_t)r * LANES * sizeof *lanes);
        for (uint64_t at = 0, now; at < length; at += now) {
            now = least(length - at, DW_ELEMENTS_BLOCK);
            load(m, row, at, now, block);
            for (uint32_t k = 0; k < r; k++)
                add_to_lanes(block, q + k * m->columns + at, now, lanes + (size_t)k * LANES);
        }
        for (uint32_t k = 0; k < r; k++) {
            float sum = 0;
            for (int lane = 0; lane < LANES; lane++) sum += lanes[(size_t)k * LANES + lane];
            p[k * m->rows + row] = sum;
        }
    }
}

/* One strip of columns at a time, so that the sums stay in the first-level cache. */
void dw_product_columns(const dw_matrix *m, uint32_t r, const float *p, float *q)
{
    float block[DW_PRODUCT_BLOCK];
    memset(q, 0, (size_t)(r * m->columns * sizeof *q));
    for (uint64_t at = 0; at < m->columns; at += DW_PRODUCT_BLOCK)
        for (uint64_t row = 0; row < m->rows; row++) {
            uint64_t length = row_length(m, row);
            if (at >= length) continue;
            uint64_t now = least(length - at, DW_PRODUCT_BLOCK);
            load(m, row, at, now, block);
            for (uint32_t k = 0; k < r; k++)
                add_multiple(p[k * m->rows + row], block, now, q + k * m->columns + at);
        }
}

/* ---- Vectors --------------------------------------------------------------------------------- */

/* In binary64, where these products are exact. */
static double dot(const float *a, const float *b, uint64_t n)
{
    double sums[LANES] = {0}, sum = 0;
    uint64_t whole = n / LANES * LANES;
    for (uint64_t i = 0; i < whole; i += LANES)
        for (int lane = 0; lane < LANES; lane++)
            sums[lane] += (double)a[i + lane] * (double)b[i + lane];
    for (uint64_t i = whole; i < n; i++) sums[i - whole] += (double)a[i] * (double)b[i];
    for (int lane = 0; lane < LANES; lane++) sum += sums[lane];
    return sum;
}

/* Gram-Schmidt. A vector that depends linearly on those before it leaves only rounding errors. So
 * the rest of a vector is compared with its original length, and becomes 0 if it is too short. What
 * lies along the vectors before is subtracted twice, because after one turn a small rest is not
 * orthogonal enough. */
void dw_orthonormalize(uint32_t r, uint64_t n, float *p)
{
    /* least_rest: of the square of the norm. least_square: below it, a factor might overflow. */
    static const double least_rest = 0x1p-40, least_square = 0x1p-200;
    for (uint32_t k = 0; k < r; k++) {
        float *own = p + k * n;
        double before = dot(own, own, n);
        for (int turn = 0; turn < 2; turn++)
            for (uint32_t other = 0; other < k; other++) {
                float part = (float)dot(own, p + other * n, n);
                add_multiple(-part, p + other * n, n, own);
            }
        double rest = dot(own, own, n);
        /* False if a value is not finite, too. */
        if (rest > before * least_rest && rest > least_square && rest < (double)INFINITY)
            multiply((float)(1 / sqrt(rest)), n, own);
        else
            memset(own, 0, (size_t)(n * sizeof *own));
    }
}

void dw_product_fit(uint32_t r, uint64_t rows, const float *p, uint64_t columns, float *q)
{
    for (uint32_t k = 0; k < r; k++) {
        const float *own = p + k * rows;
        float *to = q + k * columns;
        for (uint32_t other = 0; other < k; other++) {
            float part = (float)dot(own, p + other * rows, rows);
            if (part < 0 || part > 0) add_multiple(-part, q + other * columns, columns, to);
        }
        double square = dot(own, own, rows);
        multiply(square > 0 ? (float)(1 / square) : 0.0f, columns, to);
    }
}

void dw_product_values(uint32_t r, uint64_t rows, const float *p, uint64_t columns, const float *q,
                       uint64_t row, uint64_t column, uint64_t n, float *values)
{
    memset(values, 0, (size_t)(n * sizeof *values));
    for (uint32_t k = 0; k < r; k++)
        add_multiple(p[k * rows + row], q + k * columns + column, n, values);
}
