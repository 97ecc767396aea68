/* SPDX-License-Identifier: Apache-2.0
 * device.c - one GPU: its primary context, kernels and memory. */
#include <stdio.h>
#include <string.h>

#include "device.h"
#include "image.h"

dw_status dw_cuda_failed(const dw_cuda *cuda, dw_why *why, const char *what, dw_cuda_result error)
{
    return dw_say(why, error == DW_CUDA_OUT_OF_MEMORY ? DW_ERR_NO_MEMORY : DW_ERR_IO,
                  "%s: the CUDA driver says: %s", what, dw_cuda_driver_error(&cuda->driver, error));
}

bool dw_cuda_enter(const dw_cuda *cuda, dw_cuda_result *error)
{
    *error = cuda->driver.context_push(cuda->context);
    return *error == DW_CUDA_SUCCESS;
}

void dw_cuda_leave(const dw_cuda *cuda)
{
    dw_cuda_context ours;
    (void)cuda->driver.context_pop(&ours);
}

static dw_cuda_result allocate_pinned(const dw_cuda *cuda, size_t bytes, dw_cuda_block *block)
{
    const dw_cuda_driver *driver = &cuda->driver;
    dw_cuda_result error =
        driver->host_allocate(&block->host, bytes, DW_CUDA_HOST_PORTABLE | DW_CUDA_HOST_MAPPED);
    if (error) return error;
    error = driver->host_address(&block->address, block->host, 0);
    if (error) (void)driver->host_free(block->host);
    return error;
}

/* While a stream captures, an allocation or a free in the capturing thread would invalidate the
 * capture, unless the thread's capture mode is relaxed. */
dw_cuda_result dw_cuda_allocate(const dw_cuda *cuda, bool pinned, uint64_t bytes,
                                dw_cuda_block *block)
{
    dw_cuda_block made = {0, NULL};
    dw_cuda_result error;
    int mode = DW_CUDA_CAPTURE_RELAXED;
    if (bytes > SIZE_MAX) return DW_CUDA_OUT_OF_MEMORY;
    if (!dw_cuda_enter(cuda, &error)) return error;
    error = cuda->driver.exchange_capture_mode(&mode);
    if (!error) {
        error = pinned ? allocate_pinned(cuda, (size_t)bytes, &made)
                       : cuda->driver.memory_allocate(&made.address, (size_t)bytes);
        (void)cuda->driver.exchange_capture_mode(&mode);
    }
    dw_cuda_leave(cuda);
    if (!error) *block = made;
    return error;
}

void dw_cuda_free(const dw_cuda *cuda, dw_cuda_block *block)
{
    dw_cuda_result error;
    int mode = DW_CUDA_CAPTURE_RELAXED;
    if (!block->address || !dw_cuda_enter(cuda, &error)) return;
    error = cuda->driver.exchange_capture_mode(&mode);
    if (block->host)
        (void)cuda->driver.host_free(block->host);
    else
        (void)cuda->driver.memory_free(block->address);
    if (!error) (void)cuda->driver.exchange_capture_mode(&mode);
    dw_cuda_leave(cuda);
    *block = (dw_cuda_block){0, NULL};
}

bool dw_cuda_grow(const dw_cuda *cuda, bool pinned, dw_cuda_block *block, uint64_t *have,
                  uint64_t need)
{
    dw_cuda_block made;
    if (need <= *have) return true;
    /* Frames differ a little in size; the extra half avoids a new block for each. */
    uint64_t bytes = dw_round_up(need + need / 2, 4096);
    if (dw_cuda_allocate(cuda, pinned, bytes, &made)) return false;
    dw_cuda_free(cuda, block);
    *block = made;
    *have = bytes;
    return true;
}

static dw_status complain(const dw_cuda *cuda, dw_why *why, const char *what, dw_cuda_result error)
{
    return dw_say(why, error == DW_CUDA_OUT_OF_MEMORY ? DW_ERR_NO_MEMORY : DW_ERR_UNSUPPORTED,
                  "%s: the CUDA driver says: %s", what, dw_cuda_driver_error(&cuda->driver, error));
}

