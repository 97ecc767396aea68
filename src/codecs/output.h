/* SPDX-License-Identifier: Apache-2.0
 * output.h - writes decoded values to y, or adds them to it. */
#ifndef DW_OUTPUT_H
#define DW_OUTPUT_H

#include "codecs/job.h"
#include "kernels/kernels.h"

/* Takes n finite, contiguous values of a dtype to y, starting at its element `at`. */
void dw_output_write(const dw_decode_job *job, const void *from, dw_dtype dtype, uint64_t at,
                     uint64_t n);

/* Adds n binary32 values, which may include NaN and infinities, to y, starting at its element
 * `at`. */
void dw_output_add(const dw_decode_job *job, const float *from, uint64_t at, uint64_t n);

#endif
