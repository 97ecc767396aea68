/* SPDX-License-Identifier: Apache-2.0
 * nccl_device.h - the functions of the CUDA driver that links over NCCL call (streams, events,
 * memory, copies), loaded at run time.
 *
 * Some names end in _v2, because cuda.h maps the plain names to these by macros. Errors:
 * UNSUPPORTED if the driver, a function or the device is missing. Source: CUDA Driver API
 * reference. */
#ifndef DW_NCCL_DEVICE_H
#define DW_NCCL_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "nccl/nccl_library.h"

enum { DW_NCCL_CUDA_SUCCESS = 0, DW_NCCL_CUDA_NOT_READY = 600 };
enum { DW_NCCL_STREAM_NON_BLOCKING = 1, DW_NCCL_EVENT_NO_TIMING = 2, DW_NCCL_CAPTURE_RELAXED = 2 };
enum { DW_NCCL_POINTER_MEMORY_TYPE = 2, DW_NCCL_MEMORY_OF_DEVICE = 2 };

typedef uintptr_t dw_nccl_address; /* a CUdeviceptr */
typedef struct dw_nccl_context_handle *dw_nccl_cuda_context;
typedef struct dw_nccl_event_handle *dw_nccl_event;

/* One row per function: its name in the driver, the name of the member here, and its parameters. */
#define DW_NCCL_DRIVER_FUNCTIONS(ROW)                                                              \
    ROW(cuInit, init, (unsigned flags))                                                            \
    ROW(cuDeviceGet, device_get, (int *device, int ordinal))                                       \
    ROW(cuGetErrorString, error_string, (int error, const char **text))                            \
    ROW(cuDevicePrimaryCtxRetain, context_retain, (dw_nccl_cuda_context * context, int device))    \
    ROW(cuDevicePrimaryCtxRelease_v2, context_release, (int device))                               \
    ROW(cuCtxPushCurrent_v2, context_push, (dw_nccl_cuda_context context))                         \
    ROW(cuCtxPopCurrent_v2, context_pop, (dw_nccl_cuda_context * context))                         \
    ROW(cuThreadExchangeStreamCaptureMode, exchange_capture_mode, (int *mode))                     \
    ROW(cuStreamCreate, stream_create, (dw_nccl_stream * stream, unsigned flags))                  \
    ROW(cuStreamDestroy_v2, stream_destroy, (dw_nccl_stream stream))                               \
    ROW(cuStreamQuery, stream_query, (dw_nccl_stream stream))                                      \
    ROW(cuEventCreate, event_create, (dw_nccl_event * event, unsigned flags))                      \
    ROW(cuEventDestroy_v2, event_destroy, (dw_nccl_event event))                                   \
    ROW(cuEventRecord, event_record, (dw_nccl_event event, dw_nccl_stream stream))                 \
    ROW(cuEventQuery, event_query, (dw_nccl_event event))                                          \
    ROW(cuMemAlloc_v2, memory_allocate, (dw_nccl_address * memory, size_t bytes))                  \
    ROW(cuMemFree_v2, memory_free, (dw_nccl_address memory))                                       \
    ROW(cuMemHostAlloc, host_allocate, (void **memory, size_t bytes, unsigned flags))              \
    ROW(cuMemFreeHost, host_free, (void *memory))                                                  \
    ROW(cuMemcpyHtoD_v2, copy_now, (dw_nccl_address to, const void *from, size_t bytes))           \
    ROW(cuMemcpyHtoDAsync_v2, copy_in,                                                             \
        (dw_nccl_address to, const void *from, size_t bytes, dw_nccl_stream stream))               \
    ROW(cuMemcpyDtoHAsync_v2, copy_out,                                                            \
        (void *to, dw_nccl_address from, size_t bytes, dw_nccl_stream stream))                     \
    ROW(cuPointerGetAttribute, pointer_attribute,                                                  \
        (void *value, int attribute, dw_nccl_address pointer))

typedef struct dw_nccl_driver {
    void *handle;
#define ROW(symbol, name, parameters) int(*name) parameters;
    DW_NCCL_DRIVER_FUNCTIONS(ROW)
#undef ROW
} dw_nccl_driver;

typedef struct dw_nccl_device {
    dw_nccl_driver driver;
    dw_nccl_cuda_context context;
    int ordinal, number; /* ordinal: as the program counts GPUs; number: the driver's CUdevice */
} dw_nccl_device;

dw_status dw_nccl_device_open(dw_nccl_device *device, const char *path, int ordinal, dw_why *why);
void dw_nccl_device_close(dw_nccl_device *device); /* the driver itself stays loaded */

/* To be called around every use of the driver, in any thread. Makes the context current, and allows
 * this thread to make calls that are forbidden while another thread captures a stream. false: the
 * driver refused. */
bool dw_nccl_device_enter(const dw_nccl_device *device, int *mode);
void dw_nccl_device_leave(const dw_nccl_device *device, int mode);

/* Whether an address is in GPU memory. To be called between enter and leave. */
bool dw_nccl_device_owns(const dw_nccl_device *device, const void *address);

const char *dw_nccl_device_error(const dw_nccl_device *device, int error); /* never NULL */

#endif
