/* SPDX-License-Identifier: Apache-2.0
 * rowwise.c - a baseline: asymmetric quantization by rows, which FBGEMM uses for tables of
 * embeddings under the name "fused n-bit rowwise".
 *
 * A row consists of the channels of one token, and is sent as its scale, its minimum and its codes.
 * The scale is the range of the row (its largest minus its smallest value) divided by 2^bits - 1.
 * Scale and minimum are 16-bit floats if codes have up to 7 bits, and 32-bit floats if they have 8.
 * The code of a value x is (x - minimum) / scale, rounded to the nearest integer, and stands for
 * code * scale + minimum. */
#include "bits.h"
#include "peer.h"

/* Returns how many bytes encode writes at most: for each row 8 bytes of scale and minimum, and 8
 * bits for each code. */
static size_t room(dw_shape shape, double setting)
{
    (void)setting;
    return (size_t)shape.T * (8 + (size_t)shape.C);
}

/* Sets *least and *most to the smallest and the largest of n values. */
static void extremes(const float *x, uint32_t n, float *least, float *most)
{
    *least = *most = x[0];
    for (uint32_t i = 1; i < n; i++) {
        *least = x[i] < *least ? x[i] : *least;
        *most = x[i] > *most ? x[i] : *most;
    }
}

/* Writes the rows of x to bytes, with codes of `setting` bits. Returns the number of bytes. */
static size_t encode(dw_shape shape, double setting, const float *x, uint8_t *bytes)
{
    unsigned width = (unsigned)setting;
    float last = (float)((1u << width) - 1);
    uint8_t *at = bytes;
    for (uint32_t t = 0; t < shape.T; t++, x += shape.C) {
        float least, most, scale; /* a scale of 1 stands for 0, by which nothing can be divided */
        extremes(x, shape.C, &least, &most);
        if (width < 8) {
            least = dw_as_half(least);
            scale = dw_as_half((most - least) / last);
            scale = scale > 0 ? scale : 1;
            dw_put_half(&at, scale);
            dw_put_half(&at, least);
        } else {
            scale = most > least ? (most - least) / last : 1;
            dw_put_float(&at, scale);
            dw_put_float(&at, least);
        }
        dw_bits codes = {.at = at};
        for (uint32_t c = 0; c < shape.C; c++) {
            float code = rintf((x[c] - least) / scale);
            code = code < 0 ? 0 : code > last ? last : code;
            dw_bits_put(&codes, (uint32_t)code, width);
        }
        at = dw_bits_end(&codes); /* every row ends with a whole byte */
    }
    return (size_t)(at - bytes);
}

/* Reads the len bytes that encode wrote, and writes the values to y. Returns whether the last row
 * ends where the bytes end. */
static bool decode(dw_shape shape, double setting, const uint8_t *bytes, size_t len, float *y)
{
    unsigned width = (unsigned)setting;
    const uint8_t *at = bytes;
    for (uint32_t t = 0; t < shape.T; t++, y += shape.C) {
        float scale = width < 8 ? dw_take_half(&at) : dw_take_float(&at);
        float least = width < 8 ? dw_take_half(&at) : dw_take_float(&at);
        dw_bits codes = {.at = (uint8_t *)(uintptr_t)at};
        for (uint32_t c = 0; c < shape.C; c++)
            y[c] = (float)dw_bits_take(&codes, width) * scale + least;
        at = codes.at;
    }
    return at == bytes + len;
}

const dw_peer dw_peer_rowwise = {.name = "rows, asymmetric (FBGEMM)",
                                 .codec = "rowwise:bits=%s",
                                 .settings = "1 2 3 4 5 6 7 8",
                                 .room = room,
                                 .encode = encode,
                                 .decode = decode};
