/* SPDX-License-Identifier: Apache-2.0
 * test_floats.c - plain floats: each value is converted as alone, whatever its neighbours are.
 * Whole stretches of values are converted at once where none of them needs care. */
#include "arithmetic/half.h"
#include "support/tool.h"

enum { ROWS = 2, COLUMNS = 2500, GAP = 3, ROOM = ROWS * (COLUMNS + GAP) };

static const dw_dtype dtypes[] = {DW_F32, DW_F16, DW_BF16};
static const char *const names[] = {"raw:f32", "raw:f16", "raw:bf16"};

/* Around the limits of the three dtypes; and numbers that are none. */
static const uint32_t hard[] = {
    0x00000000, 0x80000000, 0x00000001, 0x007fffff, 0x33000000, 0x33000001, 0x387fffff, 0x38800000,
    0x477fe000, 0x477fefff, 0x477ff000, 0xc77ff000, 0x477fffff, 0x47800000, 0xc7800000, 0x7f7f7fff,
    0x7f7f8000, 0xff7f8000, 0x7f7fffff, 0x7f800000, 0xff800000, 0x7f800001, 0x7fc00000, 0xffc12345};
enum { HARD = sizeof hard / sizeof *hard };

static uint32_t bits_of(const void *values, dw_dtype dtype, size_t i)
{
    return dtype == DW_F32 ? ((const uint32_t *)values)[i] : ((const uint16_t *)values)[i];
}

static void set_bits(void *values, dw_dtype dtype, size_t i, uint32_t bits)
{
    if (dtype == DW_F32)
        ((uint32_t *)values)[i] = bits;
    else
        ((uint16_t *)values)[i] = (uint16_t)bits;
}

/* IEEE conversion of one value; without a change of dtype all bits are kept. */
static uint32_t converted(uint32_t bits, dw_dtype from, dw_dtype to)
{
    if (from == to) return bits;
    float value = from == DW_F32   ? dw_float_of(bits)
                  : from == DW_F16 ? dw_f16_widen((uint16_t)bits)
                                   : dw_bf16_widen((uint16_t)bits);
    if (to == DW_F32) return dw_bits_of(value);
    return to == DW_F16 ? dw_f16_round(value) : dw_bf16_round(value);
}

/* What is added to 1. A NaN has these bits, whatever its origin. */
static uint32_t added(uint32_t bits, dw_dtype form)
{
    float sum = 1 + dw_float_of(converted(bits, form, DW_F32));
    return sum != sum ? 0x7fc00000 : dw_bits_of(sum);
}

static dw_tensor strided(void *data, dw_dtype dtype)
{
    dw_tensor x = dw_tensor_3d(data, dtype, 1, ROWS, COLUMNS);
    x.stride_t = COLUMNS + GAP;
    x.stride_n = ROOM;
    return x;
}

static void compare(const test_pair *pair, const void *x, dw_dtype from, dw_dtype form, dw_dtype to,
                    uint32_t what)
{
    static uint32_t y[ROOM];
    memset(y, 0, sizeof y);
    dw_tensor ty = strided(y, to);
    assert_int_equal(dw_decode(pair->decoder, pair->frame, pair->len, &ty, NULL, NULL, 0, NULL),
                     DW_OK);
    for (size_t i = 0; i < ROOM; i++) {
        bool is_gap = i % (COLUMNS + GAP) >= COLUMNS;
        uint32_t sent = converted(bits_of(x, from, i), from, form);
        uint32_t expected = is_gap ? 0 : converted(sent, form, to);
        if (bits_of(y, to, i) != expected)
            fail_msg("%08x: value %zu of dtype %d, sent as %d, became %08x of dtype %d, not %08x",
                     what, i, from, form, bits_of(y, to, i), to, expected);
    }
}

static void compare_added(const test_pair *pair, const void *x, dw_dtype from, dw_dtype form)
{
    static float y[ROOM];
    for (size_t i = 0; i < ROOM; i++) y[i] = 1;
    dw_tensor ty = strided(y, DW_F32);
    dw_decode_options options = {.struct_size = sizeof options, .adds = 1, .factor = 1};
    assert_int_equal(dw_decode(pair->decoder, pair->frame, pair->len, &ty, &options, NULL, 0, NULL),
                     DW_OK);
    for (size_t i = 0; i < ROOM; i++) {
        bool is_gap = i % (COLUMNS + GAP) >= COLUMNS;
        uint32_t sent = converted(bits_of(x, from, i), from, form);
        assert_int_equal(dw_bits_of(y[i]), is_gap ? 0x3f800000 : added(sent, form));
    }
}

/* One hard value stands among others, which are ordinary ones. */
TEST(rows_are_converted_as_single_values_are)
{
    static uint32_t x[ROOM];
    test_random random = {test_seed()};
    for (int k = 0; k < 9; k++) {
        dw_dtype form = dtypes[k / 3], from = dtypes[k % 3];
        test_pair pair;
        test_pair_open(&pair, names[k / 3], 1, ROWS, COLUMNS, from);
        for (size_t h = 0; h < HARD; h++) {
            const size_t places[] = {0, 17, 2047, 2048, COLUMNS - 1, COLUMNS + GAP, ROOM - GAP - 1};
            test_fill(&random, x, from, ROOM, 100);
            set_bits(x, from, places[h % 7], converted(hard[h], DW_F32, from));
            dw_tensor tx = strided(x, from);
            test_pair_encode(&pair, &(dw_key){1, 0}, &tx);
            for (int to = 0; to < 3; to++) compare(&pair, x, from, form, dtypes[to], hard[h]);
            compare_added(&pair, x, from, form);
        }
        test_pair_close(&pair);
    }
}

RUN_TESTS(NULL, NULL)
