/* SPDX-License-Identifier: Apache-2.0
 * scales.c - tests the kernels for choosing scales: extremes, and the squared error of each
 * attempt. */
#include "check_kernels.h"
#include "run_shape.h"

KERNEL_TEST(extremes_equal_those_of_c)
{
    static unsigned char x[4 * MOST], prev[4 * MOST];
    for (int round = 0; round < drawn(b, 4000, 600); round++) {
        shape s = stretch_of(b, round);
        fill_run(b, &s, x, prev);
        dw_candidates expected = {{below(b, 2), 0}, {0, below(b, 2)}}, found = expected;
        const void *odd = guarded_x(b, &s, x), *base = guarded_prev(b, &s, prev);
        dw_dtype prev_dtype = base ? s.prev : (dw_dtype)0;
        specification->extremes(odd, s.x, base, prev_dtype, s.channels, &expected);
        b->kernels->extremes(odd, s.x, base, prev_dtype, s.channels, &found);
        same_bytes("extremes", &expected, &found, sizeof found, b->kernels->name, describe(&s));
    }
}

/* Attempts as for any piece, over any number of elements. */
KERNEL_TEST(squared_errors_equal_those_of_c)
{
    static unsigned char x[4 * MOST], prev[4 * MOST];
    for (int round = 0; round < drawn(b, 4000, 600); round++) {
        uint64_t n = round < 600 ? (uint64_t)round / 2 : below(b, MOST);
        shape s = {.x = any_dtype(b),
                   .prev = any_dtype(b),
                   .has_prev = below(b, 2) != 0,
                   .width = 64,
                   .bits = 1 + below(b, 8),
                   .channels = n};
        fill_run(b, &s, x, prev);
        dw_attempts attempts = dw_attempts_of(
            (dw_extremes){0x3f800000u + below(b, 1 << 24), below(b, 0x40000000)}, s.bits);
        float expected[DW_ATTEMPTS][DW_NORM_LANES], found[DW_ATTEMPTS][DW_NORM_LANES];
        for (int k = 0; k < DW_ATTEMPTS; k++)
            for (int i = 0; i < DW_NORM_LANES; i++)
                expected[k][i] = found[k][i] = (float)below(b, 100) * 0.1f;
        const void *odd = guarded_x(b, &s, x), *base = guarded_prev(b, &s, prev);
        specification->squares(odd, s.x, base, s.prev, n, s.bits, &attempts, expected);
        b->kernels->squares(odd, s.x, base, s.prev, n, s.bits, &attempts, found);
        same_bytes("squares", expected, found, sizeof found, b->kernels->name, describe(&s));
    }
}

int check_scales(void)
{
    return test_run(NULL, NULL);
}
