/* SPDX-License-Identifier: Apache-2.0
 * kernels_weigh_c.h - the kernels for weights of channels in plain C: the specification that all
 * other tables must match.
 *
 * Included by kernels_c.c after its helpers and kernels_step_c.h. */

static void weigh_c(const void *x, dw_dtype x_dtype, const void *base, dw_dtype base_dtype,
                    const float *inverses, uint64_t n, float *to)
{
    float bases[STEP_PART];
    for (uint64_t at = 0; at < n; at += STEP_PART) {
        uint64_t now = n - at < STEP_PART ? n - at : STEP_PART;
        step_load(x, x_dtype, at, now, to + at);
        if (base) {
            step_load(base, base_dtype, at, now, bases);
            subtract(to + at, bases, now, to + at);
        }
        for (uint64_t i = at; i < at + now; i++) to[i] = to[i] * inverses[i];
    }
}

static void unweigh_c(const float *from, const float *weights, const void *base,
                      dw_dtype base_dtype, uint64_t n, void *to, dw_dtype to_dtype)
{
    float values[STEP_PART], bases[STEP_PART];
    for (uint64_t at = 0; at < n; at += STEP_PART) {
        uint64_t now = n - at < STEP_PART ? n - at : STEP_PART;
        step_load(base, base_dtype, at, now, bases);
        for (uint64_t i = 0; i < now; i++) {
            float change = from[at + i] * weights[at + i];
            values[i] = bases[i] + change;
        }
        narrow(values, now, (void *)(uintptr_t)element(to, to_dtype, at), to_dtype);
    }
}
