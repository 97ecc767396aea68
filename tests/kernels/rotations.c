/* SPDX-License-Identifier: Apache-2.0
 * rotations.c - tests the kernels that rotate blocks, or weigh channels, in front of a form: C's by
 * what a Hadamard matrix is and by hand, all others by C's, between guard pages. */
#include <math.h>

#include "check_kernels.h"
#include "kernel_rig.h"

static const uint32_t widths[] = {1, 16, 64, 256};

/* Row k of the matrix has the sign of (-1)^(number of bits that i and k share) in column i. */
KERNEL_TEST(unit_vectors_become_rows_of_the_matrix)
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

/* Which NaN comes of NaN and infinities, the processor decides; callers do not care. */
static void take_nans(float *found, const float *expected, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float its;
        memcpy(&its, (unsigned char *)found + i * sizeof its, sizeof its);
        if (isnan(its) && isnan(expected[i]))
            memcpy((unsigned char *)found + i * sizeof its, &expected[i], sizeof its);
    }
}

KERNEL_TEST(rotations_equal_those_of_c)
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
        take_nans(to, expected, n);
        char text[80];
        snprintf(text, sizeof text, "%s - %s, %zu in blocks of %u", dtype_names[x_dtype],
                 has_prev ? dtype_names[prev_dtype] : "nothing", n, width);
        same_bytes("rotated", expected, to, n * sizeof *to, b->kernels->name, text);
    }
}

KERNEL_TEST(rotations_back_equal_those_of_c)
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

/* The products of 3 and 1/3 say in which order things are rounded: 3 * (1/3) is 1 in binary32, and
 * a fused multiply-add of (1 + 2^-23) * (1 + 2^-23) - 1 keeps a last bit that two roundings lose.
 */
KERNEL_TEST(weights_are_products_that_are_rounded_before_sums)
{
    const float x[3] = {3, 0x1.000002p0f, -7}, base[3] = {0, 0, 1}, third[3] = {1 / 3.0f, 0.5f, 2},
                one[3] = {0x1.000002p0f, 0x1.000002p0f, 0x1.000002p0f}, minus[3] = {-1, -1, -1};
    float y[3];
    b->kernels->weigh(x, DW_F32, base, DW_F32, third, 3, y);
    assert_true(y[0] == 1 && y[1] == 0x1.000002p-1f && y[2] == -16);
    b->kernels->unweigh(one, one, minus, DW_F32, 3, y, DW_F32);
    assert_true(y[0] == 0x1p-22f && y[1] == y[0] && y[2] == y[0]);
}

KERNEL_TEST(weights_equal_those_of_c)
{
    static _Alignas(4) unsigned char x[4 * MOST], base[4 * MOST], expected[4 * MOST];
    static float weights[MOST];
    for (int round = 0; round < drawn(b, 6000, 1200); round++) {
        dw_dtype dtype = any_dtype(b), base_dtype = any_dtype(b);
        bool back = round % 2, has_base = round % 3 > 0;
        size_t n = round % 7 ? below(b, DW_TILE_ELEMENTS + 1) : DW_TILE_ELEMENTS;
        size_t size = back ? dw_dtype_bytes(dtype) : sizeof(float);
        fill(b, x, back ? DW_F32 : dtype, n, !back && round % 5 == 4);
        fill(b, base, base_dtype, n, false);
        for (size_t i = 0; i < n; i++) weights[i] = ldexpf(1, -(int)below(b, 25)) / (back ? 1 : 3);
        void *bases =
            has_base ? guarded_copy(b, SLOT_PREV, base, n * dw_dtype_bytes(base_dtype)) : NULL;
        void *to = guarded(b, SLOT_NEXT, n * size),
             *from = guarded_copy(b, SLOT_X, x, n * (back ? 4 : dw_dtype_bytes(dtype)));
        float *factors = guarded_copy(b, SLOT_SCALES, weights, n * sizeof *weights);
        if (back) {
            specification->unweigh((float *)(void *)x, weights, has_base ? base : NULL, base_dtype,
                                   n, expected, dtype);
            b->kernels->unweigh(from, factors, bases, base_dtype, n, to, dtype);
        } else {
            specification->weigh(x, dtype, has_base ? base : NULL, base_dtype, weights, n,
                                 (float *)(void *)expected);
            b->kernels->weigh(from, dtype, bases, base_dtype, factors, n, to);
            take_nans(to, (float *)(void *)expected, n);
        }
        char text[80];
        snprintf(text, sizeof text, "%s, base %s, %zu", dtype_names[dtype],
                 has_base ? dtype_names[base_dtype] : "0", n);
        same_bytes(back ? "weighed back" : "weighed", expected, to, n * size, b->kernels->name,
                   text);
    }
}

int check_rotations(void)
{
    return test_run(NULL, NULL);
}
