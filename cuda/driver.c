/* SPDX-License-Identifier: Apache-2.0
 * driver.c - the CUDA driver as a table of functions: the only file that calls the dynamic
 * linker. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/symbols.h"
#include "driver.h"

static const dw_symbol functions[] = {
#define ROW(symbol, name, parameters) {#symbol, offsetof(dw_cuda_driver, name)},
    DW_CUDA_FUNCTIONS(ROW)
#undef ROW
};

dw_status dw_cuda_driver_open(dw_cuda_driver *driver, const char *library, dw_why *why)
{
    memset(driver, 0, sizeof *driver);
    driver->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!driver->library) {
        if (why)
            snprintf(why->text, sizeof why->text,
                     "%s cannot be loaded: install the NVIDIA driver, or compute on the CPU",
                     library);
        return DW_ERR_UNSUPPORTED;
    }
    const char *missing = dw_symbols_load(driver, functions, sizeof functions / sizeof *functions,
                                          driver->library, dlsym);
    if (!missing) return DW_OK;
    if (why)
        snprintf(why->text, sizeof why->text,
                 "%s has no %s: it is too old, install a newer NVIDIA driver", library, missing);
    dw_cuda_driver_close(driver);
    return DW_ERR_UNSUPPORTED;
}

void dw_cuda_driver_close(dw_cuda_driver *driver)
{
    if (driver->library) dlclose(driver->library);
    driver->library = NULL;
}

const char *dw_cuda_driver_error(const dw_cuda_driver *driver, dw_cuda_result error)
{
    const char *text = NULL;
    if (driver->error_string(error, &text) != DW_CUDA_SUCCESS || !text)
        return "an error without a description";
    return text;
}
