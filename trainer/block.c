/* SPDX-License-Identifier: Apache-2.0
 * block.c - attention and MLP of one block, forward and backward. */
#include "block.h"

#include <cblas.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "ops.h"

void dw_matmul(float *y, const float *x, const float *w, float beta, uint32_t B, uint32_t O,
               uint32_t J)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)B, (int)O, (int)J, 1, x, (int)J, w,
                (int)J, beta, y, (int)O);
}

void dw_matmul_dx(float *dx, const float *dy, const float *w, uint32_t B, uint32_t O, uint32_t J)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)B, (int)J, (int)O, 1, dy, (int)O, w,
                (int)J, 0, dx, (int)J);
}

void dw_matmul_dw(float *dw, const float *dy, const float *x, uint32_t B, uint32_t O, uint32_t J)
{
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)O, (int)J, (int)B, 1, dy, (int)O, x,
                (int)J, 1, dw, (int)J);
}

static size_t padded(uint32_t T)
{
    return ((size_t)T + DW_LANES - 1) / DW_LANES * DW_LANES;
}

/* Returns room for n floats, taken from the allocation `all`. Where `all` is NULL it only counts
 * the floats. */
static float *cut(float *all, size_t *used, size_t n)
{
    float *piece = all ? all + *used : NULL;
    *used += (n + DW_LANES - 1) / DW_LANES * DW_LANES;
    return piece;
}

static size_t lay_out_memory(dw_block_memory *memory, const dw_model_shape *shape, uint32_t N)
{
    size_t C = shape->channels, B = (size_t)N * shape->context;
    size_t used = 0;
    float *all = memory->all;
    memory->norm1 = cut(all, &used, B * C);
    memory->mean1 = cut(all, &used, B);
    memory->rstd1 = cut(all, &used, B);
    memory->qkv = cut(all, &used, B * 3 * C);
    memory->weights = cut(all, &used, B * shape->heads * padded(shape->context));
    memory->heads = cut(all, &used, B * C);
    memory->middle = cut(all, &used, B * C);
    memory->norm2 = cut(all, &used, B * C);
    memory->mean2 = cut(all, &used, B);
    memory->rstd2 = cut(all, &used, B);
    memory->wide = cut(all, &used, B * 4 * C);
    memory->bent = cut(all, &used, B * 4 * C);
    memory->y = cut(all, &used, B * C);
    return used;
}

dw_status dw_block_memory_create(dw_block_memory *memory, const dw_model_shape *shape, uint32_t N)
{
    memset(memory, 0, sizeof *memory);
    memory->all = dw_floats(lay_out_memory(memory, shape, N));
    if (!memory->all) return DW_ERR_NO_MEMORY;
    lay_out_memory(memory, shape, N);
    return DW_OK;
}

void dw_block_memory_destroy(dw_block_memory *memory)
{
    free(memory->all);
    memory->all = NULL;
}

static size_t lay_out_scratch(dw_block_scratch *scratch, const dw_model_shape *shape, uint32_t N)
{
    size_t C = shape->channels, T = shape->context, B = N * T;
    size_t used = 0;
    scratch->d_wide = cut(scratch->all, &used, B * 4 * C);
    scratch->d_qkv = cut(scratch->all, &used, B * 3 * C);
    scratch->d_row = cut(scratch->all, &used, B * C);
    scratch->d_weights = cut(scratch->all, &used, T * padded(shape->context));
    return used;
}

dw_status dw_block_scratch_create(dw_block_scratch *scratch, const dw_model_shape *shape,
                                  uint32_t N)
{
    memset(scratch, 0, sizeof *scratch);
    scratch->all = dw_floats(lay_out_scratch(scratch, shape, N));
    if (!scratch->all) return DW_ERR_NO_MEMORY;
    lay_out_scratch(scratch, shape, N);
    return DW_OK;
}

void dw_block_scratch_destroy(dw_block_scratch *scratch)
{
    free(scratch->all);
    scratch->all = NULL;
}

/* A product of two matrices that lie inside larger ones: row strides sa, sb, sc. */
static void product(bool transpose_a, bool transpose_b, size_t rows, size_t columns, size_t inner,
                    const float *a, size_t sa, const float *b, size_t sb, float *c, size_t sc)
{
    cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans,
                transpose_b ? CblasTrans : CblasNoTrans, (int)rows, (int)columns, (int)inner, 1, a,
                (int)sa, b, (int)sb, 0, c, (int)sc);
}

static void attend(const dw_model_shape *shape, dw_block_memory *memory, uint32_t N)
{
    size_t C = shape->channels, H = shape->heads, T = shape->context, P = padded(shape->context),
           D = C / H;
    float scale = 1.0f / sqrtf((float)D);
    for (size_t n = 0; n < N; n++)
        for (size_t h = 0; h < H; h++) {
            const float *q = memory->qkv + n * T * 3 * C + h * D, *k = q + C, *v = k + C;
            float *a = memory->weights + (n * H + h) * T * P;
            product(false, true, T, T, D, q, 3 * C, k, 3 * C, a, P);
            dw_causal_softmax(a, scale, T, P);
            product(false, false, T, D, T, a, P, v, 3 * C, memory->heads + n * T * C + h * D, C);
        }
}

