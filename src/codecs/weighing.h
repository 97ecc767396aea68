/* SPDX-License-Identifier: Apache-2.0
 * weighing.h - divides what the form step codes by the weights of a profile, and multiplies what it
 * decodes by them (docs/format.md, 3.15). codecs/front.h calls it where the layout weighs.
 *
 * An element's base is prev, or, where the entry has none, the means that its row takes, if the
 * profile has means. Errors: none. State: none. Threads: any. */
#ifndef DW_WEIGHING_H
#define DW_WEIGHING_H

#include "codecs/job.h"
#include "codecs/tiles.h"

/* What the steps of a row say about its means: DW_PROFILE_SIGN or 0. */
uint16_t dw_weighing_sign(const dw_encode_job *job, uint64_t row);

/* Writes (x - base) / weight of n elements of one row, from `element` of the sample on; x_at: their
 * place in x. of_x: x / weight, without the base. */
void dw_weighing_load(const dw_encode_job *job, uint64_t x_at, uint64_t element, uint64_t n,
                      bool of_x, float *to);

/* The same for a run. */
void dw_weighing_load_run(const dw_encode_job *job, const dw_run *run, float *to);

/* Where the values of a run come from and go to. prev NULL: the entry has no base. out has the
 * dtype of prev where there is state. */
typedef struct dw_weighed {
    const float *values; /* as the form decodes them */
    const void *prev;
    void *out;
    dw_dtype prev_dtype, out_dtype;
} dw_weighed;

/* Writes base + weight * value for a run. The signs of its steps are read from the payload. */
void dw_weighing_store_run(const dw_layout *layout, const dw_channels *channels,
                           const uint8_t *payload, const dw_run *run, const dw_weighed *of,
                           const struct dw_kernels *kernels);

#endif
