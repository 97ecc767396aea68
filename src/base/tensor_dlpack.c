/* SPDX-License-Identifier: Apache-2.0
 * tensor_dlpack.c - DLPack's tensors as views. */
#include "tensor.h"

/* DLTensor of dmlc/dlpack's dlpack.h, whose memory layout is the same from 0.2 on; DLManagedTensor
 * begins with one. */
typedef struct dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t type_code, type_bits;
    uint16_t type_lanes;
    int64_t *shape, *strides; /* strides, of elements, may be NULL: dense */
    uint64_t byte_offset;
} dl_tensor;

enum { DL_FLOAT = 2, DL_BFLOAT = 4 };

static dw_dtype dtype_of(const dl_tensor *from)
{
    if (from->type_lanes != 1) return (dw_dtype)0;
    if (from->type_code == DL_FLOAT)
        return from->type_bits == 32 ? DW_F32 : from->type_bits == 16 ? DW_F16 : (dw_dtype)0;
    return from->type_code == DL_BFLOAT && from->type_bits == 16 ? DW_BF16 : (dw_dtype)0;
}

/* Extents and strides of the last three dimensions; a dimension that is missing is 1 long. */
static dw_status take_extents(const dl_tensor *from, int64_t extents[3], int64_t strides[3])
{
    int64_t dense = 1;
    for (int32_t i = 2; i >= 0; i--) {
        int32_t at = from->ndim - 3 + i;
        extents[i] = at < 0 ? 1 : from->shape[at];
        if (extents[i] < 1 || extents[i] > UINT32_MAX) return DW_ERR_ARGUMENT;
        strides[i] = at < 0 || !from->strides ? dense : from->strides[at];
        uint64_t next;
        if (!dw_size_multiply((uint64_t)dense, (uint64_t)extents[i], &next) || next > INT64_MAX)
            return DW_ERR_LIMIT;
        dense = (int64_t)next;
    }
    return DW_OK;
}

dw_status dw_tensor_from_dlpack(dw_dlpack_view *view, const void *given, void *stream)
{
    const dl_tensor *from = given;
    int64_t extents[3], strides[3];
    if (!view || !from || !from->shape || from->ndim < 1 || from->ndim > 3) return DW_ERR_ARGUMENT;
    dw_dtype dtype = dtype_of(from);
    if (!dtype) return DW_ERR_UNSUPPORTED;
    dw_status status = take_extents(from, extents, strides);
    if (status) return status;
    if (strides[2] != 1 && extents[2] > 1) return DW_ERR_ARGUMENT;
    dw_tensor tensor = {.data = from->data ? (unsigned char *)from->data + from->byte_offset : NULL,
                        .dtype = dtype,
                        .n = (uint32_t)extents[0],
                        .t = (uint32_t)extents[1],
                        .c = (uint32_t)extents[2],
                        .stride_n = extents[0] > 1 ? strides[0] : extents[1] * extents[2],
                        .stride_t = extents[1] > 1 ? strides[1] : extents[2]};
    status = dw_tensor_check(&tensor);
    if (status) return status;
    *view = (dw_dlpack_view){tensor, from->device_type, from->device_id, stream};
    return DW_OK;
}
