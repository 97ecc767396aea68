/* SPDX-License-Identifier: Apache-2.0
 * gpu_golden.h - the golden frames of tests/wire/golden/, made and read by a GPU. */
#ifndef DW_BENCH_GPU_GOLDEN_H
#define DW_BENCH_GPU_GOLDEN_H

#include "gpu.h"

/* Every file in the directory that tells what was encoded: the GPU makes the same frames of it, and
 * of these the same y, replies and prev. What has no kernels must say so. Ends the program at the
 * first difference. */
void gpu_golden(gpu *g, const char *directory);

#endif
