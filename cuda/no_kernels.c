/* SPDX-License-Identifier: Apache-2.0
 * no_kernels.c - stands for the kernels in a build without nvcc. */
extern const unsigned char dw_cuda_fatbin[];
extern const unsigned long dw_cuda_fatbin_bytes;

const unsigned char dw_cuda_fatbin[1] = {0};
const unsigned long dw_cuda_fatbin_bytes = 0;
