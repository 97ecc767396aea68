/* SPDX-License-Identifier: Apache-2.0
 * rate.c - controls the step so that frames take, on average, as many bits per element as the
 * option `rate` says.
 *
 * A step of twice the size saves about one bit per element, and at low rates a part of the rate. So
 * log2(step) is changed in proportion to the error of the last frame, which is its actual rate
 * minus the wanted one. The factor of proportion, the gain, is larger at low rates. That alone
 * would make later frames right, but would leave the mean of all frames wrong by the errors of the
 * first ones. Therefore the errors are added up as a debt, and a quarter of the debt is added to
 * the error of every frame.
 *
 * Such a feedback loop converges if the gain times the slope of the rate over log2(step) is
 * below 2. With nearest rounding the slope is at most 1; for normally distributed values it is 0.6
 * at a rate of 0.4 bits. With dither and stochastic rounding it is half of the rate, where the rate
 * is low. Along a trellis it may be more than 1 at low rates, so there the gain is 1. */
#include "ends/rate.h"

/* Returns 2^x. It does not call libm, because the last digits of libm's result are not the same on
 * all systems. The polynomial is wrong by less than 1 part in 1000, which the feedback corrects. */
static double power_of_two(double x)
{
    double scale = 1;
    for (; x > 0.5; x -= 1) scale *= 2;
    for (; x < -0.5; x += 1) scale /= 2;
    return scale * (1 + x * (0.6931 + x * (0.2402 + x * 0.0555)));
}

static double clamp(double value, double least, double most)
{
    return value < least ? least : value > most ? most : value;
}

/* Sets the step, within the limits of the option `step`. */
static void set_step(dw_rate *rate, const dw_params *params, double step)
{
    rate->step = clamp(step, 0.01, (double)params->step_most / 1000);
}

/* Returns whether values are rounded with random numbers, so that even small ones may become level
 * 1 or -1, and take bits. */
static bool rounds_randomly(const dw_params *params)
{
    return params->is_stochastic || params->use[DW_USE_WHOLE].dithers;
}

/* Normally distributed values take about `wanted` bits each if the step is 2^(2 - wanted) times
 * their root mean square. At less than one bit, random rounding needs a larger step. Along a
 * trellis the step is little more than half as large, because only every other level can follow. */
void dw_rate_begin(dw_rate *rate, const dw_params *params)
{
    if (!params->rate) return;
    double wanted = (double)params->rate / 1000,
           step = power_of_two((params->is_trellis ? 1.13 : 2) - wanted);
    rate->debt = 0;
    set_step(rate, params, rounds_randomly(params) && wanted < 1 ? step / wanted : step);
}

void dw_rate_learn(dw_rate *rate, const dw_params *params, double bits, bool is_coded)
{
    double wanted = (double)params->rate / 1000, error = bits - wanted;
    if (!params->rate) return;
    /* The debt is limited. Otherwise, if the rate was out of reach for long because the step has
     * limits, many later frames would be far from the wanted rate to make up for it. */
    double most = 1 + 2 * wanted, gain = rounds_randomly(params) ? clamp(1.5 / wanted, 1, 20)
                                         : params->is_trellis    ? 1
                                                                 : clamp(1 / wanted, 1, 2.5);
    rate->debt = clamp(rate->debt + error, -most, most);
    if (!is_coded) return;
    double change = clamp(gain * (error + rate->debt / 4), -2, 2);
    set_step(rate, params, rate->step * power_of_two(change));
}
