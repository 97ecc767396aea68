/* SPDX-License-Identifier: Apache-2.0
 * elements.h - reads what an encoder codes of a sample: x or, where there is a base, x - prev. For
 * the forms that do not work in tiles.
 *
 * | name   | shape | meaning                                                        | owner  |
 * | block  | (n)   | binary32: room for the values                                  | caller |
 * | places | (n)   | numbers of elements of the sample, in any order                | caller |
 * | values | (n)   | binary32                                                       | caller |
 *
 * Errors: none. State: none. Threads: any, on different memory. */
#ifndef DW_ELEMENTS_H
#define DW_ELEMENTS_H

#include "codecs/job.h"

/* Elements that are read at once, which stay in the first-level cache. */
enum { DW_ELEMENTS_BLOCK = 2048 };

/* Reads what a job codes of n elements, at most DW_ELEMENTS_BLOCK, from element `at` on. Returns
 * `block`, or the address of element `at` in x if x is dense and binary32, and there is no base. */
const float *dw_elements_load(const dw_encode_job *job, uint64_t at, uint64_t n, float *block);

/* Writes what is coded of n elements at any places. */
void dw_elements_gather(const dw_encode_job *job, const uint32_t *places, uint64_t n,
                        float *values);

/* Converts n values to binary32. Keeps infinities, and all bits of NaN, by which they are ordered;
 * kernels->convert does neither. */
void dw_elements_widen(const void *from, dw_dtype dtype, uint64_t n, float *to);

/* Divides a sample into so many equal parts, and returns how many values of x in one of them are
 * too large for the 16-bit floats that are sent of x or kept as prev (dw_narrows_to). part: the
 * number of this part. */
uint64_t dw_elements_overflowed(const dw_encode_job *job, uint64_t part, uint64_t parts);

/* Divides the y of a decoded sample into so many equal parts, and returns how many values of one of
 * them are infinite or the largest number, if they are binary16; 0 if not. */
uint64_t dw_elements_at_end(const dw_decode_job *job, uint64_t part, uint64_t parts);

/* The largest magnitude of n values, as bits; a NaN is larger than an infinity. */
uint32_t dw_elements_largest(const float *values, uint64_t n);

#endif
