/* SPDX-License-Identifier: Apache-2.0
 * nccl_device.c - loads the functions of the CUDA driver, and enters and leaves the context of a
 * GPU. */
#include <dlfcn.h>

#include "base/symbols.h"
#include "common/report.h"
#include "nccl/nccl_device.h"

static const dw_symbol functions[] = {
#define ROW(symbol, name, parameters) {#symbol, offsetof(dw_nccl_driver, name)},
    DW_NCCL_DRIVER_FUNCTIONS(ROW)
#undef ROW
};

static dw_status open_driver(dw_nccl_driver *driver, const char *path, dw_why *why)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        return dw_say(why, DW_ERR_UNSUPPORTED,
                      "%.120s cannot be loaded: NCCL needs the NVIDIA driver; install it, or use "
                      "another transport",
                      path);
    }
    const char *missing =
        dw_symbols_load(driver, functions, sizeof functions / sizeof *functions, handle, dlsym);
    if (missing) {
        dlclose(handle);
        return dw_say(why, DW_ERR_UNSUPPORTED,
                      "%.120s has no %s: it is too old, install a newer NVIDIA driver", path,
                      missing);
    }
    driver->handle = handle;
    return DW_OK;
}

dw_status dw_nccl_device_open(dw_nccl_device *device, const char *path, int ordinal, dw_why *why)
{
    *device = (dw_nccl_device){.ordinal = ordinal};
    dw_status status = open_driver(&device->driver, path ? path : "libcuda.so.1", why);
    if (status != DW_OK) return status;
    int error = device->driver.init(0);
    if (error == DW_NCCL_CUDA_SUCCESS) error = device->driver.device_get(&device->number, ordinal);
    if (error == DW_NCCL_CUDA_SUCCESS)
        error = device->driver.context_retain(&device->context, device->number);
    if (error == DW_NCCL_CUDA_SUCCESS) return DW_OK;
    dw_say(why, DW_ERR_UNSUPPORTED,
           "GPU %d cannot be used (%.120s): is there one, and is its driver loaded?", ordinal,
           dw_nccl_device_error(device, error));
    device->context = NULL;
    dw_nccl_device_close(device);
    return DW_ERR_UNSUPPORTED;
}

void dw_nccl_device_close(dw_nccl_device *device)
{
    if (device->context) device->driver.context_release(device->number);
    device->context = NULL;
}

bool dw_nccl_device_enter(const dw_nccl_device *device, int *mode)
{
    if (device->driver.context_push(device->context) != DW_NCCL_CUDA_SUCCESS) return false;
    *mode = DW_NCCL_CAPTURE_RELAXED;
    if (device->driver.exchange_capture_mode(mode) == DW_NCCL_CUDA_SUCCESS) return true;
    dw_nccl_cuda_context popped;
    device->driver.context_pop(&popped);
    return false;
}

void dw_nccl_device_leave(const dw_nccl_device *device, int mode)
{
    dw_nccl_cuda_context popped;
    device->driver.exchange_capture_mode(&mode);
    device->driver.context_pop(&popped);
}

bool dw_nccl_device_owns(const dw_nccl_device *device, const void *address)
{
    int type = 0;
    return device->driver.pointer_attribute(&type, DW_NCCL_POINTER_MEMORY_TYPE,
                                            (dw_nccl_address)address) == DW_NCCL_CUDA_SUCCESS &&
           type == DW_NCCL_MEMORY_OF_DEVICE;
}

const char *dw_nccl_device_error(const dw_nccl_device *device, int error)
{
    const char *text = NULL;
    if (device->driver.error_string(error, &text) != DW_NCCL_CUDA_SUCCESS || !text)
        return "an error that the driver does not describe";
    return text;
}
