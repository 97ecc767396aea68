/* SPDX-License-Identifier: Apache-2.0
 * products.h - products of a large matrix and a few vectors, for the form lowrank.
 *
 * Every sum is taken in an order that depends on the sizes alone, and no product is fused with a
 * sum, so the results have the same bits on every processor. The loops are written so that a
 * compiler can do several elements of the order at once.
 *
 * | name | shape  | meaning                                                              | owner  |
 * | M    | (R, W) | what a job codes, row after row: see dw_matrix                       | caller |
 * | p    | (r, R) | f32: r vectors, one behind the other                                 | caller |
 * | q    | (r, W) | f32: the same of the other side                                      | caller |
 *
 * Errors: none. State: none. Threads: any, on different memory. */
#ifndef DW_PRODUCTS_H
#define DW_PRODUCTS_H

#include "codecs/job.h"

/* Elements that are worked on at once, which stay in the first-level cache. */
enum { DW_PRODUCT_BLOCK = 256, DW_PRODUCT_LANES = 16 };

/* The n values of what a job codes (codecs/elements.h), cut into rows of `columns` values. The
 * last row may be shorter, and counts as filled up with zeros. */
typedef struct dw_matrix {
    const dw_encode_job *job;
    uint64_t n, rows, columns;
    float scale; /* a power of two by which every value is multiplied */
} dw_matrix;

/* p = M q^T, of r vectors. lanes: room for r * DW_PRODUCT_LANES floats. Element c of a row is added
 * to lane c mod DW_PRODUCT_LANES, and the lanes are added in order. */
void dw_product_rows(const dw_matrix *m, uint32_t r, const float *q, float *p, float *lanes);

/* q = p M, of r vectors. Rows are added in order. */
void dw_product_columns(const dw_matrix *m, uint32_t r, const float *p, float *q);

/* Makes r vectors of n elements orthogonal to each other, each of length 1. A vector that the ones
 * before it make up, or that is 0 or not finite, becomes 0. */
void dw_orthonormalize(uint32_t r, uint64_t n, float *p);

/* Given q = p M, makes the q with which p^T q is close to M: for one vector after the other, as
 * close as it can be with those before it. p need not be orthogonal. */
void dw_product_fit(uint32_t r, uint64_t rows, const float *p, uint64_t columns, float *q);

/* n values of row `row` of p^T q, from column `column` on; n is at most DW_PRODUCT_BLOCK. Ranks are
 * added in order, beginning with +0 (docs/format.md, 3.12). */
void dw_product_values(uint32_t r, uint64_t rows, const float *p, uint64_t columns, const float *q,
                       uint64_t row, uint64_t column, uint64_t n, float *values);

#endif
