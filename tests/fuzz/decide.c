/* SPDX-License-Identifier: Apache-2.0
 * decide.c - configs and tensors out of a fuzzer's input. */
#include "fuzz.h"

dw_config fuzz_config(fuzz_input *input)
{
    static const uint32_t groups[] = {16, 32, 64, 128, 256, DW_GROUP_ROW};
    static const uint32_t keys[] = {2, 3,          4,          5,          6,          7,
                                    8, DW_KEY_RAW, DW_KEY_F32, DW_KEY_F16, DW_KEY_BF16};
    dw_config config = {.struct_size = sizeof config};
    config.codec = (dw_codec)(1 + fuzz_below(input, 8) % 3); /* delta is the most likely */
    if (config.codec == DW_CODEC_RAW) {
        config.raw = (dw_dtype)fuzz_below(input, 4);
    } else {
        config.bits = 2 + fuzz_below(input, 7);
        config.group = groups[fuzz_below(input, 6)];
        config.scale = (dw_scale)fuzz_below(input, 3);
    }
    if (config.codec == DW_CODEC_DELTA) {
        config.key = keys[fuzz_below(input, 11)];
        config.prev = (dw_dtype)fuzz_below(input, 4);
        config.choose = (dw_choose)fuzz_below(input, 3);
        static const uint32_t audits[] = {0, 1, 2, DW_AUDIT_NEVER};
        config.audit = audits[fuzz_below(input, 4)];
    }
    config.incarnation = 0x1234;
    return config;
}

void fuzz_floats(fuzz_input *input, float *x, size_t n)
{
    static const uint32_t special[] = {
        0x00000000, 0x80000000,             /* +-0 */
        0x00000001, 0x807fffff,             /* the smallest and the largest subnormal */
        0x00800000, 0x7f7fffff, 0xff7fffff, /* the smallest and the largest normal numbers */
        0x0f800000, 0x0f7fffff,             /* 2^-96, the limit of a zero group, and just below */
        0x477fe000, 0x7f7f0000, 0x33800000, /* the largest f16 and bf16, the smallest f16 */
        0x7f800000, 0xff800000,             /* infinities */
        0x7fc00000, 0xff812345,             /* quiet and signalling NaN */
    };
    uint32_t mode = fuzz_byte(input), seed = fuzz_byte(input) | 1u, spot = fuzz_below(input, 1024);
    uint32_t exponent = fuzz_byte(input),
             value = special[fuzz_below(input, sizeof special / sizeof *special)];
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        uint32_t bits;
        switch (mode & 3) {
        case 0:
            bits = (seed & 0x80000000u) | (127u - (exponent & 7u)) << 23 | (seed >> 9);
            break; /* ordinary */
        case 1:
            bits = (seed & 0x80000000u) | exponent << 23 | (seed >> 9);
            break;                    /* any magnitude */
        case 2: bits = seed; break;   /* any bits */
        default: bits = value; break; /* all the same */
        }
        if ((mode & 4) && i % 1024 == spot) bits = value; /* one outlier in so many */
        memcpy(&x[i], &bits, sizeof bits);
    }
}

void fuzz_tensor_fill(fuzz_input *input, const dw_tensor *x)
{
    float *row = malloc(x->c * sizeof *row);
    REQUIRE(row != NULL);
    for (uint32_t n = 0; n < x->n; n++) {
        for (uint32_t t = 0; t < x->t; t++) {
            int64_t at = (int64_t)n * x->stride_n + (int64_t)t * x->stride_t;
            fuzz_floats(input, row, x->c);
            if (x->dtype == DW_F32) {
                memcpy((float *)x->data + at, row, x->c * sizeof *row);
                continue;
            }
            for (uint32_t c = 0; c < x->c; c++) {
                uint32_t bits;
                memcpy(&bits, &row[c], sizeof bits);
                /* For f16 the upper half is some other number, which is as good. */
                ((uint16_t *)x->data)[at + c] = (uint16_t)(bits >> 16);
            }
        }
    }
    free(row);
}
