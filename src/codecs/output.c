/* SPDX-License-Identifier: Apache-2.0
 * output.c - writes decoded values to y, or adds them to it. */
#include "codecs/output.h"

#include "codecs/tiles.h"

void dw_output_add(const dw_decode_job *job, const float *from, uint64_t at, uint64_t n)
{
    job->kernels->add(from, job->factor, dw_at(job->y, job->y_dtype, at), job->y_dtype, n);
}

void dw_output_write(const dw_decode_job *job, const void *from, dw_dtype dtype, uint64_t at,
                     uint64_t n)
{
    float values[DW_TILE_ELEMENTS]; /* small enough to stay in the first-level cache */
    if (!job->adds) {
        job->kernels->convert(from, dtype, dw_at(job->y, job->y_dtype, at), job->y_dtype, n);
        return;
    }
    for (uint64_t done = 0, now; done < n; done += now) {
        now = n - done < DW_TILE_ELEMENTS ? n - done : DW_TILE_ELEMENTS;
        job->kernels->convert(dw_at(from, dtype, done), dtype, values, DW_F32, now);
        dw_output_add(job, values, at + done, now);
    }
}
