/* SPDX-License-Identifier: Apache-2.0
 * floats.c - tests kernels on floats: conversions, sums of squares, scaled sums. */
#include <float.h>
#include <math.h>

#include "check_kernels.h"
#include "run_shape.h"

/* Random finite numbers. Many binary32 numbers are next to a tie of f16 or bf16. */
static void fill_finite(bench *b, unsigned char *to, size_t bytes, dw_dtype dtype, size_t n)
{
    random_bytes(b, to, bytes);
    for (size_t i = 0; i < n; i++) {
        if (dtype == DW_F32 && below(b, 2)) { /* a tie of f16 or bf16, or a number next to one */
            uint32_t bits =
                (uint32_t)test_next(&b->random) & (below(b, 2) ? 0xfffff000u : 0xffff8000u);
            bits += below(b, 3) - 1u;
            if (below(b, 2)) bits = (bits & 0x80ffffffu) | (0x38000000u - below(b, 16) * 0x800000u);
            memcpy(to + 4 * i, &bits, 4);
        }
        if (!isfinite(test_get(to, dtype, i)))
            test_set(to, dtype, i, below(b, 2) ? FLT_MAX / 65536 : -0.0f);
        if (!isfinite(test_get(to, dtype, i))) test_set(to, dtype, i, 65504.0f);
    }
}

KERNEL_TEST(conversions_equal_those_of_c)
{
    static unsigned char from[4 * MOST], expected[4 * MOST];
    for (int round = 0; round < drawn(b, 4000, 600); round++) {
        dw_dtype a = any_dtype(b), c = any_dtype(b);
        size_t n = round < 600 ? (size_t)round / 2 : below(b, MOST);
        fill_finite(b, from, sizeof from, a, n);
        const void *odd = guarded_copy(b, SLOT_X, from, n * dw_dtype_bytes(a));
        void *to = guarded(b, SLOT_NEXT, n * dw_dtype_bytes(c));
        specification->convert(from, a, expected, c, n);
        b->kernels->convert(odd, a, to, c, n);
        char text[64];
        snprintf(text, sizeof text, "%s to %s, %zu", dtype_names[a], dtype_names[c], n);
        same_bytes("converted", expected, to, n * dw_dtype_bytes(c), b->kernels->name, text);
    }
}

KERNEL_TEST(norms_equal_those_of_c)
{
    static unsigned char x[4 * MOST], base[4 * MOST], back[4 * MOST];
    for (int round = 0; round < drawn(b, 3000, 600); round++) {
        shape s = stretch_of(b, round);
        dw_dtype back_dtype = any_dtype(b);
        fill_run(b, &s, x, base);
        test_fill(&b->random, back, back_dtype, s.channels, 1);
        if (s.hostile && s.channels) test_spoil(&b->random, back, back_dtype, s.channels, false);
        dw_norms expected = {1, 2, 3}, found = expected;
        dw_norms_run run = {
            .x = guarded_x(b, &s, x),
            .x_dtype = s.x,
            .base = guarded_prev(b, &s, base),
            .base_dtype = s.prev,
            .back = guarded_copy(b, SLOT_NEXT, back, s.channels * dw_dtype_bytes(back_dtype)),
            .back_dtype = back_dtype,
            .n = s.channels};
        specification->norms(&run, &expected);
        b->kernels->norms(&run, &found);
        same_bytes("norms", &expected, &found, sizeof found, b->kernels->name, describe(&s));
    }
}

/* Any bit patterns; or sums that lie next to ties, products that vanish in the sum, and numbers
 * near the largest and the smallest. */
