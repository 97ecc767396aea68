/* SPDX-License-Identifier: Apache-2.0
 * rotations.c - tests the kernels that rotate blocks: C's by what a Hadamard matrix is, all others
 * by C's, between guard pages. */
#include <math.h>

#include "check_kernels.h"
#include "kernel_rig.h"

static const uint32_t widths[] = {1, 16, 64, 256};

/* Row k of the matrix has the sign of (-1)^(number of bits that i and k share) in column i. */
static void unit_vectors_become_rows_of_the_matrix(bench *b)
{
    static float x[MOST], y[MOST];
    for (int w = 1; w < 4; w++) {
        uint32_t width = widths[w];
        for (uint32_t k = 0; k < width; k++) {
            memset(x, 0, sizeof x);
            x[width + k] = 3;
            b->kernels->rotate(x, DW_F32, NULL, DW_F32, 2 * width, width, y);
            for (uint32_t i = 0; i < width; i++) {
                int shared = __builtin_popcount(i & k);
                assert_true(y[i] == 0);
                assert_true(y[width + i] == (shared % 2 ? -3 : 3) / sqrtf((float)width));
            }
            memset(x, 0, sizeof x);
            b->kernels->unrotate(y, 2 * width, width, NULL, DW_F32, x, DW_F32);
            for (uint32_t i = 0; i < 2 * width; i++) assert_true(x[i] == (i == width + k ? 3 : 0));
        }
    }
}

/* Values of any size; in some draws of any bits at all, with NaN and infinities. */
static void fill(bench *b, void *to, dw_dtype dtype, size_t n, bool any)
{
    float size = ldexpf(1, (int)below(b, 250) - 125);
    if (n == 0) return;
    if (any) {
        random_bytes(b, to, n * dw_dtype_bytes(dtype));
        return;
    }
    if (dtype == DW_F16) size = 1;
    test_fill(&b->random, to, dtype, n, size);
    test_spoil(&b->random, to, dtype, n, false);
}

static size_t any_length(bench *b, uint32_t width)
{
    return (size_t)width * below(b, DW_TILE_ELEMENTS / width + 1);
}

static void rotations_equal_those_of_c(bench *b)
{
    static unsigned char x[4 * MOST], prev[4 * MOST];
    static float expected[MOST];
    for (int round = 0; round < drawn(b, 6000, 1200); round++) {
        uint32_t width = widths[round % 4];
        bool any = round % 5 == 4, has_prev = round % 3 > 0;
        dw_dtype x_dtype = any_dtype(b), prev_dtype = any_dtype(b);
        size_t n = round % 7 ? any_length(b, width) : DW_TILE_ELEMENTS;
        fill(b, x, x_dtype, n, any);
        fill(b, prev, prev_dtype, n, false);
        void *base =
            has_prev ? guarded_copy(b, SLOT_PREV, prev, n * dw_dtype_bytes(prev_dtype)) : NULL;
        float *to = guarded(b, SLOT_NEXT, n * sizeof *to);
        specification->rotate(x, x_dtype, has_prev ? prev : NULL, prev_dtype, n, width, expected);
        b->kernels->rotate(guarded_copy(b, SLOT_X, x, n * dw_dtype_bytes(x_dtype)), x_dtype, base,
                           prev_dtype, n, width, to);
        /* Which NaN comes of NaN and infinities, the processor decides; callers do not care. */
        for (size_t i = 0; i < n; i++) {
            float found, wanted = expected[i];
            memcpy(&found, (unsigned char *)to + i * sizeof found, sizeof found);
            if (isnan(found) && isnan(wanted)) memcpy((unsigned char *)to + i * 4, &wanted, 4);
        }
        char text[80];
        snprintf(text, sizeof text, "%s - %s, %zu in blocks of %u", dtype_names[x_dtype],
                 has_prev ? dtype_names[prev_dtype] : "nothing", n, width);
        same_bytes("rotated", expected, to, n * sizeof *to, b->kernels->name, text);
    }
}

static void rotations_back_equal_those_of_c(bench *b)
{
    static unsigned char prev[4 * MOST], expected[4 * MOST];
    static float from[MOST];
    for (int round = 0; round < drawn(b, 6000, 1200); round++) {
        uint32_t width = widths[round % 4];
        bool has_prev = round % 3 > 0;
        dw_dtype to_dtype = any_dtype(b), prev_dtype = any_dtype(b);
        size_t n = round % 7 ? any_length(b, width) : DW_TILE_ELEMENTS;
        fill(b, from, DW_F32, n, false);
        for (size_t i = 0; round % 5 == 4 && i < n; i++) /* sums that overflow */
            from[i] = test_next(&b->random) % 4 ? 3.4e38f : -3.4e38f;
        fill(b, prev, prev_dtype, n, false);
        void *base =
            has_prev ? guarded_copy(b, SLOT_PREV, prev, n * dw_dtype_bytes(prev_dtype)) : NULL;
        void *to = guarded(b, SLOT_NEXT, n * dw_dtype_bytes(to_dtype));
        specification->unrotate(from, n, width, has_prev ? prev : NULL, prev_dtype, expected,
                                to_dtype);
        b->kernels->unrotate(guarded_copy(b, SLOT_X, from, n * sizeof *from), n, width, base,
                             prev_dtype, to, to_dtype);
        for (size_t i = 0; i < n; i++) assert_true(isfinite(test_get(expected, to_dtype, i)));
        char text[80];
        snprintf(text, sizeof text, "%s + to %s, %zu in blocks of %u",
                 has_prev ? dtype_names[prev_dtype] : "nothing", dtype_names[to_dtype], n, width);
        same_bytes("rotated back", expected, to, n * dw_dtype_bytes(to_dtype), b->kernels->name,
                   text);
    }
}

int check_rotations(void)
{
    const struct CMUnitTest tests[] = {
        kernel_test(for_each_table, unit_vectors_become_rows_of_the_matrix),
        kernel_test(for_each_table, rotations_equal_those_of_c),
        kernel_test(for_each_table, rotations_back_equal_those_of_c),
    };
    return cmocka_run_group_tests_name("rotations", tests, NULL, NULL);
}
