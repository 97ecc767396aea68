/* SPDX-License-Identifier: Apache-2.0
 * tolerance.c - the bound of error=abs. Whether an entry can keep to it is decided while a frame is
 * planned, because the size of the frame depends on it; so x is read once more. */
#include "codecs/tolerance.h"

#include "arithmetic/step.h"
#include "base/cpu.h"
#include "codecs/tiles.h"

/* Half of the distance between two neighbouring numbers of a dtype, as a part of them; 0 of 0. */
static double half_place(dw_dtype dtype)
{
    return dtype == DW_F32 ? 0x1p-24 : dtype == DW_F16 ? 0x1p-11 : dtype == DW_BF16 ? 0x1p-8 : 0;
}

/* What the roundings to prev's and y's dtypes change of a number at most. Below its smallest normal
 * number the places of f16 stay 2^-24; those of the others are too small to matter. */
static double rounded_by(const dw_bound *bound, double number)
{
    double part = half_place(bound->prev);
    if (bound->x != bound->prev) part += half_place(bound->x);
    return part * number + (bound->x == DW_F16 || bound->prev == DW_F16 ? 0x1p-24 : 0);
}

/* Nearest rounding and dither are off by half a step, stochastic rounding by a whole one. 2^-13
 * steps stand for the roundings of the quotient, the dither and the product, which are at most 127
 * steps large, and 2^-24 of y for that of the sum. */
uint16_t dw_tolerance_step(const dw_squares *squares, const dw_bound *bound)
{
    if (squares->largest >= DW_F32_INFINITY) return DW_BF16_NAN;
    double y = (double)dw_float_of(squares->x_largest) + bound->most,
           left = bound->most - rounded_by(bound, y) - 0x1p-24 * y;
    return left > 0 ? dw_step_below(left / ((bound->is_stochastic ? 1 : 0.5) + 0x1p-13)) : 0;
}

/* Finds the largest magnitude of x, and of x - base. */
static dw_squares magnitudes(const dw_plans *plans, const dw_kernels *kernels, const void *x,
                             int64_t stride, const void *base)
{
    dw_squares found = {.n = 1};
    double unused[DW_NORM_LANES] = {0};
    for (uint64_t row = 0; row < plans->t; row++) {
        const void *from = dw_at(x, plans->x, row * (uint64_t)stride);
        kernels->step_squares(from, plans->x, NULL, plans->x, plans->c, unused, &found.x_largest);
        if (base)
            kernels->step_squares(from, plans->x, dw_at(base, plans->params.prev, row * plans->c),
                                  plans->params.prev, plans->c, unused, &found.largest);
    }
    if (!base) found.largest = found.x_largest;
    return found;
}

/* The largest finite number of the dtype of prev. If x is not larger, clamping y or prev to it
 * never takes them further away. */
static double most_of(dw_dtype prev)
{
    return prev == DW_F16 ? 65504 : prev == DW_BF16 ? 0x1.fep127 : 0x1.fffffep127;
}

/* Floats of prev's dtype, or finer ones that are then rounded to it. */
static bool floats_fit(const dw_bound *bound, double largest)
{
    bool is_exact = !bound->prev || bound->prev == DW_F32 || bound->prev == bound->x;
    return is_exact || !(largest > 0) || rounded_by(bound, largest) <= bound->most;
}

static bool codes_fit(const dw_bound *bound, const dw_squares *found)
{
    double step = (double)dw_bf16_widen(dw_tolerance_step(found, bound));
    return (double)dw_float_of(found->largest) <= DW_STEPS_UNCLAMPED * step; /* false for NaN */
}

bool dw_tolerance_fits(const dw_plans *plans, dw_use use, const dw_kernels *kernels, const void *x,
                       int64_t stride, const void *base, bool has_state, float *largest)
{
    const dw_form *form = plans->of[use].form;
    dw_bound bound = {plans->params.bound, plans->x, has_state ? plans->params.prev : (dw_dtype)0,
                      plans->params.is_stochastic};
    if (!(bound.most > 0)) return true;
    dw_cpu_mode mode = dw_cpu_enter_exact();
    dw_squares found = magnitudes(plans, kernels, x, stride, base);
    *largest = dw_float_of(found.x_largest);
    bool fits = found.x_largest >= DW_F32_INFINITY;
    if (!fits && (double)*largest <= most_of(bound.prev))
        fits = form == &dw_form_step ? codes_fit(&bound, &found)
                                     : floats_fit(&bound, (double)*largest);
    dw_cpu_leave_exact(mode);
    return fits;
}
