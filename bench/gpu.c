/* SPDX-License-Identifier: Apache-2.0
 * gpu.c - the CUDA driver as gpu_check and gpu_bench use it. */
#include "gpu.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct gpu_event {
    void *handle;
};

struct gpu_graph {
    void *graph, *executable;
};

enum {
    ATTRIBUTE_CLOCK = 13,
    ATTRIBUTE_MULTIPROCESSORS = 16,
    ATTRIBUTE_MEMORY_CLOCK = 36,
    HOST_PORTABLE_MAPPED = 3,
    CAPTURE_THREAD_LOCAL = 1
};

/* Name in the library, ours, parameters. Device addresses are as wide as pointers. */
#define FUNCTIONS(ROW)                                                                             \
    ROW(cuInit, init, (unsigned flags))                                                            \
    ROW(cuDeviceGet, device_get, (int *device, int ordinal))                                       \
    ROW(cuDeviceGetName, device_name, (char *name, int bytes, int device))                         \
    ROW(cuDeviceGetAttribute, device_attribute, (int *value, int attribute, int device))           \
    ROW(cuDriverGetVersion, driver_version, (int *version))                                        \
    ROW(cuDevicePrimaryCtxRetain, context_retain, (void **context, int device))                    \
    ROW(cuDevicePrimaryCtxRelease_v2, context_release, (int device))                               \
    ROW(cuCtxPushCurrent_v2, context_push, (void *context))                                        \
    ROW(cuMemAlloc_v2, memory_allocate, (uintptr_t * memory, size_t bytes))                        \
    ROW(cuMemFree_v2, memory_free, (uintptr_t memory))                                             \
    ROW(cuMemHostAlloc, host_allocate, (void **memory, size_t bytes, unsigned flags))              \
    ROW(cuMemFreeHost, host_free, (void *memory))                                                  \
    ROW(cuMemcpyHtoD_v2, put, (uintptr_t to, const void *from, size_t bytes))                      \
    ROW(cuMemcpyDtoH_v2, get, (void *to, uintptr_t from, size_t bytes))                            \
    ROW(cuMemcpyAsync, copy, (uintptr_t to, uintptr_t from, size_t bytes, void *stream))           \
    ROW(cuStreamCreate, stream_create, (void **stream, unsigned flags))                            \
    ROW(cuStreamDestroy_v2, stream_destroy, (void *stream))                                        \
    ROW(cuStreamSynchronize, stream_wait, (void *stream))                                          \
    ROW(cuEventCreate, event_create, (void **event, unsigned flags))                               \
    ROW(cuEventDestroy_v2, event_destroy, (void *event))                                           \
    ROW(cuEventRecord, event_record, (void *event, void *stream))                                  \
    ROW(cuEventSynchronize, event_wait, (void *event))                                             \
    ROW(cuEventElapsedTime, event_elapsed, (float *ms, void *from, void *to))                      \
    ROW(cuStreamBeginCapture_v2, capture_begin, (void *stream, int mode))                          \
    ROW(cuStreamEndCapture, capture_end, (void *stream, void **graph))                             \
    ROW(cuGraphInstantiateWithFlags, graph_make,                                                   \
        (void **executable, void *graph, unsigned long long flags))                                \
    ROW(cuGraphLaunch, graph_launch, (void *executable, void *stream))                             \
    ROW(cuGraphExecDestroy, graph_end, (void *executable))                                         \
    ROW(cuGraphDestroy, graph_destroy, (void *graph))

static struct {
    void *library;
#define ROW(symbol, name, parameters) int(*name) parameters;
    FUNCTIONS(ROW)
#undef ROW
} driver;

