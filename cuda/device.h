/* SPDX-License-Identifier: Apache-2.0
 * device.h - one device: its primary context, the kernels loaded there, and its memory.
 *
 * Errors: those of the driver, as it gives them. State: counted users; the context is pushed and
 * popped around what needs it, so that the caller's own stays current. Threads: any, but for
 * dw_cuda_open and close. */
#ifndef DW_CUDA_DEVICE_H
#define DW_CUDA_DEVICE_H

#include <stdatomic.h>

#include "deltawire/cuda.h"
#include "driver.h"
#include "engine/engine.h"
#include "names.h"

struct dw_cuda {
    dw_cuda_driver driver;
    dw_allocator allocator;
    int device;
    dw_cuda_context context;
    dw_cuda_module module;
    dw_cuda_function kernels[DW_CUDA_KERNELS]; /* NULL: this build has no such kernel */
    atomic_uint users;
};

/* Another library and other kernels than this build's: for tests. */
dw_status dw_cuda_open_library(dw_cuda **cuda, const char *library, const void *kernels, int device,
                               dw_why *why);

/* One user more, or less: the last one ends the device. */
void dw_cuda_retain(dw_cuda *cuda);

bool dw_cuda_enter(const dw_cuda *cuda, dw_cuda_result *error);
void dw_cuda_leave(const dw_cuda *cuda);

/* Memory of the device, or pinned memory of the host that it reaches. host: NULL where the host
 * does not. Allowed while a stream captures. */
typedef struct dw_cuda_block {
    dw_cuda_address address;
    void *host;
} dw_cuda_block;

dw_cuda_result dw_cuda_allocate(const dw_cuda *cuda, bool pinned, uint64_t bytes,
                                dw_cuda_block *block);
/* A block of at least `need` bytes, *have, in place of one that is too small. false: no memory,
 * nothing has changed. */
bool dw_cuda_grow(const dw_cuda *cuda, bool pinned, dw_cuda_block *block, uint64_t *have,
                  uint64_t need);
void dw_cuda_free(const dw_cuda *cuda, dw_cuda_block *block); /* of none: nothing happens */

#endif
