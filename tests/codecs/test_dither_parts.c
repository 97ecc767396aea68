/* SPDX-License-Identifier: Apache-2.0
 * test_dither_parts.c - tests which part of a block a dithered code belongs to, and that sorting
 * codes into parts can be undone (docs/format.md, 3.9). */
#include "codecs/dither_parts.h"
#include "support/tool.h"

/* A code belongs to part floor(8 |z|), where z is the dither of its element, -1/2 to 1/2; and if z
 * is negative, the code c is written as 256 - c. `high` is the high byte of the random number that
 * z is made of: 0 stands for -1/2, 128 for 0. The bytes here are those next to every border between
 * two parts and next to z = 0. */
TEST(codes_are_sorted_by_the_size_of_z)
{
    static const uint8_t high[] = {0,   31,  32,  63,  64,  95,  96,  127,
                                   128, 159, 160, 191, 192, 223, 224, 255},
                         codes[] = {1, 2, 3, 4, 5, 6, 7, 8, 91, 92, 128, 129, 255, 127, 128, 1};
    static const uint8_t sorted[DW_PARTS][4] = {{249, 248, 91, 92}, /* |z| < 1/8 */
                                                {251, 250, 128, 129},
                                                {253, 252, 255, 127},
                                                {255, 254, 128, 1}};
    uint32_t counts[DW_PARTS];
    uint8_t parted[sizeof codes + DW_PARTS * DW_PART_GAP], back[sizeof codes];
    const dw_kernels *kernels = &dw_kernels_c;
    assert_int_equal(dw_dither_parts_bytes(sizeof codes), sizeof parted);
    kernels->count_parts(high, sizeof codes, counts);
    for (int i = 0; i < DW_PARTS; i++) assert_int_equal(counts[i], 4);
    dw_dither_parts_sort(kernels, high, codes, sizeof codes, counts, parted);
    for (int i = 0; i < DW_PARTS; i++)
        assert_memory_equal(parted + i * (4 + DW_PART_GAP), sorted[i], 4);
    dw_dither_parts_restore(kernels, high, parted, sizeof codes, counts, back);
    assert_memory_equal(back, codes, sizeof codes);
}

/* Checks dw_dither_parts_draw for a sample of t tokens and c channels in groups of `group`. It
 * draws the random bytes of whole tiles; here each of them is drawn alone, for the element that its
 * code belongs to, in the order of the payload. Padding must get 128, which stands for z = 0. A
 * draw that begins at the second tile must give the same bytes. */
static void check_layout(uint32_t t, uint32_t c, uint32_t group)
{
    static uint8_t high[1 << 16], expected[1 << 16];
    const uint64_t key = 0x123456789abcdef;
    const dw_kernels *kernels = &dw_kernels_c;
    dw_layout layout;
    assert_true(dw_layout_make_step(&layout, t, c, group, true));
    uint64_t at = 0;
    for (uint64_t i = 0; i < layout.tiles; i++) {
        dw_tile tile = dw_layout_tile(&layout, i);
        for (uint64_t s = tile.first_segment; s < tile.first_segment + tile.segments; s++) {
            uint64_t row = s / layout.row_segments, in_row = s % layout.row_segments;
            uint64_t width = tile.elements / tile.segments,
                     column = in_row * layout.segment_channels;
            for (uint64_t j = 0; j < width; j++, at++) {
                bool is_padding = j >= layout.segment_channels || column + j >= c;
                expected[at] = 128;
                if (!is_padding)
                    kernels->dither_bytes(&(dw_dither){key, row * c + column + j}, 1,
                                          expected + at);
            }
        }
    }
    assert_in_range(at, t * c, sizeof high);
    dw_dither_parts_draw(&layout, kernels, key, 0, layout.tiles, high);
    assert_memory_equal(high, expected, at);
    if (layout.tiles < 2) return;
    uint64_t skipped = dw_layout_tile(&layout, 0).elements;
    dw_dither_parts_draw(&layout, kernels, key, 1, layout.tiles - 1, high);
    assert_memory_equal(high, expected + skipped, at - skipped);
}

TEST(numbers_are_those_of_the_elements)
{
    static const uint32_t groups[] = {16, 64, 256, DW_LAYOUT_ROW, DW_LAYOUT_SAMPLE};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        check_layout(1, 1, groups[i]);
        check_layout(3, 5, groups[i]);
        check_layout(40, 128, groups[i]);
        check_layout(40, 100, groups[i]);
        check_layout(5, 2048 + 37, groups[i]);
        check_layout(5, 2 * 2048, groups[i]);
    }
}

RUN_TESTS(NULL, NULL)
