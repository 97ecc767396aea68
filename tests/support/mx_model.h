/* SPDX-License-Identifier: Apache-2.0
 * mx_model.h - an independent implementation of microscaling: elements as tables, rounding by
 * comparison.
 *
 * Source: OCP Microscaling Formats (MX) Specification 1.0, 5.3. A float format is described by a
 * list of binades, each with its first value and the step to the next value. All computations are
 * in double, which represents exactly every number here and its product with any power of two. */
#ifndef DW_TEST_MX_MODEL_H
#define DW_TEST_MX_MODEL_H

#include <math.h>
#include <stdint.h>

#include "arithmetic/mx.h"

typedef struct mx_binade {
    double first, step;
} mx_binade;

typedef struct mx_model {
    const char *name;
    int bits, steps, top; /* steps: values per binade; top: emax, the largest exponent */
    int last;             /* code of the largest finite magnitude */
    mx_binade binades[32];
} mx_model;

/* clang-format off */
static const mx_model mx_models[DW_ELEMENTS + 1] = {
    [DW_ELEMENT_INT8] = {"int8", 8, 128, 0, 127, {{0, 1 / 64.0}}},
    [DW_ELEMENT_E4M3] = {"e4m3", 8, 8, 8, 126, {
        {0, 1 / 512.0}, {1 / 64.0, 1 / 512.0}, {1 / 32.0, 1 / 256.0}, {1 / 16.0, 1 / 128.0},
        {1 / 8.0, 1 / 64.0}, {1 / 4.0, 1 / 32.0}, {1 / 2.0, 1 / 16.0}, {1, 1 / 8.0}, {2, 1 / 4.0},
        {4, 1 / 2.0}, {8, 1}, {16, 2}, {32, 4}, {64, 8}, {128, 16}, {256, 32}}},
    [DW_ELEMENT_E5M2] = {"e5m2", 8, 4, 15, 123, {
        {0, 1 / 65536.0}, {1 / 16384.0, 1 / 65536.0}, {1 / 8192.0, 1 / 32768.0},
        {1 / 4096.0, 1 / 16384.0}, {1 / 2048.0, 1 / 8192.0}, {1 / 1024.0, 1 / 4096.0},
        {1 / 512.0, 1 / 2048.0}, {1 / 256.0, 1 / 1024.0}, {1 / 128.0, 1 / 512.0},
        {1 / 64.0, 1 / 256.0}, {1 / 32.0, 1 / 128.0}, {1 / 16.0, 1 / 64.0}, {1 / 8.0, 1 / 32.0},
        {1 / 4.0, 1 / 16.0}, {1 / 2.0, 1 / 8.0}, {1, 1 / 4.0}, {2, 1 / 2.0}, {4, 1}, {8, 2},
        {16, 4}, {32, 8}, {64, 16}, {128, 32}, {256, 64}, {512, 128}, {1024, 256}, {2048, 512},
        {4096, 1024}, {8192, 2048}, {16384, 4096}, {32768, 8192}}},
    [DW_ELEMENT_E3M2] = {"e3m2", 6, 4, 4, 31, {
        {0, 1 / 16.0}, {1 / 4.0, 1 / 16.0}, {1 / 2.0, 1 / 8.0}, {1, 1 / 4.0}, {2, 1 / 2.0}, {4, 1},
        {8, 2}, {16, 4}}},
    [DW_ELEMENT_E2M3] = {"e2m3", 6, 8, 2, 31, {
        {0, 1 / 8.0}, {1, 1 / 8.0}, {2, 1 / 4.0}, {4, 1 / 2.0}}},
    [DW_ELEMENT_E2M1] = {"e2m1", 4, 2, 2, 7, {{0, 1 / 2.0}, {1, 1 / 2.0}, {2, 1}, {4, 2}}},
};
/* clang-format on */

/* The magnitude of a code. Codes above `last` (NaN and infinity) count as `last`. */
static inline double mx_model_magnitude(const mx_model *model, int code)
{
    if (code > model->last) code = model->last;
    mx_binade binade = model->binades[code / model->steps];
    return binade.first + code % model->steps * binade.step;
}

static inline double mx_model_value(const mx_model *model, int code)
{
    int sign = 1 << (model->bits - 1);
    if (model == &mx_models[DW_ELEMENT_INT8]) return (code < sign ? code : code - 256) / 64.0;
    double magnitude = mx_model_magnitude(model, code & (sign - 1));
    return code & sign ? -magnitude : magnitude;
}

/* The nearest element, found by linear search; ties go to the even code. */
static inline int mx_model_code(const mx_model *model, double value)
{
    int code = 0, sign = 1 << (model->bits - 1);
    for (; code < model->last; code++) {
        double middle = (mx_model_magnitude(model, code) + mx_model_magnitude(model, code + 1)) / 2;
        if (fabs(value) < middle || (fabs(value) == middle && code % 2 == 0)) break;
    }
    if (value >= 0 || code == 0) return code;
    return model == &mx_models[DW_ELEMENT_INT8] ? 256 - code : code | sign;
}

/* The scale of a block whose largest magnitude is this finite number. */
static inline int mx_model_scale(const mx_model *model, double largest)
{
    if (largest == 0) return 0;
    int exponent = ilogb(largest) - model->top;
    return exponent < -127 ? 0 : exponent > 127 ? 254 : exponent + 127;
}

#endif