/* Called with the context retained; the caller releases it on an error. */
static dw_status load_kernels(dw_cuda *cuda, const void *image, dw_why *why)
{
    char name[DW_CUDA_NAME_BYTES];
    dw_cuda_result error;
    if (!dw_cuda_enter(cuda, &error))
        return complain(cuda, why, "the device's context cannot be made current", error);
    error = cuda->driver.module_load(&cuda->module, image);
    for (int i = 0; i < DW_CUDA_KERNELS && !error; i++) {
        dw_cuda_kernel_name(i, name);
        if (cuda->driver.module_function(&cuda->kernels[i], cuda->module, name))
            cuda->kernels[i] = NULL;
    }
    dw_cuda_leave(cuda);
    return error ? complain(cuda, why,
                            "the kernels cannot be loaded: update the driver, or build for this "
                            "device's architecture",
                            error)
                 : DW_OK;
}

static dw_status open_device(dw_cuda *cuda, const void *image, int device, dw_why *why)
{
    char what[64];
    dw_cuda_result error = cuda->driver.init(0);
    if (error) return complain(cuda, why, "CUDA cannot be initialized on this machine", error);
    snprintf(what, sizeof what, "there is no device %d", device);
    error = cuda->driver.device_get(&cuda->device, device);
    if (error) return complain(cuda, why, what, error);
    error = cuda->driver.context_retain(&cuda->context, cuda->device);
    if (error) return complain(cuda, why, "the device's primary context cannot be retained", error);
    dw_status status = load_kernels(cuda, image, why);
    if (status) (void)cuda->driver.context_release(cuda->device);
    return status;
}

dw_status dw_cuda_open_library(dw_cuda **cuda, const char *library, const void *kernels, int device,
                               dw_why *why)
{
    dw_allocator allocator = dw_mem_allocator(&(dw_allocator){0});
    if (why) *why = (dw_why){.offset = -1};
    dw_cuda *made = dw_mem_allocate(&allocator, sizeof *made);
    if (!made) return DW_ERR_NO_MEMORY;
    memset(made, 0, sizeof *made);
    made->allocator = allocator;
    atomic_init(&made->users, 1);
    dw_status status = dw_cuda_driver_open(&made->driver, library, why);
    if (!status) status = open_device(made, kernels, device, why);
    if (status) {
        dw_cuda_driver_close(&made->driver);
        dw_mem_release(&allocator, made, sizeof *made);
        return status;
    }
    *cuda = made;
    return DW_OK;
}

dw_status dw_cuda_open(dw_cuda **cuda, int device, dw_why *why)
{
    if (!cuda) return DW_ERR_ARGUMENT;
    *cuda = NULL;
    if (!dw_cuda_kernels.bytes) {
        if (why)
            *why = (dw_why){"this library was built without kernels: build it where nvcc is "
                            "installed, with -Dcuda=enabled -Dgpu_archs=90 or whatever the GPU has "
                            "(Python: pip install . -Csetup-args=-Dgpu_archs=90)",
                            -1};
        return DW_ERR_UNSUPPORTED;
    }
    return dw_cuda_open_library(cuda, "libcuda.so.1", dw_cuda_kernels.bytes, device, why);
}

void dw_cuda_retain(dw_cuda *cuda)
{
    atomic_fetch_add(&cuda->users, 1);
}

void dw_cuda_close(dw_cuda *cuda)
{
    dw_cuda_result error;
    if (!cuda || atomic_fetch_sub(&cuda->users, 1) != 1) return;
    if (dw_cuda_enter(cuda, &error)) {
        (void)cuda->driver.module_unload(cuda->module);
        dw_cuda_leave(cuda);
    }
    (void)cuda->driver.context_release(cuda->device);
    dw_cuda_driver_close(&cuda->driver);
    dw_allocator allocator = cuda->allocator;
    dw_mem_release(&allocator, cuda, sizeof *cuda);
}
