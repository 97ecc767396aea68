/* SPDX-License-Identifier: Apache-2.0
 * gpu_golden.h - encodes and decodes the golden frames of tests/wire/golden/ on a GPU. */
#ifndef DW_BENCH_GPU_GOLDEN_H
#define DW_BENCH_GPU_GOLDEN_H

#include "gpu.h"

/* Checks every file in the directory that contains the input of the encoder: on the GPU it must
 * give the same frames, and these the same y, replies and prev. Configs without GPU kernels must be
 * refused with a message. Ends the program at the first difference. */
void gpu_golden(gpu *g, const char *directory);

#endif
