/* SPDX-License-Identifier: Apache-2.0
 * tensor.c - checks tensor views and computes addresses in them. */
#include "common/tensor.h"

size_t dw_dtype_bytes(dw_dtype dtype)
{
    return dtype == DW_F32 ? 4 : dtype == DW_F16 || dtype == DW_BF16 ? 2 : 0;
}

dw_tensor dw_tensor_3d(void *data, dw_dtype dtype, uint32_t n, uint32_t t, uint32_t c)
{
    /* The stride saturates at INT64_MAX; dw_tensor_check then refuses the view. */
    uint64_t sample = (uint64_t)t * c;
    return (dw_tensor){data, dtype, n, t, c, sample > INT64_MAX ? INT64_MAX : (int64_t)sample, c};
}

bool dw_tensor_bytes(uint32_t n, uint32_t t, uint32_t c, dw_dtype dtype, uint64_t *bytes)
{
    uint64_t rows, elements, all;
    if (!dw_size_multiply(n, t, &rows) || !dw_size_multiply(rows, c, &elements) ||
        !dw_size_multiply(elements, dw_dtype_bytes(dtype), &all) || all > PTRDIFF_MAX)
        return false;
    *bytes = all;
    return true;
}

/* Checks that the farthest element can be addressed without overflow, whatever strides the caller
 * set. */
dw_status dw_tensor_check_why(const dw_tensor *tensor, const char **why)
{
    uint64_t rows, samples, reach, bytes;
    *why = "its dtype is none of f32, f16 and bf16";
    if (!tensor || dw_dtype_bytes(tensor->dtype) == 0) return DW_ERR_ARGUMENT;
    *why = "its address is not a multiple of the size of its elements: copy it";
    if ((uintptr_t)tensor->data % dw_dtype_bytes(tensor->dtype)) return DW_ERR_ARGUMENT;
    *why = "it has no elements";
    if (tensor->n == 0 || tensor->t == 0 || tensor->c == 0) return DW_ERR_ARGUMENT;
    *why = "a stride is negative: make it contiguous";
    if (tensor->stride_n < 0 || tensor->stride_t < 0) return DW_ERR_ARGUMENT;
    *why = "its tokens overlap, as their stride is smaller than the number of channels: make it "
           "contiguous";
    if (tensor->stride_t < (int64_t)tensor->c && tensor->t > 1) return DW_ERR_ARGUMENT;
    /* The limit is computed for f32, the widest dtype, so that a conversion of the same shape
     * cannot exceed it either. */
    *why = "its extents or strides are too large to be addressed";
    if (!dw_tensor_bytes(tensor->n, tensor->t, tensor->c, DW_F32, &bytes)) return DW_ERR_LIMIT;
    if (!dw_size_multiply(tensor->t - 1, (uint64_t)tensor->stride_t, &rows) ||
        !dw_size_multiply(tensor->n - 1, (uint64_t)tensor->stride_n, &samples) ||
        !dw_size_add(rows, samples, &reach) || reach > PTRDIFF_MAX / 8)
        return DW_ERR_LIMIT;
    return DW_OK;
}

dw_status dw_tensor_check(const dw_tensor *tensor)
{
    const char *why;
    return dw_tensor_check_why(tensor, &why);
}

/* Samples do not overlap if they lie one behind the other, or if they are interleaved token by
 * token. */
bool dw_tensor_overlaps(const dw_tensor *tensor)
{
    uint64_t sample = (uint64_t)(tensor->t - 1) * (uint64_t)tensor->stride_t + tensor->c;
    uint64_t token = (uint64_t)(tensor->n - 1) * (uint64_t)tensor->stride_n + tensor->c;
    bool apart = (uint64_t)tensor->stride_n >= sample;
    bool woven = tensor->stride_n >= (int64_t)tensor->c && (uint64_t)tensor->stride_t >= token;
    return tensor->n > 1 && !apart && !woven;
}

static uint64_t reach(const dw_tensor *tensor)
{
    uint64_t elements = (tensor->n - 1) * (uint64_t)tensor->stride_n +
                        (tensor->t - 1) * (uint64_t)tensor->stride_t + tensor->c;
    return elements * dw_dtype_bytes(tensor->dtype);
}

bool dw_tensor_meets(const dw_tensor *tensor, const void *from, uint64_t bytes)
{
    uintptr_t start = (uintptr_t)tensor->data, other = (uintptr_t)from;
    return start && start < other + bytes && other < start + reach(tensor);
}

void *dw_tensor_sample(const dw_tensor *tensor, uint32_t n)
{
    return (unsigned char *)tensor->data +
           (size_t)n * (size_t)tensor->stride_n * dw_dtype_bytes(tensor->dtype);
}
