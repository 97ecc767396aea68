/* SPDX-License-Identifier: Apache-2.0
 * kernels_step.h - vector kernels for the form step.
 *
 * A part of the vector kernels: see kernels_simd.h, which comes before it, as does
 * kernels_dither.h. */

static void step_squares(const void *x, dw_dtype x_dtype, const void *prev, dw_dtype prev_dtype,
                         uint64_t n, double lanes[DW_NORM_LANES], uint32_t *largest)
{
    dw_kernels_c.step_squares(x, x_dtype, prev, prev_dtype, n, lanes, largest);
}

static void step_encode(dw_step_run *run)
{
    dw_kernels_c.step_encode(run);
}

static void step_decode(const dw_step_run *run)
{
    dw_kernels_c.step_decode(run);
}
