/* SPDX-License-Identifier: Apache-2.0
 * step.h - runs the kernels of the form step over a tensor, run after run. */
#ifndef DELTAWIRE_BENCH_STEP_H
#define DELTAWIRE_BENCH_STEP_H

#include "deltawire/deltawire.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum dw_bench_way { DW_BENCH_SQUARES, DW_BENCH_ENCODE, DW_BENCH_DECODE } dw_bench_way;

/* n elements, a multiple of 2048. x is out in a decode; prev and next have the same dtype. */
typedef struct dw_bench_step {
    dw_bench_way way;
    dw_rounding rounding;
    dw_dtype x_dtype, prev_dtype;
    void *x, *prev, *next;
    uint8_t *codes;
    uint64_t n;
} dw_bench_step;

/* Chooses the table of kernels for the next calls of dw_bench_step_run. */
void dw_bench_step_use(const char *table);

/* Encodes, decodes or measures the whole tensor once, with a step of 2^-6. Returns a number that
 * depends on all results, so that compilers cannot leave the work out. */
double dw_bench_step_run(const dw_bench_step *of);

/* Fills x and prev with values that differ by up to 21 steps of 2^-6. */
void dw_bench_step_fill(const dw_bench_step *of);

#ifdef __cplusplus
}
#endif
#endif
