/* SPDX-License-Identifier: Apache-2.0
 * kernels_rotate_c.h - the kernels of the rotation in plain C: the specification that all other
 * tables must match.
 *
 * Included by kernels_c.c after its helpers and kernels_step_c.h. */

static void rotate_c(const void *x, dw_dtype x_dtype, const void *prev, dw_dtype prev_dtype,
                     uint64_t n, uint32_t width, float *to)
{
    float base[STEP_PART];
    _Static_assert(STEP_PART % DW_ROTATE_MOST == 0, "parts consist of whole blocks");
    for (uint64_t at = 0; at < n; at += STEP_PART) {
        uint64_t now = n - at < STEP_PART ? n - at : STEP_PART;
        widen(element(x, x_dtype, at), x_dtype, now, to + at);
        if (prev) {
            widen(element(prev, prev_dtype, at), prev_dtype, now, base);
            subtract(to + at, base, now, to + at);
        }
        for (uint64_t i = 0; i < now && width > 1; i += width) dw_rotate_block(to + at + i, width);
    }
}

static void unrotate_c(const float *from, uint64_t n, uint32_t width, const void *prev,
                       dw_dtype prev_dtype, void *to, dw_dtype to_dtype)
{
    float values[STEP_PART], base[STEP_PART];
    for (uint64_t at = 0; at < n; at += STEP_PART) {
        uint64_t now = n - at < STEP_PART ? n - at : STEP_PART;
        memcpy(values, from + at, now * sizeof *values);
        for (uint64_t i = 0; i < now && width > 1; i += width) dw_rotate_block(values + i, width);
        step_load(prev, prev_dtype, at, now, base);
        for (uint64_t i = 0; i < now; i++) values[i] = base[i] + values[i];
        narrow(values, now, (void *)(uintptr_t)element(to, to_dtype, at), to_dtype);
    }
}
