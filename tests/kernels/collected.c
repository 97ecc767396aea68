/* SPDX-License-Identifier: Apache-2.0
 * collected.c - tests the kernel that finds values whose magnitude reaches a limit. */
#include "arithmetic/half.h"
#include "check_kernels.h"
#include "kernel_rig.h"

/* Compares a table with C's, for a limit that about `part` of 256 values reach. All arrays end at
 * pages that nobody may touch. */
static void compare_with_c(bench *b, const float *values, uint64_t n, uint32_t least)
{
    static float expected[MOST];
    static uint8_t bits[MOST];
    size_t bytes = (size_t)(n + 7) / 8;
    float *list = slot_place(b->slots[SLOT_NEXT], (size_t)n * sizeof *list, true);
    uint8_t *mask = slot_place(b->slots[SLOT_CODES], bytes, true);
    const float *x = guarded_copy(b, SLOT_X, values, (size_t)n * sizeof *x);
    memset(mask, 0xa5, bytes);
    memset(bits, 0x5a, bytes);
    uint64_t wanted = specification->collect(values, n, least, bits, expected);
    uint64_t found = b->kernels->collect(x, n, least, mask, list);
    assert_true(found == wanted);
    same_bytes("mask", bits, mask, bytes, b->kernels->name, "");
    same_bytes("list", expected, list, (size_t)found * sizeof *list, b->kernels->name, "");
}

/* Limits are magnitudes that occur, so that some values are equal to them; 0, which all reach; and
 * those of NaN alone. */
KERNEL_TEST(collected_values_equal_those_of_c)
{
    static float values[MOST];
    random_bytes(b, values, sizeof values);
    for (uint64_t i = 0; i < MOST; i += 3) values[i] = dw_float_of((uint32_t)(i % 7) << 29);
    for (uint64_t n = 0; n <= DW_TILE_ELEMENTS; n += n < 200 ? 1 : 61)
        for (uint32_t i = 0; i < 6; i++) {
            static const uint32_t limits[] = {0, 1, DW_F32_INFINITY, 0x7fffffff};
            uint32_t some = dw_bits_of(values[(n + i) % MOST]) & 0x7fffffffu;
            compare_with_c(b, values, n, i < 4 ? limits[i] : some);
        }
}

/* The C kernel, compared with a look at each value. */
TEST(c_kernel_collects_values_at_or_above_the_limit)
{
    static float values[MOST], list[MOST];
    static uint8_t mask[MOST];
    test_random random = {1};
    for (int i = 0; i < MOST; i++) values[i] = dw_float_of((uint32_t)test_next(&random));
    for (uint64_t n = 1; n < 300; n++) {
        /* Also limits that few values reach, so that some blocks have none. */
        float some = values[n / 2];
        for (uint64_t i = 0; n % 2 && i < n; i++)
            if ((dw_bits_of(values[i]) & 0x7fffffffu) > (dw_bits_of(some) & 0x7fffffffu))
                some = values[i];
        uint32_t least = dw_bits_of(some) & 0x7fffffffu;
        memset(mask, 0x5a, sizeof mask);
        uint64_t found = 0, all = specification->collect(values, n, least, mask, list);
        for (uint64_t i = 0; i < n; i++) {
            bool reaches = (dw_bits_of(values[i]) & 0x7fffffffu) >= least;
            assert_int_equal(mask[i / 8] >> i % 8 & 1, reaches);
            if (reaches) assert_memory_equal(&list[found++], &values[i], sizeof *values);
        }
        assert_true(found == all && found > 0);
        for (uint64_t i = n; i < (n + 7) / 8 * 8; i++)
            assert_int_equal(mask[i / 8] >> i % 8 & 1, 0);
    }
}

int check_collected(void)
{
    return test_run(NULL, NULL);
}
