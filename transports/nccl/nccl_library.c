/* SPDX-License-Identifier: Apache-2.0
 * nccl_library.c - loads the functions of NCCL: finds a copy and checks its version. */
#include <dlfcn.h>

#include "base/symbols.h"
#include "common/report.h"
#include "nccl/nccl_library.h"

static const dw_symbol functions[] = {
#define ROW(symbol, name, parameters) {#symbol, offsetof(dw_nccl_library, name)},
    DW_NCCL_FUNCTIONS(ROW)
#undef ROW
        {"ncclGetErrorString", offsetof(dw_nccl_library, error_text)},
    {"ncclGetLastError", offsetof(dw_nccl_library, last_error)},
};

static void *find_copy(const char *path)
{
    if (path) return dlopen(path, RTLD_NOW | RTLD_LOCAL);
    /* Look for a copy that the program is linked to or has loaded with RTLD_GLOBAL, then for one
     * that a library has loaded, then for one on the system. */
    void *program = dlopen(NULL, RTLD_NOW | RTLD_LOCAL);
    if (program && dlsym(program, "ncclGetVersion")) return program;
    if (program) dlclose(program);
    void *loaded = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    return loaded ? loaded : dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
}

dw_status dw_nccl_library_open(dw_nccl_library *library, const char *path, dw_why *why)
{
    *library = (dw_nccl_library){.version = 0};
    const char *name = path ? path : "libnccl.so.2";
    void *handle = find_copy(path);
    if (!handle) {
        return dw_say(
            why, DW_ERR_UNSUPPORTED,
            "%.120s cannot be loaded: install NCCL 2.18 or later, name the path of libnccl in "
            "dw_nccl_options.library, or use another transport",
            name);
    }
    const char *missing =
        dw_symbols_load(library, functions, sizeof functions / sizeof *functions, handle, dlsym);
    if (missing) {
        dlclose(handle);
        return dw_say(why, DW_ERR_UNSUPPORTED,
                      "%.120s has no %s: it is too old, install NCCL 2.18 or later", name, missing);
    }
    if (library->get_version(&library->version) != DW_NCCL_SUCCESS ||
        library->version < DW_NCCL_OLDEST) {
        int version = library->version;
        dlclose(handle);
        return dw_say(why, DW_ERR_UNSUPPORTED,
                      "%.120s is NCCL %d.%d, which is too old: install 2.18 or later", name,
                      version / 10000, version / 100 % 100);
    }
    library->handle = handle;
    return DW_OK;
}

const char *dw_nccl_library_error(const dw_nccl_library *library, dw_nccl_comm comm, int error)
{
    const char *text = library->last_error(comm);
    if (!text || !text[0]) text = library->error_text(error);
    return text ? text : "an error that NCCL does not describe";
}
