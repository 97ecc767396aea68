/* SPDX-License-Identifier: Apache-2.0
 * gpu_nccl.h - sends from a rank to itself over NCCL, if NCCL is installed. No header of NCCL is
 * needed. */
#ifndef DW_BENCH_GPU_NCCL_H
#define DW_BENCH_GPU_NCCL_H

#include <stdbool.h>

#include "gpu.h"

/* false: NCCL cannot be used; *why says what is missing. */
bool gpu_nccl_open(const char **why);
void gpu_nccl_to_self(const gpu *g, void *to, const void *from, size_t bytes); /* on the stream */
void gpu_nccl_close(void);

#endif
