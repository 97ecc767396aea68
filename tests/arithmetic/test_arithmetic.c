/* SPDX-License-Identifier: Apache-2.0
 * test_arithmetic.c - compares half.h, quant.h, pack.h and layout.h with independently written
 * definitions. */
#include <math.h>

#include "arithmetic/layout.h"
#include "arithmetic/pack.h"
#include "arithmetic/quant.h"
#include "support/tool.h"

/* The value of a small float format, computed in double from its fields, without bit tricks. */
static double value_of(uint32_t bits, int exponent_bits, int fraction_bits)
{
    int bias = (1 << (exponent_bits - 1)) - 1;
    uint32_t fraction = bits & ((1u << fraction_bits) - 1),
             exponent = bits >> fraction_bits & ((1u << exponent_bits) - 1);
    double sign = bits >> (exponent_bits + fraction_bits) ? -1 : 1;
    if (exponent == 0) return sign * ldexp(fraction, 1 - bias - fraction_bits);
    return sign *
           ldexp(fraction + (double)(1u << fraction_bits), (int)exponent - bias - fraction_bits);
}

TEST(every_half_widens_to_its_value_and_rounds_back)
{
    for (uint32_t h = 0; h < 0x10000; h++) {
        if ((h & 0x7c00) != 0x7c00) {
            assert_true((double)dw_f16_widen((uint16_t)h) == value_of(h, 5, 10));
            assert_int_equal(dw_f16_round(dw_f16_widen((uint16_t)h)), h);
            assert_int_equal(dw_f16_finite(dw_f16_widen((uint16_t)h)), h);
        }
        if ((h & 0x7f80) != 0x7f80) {
            assert_true((double)dw_bf16_widen((uint16_t)h) == value_of(h, 8, 7));
            assert_int_equal(dw_bf16_round(dw_bf16_widen((uint16_t)h)), h);
            assert_int_equal(dw_bf16_finite(dw_bf16_widen((uint16_t)h)), h);
        }
    }
}

/* Between neighbours a < b, what lies below the middle must round to a, what lies above it to b,
 * and the middle itself to the one of the two that is even. */
