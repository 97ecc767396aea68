/* SPDX-License-Identifier: Apache-2.0
 * attention.c - products of queries, keys and values, head by head and slice by slice. */
#include "attention.h"

#include <cblas.h>
#include <math.h>
#include <stdbool.h>

#include "ops.h"

size_t dw_attention_row(uint32_t end)
{
    return ((size_t)end + DW_LANES - 1) / DW_LANES * DW_LANES;
}

/* A product of two matrices that lie inside larger ones: row strides sa, sb, sc. c = a b, or, where
 * `add` is true, c += a b. */
static void product(bool transpose_a, bool transpose_b, size_t rows, size_t columns, size_t inner,
                    const float *a, size_t sa, const float *b, size_t sb, bool add, float *c,
                    size_t sc)
{
    cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans,
                transpose_b ? CblasTrans : CblasNoTrans, (int)rows, (int)columns, (int)inner, 1, a,
                (int)sa, b, (int)sb, add ? 1 : 0, c, (int)sc);
}

/* Head h of sample n. C: the number of channels. D: the number of channels of a head. */
typedef struct place {
    size_t C, D, n, h;
} place;

/* Returns where the queries of a slice begin in qkv, for one head of one sample. A row of qkv has
 * C queries, then C keys, then C values. */
static size_t queries_at(const dw_slices *slices, uint32_t i, const place *at)
{
    size_t row = dw_slice_row(slices, i) + at->n * dw_slice_of(slices->T, slices->S, i).tokens;
    return row * 3 * at->C + at->h * at->D;
}

/* Returns where the weights of a slice begin, for one head of one sample. Every slice has room for
 * rows of P(T) floats, but its rows are only P(end) floats long, so the rest of the room is not
 * used. */
static size_t weights_at(const dw_model_shape *shape, const dw_slices *slices, uint32_t i,
                         const place *at)
{
    dw_slice slice = dw_slice_of(slices->T, slices->S, i);
    size_t front = dw_slice_row(slices, i) * shape->heads * dw_attention_row(slices->T);
    return front + (at->n * shape->heads + at->h) * slice.tokens *
                       dw_attention_row(slice.start + slice.tokens);
}

/* Computes one head of one sample. a: its weights. heads: its part of the first row of `heads`. */
static void attend_one(const dw_slices *slices, uint32_t i, const place *at, const float *qkv,
                       float *a, float *heads)
{
    dw_slice own = dw_slice_of(slices->T, slices->S, i);
    size_t C = at->C, D = at->D, P = dw_attention_row(own.start + own.tokens);
    const float *q = qkv + queries_at(slices, i, at);
    for (uint32_t j = 0; j <= i; j++) {
        dw_slice of = dw_slice_of(slices->T, slices->S, j);
        const float *k = qkv + queries_at(slices, j, at) + C;
        product(false, true, own.tokens, of.tokens, D, q, 3 * C, k, 3 * C, false, a + of.start, P);
    }
    dw_causal_softmax(a, 1.0f / sqrtf((float)D), own.start, own.tokens, P);
    for (uint32_t j = 0; j <= i; j++) {
        dw_slice of = dw_slice_of(slices->T, slices->S, j);
        const float *v = qkv + queries_at(slices, j, at) + 2 * C;
        product(false, false, own.tokens, D, of.tokens, a + of.start, P, v, 3 * C, j > 0, heads, C);
    }
}

void dw_attend(const dw_model_shape *shape, const dw_slices *slices, uint32_t i, const float *qkv,
               float *weights, float *heads)
{
    place at = {.C = shape->channels, .D = shape->channels / shape->heads};
    size_t tokens = dw_slice_of(slices->T, slices->S, i).tokens;
    for (at.n = 0; at.n < slices->N; at.n++)
        for (at.h = 0; at.h < shape->heads; at.h++)
            attend_one(slices, i, &at, qkv, weights + weights_at(shape, slices, i, &at),
                       heads + at.n * tokens * at.C + at.h * at.D);
}

/* Computes one head of one sample backward. The last slice comes first in the backward pass and
 * overwrites the gradients of keys and values; the other slices add to them. */
static void attend_backward_one(const dw_slices *slices, uint32_t i, const place *at,
                                const float *qkv, const float *a, const float *dy, float *d_qkv,
                                float *da)
{
    dw_slice own = dw_slice_of(slices->T, slices->S, i);
    size_t C = at->C, D = at->D, P = dw_attention_row(own.start + own.tokens);
    bool adds = i + 1 < slices->S;
    const float *q = qkv + queries_at(slices, i, at);
    float *dq = d_qkv + queries_at(slices, i, at);
    for (uint32_t j = 0; j <= i; j++) {
        dw_slice of = dw_slice_of(slices->T, slices->S, j);
        size_t v = queries_at(slices, j, at) + 2 * C;
        product(true, false, of.tokens, D, own.tokens, a + of.start, P, dy, C, adds, d_qkv + v,
                3 * C);
        product(false, true, own.tokens, of.tokens, D, dy, C, qkv + v, 3 * C, false, da + of.start,
                P);
    }
    dw_causal_softmax_backward(da, a, 1.0f / sqrtf((float)D), own.start, own.tokens, P);
    for (uint32_t j = 0; j <= i; j++) {
        dw_slice of = dw_slice_of(slices->T, slices->S, j);
        size_t k = queries_at(slices, j, at) + C;
        product(false, false, own.tokens, D, of.tokens, da + of.start, P, qkv + k, 3 * C, j > 0, dq,
                3 * C);
        product(true, false, of.tokens, D, own.tokens, da + of.start, P, q, 3 * C, adds, d_qkv + k,
                3 * C);
    }
}

void dw_attend_backward(const dw_model_shape *shape, const dw_slices *slices, uint32_t i,
                        const float *qkv, const float *weights, const float *d_heads, float *d_qkv,
                        float *scratch)
{
    place at = {.C = shape->channels, .D = shape->channels / shape->heads};
    size_t tokens = dw_slice_of(slices->T, slices->S, i).tokens;
    for (at.n = 0; at.n < slices->N; at.n++)
        for (at.h = 0; at.h < shape->heads; at.h++)
            attend_backward_one(slices, i, &at, qkv, weights + weights_at(shape, slices, i, &at),
                                d_heads + at.n * tokens * at.C + at.h * at.D, d_qkv, scratch);
}
