/* SPDX-License-Identifier: Apache-2.0
 * blockwise.c - three baselines: blockwise quantization with a lookup table, as in bitsandbytes and
 * hivemind.
 *
 * The T * C values of the tensor, in memory order, are cut into blocks. The setting is the length
 * of a block; the last block may be shorter. A block is sent as its scale, which is its largest
 * magnitude as a 32-bit float, and its codes. The code of a value is the index of the table's entry
 * that is nearest to value / scale, and stands for entry * scale. The tables are:
 *
 * | name    | codes | entries                                                                  |
 * | linear  | 255   | k / 127 for k from -127 to 127; codes have 8 bits, and one is not used   |
 * | dynamic | 256   | 8-bit dynamic tree quantization (Dettmers, arXiv:1511.04561; by blocks:  |
 * |         |       | arXiv:2110.02861). For each i from 0 to 6, the interval from 0.1 to 1 is |
 * |         |       | cut into 2^i intervals of equal length; the middle of each, times        |
 * |         |       | 10^(i-6), is an entry, and so is its negative. 0 and 1 are entries, too  |
 * | normal  | 16    | NormalFloat4 (QLoRA, arXiv:2305.14314, appendix E): quantiles of a       |
 * |         |       | normal distribution, scaled so that -1, 0 and 1 are entries              | */
#include <stdlib.h>

#include "bits.h"
#include "peer.h"

typedef struct table {
    float entries[256]; /* what the codes 0 to n - 1 stand for, ascending */
    unsigned n;
    unsigned width; /* the number of bits of a code */
} table;

/* The functions make_NAME fill in the table NAME. */
static void make_linear(table *to)
{
    to->n = 0;
    to->width = 8;
    for (int k = -127; k <= 127; k++) to->entries[to->n++] = (float)k / 127;
}

/* Compares two floats for qsort. */
static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

static void make_dynamic(table *to)
{
    to->n = 0;
    to->width = 8;
    for (int i = 0; i < 7; i++)
        for (int k = 0; k < 1 << i; k++) {
            double middle = 0.1 + 0.9 * (k + 0.5) / (1 << i);
            float entry = (float)(middle * pow(10, i - 6));
            to->entries[to->n++] = entry;
            to->entries[to->n++] = -entry;
        }
    to->entries[to->n++] = 0;
    to->entries[to->n++] = 1;
    qsort(to->entries, to->n, sizeof to->entries[0], ascending);
}

/* The entries are the published numbers, rounded to 8 digits, which is what a binary32 can hold. */
static void make_normal(table *to)
{
    static const float entries[16] = {-1.0f,        -0.69619281f, -0.52507305f, -0.39491749f,
                                      -0.28444138f, -0.18477343f, -0.09105004f, 0.0f,
                                      0.07958030f,  0.16093020f,  0.24611230f,  0.33791524f,
                                      0.44070983f,  0.56261700f,  0.72295684f,  1.0f};
    memcpy(to->entries, entries, sizeof entries);
    to->n = 16;
    to->width = 4;
}

/* Returns the index of the entry that is nearest to value, by bisection. Of two entries that are
 * equally near it is the smaller one. */
static unsigned nearest(const table *of, float value)
{
    unsigned low = 0, high = of->n - 1; /* the nearest entry is one of low to high */
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        if (of->entries[middle] <= value)
            low = middle;
        else
            high = middle;
    }
    return value - of->entries[low] <= of->entries[high] - value ? low : high;
}

/* Returns how many bytes encode writes at most: with blocks of one value, 4 for its scale and 1 for
 * its code. */
static size_t room(dw_shape shape, double setting)
{
    (void)setting;
    size_t n = (size_t)shape.T * shape.C;
    return 5 * n + 8;
}

/* Returns the largest magnitude of n values. */
static float largest(const float *x, size_t n)
{
    float most = 0;
    for (size_t i = 0; i < n; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    return most;
}

/* Writes the blocks of x to bytes, each as its scale and its codes. Returns the number of bytes. */
static size_t encode(dw_shape shape, double setting, const float *x, uint8_t *bytes,
                     const table *of)
{
    size_t n = (size_t)shape.T * shape.C, block = (size_t)setting;
    uint8_t *at = bytes;
    for (size_t first = 0; first < n; first += block) {
        size_t here = n - first < block ? n - first : block;
        float scale = largest(x + first, here);
        dw_put_float(&at, scale);
        dw_bits codes = {.at = at};
        for (size_t i = first; i < first + here; i++)
            dw_bits_put(&codes, nearest(of, scale > 0 ? x[i] / scale : 0), of->width);
        at = dw_bits_end(&codes);
    }
    return (size_t)(at - bytes);
}

/* Reads the len bytes that encode wrote with the same table, and writes the values to y. Returns
 * whether the last block ends where the bytes end. */
static bool decode(dw_shape shape, double setting, const uint8_t *bytes, size_t len, float *y,
                   const table *of)
{
    size_t n = (size_t)shape.T * shape.C, block = (size_t)setting;
    const uint8_t *at = bytes;
    for (size_t first = 0; first < n; first += block) {
        size_t here = n - first < block ? n - first : block;
        float scale = dw_take_float(&at);
        dw_bits codes = {.at = (uint8_t *)(uintptr_t)at};
        for (size_t i = first; i < first + here; i++)
            y[i] = of->entries[dw_bits_take(&codes, of->width)] * scale;
        at = codes.at;
    }
    return at == bytes + len;
}

/* Defines the functions encode_NAME and decode_NAME of the table NAME. They make the table anew at
 * each call, which takes about a microsecond, so that no state has to be kept. */
#define SCHEME(which)                                                                              \
    static size_t encode_##which(dw_shape shape, double setting, const float *x, uint8_t *bytes)   \
    {                                                                                              \
        table of;                                                                                  \
        make_##which(&of);                                                                         \
        return encode(shape, setting, x, bytes, &of);                                              \
    }                                                                                              \
    static bool decode_##which(dw_shape shape, double setting, const uint8_t *bytes, size_t len,   \
                               float *y)                                                           \
    {                                                                                              \
        table of;                                                                                  \
        make_##which(&of);                                                                         \
        return decode(shape, setting, bytes, len, y, &of);                                         \
    }

SCHEME(linear)
SCHEME(dynamic)
SCHEME(normal)

const dw_peer dw_peer_linear = {.name = "blocks, linear 8 bits",
                                .codec = "blockwise:linear,block=%s",
                                .settings = "64 256 4096",
                                .room = room,
                                .encode = encode_linear,
                                .decode = decode_linear};

const dw_peer dw_peer_dynamic = {.name = "blocks, dynamic 8 bits (bitsandbytes)",
                                 .codec = "blockwise:dynamic,block=%s",
                                 .settings = "64 256 4096",
                                 .room = room,
                                 .encode = encode_dynamic,
                                 .decode = decode_dynamic};

const dw_peer dw_peer_normal = {.name = "blocks, NormalFloat4 (QLoRA)",
                                .codec = "blockwise:normal,block=%s",
                                .settings = "32 64 128 256",
                                .room = room,
                                .encode = encode_normal,
                                .decode = decode_normal};
