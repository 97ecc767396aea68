/* SPDX-License-Identifier: Apache-2.0
 * tensor.h - checks tensor views and computes addresses in them.
 *
 * Errors: ARGUMENT for an invalid view, LIMIT for one of more than PTRDIFF_MAX bytes. */
#ifndef DW_TENSOR_H
#define DW_TENSOR_H

#include "base/mem.h"

dw_status dw_tensor_check(const dw_tensor *tensor);
/* The same; *why: what is wrong, as the end of a sentence that begins with the tensor's name. */
dw_status dw_tensor_check_why(const dw_tensor *tensor, const char **why);

/* Bytes of n*t*c elements; false where they exceed PTRDIFF_MAX. */
bool dw_tensor_bytes(uint32_t n, uint32_t t, uint32_t c, dw_dtype dtype, uint64_t *bytes);

/* True where two samples of a checked view share memory. Such a view can be read but not
 * written. */
bool dw_tensor_overlaps(const dw_tensor *tensor);

/* True where the stretch of memory from the first to the last element of a checked view contains
 * any of these bytes. False for a view without data. */
bool dw_tensor_meets(const dw_tensor *tensor, const void *from, uint64_t bytes);

/* The first element of a sample. */
void *dw_tensor_sample(const dw_tensor *tensor, uint32_t n);

#endif
