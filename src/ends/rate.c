/* SPDX-License-Identifier: Apache-2.0
 * rate.c - finds the step with which frames take as many bits per element as the option rate says.
 *
 * Twice the step saves about one bit per element, or at low rates a part of the rate: so log2 of
 * the step follows the error of the last frame, with a larger gain at low rates. Alone this would
 * leave the mean of all frames off by what the first ones took too much or too little. So a quarter
 * of this debt is paid back with every frame. Such a feedback converges where its gain times the
 * slope of the rate over log2 of the step is below 2. With nearest rounding the slope is at most 1,
 * and of normal values 0.6 at 0.4 bits. With random rounding it is half of the rate, where that is
 * low. */
#include "ends/rate.h"

/* 2^x without libm, whose last digits are not the same everywhere. The polynomial is within 1 part
 * in 1000, which the feedback does not notice. */
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

static void set_step(dw_rate *rate, const dw_params *params, double step)
{
    rate->step = clamp(step, 0.01, (double)params->step_most / 1000);
}

/* Whether even small values may become 1 step. */
static bool rounds_randomly(const dw_params *params)
{
    return params->is_stochastic || params->use[DW_USE_WHOLE].dithers;
}

/* Of values with a normal distribution, steps of 2^(2 - bits) take about so many bits; at low rates
 * larger ones, if rounding is random. */
void dw_rate_begin(dw_rate *rate, const dw_params *params)
{
    if (!params->rate) return;
    double wanted = (double)params->rate / 1000, step = power_of_two(2 - wanted);
    rate->debt = 0;
    set_step(rate, params, rounds_randomly(params) && wanted < 1 ? step / wanted : step);
}

void dw_rate_learn(dw_rate *rate, const dw_params *params, double bits, bool is_coded)
{
    double wanted = (double)params->rate / 1000, error = bits - wanted;
    if (!params->rate) return;
    /* What could not be reached for long, because the step has limits, is not made up for. */
    double most = 1 + 2 * wanted,
           gain = rounds_randomly(params) ? clamp(1.5 / wanted, 1, 20) : clamp(1 / wanted, 1, 2.5);
    rate->debt = clamp(rate->debt + error, -most, most);
    if (!is_coded) return;
    double change = clamp(gain * (error + rate->debt / 4), -2, 2);
    set_step(rate, params, rate->step * power_of_two(change));
}
