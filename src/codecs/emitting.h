/* SPDX-License-Identifier: Apache-2.0
 * emitting.h - values on their way into y: written, or added to what is there. */
#ifndef DW_EMITTING_H
#define DW_EMITTING_H

#include "codecs/job.h"
#include "kernels/kernels.h"

/* n finite values of a dtype, which lie side by side, to y from its element `at` on. */
void dw_emit_values(const dw_decode_job *job, const void *from, dw_dtype dtype, uint64_t at,
                    uint64_t n);

/* n values as binary32, NaN and infinities among them, added to y from its element `at` on. */
void dw_emit_added(const dw_decode_job *job, const float *from, uint64_t at, uint64_t n);

#endif
