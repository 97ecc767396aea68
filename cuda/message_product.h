/* SPDX-License-Identifier: Apache-2.0
 * message_product.h - the interface between host and device for products of tensors with a matrix:
 * coordinates in a subspace, and tensors that have them.
 *
 * | name     | shape          | meaning                                           | memory        |
 * | from     | (n, t, depth)  | the factor                                        | caller        |
 * | matrix   | (depth, width) | f32, without gaps                                 | device        |
 * | to       | (n, t, width)  | the product; NaN has the same bits everywhere     | caller        |
 *
 * Strides are those of dw_tensor: elements between samples, and between tokens.
 *
 * Kernel: dw_multiply_tokens(product, a number that is not used), with DW_CUDA_THREADS threads for
 * every DW_PRODUCT_TOKENS tokens and DW_PRODUCT_COLUMNS columns of the product; blocks of the same
 * tokens are neighbours. The product is an argument by value, so a launch needs no other memory. */
#ifndef DW_CUDA_MESSAGE_PRODUCT_H
#define DW_CUDA_MESSAGE_PRODUCT_H

#include "message.h"

enum { DW_PRODUCT_TOKENS = 32, DW_PRODUCT_COLUMNS = 32 };

typedef struct dw_cuda_product {
    const void *from;
    const float *matrix;
    void *to;
    int64_t from_stride_n, from_stride_t, to_stride_n, to_stride_t;
    uint32_t n, t, depth, width;
    dw_dtype from_dtype, to_dtype;
} dw_cuda_product;

DW_INLINE uint64_t dw_product_blocks(const dw_cuda_product *product)
{
    uint64_t tokens = (uint64_t)product->n * product->t;
    return ((tokens + DW_PRODUCT_TOKENS - 1) / DW_PRODUCT_TOKENS) *
           (((uint64_t)product->width + DW_PRODUCT_COLUMNS - 1) / DW_PRODUCT_COLUMNS);
}

#endif