static void fill_sums(bench *b, float *from, void *to, dw_dtype dtype, size_t n)
{
    float sizes[] = {1, 1e-3f, 3e4f, 1e-38f, 0x1p125f};
    random_bytes(b, from, n * sizeof *from);
    random_bytes(b, to, n * dw_dtype_bytes(dtype));
    if (below(b, 3) == 0 || n == 0) return;
    test_fill(&b->random, from, DW_F32, n, sizes[below(b, 5)]);
    test_fill(&b->random, to, dtype, n, sizes[below(b, 5)]);
    if (below(b, 2)) test_spoil(&b->random, from, DW_F32, n, below(b, 2) != 0);
    if (below(b, 2)) test_spoil(&b->random, to, dtype, n, below(b, 2) != 0);
}

static float any_factor(bench *b)
{
    float factors[] = {1, -1, 0.5f, 1.0f / 3, -3.1f, 0, -0.0f, 0x1p-140f, FLT_MAX, INFINITY, NAN};
    uint32_t bits = (uint32_t)test_next(&b->random);
    return below(b, 4) ? factors[below(b, sizeof factors / sizeof *factors)] : dw_float_of(bits);
}

/* Computes one element by the definition; volatile keeps the compiler from fusing the steps. */
static uint32_t sum_by_definition(float from, float factor, float old, dw_dtype dtype)
{
    volatile float product = factor * from;
    volatile float sum = old + product;
    if (isnan(sum)) return dtype == DW_F32 ? 0x7fc00000 : dtype == DW_F16 ? 0x7e00 : 0x7fc0;
    return dtype == DW_F32   ? dw_bits_of(sum)
           : dtype == DW_F16 ? dw_f16_round(sum)
                             : dw_bf16_round(sum);
}

KERNEL_TEST(each_step_of_an_addition_is_rounded)
{
    static float from[MOST];
    static unsigned char to[4 * MOST], before[4 * MOST];
    for (int round = 0; round < drawn(b, 4000, 900); round++) {
        dw_dtype dtype = dtypes[round % 3];
        size_t n = round < 900 ? (size_t)round / 3 : below(b, MOST), size = dw_dtype_bytes(dtype);
        float factor = any_factor(b);
        fill_sums(b, from, to, dtype, n);
        memcpy(before, to, n * size);
        void *odd = guarded_copy(b, SLOT_NEXT, to, n * size);
        specification->add(from, factor, to, dtype, n);
        b->kernels->add(guarded_copy(b, SLOT_X, from, n * sizeof *from), factor, odd, dtype, n);
        char text[64];
        snprintf(text, sizeof text, "%s, factor %a, %zu", dtype_names[dtype], (double)factor, n);
        same_bytes("sums", to, odd, n * size, b->kernels->name, text);
        for (size_t i = 0; i < n; i++) {
            uint32_t bits = 0;
            memcpy(&bits, to + i * size, size); /* processors with kernels are little-endian */
            assert_int_equal(bits,
                             sum_by_definition(from[i], factor, test_get(before, dtype, i), dtype));
        }
    }
}

/* A difference that overflows, or of NaN or infinities, becomes +0. */
KERNEL_TEST(differences_are_finite)
{
    static unsigned char x[4 * MOST];
    static float from[MOST];
    for (int round = 0; round < drawn(b, 3000, 900); round++) {
        dw_dtype dtype = dtypes[round % 3];
        size_t n = round < 900 ? (size_t)round / 3 : below(b, MOST);
        fill_sums(b, from, x, dtype, n);
        float *odd = guarded_copy(b, SLOT_NEXT, from, n * sizeof *from);
        b->kernels->subtract(guarded_copy(b, SLOT_X, x, n * dw_dtype_bytes(dtype)), dtype, odd, n);
        for (size_t i = 0; i < n; i++) {
            volatile float rest = from[i] - test_get(x, dtype, i);
            from[i] = isfinite(rest) ? rest : 0.0f;
        }
        char text[64];
        snprintf(text, sizeof text, "%s, %zu", dtype_names[dtype], n);
        same_bytes("differences", from, odd, n * sizeof *from, b->kernels->name, text);
    }
}

int check_floats(void)
{
    return test_run(NULL, NULL);
}
