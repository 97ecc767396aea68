/* SPDX-License-Identifier: Apache-2.0
 * tensor_dlpack.c - converts DLPack tensors to views. */
#include <stdio.h>

#include "common/tensor.h"

/* DLTensor of dlpack.h (dmlc/dlpack), whose memory layout has been the same since 0.2.
 * DLManagedTensor begins with one. */
typedef struct dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t type_code, type_bits;
    uint16_t type_lanes;
    int64_t *shape, *strides; /* in elements; strides NULL: dense, row-major */
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

/* DLManagedTensorVersioned. All versions 1.x begin with these fields. */
typedef struct dl_versioned {
    uint32_t major, minor;
    void *manager_context;
    void (*deleter)(struct dl_versioned *self);
    uint64_t flags;
    dl_tensor tensor;
} dl_versioned;

enum { DL_MAJOR = 1, DL_READ_ONLY = 1 };

typedef struct extents {
    int64_t extent[4], stride[4]; /* (N, A, B, C); an absent dimension has extent 1 */
} extents;

/* For tensors of 1 to 4 dimensions: which of (N, A, B, C) each dimension becomes. The second table
 * is for two dimensions that mean (N, C). */
static const uint8_t places[4][4] = {{3}, {2, 3}, {0, 2, 3}, {0, 1, 2, 3}},
                     places_of_samples[2] = {0, 3};

static dw_status take_extents(const dl_tensor *from, bool rows_are_samples, extents *e,
                              const char **why)
{
    const uint8_t *place =
        from->ndim == 2 && rows_are_samples ? places_of_samples : places[from->ndim - 1];
    int64_t dense = 1;
    *e = (extents){{1, 1, 1, 1}, {0, 0, 0, 1}};
    for (int32_t i = from->ndim - 1; i >= 0; i--) {
        uint64_t next;
        *why = "an extent is zero, negative, or 2^32 or more";
        if (from->shape[i] < 1 || from->shape[i] > UINT32_MAX) return DW_ERR_ARGUMENT;
        e->extent[place[i]] = from->shape[i];
        e->stride[place[i]] = from->strides ? from->strides[i] : dense;
        *why = "it has too many elements";
        if (!dw_size_multiply((uint64_t)dense, (uint64_t)from->shape[i], &next) || next > INT64_MAX)
            return DW_ERR_LIMIT;
        dense = (int64_t)next;
    }
    *why = "its last dimension, the channels, is not contiguous: make the tensor contiguous";
    return e->stride[3] == 1 || e->extent[3] == 1 ? DW_OK : DW_ERR_ARGUMENT;
}

/* Joins A and B into one dimension of tokens. This requires that a step along A is as long as B
 * steps along B. */
static dw_status join_tokens(const extents *e, int64_t *tokens, int64_t *stride, const char **why)
{
    int64_t a = e->extent[1], b = e->extent[2];
    *tokens = a * b; /* cannot overflow: both are below 2^32, and the number of all elements was
                        checked */
    *stride = b > 1 ? e->stride[2] : e->stride[1];
    *why = "its two middle dimensions cannot be joined into one: make the tensor contiguous";
    if (a > 1 && b > 1 && (e->stride[1] % b || e->stride[1] / b != e->stride[2]))
        return DW_ERR_ARGUMENT;
    *why = "the product of its two middle dimensions is 2^32 or more";
    return *tokens <= UINT32_MAX ? DW_OK : DW_ERR_LIMIT;
}

static dw_status make_view(dw_dlpack_view *view, const dl_tensor *from, bool rows_are_samples,
                           void *stream, const char **why)
{
    extents e;
    int64_t tokens, stride_t;
    *why = "it must have one to four dimensions";
    if (!from->shape || from->ndim < 1 || from->ndim > 4) return DW_ERR_ARGUMENT;
    dw_dtype dtype = dtype_of(from);
    *why = "its elements are neither f32, f16 nor bf16";
    if (!dtype) return DW_ERR_UNSUPPORTED;
    dw_status status = take_extents(from, rows_are_samples, &e, why);
    if (!status) status = join_tokens(&e, &tokens, &stride_t, why);
    if (status) return status;
    dw_tensor tensor = {.data = from->data ? (unsigned char *)from->data + from->byte_offset : NULL,
                        .dtype = dtype,
                        .n = (uint32_t)e.extent[0],
                        .t = (uint32_t)tokens,
                        .c = (uint32_t)e.extent[3],
                        .stride_n = e.extent[0] > 1 ? e.stride[0] : tokens * e.extent[3],
                        .stride_t = tokens > 1 ? stride_t : e.extent[3]};
    status = dw_tensor_check_why(&tensor, why);
    if (status) return status;
    *view = (dw_dlpack_view){tensor, from->device_type, from->device_id, stream};
    return DW_OK;
}

static dw_status open_managed(dw_dlpack_view *view, const void *managed, unsigned flags,
                              void *stream, const char **why)
{
    const dl_tensor *from = managed;
    *why = "an argument of the call is NULL, or a flag is unknown";
    if (!view || !managed ||
        flags & ~(unsigned)(DW_DLPACK_VERSIONED | DW_DLPACK_WRITES | DW_DLPACK_ROWS_ARE_SAMPLES))
        return DW_ERR_ARGUMENT;
    if (flags & DW_DLPACK_VERSIONED) {
        const dl_versioned *versioned = managed;
        *why = "its DLPack major version is not 1: ask its owner for max_version=(1, 0)";
        if (versioned->major != DL_MAJOR) return DW_ERR_UNSUPPORTED;
        *why = "it is read-only but will be written to: copy it, or use another tensor";
        if (flags & DW_DLPACK_WRITES && versioned->flags & DL_READ_ONLY) return DW_ERR_ARGUMENT;
        from = &versioned->tensor;
    }
    return make_view(view, from, (flags & DW_DLPACK_ROWS_ARE_SAMPLES) != 0, stream, why);
}

dw_status dw_tensor_from_dlpack(dw_dlpack_view *view, const void *managed, unsigned flags,
                                void *stream, dw_why *why)
{
    const char *sentence;
    dw_status status = open_managed(view, managed, flags, stream, &sentence);
    if (why) {
        *why = (dw_why){.offset = -1};
        if (status) snprintf(why->text, sizeof why->text, "this DLPack tensor: %s", sentence);
    }
    return status;
}
