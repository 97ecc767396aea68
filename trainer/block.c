/* SPDX-License-Identifier: Apache-2.0
 * block.c - one block: norms, attention (attention.h) and MLP, forward and backward. */
#include "block.h"

#include <cblas.h>
#include <stdlib.h>
#include <string.h>

#include "attention.h"
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

/* Returns room for n floats, taken from the allocation `all`. Where `all` is NULL it only counts
 * the floats. */
static float *cut(float *all, size_t *used, size_t n)
{
    float *piece = all ? all + *used : NULL;
    *used += (n + DW_LANES - 1) / DW_LANES * DW_LANES;
    return piece;
}

static size_t lay_out_memory(dw_block_memory *memory, const dw_model_shape *shape,
                             const dw_slices *slices)
{
    size_t C = shape->channels, B = (size_t)slices->room * slices->T;
    size_t used = 0;
    float *all = memory->all;
    memory->norm1 = cut(all, &used, B * C);
    memory->mean1 = cut(all, &used, B);
    memory->rstd1 = cut(all, &used, B);
    memory->qkv = cut(all, &used, B * 3 * C);
    memory->weights = cut(all, &used, B * shape->heads * dw_attention_row(slices->T));
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

dw_status dw_block_memory_create(dw_block_memory *memory, const dw_model_shape *shape,
                                 const dw_slices *slices)
{
    memset(memory, 0, sizeof *memory);
    memory->all = dw_floats(lay_out_memory(memory, shape, slices));
    if (!memory->all) return DW_ERR_NO_MEMORY;
    lay_out_memory(memory, shape, slices);
    return DW_OK;
}

void dw_block_memory_destroy(dw_block_memory *memory)
{
    free(memory->all);
    memory->all = NULL;
}

static size_t lay_out_scratch(dw_block_scratch *scratch, const dw_model_shape *shape,
                              const dw_slices *slices, uint32_t n_blocks)
{
    size_t C = shape->channels, B = (size_t)slices->room * slices->T;
    size_t tokens = dw_slice_longest(slices->T, slices->S), R = slices->room * tokens;
    size_t used = 0;
    scratch->d_wide = cut(scratch->all, &used, R * 4 * C);
    scratch->d_row = cut(scratch->all, &used, R * C);
    scratch->d_weights = cut(scratch->all, &used, tokens * dw_attention_row(slices->T));
    scratch->d_qkv = cut(scratch->all, &used, (slices->S > 1 ? n_blocks : 1) * B * 3 * C);
    return used;
}

dw_status dw_block_scratch_create(dw_block_scratch *scratch, const dw_model_shape *shape,
                                  const dw_slices *slices, uint32_t n_blocks)
{
    memset(scratch, 0, sizeof *scratch);
    scratch->all = dw_floats(lay_out_scratch(scratch, shape, slices, n_blocks));
    if (!scratch->all) return DW_ERR_NO_MEMORY;
    lay_out_scratch(scratch, shape, slices, n_blocks);
    return DW_OK;
}

void dw_block_scratch_destroy(dw_block_scratch *scratch)
{
    free(scratch->all);
    scratch->all = NULL;
}

/* Returns the memory of slice i. weights and qkv remain those of the whole micro-batch, because
 * attention needs the earlier slices, too. */
static dw_block_memory memory_of(const dw_block_memory *memory, const dw_model_shape *shape,
                                 const dw_slices *slices, uint32_t i)
{
    dw_block_memory at = *memory;
    size_t row = dw_slice_row(slices, i), C = shape->channels;
    at.x += row * C;
    at.norm1 += row * C;
    at.mean1 += row;
    at.rstd1 += row;
    at.heads += row * C;
    at.middle += row * C;
    at.norm2 += row * C;
    at.mean2 += row;
    at.rstd2 += row;
    at.wide += row * 4 * C;
    at.bent += row * 4 * C;
    at.y += row * C;
    return at;
}

void dw_block_forward(const dw_part *part, const dw_model_shape *shape, dw_block_memory *memory,
                      const dw_slices *slices, uint32_t i, const float *x)
{
    uint32_t C = shape->channels, B = slices->N * dw_slice_of(slices->T, slices->S, i).tokens;
    const dw_parameter *at = part->tensors;
    const float *p = part->params;
    memory->x = x;
    dw_block_memory m = memory_of(memory, shape, slices, i);
    float *qkv = m.qkv + dw_slice_row(slices, i) * 3 * C;
    dw_layernorm(m.norm1, m.mean1, m.rstd1, m.x, p + at[DW_BLOCK_NORM1_SCALE].offset,
                 p + at[DW_BLOCK_NORM1_SHIFT].offset, B, C);
    dw_matmul(qkv, m.norm1, p + at[DW_BLOCK_QKV].offset, 0, B, 3 * C, C);
    dw_add_bias(qkv, p + at[DW_BLOCK_QKV_BIAS].offset, B, 3 * C);
    dw_attend(shape, slices, i, m.qkv, m.weights, m.heads);
    dw_copy_bias(m.middle, m.x, p + at[DW_BLOCK_JOIN_BIAS].offset, B, C);
    dw_matmul(m.middle, m.heads, p + at[DW_BLOCK_JOIN].offset, 1, B, C, C);

    dw_layernorm(m.norm2, m.mean2, m.rstd2, m.middle, p + at[DW_BLOCK_NORM2_SCALE].offset,
                 p + at[DW_BLOCK_NORM2_SHIFT].offset, B, C);
    dw_matmul(m.wide, m.norm2, p + at[DW_BLOCK_WIDEN].offset, 0, B, 4 * C, C);
    dw_bias_gelu(m.bent, m.wide, p + at[DW_BLOCK_WIDEN_BIAS].offset, B, 4 * C);
    dw_copy_bias(m.y, m.middle, p + at[DW_BLOCK_NARROW_BIAS].offset, B, C);
    dw_matmul(m.y, m.bent, p + at[DW_BLOCK_NARROW].offset, 1, B, C, 4 * C);
}

void dw_block_backward(dw_part *part, const dw_model_shape *shape, const dw_block_memory *memory,
                       const dw_slices *slices, uint32_t i, const dw_block_scratch *scratch,
                       uint32_t index, float *d)
{
    uint32_t C = shape->channels, B = slices->N * dw_slice_of(slices->T, slices->S, i).tokens;
    const dw_parameter *at = part->tensors;
    const float *p = part->params;
    float *g = part->grads;
    dw_block_memory m = memory_of(memory, shape, slices, i);
    size_t piece = slices->S > 1 ? index : 0, rows = (size_t)slices->room * slices->T;
    float *d_all = scratch->d_qkv + piece * rows * 3 * C,
          *d_qkv = d_all + dw_slice_row(slices, i) * 3 * C;
    dw_matmul_dx(scratch->d_wide, d, p + at[DW_BLOCK_NARROW].offset, B, C, 4 * C);
    dw_matmul_dw(g + at[DW_BLOCK_NARROW].offset, d, m.bent, B, C, 4 * C);
    dw_sum_rows(g + at[DW_BLOCK_NARROW_BIAS].offset, d, B, C);
    dw_gelu_backward(scratch->d_wide, m.wide, (size_t)B * 4 * C);
    dw_matmul_dx(scratch->d_row, scratch->d_wide, p + at[DW_BLOCK_WIDEN].offset, B, 4 * C, C);
    dw_matmul_dw(g + at[DW_BLOCK_WIDEN].offset, scratch->d_wide, m.norm2, B, 4 * C, C);
    dw_sum_rows(g + at[DW_BLOCK_WIDEN_BIAS].offset, scratch->d_wide, B, 4 * C);
    dw_layernorm_backward(d, g + at[DW_BLOCK_NORM2_SCALE].offset,
                          g + at[DW_BLOCK_NORM2_SHIFT].offset, scratch->d_row, m.middle,
                          p + at[DW_BLOCK_NORM2_SCALE].offset, m.mean2, m.rstd2, B, C);

    dw_matmul_dx(scratch->d_row, d, p + at[DW_BLOCK_JOIN].offset, B, C, C);
    dw_matmul_dw(g + at[DW_BLOCK_JOIN].offset, d, m.heads, B, C, C);
    dw_sum_rows(g + at[DW_BLOCK_JOIN_BIAS].offset, d, B, C);
    dw_attend_backward(shape, slices, i, m.qkv, m.weights, scratch->d_row, d_all,
                       scratch->d_weights);
    dw_matmul_dx(scratch->d_row, d_qkv, p + at[DW_BLOCK_QKV].offset, B, 3 * C, C);
    dw_matmul_dw(g + at[DW_BLOCK_QKV].offset, d_qkv, m.norm1, B, 3 * C, C);
    dw_sum_rows(g + at[DW_BLOCK_QKV_BIAS].offset, d_qkv, B, 3 * C);
    dw_layernorm_backward(d, g + at[DW_BLOCK_NORM1_SCALE].offset,
                          g + at[DW_BLOCK_NORM1_SHIFT].offset, scratch->d_row, m.x,
                          p + at[DW_BLOCK_NORM1_SCALE].offset, m.mean1, m.rstd1, B, C);
}
