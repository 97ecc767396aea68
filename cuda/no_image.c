/* SPDX-License-Identifier: Apache-2.0
 * no_image.c - a library without kernels: where CUDA is asked for it says so. */
#include "image.h"

const dw_cuda_image dw_cuda_kernels = {NULL, 0};
