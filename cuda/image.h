/* SPDX-License-Identifier: Apache-2.0
 * image.h - the compiled kernels in the form in which the driver loads them. */
#ifndef DW_CUDA_IMAGE_H
#define DW_CUDA_IMAGE_H

#include <stddef.h>

/* bytes NULL: built without nvcc, or for no architecture. */
typedef struct dw_cuda_image {
    const void *bytes;
    size_t n;
} dw_cuda_image;

extern const dw_cuda_image dw_cuda_kernels;

#endif
