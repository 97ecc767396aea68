/* SPDX-License-Identifier: Apache-2.0
 * step.c - runs the kernels of the form step over a tensor, in C. */
#include "step.h"

#include "kernels/kernels.h"

enum { RUN = 2048, STEP = 0x3c80 }; /* 2^-6 */

static const dw_kernels *kernels;

void dw_bench_step_use(const char *table)
{
    kernels = dw_kernels_find(table);
}

static unsigned char *part_of(void *base, dw_dtype dtype, uint64_t at)
{
    return (unsigned char *)base + at * dw_dtype_bytes(dtype);
}

double dw_bench_step_run(const dw_bench_step *of)
{
    double lanes[DW_NORM_LANES] = {0};
    uint32_t largest = 0;
    uint64_t escapes = 0;
    for (uint64_t at = 0; at < of->n; at += RUN) {
        dw_step_run run = {.x_dtype = of->x_dtype,
                           .prev_dtype = of->prev_dtype,
                           .n = RUN,
                           .stored = RUN,
                           .scale = STEP,
                           .rounding = of->rounding,
                           .x = part_of(of->x, of->x_dtype, at),
                           .prev = part_of(of->prev, of->prev_dtype, at),
                           .next = part_of(of->next, of->prev_dtype, at),
                           .out = part_of(of->next, of->prev_dtype, at),
                           .codes = of->codes + at,
                           .dither = {1, at}};
        if (of->way == DW_BENCH_SQUARES)
            kernels->step_squares(run.x, run.x_dtype, run.prev, run.prev_dtype, RUN, DW_NO_LIMIT,
                                  lanes, &largest);
        else if (of->way == DW_BENCH_ENCODE)
            kernels->step_encode(&run);
        else {
            run.x_dtype = of->prev_dtype;
            kernels->step_decode(&run);
        }
        escapes += run.escapes;
    }
    return lanes[0] + largest + (double)escapes;
}

static void put(void *to, dw_dtype dtype, uint64_t i, float value)
{
    if (dtype == DW_F32)
        ((float *)to)[i] = value;
    else
        ((uint16_t *)to)[i] = dtype == DW_F16 ? dw_f16_finite(value) : dw_bf16_finite(value);
}

void dw_bench_step_fill(const dw_bench_step *of)
{
    uint32_t seed = 1;
    for (uint64_t i = 0; i < of->n; i++) {
        float values[2];
        for (int k = 0; k < 2; k++) {
            seed = seed * 1664525u + 1013904223u;
            values[k] = (float)(int32_t)seed * (1.0f / 2147483648.0f);
        }
        put(of->prev, of->prev_dtype, i, values[0]);
        put(of->x, of->x_dtype, i, values[0] + values[1] / 3);
    }
}
