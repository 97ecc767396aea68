/* SPDX-License-Identifier: Apache-2.0
 * model_rotated.c - the model's rotated values, and those with weights of channels: sections 3.11
 * and 3.15 of docs/format.md. */
#include "model_values.h"

#include <math.h>

#include "reach.h"
#include "support/profiles.h"

enum { F32 = 1, MOST = 256 };

static void rotate(float *block, uint32_t width)
{
    float made[MOST];
    for (uint32_t i = 0; i < width; i++) block[i] *= 1.0f / (float)width;
    for (uint32_t s = 1; s < width; s *= 2) {
        for (uint32_t i = 0; i < width; i++)
            made[i] = i / s % 2 == 0 ? block[i] + block[i + s] : block[i - s] - block[i];
        memcpy(block, made, width * sizeof *made);
    }
    for (uint32_t i = 0; i < width; i++) block[i] *= sqrtf((float)width);
}

void model_rotate_back(uint32_t width, size_t n, const uint8_t *prev, uint8_t prev_dtype,
                       model_value *values)
{
    float block[MOST];
    for (size_t at = 0; at < n; at += width) {
        bool poisoned = false;
        for (uint32_t i = 0; i < width; i++) {
            const model_value *v = &values[at + i];
            poisoned = poisoned || v->poisoned;
            block[i] = v->poisoned ? 0 : model_widen(model_rn(v->r, F32), F32);
        }
        rotate(block, width);
        for (uint32_t i = 0; i < width; i++) {
            float base = prev ? model_widen(model_load(prev, prev_dtype, at + i), prev_dtype) : 0;
            values[at + i] = (model_value){.r = base + block[i], .poisoned = poisoned};
        }
        fuzz_reach(poisoned ? "rotated: poisoned" : "rotated: block");
    }
}

void model_weigh_back(uint32_t profile, uint32_t t, uint32_t c, const uint8_t *prev,
                      uint8_t prev_dtype, model_value *values)
{
    uint32_t means;
    REQUIRE(test_profile_find(profile, &means) != NULL);
    for (uint64_t i = 0; i < (uint64_t)t * c; i++) {
        uint32_t channel = (uint32_t)(i % c), list = means == 2 && values[i].bits & 0x8000 ? 2 : 1;
        float base = prev    ? model_widen(model_load(prev, prev_dtype, i), prev_dtype)
                     : means ? test_profile_value(list, channel)
                             : 0,
              v = model_widen(model_rn(values[i].r, F32), F32) * test_profile_value(0, channel);
        fuzz_reach(values[i].poisoned ? "profile: poisoned"
                   : prev             ? "profile: change"
                                      : "profile: means");
        if (!values[i].poisoned) values[i].r = base + v;
    }
}
