/* SPDX-License-Identifier: Apache-2.0
 * device.h - one GPU: its primary context, the kernels loaded there, and its memory.
 *
 * Errors: those of the driver, unchanged. State: a count of users. The context is pushed and popped
 * around every use, so that the caller's own context stays current. Threads: any, except for
 * dw_cuda_open and dw_cuda_close. */
#ifndef DW_CUDA_DEVICE_H
#define DW_CUDA_DEVICE_H

#include <stdatomic.h>

#include "base/sentence.h"
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

/* As dw_cuda_open, with another driver library and other kernels; for tests. */
dw_status dw_cuda_open_library(dw_cuda **cuda, const char *library, const void *kernels, int device,
                               dw_why *why);

/* Adds a user. dw_cuda_close removes one; the last one ends the device. */
void dw_cuda_retain(dw_cuda *cuda);

/* Returns the error of a call to the driver, NO_MEMORY or IO, with a sentence in *why, which may be
 * NULL: what the driver says behind `what`. */
dw_status dw_cuda_failed(const dw_cuda *cuda, dw_why *why, const char *what, dw_cuda_result error);

bool dw_cuda_enter(const dw_cuda *cuda, dw_cuda_result *error);
void dw_cuda_leave(const dw_cuda *cuda);

/* Device memory, or pinned host memory that the device can reach. host: NULL where the host cannot
 * reach it. Allocation is allowed while a stream captures. */
typedef struct dw_cuda_block {
    dw_cuda_address address;
    void *host;
} dw_cuda_block;

dw_cuda_result dw_cuda_allocate(const dw_cuda *cuda, bool pinned, uint64_t bytes,
                                dw_cuda_block *block);
/* Replaces a block that is too small by one of at least `need` bytes; *have becomes its size.
 * Returns false, with nothing changed, where there is no memory. */
bool dw_cuda_grow(const dw_cuda *cuda, bool pinned, dw_cuda_block *block, uint64_t *have,
                  uint64_t need);
void dw_cuda_free(const dw_cuda *cuda, dw_cuda_block *block); /* does nothing for an empty block */

#endif
