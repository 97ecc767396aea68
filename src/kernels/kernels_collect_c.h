/* SPDX-License-Identifier: Apache-2.0
 * kernels_collect_c.h - finds values whose magnitude reaches a limit, in plain C: the specification
 * of the kernel `collect`.
 *
 * Included in kernels_c.c; the table for NEON has the same function. */
#include "arithmetic/half.h"

static void collect_one(const float *values, uint64_t i, uint32_t least, uint8_t *mask, float *list,
                        uint64_t *found)
{
    if (i % 8 == 0) mask[i / 8] = 0;
    if ((dw_bits_of(values[i]) & 0x7fffffffu) < least) return;
    mask[i / 8] |= (uint8_t)(1u << i % 8);
    list[(*found)++] = values[i];
}

static uint64_t collect_c(const float *values, uint64_t n, uint32_t least, uint8_t *mask,
                          float *list)
{
    enum { ONCE = 32 };
    uint64_t found = 0, whole = n / ONCE * ONCE;
    for (uint64_t i = 0; i < whole; i += ONCE) {
        uint32_t any = 0;
        /* As signed integers, because x86-64 has vector comparisons of unsigned ones only with
         * AVX-512. */
        for (int k = 0; k < ONCE; k++)
            any |= (int32_t)(dw_bits_of(values[i + k]) & 0x7fffffffu) >= (int32_t)least;
        for (int k = 0; !any && k < ONCE; k += 8) mask[(i + k) / 8] = 0;
        for (int k = 0; any && k < ONCE; k++)
            collect_one(values, i + (uint64_t)k, least, mask, list, &found);
    }
    for (uint64_t i = whole; i < n; i++) collect_one(values, i, least, mask, list, &found);
    return found;
}
