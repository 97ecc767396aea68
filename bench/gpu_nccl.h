/* SPDX-License-Identifier: Apache-2.0
 * gpu_nccl.h - a rank that sends to itself over NCCL, where NCCL is installed; no header of it is
 * needed. */
#ifndef DW_BENCH_GPU_NCCL_H
#define DW_BENCH_GPU_NCCL_H

#include <stdbool.h>

#include "gpu.h"

/* false: it cannot be; *why says what is missing. */
bool gpu_nccl_open(const char **why);
void gpu_nccl_to_self(const gpu *g, void *to, const void *from, size_t bytes); /* on the stream */
void gpu_nccl_close(void);

#endif