void gpu_expect(bool ok, const char *format, ...)
{
    va_list arguments;
    if (ok) return;
    va_start(arguments, format);
    fputs("gpu: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(EXIT_FAILURE);
}

static void call(int error, const char *what)
{
    gpu_expect(error == 0, "%s: CUDA error %d", what, error);
}

#define CALL(name, ...) call(driver.name(__VA_ARGS__), #name)

static void load(void)
{
    driver.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver.library) {
        printf("skipped: no NVIDIA driver here (libcuda.so.1)\n");
        exit(GPU_ABSENT);
    }
#define ROW(symbol, name, parameters)                                                              \
    *(void **)&driver.name = dlsym(driver.library, #symbol);                                       \
    gpu_expect(driver.name != NULL, "the driver has no " #symbol);
    FUNCTIONS(ROW)
#undef ROW
    if (driver.init(0)) {
        printf("skipped: no GPU here\n");
        exit(GPU_ABSENT);
    }
}

void gpu_open(gpu *g)
{
    int device;
    void *context;
    dw_why why = {.text = ""};
    load();
    CALL(device_get, &device, 0);
    CALL(device_name, g->name, (int)sizeof g->name, device);
    CALL(driver_version, &g->driver_version);
    CALL(device_attribute, &g->multiprocessors, ATTRIBUTE_MULTIPROCESSORS, device);
    CALL(device_attribute, &g->clock_khz, ATTRIBUTE_CLOCK, device);
    CALL(device_attribute, &g->memory_clock_khz, ATTRIBUTE_MEMORY_CLOCK, device);
    CALL(context_retain, &context, device);
    CALL(context_push, context);
    CALL(stream_create, &g->stream, 1); /* does not wait for the default stream */
    dw_status status = dw_cuda_open(&g->cuda, 0, &why);
    gpu_expect(status == DW_OK, "dw_cuda_open: %s", why.text);
}

void gpu_close(gpu *g)
{
    dw_cuda_close(g->cuda);
    CALL(stream_destroy, g->stream);
    CALL(context_release, 0);
}

void *gpu_allocate(size_t bytes)
{
    uintptr_t memory;
    CALL(memory_allocate, &memory, bytes);
    return (void *)memory;
}

void *gpu_allocate_pinned(size_t bytes)
{
    void *memory;
    CALL(host_allocate, &memory, bytes, HOST_PORTABLE_MAPPED);
    return memory;
}

void gpu_free(void *memory)
{
    CALL(memory_free, (uintptr_t)memory);
}

void gpu_free_pinned(void *memory)
{
    CALL(host_free, memory);
}

void gpu_put(void *device, const void *host, size_t bytes)
{
    CALL(put, (uintptr_t)device, host, bytes);
}

void gpu_get(void *host, const void *device, size_t bytes)
{
    CALL(get, host, (uintptr_t)device, bytes);
}

void gpu_copy(const gpu *g, void *to, const void *from, size_t bytes)
{
    CALL(copy, (uintptr_t)to, (uintptr_t)from, bytes, g->stream);
}

void gpu_wait(const gpu *g)
{
    CALL(stream_wait, g->stream);
}

gpu_event *gpu_event_create(void)
{
    gpu_event *event = malloc(sizeof *event);
    gpu_expect(event != NULL, "no memory");
    CALL(event_create, &event->handle, 0);
    return event;
}

void gpu_event_destroy(gpu_event *event)
{
    CALL(event_destroy, event->handle);
    free(event);
}

void gpu_event_record(const gpu *g, gpu_event *event)
{
    CALL(event_record, event->handle, g->stream);
}

double gpu_event_seconds(gpu_event *from, gpu_event *to)
{
    float ms;
    CALL(event_wait, to->handle);
    CALL(event_elapsed, &ms, from->handle, to->handle);
    return ms * 1e-3;
}

void gpu_capture_begin(const gpu *g)
{
    CALL(capture_begin, g->stream, CAPTURE_THREAD_LOCAL);
}

gpu_graph *gpu_capture_end(const gpu *g)
{
    gpu_graph *made = malloc(sizeof *made);
    gpu_expect(made != NULL, "no memory");
    CALL(capture_end, g->stream, &made->graph);
    CALL(graph_make, &made->executable, made->graph, 0);
    return made;
}

void gpu_graph_launch(const gpu *g, gpu_graph *graph)
{
    CALL(graph_launch, graph->executable, g->stream);
}

void gpu_graph_destroy(gpu_graph *graph)
{
    CALL(graph_end, graph->executable);
    CALL(graph_destroy, graph->graph);
    free(graph);
}
