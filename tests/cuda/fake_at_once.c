/* SPDX-License-Identifier: Apache-2.0
 * fake_at_once.c - additional functions of the fake driver, for programs that use the driver
 * directly. Work is done at once when it is enqueued, and events take the host's time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake_cuda.h"

#define EXPORT __attribute__((visibility("default")))
#define FUNCTION(name, ...)                                                                        \
    EXPORT int name(__VA_ARGS__);                                                                  \
    EXPORT int name(__VA_ARGS__)

__attribute__((constructor)) static void begin(void)
{
    fake_cuda_get()->at_once = true;
}

static void copy(void *to, const void *from, size_t bytes)
{
    fake_cuda *cuda = fake_cuda_get();
    cuda->touch(true);
    memcpy(to, from, bytes);
    cuda->touch(false);
}

FUNCTION(cuDeviceGetName, char *name, int bytes, int device)
{
    snprintf(name, (size_t)bytes, "no GPU: the kernels run on a CPU");
    return device;
}

FUNCTION(cuDeviceGetAttribute, int *value, int attribute, int device)
{
    *value = attribute;
    return device;
}

FUNCTION(cuDriverGetVersion, int *version)
{
    *version = 13000;
    return 0;
}

FUNCTION(cuMemcpyHtoD_v2, uintptr_t to, const void *from, size_t bytes)
{
    copy((void *)to, from, bytes);
    return 0;
}

FUNCTION(cuMemcpyDtoH_v2, void *to, uintptr_t from, size_t bytes)
{
    copy(to, (const void *)from, bytes);
    return 0;
}

FUNCTION(cuEventCreate, void **event, unsigned flags)
{
    *event = calloc(1, sizeof(struct timespec));
    return flags != 0 || !*event;
}

FUNCTION(cuEventDestroy_v2, void *event)
{
    free(event);
    return 0;
}

FUNCTION(cuEventRecord, void *event, void *stream)
{
    (void)stream;
    return clock_gettime(CLOCK_MONOTONIC, event);
}

FUNCTION(cuEventSynchronize, void *event)
{
    return event == NULL;
}

FUNCTION(cuEventElapsedTime, float *ms, void *from, void *to)
{
    const struct timespec *a = from, *b = to;
    *ms = (float)((double)(b->tv_sec - a->tv_sec) * 1e3 + (double)(b->tv_nsec - a->tv_nsec) * 1e-6);
    return 0;
}

FUNCTION(cuStreamBeginCapture_v2, void *stream, int mode)
{
    fake_cuda *cuda = fake_cuda_get();
    (void)stream;
    cuda->drop_graph(cuda->graph);
    cuda->capturing = true;
    return mode != 1;
}

FUNCTION(cuStreamEndCapture, void *stream, void **graph)
{
    fake_cuda *cuda = fake_cuda_get();
    cuda->capturing = false;
    *graph = cuda;
    return stream == NULL;
}

FUNCTION(cuGraphInstantiateWithFlags, void **executable, void *graph, unsigned long long flags)
{
    *executable = graph;
    return flags != 0;
}

FUNCTION(cuGraphLaunch, void *executable, void *stream)
{
    fake_cuda *cuda = executable;
    cuda->launch_graph(cuda->graph);
    cuda->run();
    return stream == NULL;
}

FUNCTION(cuGraphExecDestroy, void *executable)
{
    return executable != fake_cuda_get();
}

FUNCTION(cuGraphDestroy, void *graph)
{
    fake_cuda *cuda = graph;
    cuda->drop_graph(cuda->graph);
    return 0;
}
