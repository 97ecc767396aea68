/* SPDX-License-Identifier: Apache-2.0
 * driver.h - the functions of the CUDA driver that deltawire calls. They are looked up at run time,
 * and no CUDA header is needed.
 *
 * The suffix _v2 stands where the driver's own header adds it by a macro. Errors: UNSUPPORTED where
 * the library or a function is missing. State: the library stays open until dw_cuda_driver_close.
 * Source: CUDA Driver API reference. */
#ifndef DW_CUDA_DRIVER_H
#define DW_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "deltawire/deltawire.h"

enum { DW_CUDA_SUCCESS = 0, DW_CUDA_OUT_OF_MEMORY = 2 };
enum { DW_CUDA_HOST_PORTABLE = 1, DW_CUDA_HOST_MAPPED = 2 };
enum { DW_CUDA_CAPTURE_RELAXED = 2 };
enum { DW_CUDA_STREAM_NON_BLOCKING = 1 };

typedef int dw_cuda_result;
typedef uintptr_t dw_cuda_address; /* CUdeviceptr: as wide as a pointer */
typedef struct dw_cuda_context_handle *dw_cuda_context;
typedef struct dw_cuda_module_handle *dw_cuda_module;
typedef struct dw_cuda_function_handle *dw_cuda_function;
typedef struct dw_cuda_stream_handle *dw_cuda_stream;

/* One row per function: its name in the library, our name, and its parameters. */
#define DW_CUDA_FUNCTIONS(ROW)                                                                     \
    ROW(cuInit, init, (unsigned flags))                                                            \
    ROW(cuDeviceGet, device_get, (int *device, int ordinal))                                       \
    ROW(cuGetErrorString, error_string, (dw_cuda_result error, const char **text))                 \
    ROW(cuDevicePrimaryCtxRetain, context_retain, (dw_cuda_context * context, int device))         \
    ROW(cuDevicePrimaryCtxRelease_v2, context_release, (int device))                               \
    ROW(cuCtxPushCurrent_v2, context_push, (dw_cuda_context context))                              \
    ROW(cuCtxPopCurrent_v2, context_pop, (dw_cuda_context * context))                              \
    ROW(cuModuleLoadData, module_load, (dw_cuda_module * module, const void *image))               \
    ROW(cuModuleUnload, module_unload, (dw_cuda_module module))                                    \
    ROW(cuModuleGetFunction, module_function,                                                      \
        (dw_cuda_function * function, dw_cuda_module module, const char *name))                    \
    ROW(cuMemAlloc_v2, memory_allocate, (dw_cuda_address * memory, size_t bytes))                  \
    ROW(cuMemFree_v2, memory_free, (dw_cuda_address memory))                                       \
    ROW(cuMemHostAlloc, host_allocate, (void **memory, size_t bytes, unsigned flags))              \
    ROW(cuMemFreeHost, host_free, (void *memory))                                                  \
    ROW(cuMemHostGetDevicePointer_v2, host_address,                                                \
        (dw_cuda_address * address, void *memory, unsigned flags))                                 \
    ROW(cuMemcpyHtoDAsync_v2, copy_to_device,                                                      \
        (dw_cuda_address to, const void *from, size_t bytes, dw_cuda_stream stream))               \
    ROW(cuMemcpyAsync, copy,                                                                       \
        (dw_cuda_address to, dw_cuda_address from, size_t bytes, dw_cuda_stream stream))           \
    ROW(cuThreadExchangeStreamCaptureMode, exchange_capture_mode, (int *mode))                     \
    ROW(cuStreamCreate, stream_create, (dw_cuda_stream * stream, unsigned flags))                  \
    ROW(cuStreamDestroy_v2, stream_destroy, (dw_cuda_stream stream))                               \
    ROW(cuStreamIsCapturing, stream_is_capturing, (dw_cuda_stream stream, int *status))            \
    ROW(cuStreamSynchronize, stream_synchronize, (dw_cuda_stream stream))                          \
    ROW(cuLaunchKernel, launch,                                                                    \
        (dw_cuda_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,             \
         unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,              \
         dw_cuda_stream stream, void **parameters, void **extra))

typedef struct dw_cuda_driver {
    void *library;
#define ROW(symbol, name, parameters) dw_cuda_result(*name) parameters;
    DW_CUDA_FUNCTIONS(ROW)
#undef ROW
} dw_cuda_driver;

dw_status dw_cuda_driver_open(dw_cuda_driver *driver, const char *library, dw_why *why);
void dw_cuda_driver_close(dw_cuda_driver *driver);

/* The driver's text for an error; never NULL. */
const char *dw_cuda_driver_error(const dw_cuda_driver *driver, dw_cuda_result error);

#endif
