/* SPDX-License-Identifier: Apache-2.0
 * projection.c - projections onto a subspace, of tensors in the memory of a GPU. */
#include "codecs/projection.h"
#include "base/cuda_memory.h"

#include "device.h"
#include "message_product.h"

struct dw_cuda_projection {
    dw_cuda *cuda;
    dw_allocator allocator;
    uint32_t c, r;
    dw_cuda_block memory; /* the matrix, (C, R), and behind it the same transposed, (R, C) */
};

static uint64_t bytes_of(const dw_cuda_projection *p)
{
    return sizeof(float) * (uint64_t)p->c * p->r;
}

/* Copies both matrices on a stream of its own, and waits for it alone. */
static dw_status copy_matrices(const dw_cuda_projection *p, const dw_projection *projection,
                               dw_why *why)
{
    char *to = (char *)p->memory.address;
    size_t bytes = (size_t)bytes_of(p);
    void *stream;
    dw_status status = dw_cuda_stream_create(p->cuda, &stream, why);
    if (status) return status;
    status = dw_cuda_copy(p->cuda, to, dw_projection_matrix(projection).data, bytes, stream, why);
    if (!status)
        status = dw_cuda_copy(p->cuda, to + bytes, dw_projection_columns(projection), bytes, stream,
                              why);
    dw_cuda_stream_destroy(p->cuda, stream);
    return status;
}

dw_status dw_cuda_projection_create(dw_cuda_projection **made, dw_cuda *cuda,
                                    const dw_projection *projection, dw_why *why)
{
    if (made) *made = NULL;
    if (!made || !cuda || !projection)
        return dw_say(why, DW_ERR_ARGUMENT, "projection, cuda or the place for the result is NULL");
    if (!cuda->kernels[DW_CUDA_AT_PRODUCT])
        return dw_say(why, DW_ERR_UNSUPPORTED,
                      "this build has no kernel dw_multiply_tokens: project on the CPU");
    dw_tensor matrix = dw_projection_matrix(projection);
    dw_cuda_projection *p = dw_mem_allocate(&cuda->allocator, sizeof *p);
    if (!p) return dw_say(why, DW_ERR_NO_MEMORY, "%s", dw_status_string(DW_ERR_NO_MEMORY));
    *p = (dw_cuda_projection){
        .cuda = cuda, .allocator = cuda->allocator, .c = matrix.t, .r = matrix.c};
    dw_cuda_retain(cuda);
    dw_cuda_result error = dw_cuda_allocate(cuda, false, 2 * bytes_of(p), &p->memory);
    dw_status status =
        error ? dw_cuda_failed(cuda, why, "the matrix finds no room on the device", error) : DW_OK;
    if (!status) status = copy_matrices(p, projection, why);
    if (status)
        dw_cuda_projection_destroy(p);
    else
        *made = p;
    return status;
}

void dw_cuda_projection_destroy(dw_cuda_projection *p)
{
    if (!p) return;
    dw_allocator allocator = p->allocator;
    dw_cuda_free(p->cuda, &p->memory);
    dw_cuda_close(p->cuda);
    dw_mem_release(&allocator, p, sizeof *p);
}

static dw_status enqueue(const dw_cuda *cuda, const dw_cuda_product *product, void *stream,
                         dw_why *why)
{
    dw_cuda_product by_value = *product;
    uint32_t unused = 0;
    void *parameters[] = {&by_value, &unused};
    uint64_t blocks = dw_product_blocks(product);
    dw_cuda_result error;
    if (blocks > INT32_MAX)
        return dw_say(why, DW_ERR_LIMIT,
                      "the tensor exceeds the size of a grid: project parts of it, one by one");
    if (dw_cuda_enter(cuda, &error)) {
        error = cuda->driver.launch(cuda->kernels[DW_CUDA_AT_PRODUCT], (unsigned)blocks, 1, 1,
                                    DW_CUDA_THREADS, 1, 1, 0, stream, parameters, NULL);
        dw_cuda_leave(cuda);
    }
    return error ? dw_cuda_failed(cuda, why, "the product cannot be enqueued", error) : DW_OK;
}

/* matrix: (from->c, to->c). */
static dw_status multiply(const dw_cuda_projection *p, const dw_tensor *from, const dw_tensor *to,
                          dw_cuda_address matrix, void *stream, dw_why *why)
{
    dw_cuda_product product = {
        .from = from->data,
        .matrix = (const float *)matrix,
        .to = to->data,
        .from_stride_n = from->stride_n,
        .from_stride_t = from->stride_t,
        .to_stride_n = to->stride_n,
        .to_stride_t = to->stride_t,
        .n = from->n,
        .t = from->t,
        .depth = from->c,
        .width = to->c,
        .from_dtype = from->dtype,
        .to_dtype = to->dtype,
    };
    return enqueue(p->cuda, &product, stream, why);
}

dw_status dw_project_async(const dw_cuda_projection *p, const dw_tensor *x, const dw_tensor *z,
                           void *stream, dw_why *why)
{
    dw_status status = dw_projection_check(p ? p->c : 0, p ? p->r : 0, x, z, z, why);
    return status ? status : multiply(p, x, z, p->memory.address, stream, why);
}

dw_status dw_unproject_async(const dw_cuda_projection *p, const dw_tensor *z, const dw_tensor *y,
                             void *stream, dw_why *why)
{
    dw_status status = dw_projection_check(p ? p->c : 0, p ? p->r : 0, y, z, y, why);
    if (status) return status;
    return multiply(p, z, y, p->memory.address + (dw_cuda_address)bytes_of(p), stream, why);
}
