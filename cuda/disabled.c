/* SPDX-License-Identifier: Apache-2.0
 * disabled.c - the CUDA functions of a build with -Dcuda=disabled, which only return errors. */
#include "base/cuda_memory.h"
#include "deltawire/cuda.h"
#include "engine/engine.h"

static const char sentence[] = "this library was built with -Dcuda=disabled: build it with "
                               "-Dcuda=enabled, or compute on the CPU";

dw_status dw_cuda_open(dw_cuda **cuda, int device, dw_why *why)
{
    (void)device;
    if (!cuda) return DW_ERR_ARGUMENT;
    *cuda = NULL;
    if (why) {
        *why = (dw_why){.offset = -1};
        for (size_t i = 0; i < sizeof sentence; i++) why->text[i] = sentence[i];
    }
    return DW_ERR_UNSUPPORTED;
}

void dw_cuda_close(dw_cuda *cuda)
{
    (void)cuda;
}

/* Since dw_cuda_open fails, nobody can have a dw_cuda to call the following functions with. */
dw_status dw_cuda_pin(dw_cuda *cuda, size_t bytes, void **memory, dw_why *why)
{
    (void)cuda, (void)bytes, (void)memory, (void)why;
    return DW_ERR_ARGUMENT;
}

void dw_cuda_unpin(dw_cuda *cuda, void *memory)
{
    (void)cuda, (void)memory;
}

dw_status dw_cuda_stream_create(dw_cuda *cuda, void **stream, dw_why *why)
{
    (void)cuda, (void)stream, (void)why;
    return DW_ERR_ARGUMENT;
}

void dw_cuda_stream_destroy(dw_cuda *cuda, void *stream)
{
    (void)cuda, (void)stream;
}

dw_status dw_cuda_stream_check(dw_cuda *cuda, void *stream, dw_why *why)
{
    (void)cuda, (void)stream, (void)why;
    return DW_ERR_ARGUMENT;
}

dw_status dw_cuda_copy(dw_cuda *cuda, void *to, const void *from, size_t bytes, void *stream,
                       dw_why *why)
{
    (void)cuda, (void)to, (void)from, (void)bytes, (void)stream, (void)why;
    return DW_ERR_ARGUMENT;
}

dw_status dw_cuda_stream_wait(dw_cuda *cuda, void *stream, dw_why *why)
{
    (void)cuda, (void)stream, (void)why;
    return DW_ERR_ARGUMENT;
}

dw_status dw_engine_cuda(dw_engine *engine, const dw_config *config, const dw_host *host,
                         dw_why *why)
{
    (void)engine, (void)config, (void)host, (void)why;
    return DW_ERR_ARGUMENT;
}