TEST(halves_round_to_nearest_even)
{
    for (uint32_t h = 0; h < 0x7bff; h++) {
        float a = dw_f16_widen((uint16_t)h), b = dw_f16_widen((uint16_t)(h + 1)),
              middle = (a + b) / 2;
        assert_int_equal(dw_f16_round(middle), h + (h & 1));
        assert_int_equal(dw_f16_round(nextafterf(middle, 0)), h);
        assert_int_equal(dw_f16_round(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(dw_f16_round(-middle), 0x8000 | (h + (h & 1)));
    }
    for (uint32_t h = 1; h < 0x7f7f; h++) {
        uint32_t a = h << 16, middle = a | 0x8000;
        assert_int_equal(dw_bf16_round(dw_float_of(middle)), h + (h & 1));
        assert_int_equal(dw_bf16_round(dw_float_of(middle - 1)), h);
        assert_int_equal(dw_bf16_round(dw_float_of(middle + 1)), h + 1);
    }
}

TEST(the_largest_values_clamp_and_the_rest_overflows)
{
    assert_int_equal(dw_f16_round(65519.99f), 0x7bff);
    assert_int_equal(dw_f16_round(65520.0f), 0x7c00);
    assert_int_equal(dw_f16_finite(65520.0f), 0x7bff);
    assert_int_equal(dw_f16_finite(-INFINITY), 0xfbff);
    assert_int_equal(dw_bf16_round(dw_float_of(0x7f7f8000)), 0x7f80);
    assert_int_equal(dw_bf16_finite(dw_float_of(0x7f7fffff)), 0x7f7f);
    assert_int_equal(dw_bits_of(dw_f32_finite(-INFINITY)), 0xff7fffff);
    assert_int_equal(dw_f16_round(NAN) & 0x7fff, 0x7e00);
    assert_int_equal(dw_bf16_round(NAN) & 0x7fff, 0x7fc0);
}

/* The scale is the smallest bf16 s with s * L >= A: for every A of two binades (the mantissas of
 * the other binades are the same) and every L. */
TEST(scale_is_the_smallest_that_covers)
{
    for (uint32_t width = 1; width <= 8; width++)
        for (int uses_all = 0; uses_all < 2; uses_all++)
            for (uint32_t bits = dw_bits_of(1.0f); bits < dw_bits_of(4.0f); bits += 37) {
                uint16_t scale = dw_scale_for(bits, width, uses_all);
                double wanted = dw_float_of(bits), levels = dw_levels(width, uses_all);
                assert_true((double)dw_bf16_widen(scale) * levels >= wanted);
                assert_true((double)dw_bf16_widen((uint16_t)(scale - 1)) * levels < wanted);
            }
}

TEST(scales_at_the_edges_stay_normal_and_finite)
{
    for (uint32_t bits = 2; bits <= 8; bits++)
        for (int is_signed = 0; is_signed < 2; is_signed++) {
            assert_int_equal(dw_scale_of((dw_extremes){DW_ZERO_BELOW - 1, 0}, bits, is_signed), 0);
            uint16_t least = dw_scale_of((dw_extremes){DW_ZERO_BELOW, 0}, bits, is_signed) & 0x7fff;
            assert_true(least >= 0x0080);
            assert_int_equal(dw_scale_of((dw_extremes){0, 0x7f800000}, bits, is_signed), 0x7fc0);
            assert_int_equal(dw_scale_of((dw_extremes){0x7fc00001, 0}, bits, is_signed), 0x7fc0);
            uint16_t most = dw_scale_of((dw_extremes){0, 0x7f7fffff}, bits, is_signed) & 0x7fff;
            assert_true(most <= 0x7f7f);
        }
    /* If both extremes have the same magnitude, the scale is positive. */
    assert_int_equal(dw_scale_of((dw_extremes){0x3f800000, 0x3f800000}, 4, 1) & 0x8000, 0);
    assert_int_equal(dw_scale_of((dw_extremes){0x3f800001, 0x3f800000}, 4, 1) & 0x8000, 0x8000);
}

/* For magnitudes up to the largest number, the product of scale and levels must be finite. The
 * scale must be the smallest that covers the magnitude; if no finite product covers it, the largest
 * scale with a finite product. */
TEST(the_last_level_is_finite)
{
    for (uint32_t width = 1; width <= 8; width++)
        for (int uses_all = 0; uses_all < 2; uses_all++) {
            float levels = (float)dw_levels(width, uses_all);
            uint32_t end = uses_all ? DW_F32_INFINITY : DW_F32_LARGEST;
            for (uint32_t bits = dw_bits_of(0x1p124f);;
                 bits = end - bits > 131 ? bits + 131 : end) {
                uint16_t scale = dw_scale_for(bits, width, uses_all);
                float most = dw_bf16_widen(scale) * levels;
                assert_true(isfinite(most));
                if (most < dw_float_of(bits))
                    assert_true(isinf(dw_bf16_widen((uint16_t)(scale + 1)) * levels));
                else
                    assert_true(dw_bf16_widen((uint16_t)(scale - 1)) * levels < dw_float_of(bits));
                if (bits == end) break;
            }
            uint32_t largest = width == 1 || uses_all ? 0x7f7f - ((width - 1) << 7)
                                                      : dw_bits_of(FLT_MAX / levels) >> 16;
            assert_int_equal(dw_scale_for(DW_F32_LARGEST, width, uses_all), largest);
            dw_attempts made = dw_attempts_of((dw_extremes){0, DW_F32_LARGEST}, width);
            for (int k = 0; k < DW_ATTEMPTS; k++)
                assert_true(isfinite(dw_bf16_widen(made.scale[k]) * (float)dw_levels(width, 1)));
        }
}

TEST(codes_round_ties_to_even_and_stay_in_range)
{
    for (int32_t half = 2; half <= 128; half *= 2)
        for (int32_t q = -half - 2; q <= half + 1; q++) {
            int32_t even = q % 2 == 0 ? q : q + 1, clamped = even < -half      ? -half
                                                             : even > half - 1 ? half - 1
                                                                               : even;
            assert_int_equal(dw_code_of((float)q + 0.5f, 1.0f, half, 0.0f), clamped + half);
        }
}

TEST(packing_is_the_bits_of_the_format)
{
    test_random random = {test_seed()};
    for (uint32_t bits = 1; bits <= 8; bits++) {
        uint8_t codes[2048], back[2048], tile[2048];
        for (size_t n = 16; n <= 2048; n += n < 64 ? 16 : 496) {
            memset(tile, 0, sizeof tile);
            for (size_t i = 0; i < n; i++)
                codes[i] = (uint8_t)(test_next(&random) & ((1u << bits) - 1));
            for (size_t first = 0; first < n; first += 16)
                dw_pack(codes + first, 16, bits, tile, n, first);
            for (size_t i = 0; i < n; i++) { /* reads one code bit by bit, as the format defines */
                uint32_t code = 0, from = 0;
                for (uint32_t p = 8; p >= 1; p /= 2) {
                    if (!(bits & p)) continue;
                    size_t bit = p * i;
                    code |= (uint32_t)(tile[n * from / 8 + bit / 8] >> bit % 8 & ((1u << p) - 1))
                            << from;
                    from += p;
                }
                assert_int_equal(code, codes[i]);
            }
            dw_unpack(back, n, bits, tile, n, 0);
            assert_memory_equal(back, codes, n);
        }
    }
}

/* With one bit there is no level for zero: the sign decides, and -0 counts as positive. */
TEST(one_bit_is_the_sign)
{
    assert_int_equal(dw_code_of(1e-30f, 1.0f, 1, 0.0f), 1);
    assert_int_equal(dw_code_of(-1e-30f, 1.0f, 1, 0.0f), 0);
    assert_int_equal(dw_code_of(-0.0f, 1.0f, 1, 0.0f), 1);
    assert_int_equal(dw_code_of(-0x1p-149f, 1.0f, 1, 0.0f), 0);
    assert_int_equal(dw_code_of(-5.0f, 0.0f, 1, -0.25f), 1); /* all values of the piece are equal */
    assert_true(dw_reconstruct(2.0f, 1, 1, 0.5f) == 2.5f &&
                dw_reconstruct(2.0f, 0, 1, 0.5f) == 1.5f);
}

/* All 65536 dithers are different and symmetric in (-1/2, 1/2), and none of them moves a zero. */
/* Where x is a signalling NaN, x - prev is a quiet NaN, whose bits are a larger number: to compare
 * the bits is not enough. */
TEST(x_is_coded_directly_where_it_is_smaller_and_finite)
{
    static const struct {
        uint32_t x, delta;
        int is_better;
    } cases[] = {{0x3f800000, 0x40000000, 1}, {0x40000000, 0x3f800000, 0},
                 {0x3f800000, 0x3f800000, 0}, {0x3f800000, 0x7fc00000, 1},
                 {0x7f800000, 0x7fc00000, 0}, {0x7f800001, 0x7fc00001, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dw_extremes x = {.negative = cases[i].x}, delta = {.positive = cases[i].delta};
        assert_int_equal(dw_is_direct_better(x, delta), cases[i].is_better);
    }
}

TEST(dithers_are_the_middles_of_equal_parts)
{
    for (uint32_t part = 0; part < 65536; part++) {
        float dither = dw_dither_of((uint16_t)part);
        assert_true((double)dither == ((double)part + 0.5) / 65536.0 - 0.5);
        assert_int_equal(dw_code_of(0.0f, 1.0f, 8, dither), 8);
    }
    assert_true(dw_dither_of(DW_DITHER_NONE) > 0 && dw_dither_of(DW_DITHER_NONE) < 1e-5f);
}

static const uint32_t groups[] = {16, 32, 64, 128, 256, DW_LAYOUT_ROW, DW_LAYOUT_CHANNEL};
static const uint32_t channels[] = {1, 31, 64, 100, 1024, 1600, 2047, 2048, 2049, 5000};

/* The tiles follow each other without a gap, contain every segment once, and their sizes add up to
 * that of the payload. */
TEST(tiles_cover_the_payload)
{
    for (int g = 0; g < 7; g++)
        for (int c = 0; c < 10; c++)
            for (uint32_t bits = 1; bits <= 8; bits++) {
                dw_layout layout;
                assert_true(dw_layout_make(&layout, 7, channels[c], bits, groups[g], bits % 2));
                uint64_t at = layout.choice_bytes + layout.scale_bytes, segments = 0;
                for (uint64_t i = 0; i < layout.tiles; i++) {
                    dw_tile tile = dw_layout_tile(&layout, i);
                    assert_int_equal(tile.offset, at);
                    assert_int_equal(tile.first_segment, segments);
                    assert_int_equal(tile.bytes % 16, 0);
                    assert_true(tile.elements <= DW_TILE_ELEMENTS);
                    at += tile.bytes;
                    segments += tile.segments;
                }
                assert_int_equal(at, layout.payload_bytes);
                assert_int_equal(segments, layout.segments);
                assert_int_equal(layout.pieces, layout.by_channel ? channels[c] : segments);
                assert_int_equal(dw_layout_scale(&layout, 0), layout.choice_bytes);
            }
    dw_layout layout;
    assert_true(dw_layout_make(&layout, 1u << 31, 1u << 20, 8, 64, true));
    assert_false(dw_layout_make(&layout, UINT32_MAX, UINT32_MAX, 8, 16, true));
}

/* The chunks follow each other without a gap, begin at a whole byte of choice bits, and contain
 * every element of prev once. */
TEST(chunks_cover_the_sample)
{
    for (int g = 0; g < 7; g++)
        for (int c = 0; c < 10; c++)
            for (uint32_t t = 1; t <= 300; t += 23) {
                dw_layout layout;
                assert_true(dw_layout_make(&layout, t, channels[c], 4, groups[g], true));
                uint64_t tiles = 0, elements = 0, n = dw_layout_chunks(&layout);
                uint32_t strips = 0;
                for (uint64_t i = 0; i < n; i++) {
                    dw_chunk chunk = dw_layout_chunk(&layout, i);
                    assert_int_equal(chunk.first_tile, tiles);
                    assert_int_equal(chunk.first_element, elements);
                    assert_int_equal(chunk.first_channel, strips);
                    if (!layout.by_channel)
                        assert_int_equal(dw_layout_tile(&layout, tiles).first_segment % 8, 0);
                    tiles += chunk.tiles, elements += chunk.elements, strips += chunk.channels;
                }
                assert_int_equal(tiles, layout.by_channel ? 0 : layout.tiles);
                assert_int_equal(elements, layout.by_channel ? 0 : (uint64_t)t * channels[c]);
                assert_int_equal(strips, layout.by_channel ? channels[c] : 0);
            }
}

/* Rows near the limit of 32 bits: nothing overflows, the last chunk ends at the end of the sample,
 * the last tile at the end of the payload, and every channel lies in the chunk that is computed
 * from its number. */
TEST(layouts_cover_the_longest_rows)
{
    static const uint32_t longest[] = {UINT32_MAX,       UINT32_MAX - 1,    UINT32_MAX - 15,
                                       UINT32_MAX - 254, UINT32_MAX - 255,  UINT32_MAX - 256,
                                       UINT32_MAX - 257, UINT32_MAX - 2047, UINT32_MAX - 2048};
    static const uint32_t tokens[] = {1, 2, 9, 1 << 20};
    for (int g = 0; g < 7; g++)
        for (size_t c = 0; c < sizeof longest / sizeof *longest; c++)
            for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++) {
                dw_layout layout;
                uint64_t elements = (uint64_t)tokens[t] * longest[c];
                assert_true(
                    dw_layout_make(&layout, tokens[t], longest[c], 8, groups[g], (int)c % 2));
                assert_true(layout.payload_bytes > elements);
                assert_true(layout.payload_bytes < elements / 4 * 5 + 3 * (uint64_t)longest[c]);
                dw_tile tile = dw_layout_tile(&layout, layout.tiles - 1);
                assert_int_equal(tile.offset + tile.bytes, layout.payload_bytes);
                assert_int_equal(tile.first_segment + tile.segments, layout.segments);
                uint64_t chunks = dw_layout_chunks(&layout);
                assert_true(chunks > 0);
                dw_chunk last = dw_layout_chunk(&layout, chunks - 1);
                if (layout.by_channel) {
                    assert_int_equal(last.first_channel, (chunks - 1) * DW_STRIP_CHANNELS);
                    assert_true(last.channels >= 1 && last.channels <= DW_STRIP_CHANNELS);
                    assert_int_equal((uint64_t)last.first_channel + last.channels, longest[c]);
                    assert_int_equal(dw_layout_scale(&layout, longest[c] - 1),
                                     layout.choice_bytes + 2 * ((uint64_t)longest[c] - 1));
                } else {
                    assert_int_equal(last.first_tile + last.tiles, layout.tiles);
                    assert_int_equal(last.first_element + last.elements, elements);
                }
            }
}

RUN_TESTS(NULL, NULL)
