/* SPDX-License-Identifier: Apache-2.0
 * no_image.c - an empty image, for builds without nvcc: dw_cuda_open returns an error. */
#include "image.h"

const dw_cuda_image dw_cuda_kernels = {NULL, 0};