void dw_block_forward(const dw_part *part, const dw_model_shape *shape, dw_block_memory *memory,
                      const float *x, uint32_t N)
{
    uint32_t C = shape->channels, B = N * shape->context;
    const dw_parameter *at = part->tensors;
    const float *p = part->params;
    memory->x = x;
    dw_layernorm(memory->norm1, memory->mean1, memory->rstd1, x,
                 p + at[DW_BLOCK_NORM1_SCALE].offset, p + at[DW_BLOCK_NORM1_SHIFT].offset, B, C);
    dw_matmul(memory->qkv, memory->norm1, p + at[DW_BLOCK_QKV].offset, 0, B, 3 * C, C);
    dw_add_bias(memory->qkv, p + at[DW_BLOCK_QKV_BIAS].offset, B, 3 * C);
    attend(shape, memory, N);
    dw_copy_bias(memory->middle, x, p + at[DW_BLOCK_JOIN_BIAS].offset, B, C);
    dw_matmul(memory->middle, memory->heads, p + at[DW_BLOCK_JOIN].offset, 1, B, C, C);

    dw_layernorm(memory->norm2, memory->mean2, memory->rstd2, memory->middle,
                 p + at[DW_BLOCK_NORM2_SCALE].offset, p + at[DW_BLOCK_NORM2_SHIFT].offset, B, C);
    dw_matmul(memory->wide, memory->norm2, p + at[DW_BLOCK_WIDEN].offset, 0, B, 4 * C, C);
    dw_bias_gelu(memory->bent, memory->wide, p + at[DW_BLOCK_WIDEN_BIAS].offset, B, 4 * C);
    dw_copy_bias(memory->y, memory->middle, p + at[DW_BLOCK_NARROW_BIAS].offset, B, C);
    dw_matmul(memory->y, memory->bent, p + at[DW_BLOCK_NARROW].offset, 1, B, C, 4 * C);
}

/* Computes the gradients of queries, keys and values from that of the heads' output
 * (scratch->d_row). */
static void attend_backward(const dw_model_shape *shape, const dw_block_memory *memory,
                            dw_block_scratch *scratch, uint32_t N)
{
    size_t C = shape->channels, H = shape->heads, T = shape->context, P = padded(shape->context),
           D = C / H;
    float scale = 1.0f / sqrtf((float)D);
    for (size_t n = 0; n < N; n++)
        for (size_t h = 0; h < H; h++) {
            const float *q = memory->qkv + n * T * 3 * C + h * D, *k = q + C, *v = k + C;
            float *dq = scratch->d_qkv + n * T * 3 * C + h * D, *dk = dq + C, *dv = dk + C;
            const float *a = memory->weights + (n * H + h) * T * P;
            const float *dy = scratch->d_row + n * T * C + h * D;
            float *da = scratch->d_weights;
            product(true, false, T, D, T, a, P, dy, C, dv, 3 * C);
            product(false, true, T, T, D, dy, C, v, 3 * C, da, P);
            dw_causal_softmax_backward(da, a, scale, T, P);
            product(false, false, T, D, T, da, P, k, 3 * C, dq, 3 * C);
            product(true, false, T, D, T, da, P, q, 3 * C, dk, 3 * C);
        }
}

void dw_block_backward(dw_part *part, const dw_model_shape *shape, const dw_block_memory *memory,
                       dw_block_scratch *scratch, float *d, uint32_t N)
{
    uint32_t C = shape->channels, B = N * shape->context;
    const dw_parameter *at = part->tensors;
    const float *p = part->params;
    float *g = part->grads;
    dw_matmul_dx(scratch->d_wide, d, p + at[DW_BLOCK_NARROW].offset, B, C, 4 * C);
    dw_matmul_dw(g + at[DW_BLOCK_NARROW].offset, d, memory->bent, B, C, 4 * C);
    dw_sum_rows(g + at[DW_BLOCK_NARROW_BIAS].offset, d, B, C);
    dw_gelu_backward(scratch->d_wide, memory->wide, (size_t)B * 4 * C);
    dw_matmul_dx(scratch->d_row, scratch->d_wide, p + at[DW_BLOCK_WIDEN].offset, B, 4 * C, C);
    dw_matmul_dw(g + at[DW_BLOCK_WIDEN].offset, scratch->d_wide, memory->norm2, B, 4 * C, C);
    dw_sum_rows(g + at[DW_BLOCK_WIDEN_BIAS].offset, scratch->d_wide, B, 4 * C);
    dw_layernorm_backward(d, g + at[DW_BLOCK_NORM2_SCALE].offset,
                          g + at[DW_BLOCK_NORM2_SHIFT].offset, scratch->d_row, memory->middle,
                          p + at[DW_BLOCK_NORM2_SCALE].offset, memory->mean2, memory->rstd2, B, C);

    dw_matmul_dx(scratch->d_row, d, p + at[DW_BLOCK_JOIN].offset, B, C, C);
    dw_matmul_dw(g + at[DW_BLOCK_JOIN].offset, d, memory->heads, B, C, C);
    dw_sum_rows(g + at[DW_BLOCK_JOIN_BIAS].offset, d, B, C);
    attend_backward(shape, memory, scratch, N);
    dw_matmul_dx(scratch->d_row, scratch->d_qkv, p + at[DW_BLOCK_QKV].offset, B, 3 * C, C);
    dw_matmul_dw(g + at[DW_BLOCK_QKV].offset, scratch->d_qkv, memory->norm1, B, 3 * C, C);
    dw_sum_rows(g + at[DW_BLOCK_QKV_BIAS].offset, scratch->d_qkv, B, 3 * C);
    dw_layernorm_backward(d, g + at[DW_BLOCK_NORM1_SCALE].offset,
                          g + at[DW_BLOCK_NORM1_SHIFT].offset, scratch->d_row, memory->x,
                          p + at[DW_BLOCK_NORM1_SCALE].offset, memory->mean1, memory->rstd1, B, C);
}
