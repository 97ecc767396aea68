/* SPDX-License-Identifier: Apache-2.0
 * product.cuh - multiplies the tokens of a tensor with a matrix.
 *
 * A block of threads computes a rectangle of the result, of DW_PRODUCT_TOKENS tokens and
 * DW_PRODUCT_COLUMNS columns. Each lane of a warp computes one of the columns; the warps share the
 * tokens among them. Tokens and matrix pass through shared memory in pieces: DW_PRODUCT_DEPTH
 * channels of every token, and the rows of the matrix that belong to these channels.
 *
 * A product is rounded before it is added, and each sum is computed by one thread in the order of
 * the channels, because the order decides the bits. The specification is
 * src/codecs/projection.c. */
#ifndef DW_CUDA_PRODUCT_CUH
#define DW_CUDA_PRODUCT_CUH

#include "block.cuh"
#include "message_product.h"

enum { DW_PRODUCT_DEPTH = DW_WARP, DW_PRODUCT_SUMS = DW_PRODUCT_TOKENS / DW_WARPS };
static_assert((int)DW_PRODUCT_COLUMNS == (int)DW_WARP, "Each lane of a warp computes one column.");

typedef struct dw_product_room {
    float factors[DW_PRODUCT_TOKENS][DW_PRODUCT_DEPTH];
    float matrix[DW_PRODUCT_DEPTH][DW_PRODUCT_COLUMNS];
} dw_product_room;

/* The index of a token's first element. token: its number among those of all samples. */
DW_DEVICE uint64_t dw_token_at(uint64_t token, uint32_t t, int64_t stride_n, int64_t stride_t)
{
    return token / t * (uint64_t)stride_n + token % t * (uint64_t)stride_t;
}

/* Loads channels `from` to `from` + DW_PRODUCT_DEPTH of the block's tokens, and the rows of the
 * matrix that belong to them. Channels, tokens and columns that do not exist count as +0. */
DW_DEVICE void dw_product_load(const dw_cuda_product *p, uint64_t first_token,
                               uint32_t first_column, uint32_t from, dw_product_room *room)
{
    uint64_t tokens = (uint64_t)p->n * p->t;
    uint32_t lane = threadIdx.x % DW_WARP;
    for (uint32_t i = threadIdx.x / DW_WARP; i < DW_PRODUCT_TOKENS; i += DW_WARPS) {
        uint64_t token = first_token + i;
        bool exists = token < tokens && lane < p->depth - from;
        uint64_t at = dw_token_at(token, p->t, p->from_stride_n, p->from_stride_t) + from + lane;
        room->factors[i][lane] =
            exists ? dw_widen(dw_load_bits(p->from, p->from_dtype, at), p->from_dtype) : 0.0f;
    }
    for (uint32_t i = threadIdx.x / DW_WARP; i < DW_PRODUCT_DEPTH; i += DW_WARPS) {
        bool exists = i < p->depth - from && lane < p->width - first_column;
        room->matrix[i][lane] =
            exists ? p->matrix[(uint64_t)(from + i) * p->width + first_column + lane] : 0.0f;
    }
}

/* Bits of a result. As IEEE rounds it: too large values become infinite. */
DW_DEVICE uint32_t dw_product_bits(float value, dw_dtype dtype)
{
    value = dw_same_nan(value);
    if (dtype == DW_F32) return dw_bits_of(value);
    return dtype == DW_F16 ? dw_f16_round(value) : dw_bf16_round(value);
}

DW_DEVICE void dw_product_block(const dw_cuda_product *p, dw_product_room *room)
{
    /* Rounded up without an overflow. */
    uint32_t across = (p->width - 1) / DW_PRODUCT_COLUMNS + 1;
    uint64_t first_token = (uint64_t)(blockIdx.x / across) * DW_PRODUCT_TOKENS;
    uint32_t first_column = blockIdx.x % across * DW_PRODUCT_COLUMNS;
    uint32_t lane = threadIdx.x % DW_WARP, warp = threadIdx.x / DW_WARP;
    float sums[DW_PRODUCT_SUMS];
#pragma unroll
    for (uint32_t i = 0; i < DW_PRODUCT_SUMS; i++) sums[i] = 0.0f;
    for (uint32_t from = 0, left = p->depth; left > 0;) {
        uint32_t depth = left < DW_PRODUCT_DEPTH ? left : (uint32_t)DW_PRODUCT_DEPTH;
        dw_product_load(p, first_token, first_column, from, room);
        __syncthreads();
        for (uint32_t k = 0; k < depth; k++) {
            float of_column = room->matrix[k][lane];
#pragma unroll
            for (uint32_t i = 0; i < DW_PRODUCT_SUMS; i++)
                sums[i] += room->factors[i * DW_WARPS + warp][k] * of_column;
        }
        __syncthreads();
        from += depth;
        left -= depth;
    }
#pragma unroll
    for (uint32_t i = 0; i < DW_PRODUCT_SUMS; i++) {
        uint64_t token = first_token + i * DW_WARPS + warp;
        if (token >= (uint64_t)p->n * p->t || lane >= p->width - first_column) continue;
        uint64_t at = dw_token_at(token, p->t, p->to_stride_n, p->to_stride_t);
        dw_store_bits(p->to, p->to_dtype, at + first_column + lane,
                      dw_product_bits(sums[i], p->to_dtype));
    }
}

#endif
