/* SPDX-License-Identifier: Apache-2.0
 * fake_cudart.c - the functions of the CUDA runtime that examples/cuda_stream.c calls, on top of
 * the fake driver. */
#include <string.h>

#include <cuda_runtime_api.h>

#include "fake_cuda.h"

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaSuccess ? "no error" : "an error of the fake";
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    *stream = NULL;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    return stream ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    *memory = fake_cuda_get()->allocate(bytes);
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
    fake_cuda_get()->release(memory);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    static _Alignas(64) unsigned char room[4 << 20];
    *memory = room;
    return bytes <= sizeof room && flags == (cudaHostAllocMapped | cudaHostAllocPortable)
               ? cudaSuccess
               : cudaErrorMemoryAllocation;
}

cudaError_t cudaFreeHost(void *memory)
{
    return memory ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    fake_cuda *cuda = fake_cuda_get();
    cuda->touch(true);
    memcpy(to, from, bytes);
    cuda->touch(false);
    return kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToHost ? cudaSuccess
                                                                            : cudaErrorInvalidValue;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    return stream ? cudaErrorInvalidValue : cudaMemcpy(to, from, bytes, kind);
}
