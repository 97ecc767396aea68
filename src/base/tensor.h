/* SPDX-License-Identifier: Apache-2.0
 * tensor.h - views: are they sound, and where is what.
 *
 * Errors: ARGUMENT for a view that cannot be walked, LIMIT for one whose bytes pass PTRDIFF_MAX. */
#ifndef DW_TENSOR_H
#define DW_TENSOR_H

#include "base/mem.h"

dw_status dw_tensor_check(const dw_tensor *tensor);

/* Bytes of n*t*c elements; false past PTRDIFF_MAX. */
bool dw_tensor_bytes(uint32_t n, uint32_t t, uint32_t c, dw_dtype dtype, uint64_t *bytes);

/* Two samples of a checked view share memory: fine to read, not to write. */
bool dw_tensor_overlaps(const dw_tensor *tensor);

/* The first element of a sample. */
void *dw_tensor_sample(const dw_tensor *tensor, uint32_t n);

#endif
