/* SPDX-License-Identifier: Apache-2.0
 * acsgd.c - a baseline: the quantizer of AC-SGD, the program that the authors of AQ-SGD published
 * with their paper (arXiv:2206.01299).
 *
 * Each channel of a sample has one scale s, which is sent as a 16-bit float. It is the largest
 * magnitude in the channel, or, in the variant "l2", twice the root mean square of the channel.
 * The code of a value x is x / (s + 10^-6) * 2^(bits-1), rounded to the nearest integer and limited
 * to -2^(bits-1) to 2^(bits-1) - 1. (The 10^-6 keeps a channel of zeros from a division by zero.) A
 * code stands for code * s / 2^(bits-1). There is one code fewer above zero than below, so the
 * largest positive value arrives one step too small. */
#include "bits.h"
#include "peer.h"

/* Returns how many bytes encode writes at most: 8 bits for each code. */
static size_t room(dw_shape shape, double setting)
{
    (void)setting;
    return (size_t)2 * shape.C + (size_t)shape.T * shape.C;
}

/* Returns the scale of one channel of x, rounded to a 16-bit float: the largest magnitude, or with
 * l2 twice the root mean square. */
static float scale_of(dw_shape shape, const float *x, uint32_t channel, bool l2)
{
    double most = 0, squares = 0;
    for (uint32_t t = 0; t < shape.T; t++) {
        double value = fabs((double)x[(size_t)t * shape.C + channel]);
        most = value > most ? value : most;
        squares += value * value;
    }
    return dw_as_half((float)(l2 ? 2 * sqrt(squares / shape.T) : most));
}

/* Writes the scales of all channels to bytes, then the codes of x with `setting` bits each, token
 * by token. l2 chooses the rule for scales. Returns the number of bytes. */
static size_t encode(dw_shape shape, double setting, const float *x, uint8_t *bytes, bool l2)
{
    unsigned width = (unsigned)setting;
    float half = (float)(1u << (width - 1));
    uint8_t *at = bytes;
    for (uint32_t c = 0; c < shape.C; c++) dw_put_half(&at, scale_of(shape, x, c, l2));
    dw_bits codes = {.at = at};
    for (uint32_t t = 0; t < shape.T; t++) {
        const uint8_t *scales = bytes;
        for (uint32_t c = 0; c < shape.C; c++) {
            float scale = dw_take_half(&scales) + 1e-6f;
            float level = rintf(x[(size_t)t * shape.C + c] / scale * half);
            level = level < -half ? -half : level > half - 1 ? half - 1 : level;
            dw_bits_put(&codes, (uint32_t)(level + half), width);
        }
    }
    return (size_t)(dw_bits_end(&codes) - bytes);
}

static size_t encode_absmax(dw_shape shape, double setting, const float *x, uint8_t *bytes)
{
    return encode(shape, setting, x, bytes, false);
}

static size_t encode_l2(dw_shape shape, double setting, const float *x, uint8_t *bytes)
{
    return encode(shape, setting, x, bytes, true);
}

/* Reads the len bytes that encode wrote, and writes the values to y. Returns whether the codes end
 * where the bytes end. */
static bool decode(dw_shape shape, double setting, const uint8_t *bytes, size_t len, float *y)
{
    unsigned width = (unsigned)setting;
    float half = (float)(1u << (width - 1));
    dw_bits codes = {.at = (uint8_t *)(uintptr_t)bytes + (size_t)2 * shape.C};
    for (uint32_t t = 0; t < shape.T; t++) {
        const uint8_t *scales = bytes;
        for (uint32_t c = 0; c < shape.C; c++) {
            float scale = dw_take_half(&scales);
            y[(size_t)t * shape.C + c] = ((float)dw_bits_take(&codes, width) - half) / half * scale;
        }
    }
    return codes.at == bytes + len;
}

const dw_peer dw_peer_acsgd = {.name = "AC-SGD's grid",
                               .codec = "acsgd:bits=%s",
                               .settings = "1 2 3 4 5 6 7 8",
                               .room = room,
                               .encode = encode_absmax,
                               .decode = decode};

const dw_peer dw_peer_acsgd_l2 = {.name = "AC-SGD's grid, l2",
                                  .codec = "acsgd:l2,bits=%s",
                                  .settings = "1 2 3 4 5 6 7 8",
                                  .room = room,
                                  .encode = encode_l2,
                                  .decode = decode};
