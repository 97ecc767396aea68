/* SPDX-License-Identifier: Apache-2.0
 * tolerance.c - keeps the error of every value to the bound that the option error=abs gives.
 *
 * Whether an entry can keep to the bound as codes must be known when the frame is planned, because
 * otherwise the entry takes another form, which has another size. So x is read once more for it. */
#include "codecs/tolerance.h"

#include "arithmetic/step.h"
#include "codecs/tiles.h"
#include "common/cpu.h"

/* Returns the largest error of rounding a normal number to a dtype, as a part of the number; 0 for
 * dtype 0, which stands for no rounding. */
static double half_place(dw_dtype dtype)
{
    return dtype == DW_F32 ? 0x1p-24 : dtype == DW_F16 ? 0x1p-11 : dtype == DW_BF16 ? 0x1p-8 : 0;
}

/* Returns the largest error that rounding a number to the dtype of prev, and then to that of y, can
 * add. A subnormal number of f16 is rounded to a multiple of 2^-24, so its error is not a part of
 * the number; 2^-24 covers two such roundings. Subnormals of the other dtypes are too small to
 * matter. */
static double rounded_by(const dw_bound *bound, double number)
{
    double part = half_place(bound->prev);
    if (bound->x != bound->prev) part += half_place(bound->x);
    return part * number + (bound->x == DW_F16 || bound->prev == DW_F16 ? 0x1p-24 : 0);
}

/* Rounding to whole steps makes an error of at most half a step with nearest rounding and dither,
 * and of a whole step with stochastic rounding. The rest of the bound is for the errors of binary32
 * arithmetic and of the dtypes: 2^-13 steps for rounding the quotient, the dither and the product,
 * which are at most 127 steps large; 2^-24 of y for rounding the sum; and rounded_by(y). */
uint16_t dw_tolerance_step(const dw_squares *squares, const dw_bound *bound)
{
    if (squares->largest >= DW_F32_INFINITY) return DW_BF16_NAN;
    double y = (double)dw_float_of(squares->x_largest) + bound->most,
           left = bound->most - rounded_by(bound, y) - 0x1p-24 * y;
    return left > 0 ? dw_step_below(left / ((bound->is_stochastic ? 1 : 0.5) + 0x1p-13)) : 0;
}

/* Returns a dw_squares in which only the largest magnitudes are valid: x_largest of x, and largest
 * of x - base, or of x where base is NULL. */
static dw_squares magnitudes(const dw_plans *plans, const dw_kernels *kernels, const void *x,
                             int64_t stride, const void *base)
{
    dw_squares found = {.n = 1};
    double unused[DW_NORM_LANES] = {0};
    for (uint64_t row = 0; row < plans->t; row++) {
        const void *from = dw_at(x, plans->x, row * (uint64_t)stride);
        kernels->step_squares(from, plans->x, NULL, plans->x, plans->c, DW_NO_LIMIT, unused,
                              &found.x_largest);
        if (base)
            kernels->step_squares(from, plans->x, dw_at(base, plans->params.prev, row * plans->c),
                                  plans->params.prev, plans->c, DW_NO_LIMIT, unused,
                                  &found.largest);
    }
    if (!base) found.largest = found.x_largest;
    return found;
}

/* Returns the largest finite number of prev's dtype, or of f32 for dtype 0. Larger values of prev
 * and y are clamped to it. As long as no value of x is larger, clamping never moves them away from
 * x. */
static double most_of(dw_dtype prev)
{
    return prev == DW_F16 ? 65504 : prev == DW_BF16 ? 0x1.fep127 : 0x1.fffffep127;
}

/* Returns whether values that are sent as floats, and then rounded to prev's dtype, keep to the
 * bound. largest: the largest magnitude of x. */
static bool floats_fit(const dw_bound *bound, double largest)
{
    bool is_exact = !bound->prev || bound->prev == DW_F32 || bound->prev == bound->x;
    return is_exact || !(largest > 0) || rounded_by(bound, largest) <= bound->most;
}

/* Returns whether there is a step that keeps to the bound, and is so large that no value
 * escapes. */
static bool codes_fit(const dw_bound *bound, const dw_squares *found)
{
    double step = (double)dw_bf16_widen(dw_tolerance_step(found, bound));
    return (double)dw_float_of(found->largest) <= DW_STEPS_UNESCAPED * step; /* false for NaN */
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
