/* SPDX-License-Identifier: Apache-2.0
 * gpu_projection.h - checks projections on a GPU against those on the CPU. */
#ifndef DW_BENCH_GPU_PROJECTION_H
#define DW_BENCH_GPU_PROJECTION_H

#include "gpu.h"

/* Projects tensors of about so many elements, of all dtypes, and takes them back. A bit that
 * differs ends the program. Returns how many results were compared. */
size_t gpu_projection_check(gpu *g, uint64_t elements);

#endif
