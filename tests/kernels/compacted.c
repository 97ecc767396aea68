/* SPDX-License-Identifier: Apache-2.0
 * compacted.c - tests the kernels for copies of prev in 8 and 4 bits. */
#include <math.h>

#include "arithmetic/compact.h"
#include "check_kernels.h"
#include "kernel_rig.h"

/* Numbers of all magnitudes in some groups, and of similar ones in others; all are finite. */
static void draw_numbers(bench *b, uint16_t *to)
{
    for (int i = 0; i < MOST; i++) {
        uint32_t range = i / DW_COMPACT_GROUP % 3, exponent = i / 3 % 255;
        if (range) exponent = 100 + (uint32_t)(i / 64 % 60) + below(b, 1 + 4 * range);
        to[i] = (uint16_t)(below(b, 2) << 15 | exponent % 255 << 7 | below(b, 128));
        if (below(b, 16) == 0) to[i] &= 0x8000;
    }
}

/* All arrays end at pages that nobody may touch. */
static void compare_with_c(bench *b, const uint16_t *numbers, uint64_t n, uint32_t bits)
{
    static uint8_t codes[MOST], scales[MOST], odd[2 * MOST];
    static uint16_t wanted[MOST];
    uint64_t groups = dw_compact_groups(n);
    size_t bytes = (size_t)dw_compact_codes_bytes(bits, groups);
    const uint16_t *x = guarded_copy(b, SLOT_X, numbers, n * sizeof *x);
    uint8_t *made = guarded(b, SLOT_CODES, bytes), *of = guarded(b, SLOT_SCALES, groups);
    uint16_t *back = guarded(b, SLOT_NEXT, n * sizeof *back);
    specification->compact(numbers, n, bits, codes, scales);
    b->kernels->compact(x, n, bits, made, of);
    same_bytes("codes", codes, made, bytes, b->kernels->name, "");
    same_bytes("scales", scales, of, groups, b->kernels->name, "");
    specification->expand(codes, scales, n, bits, wanted);
    b->kernels->expand(made, of, n, bits, back);
    same_bytes("elements", wanted, back, n * sizeof *back, b->kernels->name, "");
    random_bytes(b, odd, bytes + groups); /* whatever was saved, no element is infinite */
    memcpy(made, odd, bytes);
    memcpy(of, odd + bytes, groups);
    specification->expand(odd, odd + bytes, n, bits, wanted);
    b->kernels->expand(made, of, n, bits, back);
    same_bytes("elements", wanted, back, n * sizeof *back, b->kernels->name, "any bytes");
    for (uint64_t i = 0; i < n; i++) assert_true((wanted[i] & 0x7f80) != 0x7f80);
}

KERNEL_TEST(compact_copies_equal_those_of_c)
{
    static uint16_t numbers[MOST];
    draw_numbers(b, numbers);
    for (uint64_t n = 1; n <= DW_TILE_ELEMENTS; n += n < 100 ? 1 : 61)
        for (uint32_t bits = 8; bits >= 4; bits -= 4)
            compare_with_c(b, numbers + n % 7 * DW_COMPACT_GROUP, n, bits);
}

/* The C kernels: no other code of the format is nearer, and what was expanded is kept as it is. */
static void c_kernels_keep_the_nearest(bench *b)
{
    static const double units[] = {0, 1, 2, 3, 4, 6, 8, 12};
    static uint16_t numbers[MOST], kept[MOST], again[MOST];
    static uint8_t codes[MOST], scales[MOST];
    draw_numbers(b, numbers);
    for (uint32_t bits = 8; bits >= 4; bits -= 4) {
        specification->compact(numbers, MOST, bits, codes, scales);
        specification->expand(codes, scales, MOST, bits, kept);
        specification->compact(kept, MOST, bits, codes, scales);
        specification->expand(codes, scales, MOST, bits, again);
        assert_memory_equal(kept, again, sizeof kept);
        for (int i = 0; i < MOST; i += DW_COMPACT_GROUP) { /* scales are no larger than needed */
            int scale = scales[i / DW_COMPACT_GROUP];
            double largest = 0,
                   limit = ldexp(bits == 8 ? 127.5 : 14, scale - (bits == 8 ? 133 : 130));
            for (int k = i; k < i + DW_COMPACT_GROUP; k++) {
                double size = fabs((double)dw_bf16_widen(numbers[k]));
                if (size > largest) largest = size;
            }
            assert_true((largest < limit || scale == 254) && (largest >= limit / 2 || scale == 8));
        }
        for (int i = 0; i < MOST; i++) {
            double unit = ldexp(1, scales[i / DW_COMPACT_GROUP] - (bits == 8 ? 133 : 130)),
                   x = (double)dw_bf16_widen(numbers[i]),
                   error = fabs((double)dw_bf16_widen(kept[i]) - x);
            for (int u = bits == 8 ? -127 : -7; u <= (bits == 8 ? 127 : 7); u++) {
                double other = bits == 8 ? u : u < 0 ? -units[-u] : units[u];
                assert_true(error <= fabs(other * unit - x));
            }
        }
    }
}

TEST(c_kernels_keep_the_nearest_number)
{
    try_table(specification, c_kernels_keep_the_nearest);
}

int check_compacted(void)
{
    return test_run(NULL, NULL);
}
