/* SPDX-License-Identifier: Apache-2.0
 * image.c - the compiled kernels, for every architecture of -Dgpu_archs, and PTX for later ones. */
#include "image.h"

#include "kernels_image.h" /* made by bin2c */

const dw_cuda_image dw_cuda_kernels = {dw_cuda_words, sizeof dw_cuda_words};
