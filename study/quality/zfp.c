/* SPDX-License-Identifier: Apache-2.0
 * zfp.c - two baselines: libzfp (Lindstrom, Fixed-Rate Compressed Floating-Point Arrays, 2014),
 * which compresses a tensor as an array of two dimensions, tokens and channels.
 *
 * In one of them the setting limits the error of every value ("tolerance"): it is a part of the
 * root mean square of the tensor. In the other one the setting is the number of bits per value
 * ("rate"). */
#include <zfp.h>

#include "bits.h"
#include "peer.h"

/* Returns the largest error that a value of x may have: `setting` times the root mean square of x.
 * The decoder does not know x, so the tolerance is sent in front of the compressed bytes. */
static float tolerance_of(dw_shape shape, double setting, const float *x)
{
    size_t n = (size_t)shape.T * shape.C;
    double squares = 0;
    for (size_t i = 0; i < n; i++) squares += (double)x[i] * (double)x[i];
    return (float)(setting * sqrt(squares / (double)n));
}

/* Returns libzfp's description of a tensor, or NULL if there is no memory. */
static zfp_field *field_of(dw_shape shape, const float *values)
{
    return zfp_field_2d((void *)(uintptr_t)values, zfp_type_float, shape.C, shape.T);
}

/* Compresses `values` to `bytes`, or, with `backwards`, decompresses `bytes` to `values`. `len` is
 * how many bytes may be written, or how many there are. If `tolerance` is above 0, it is the
 * largest error that a value may have; if it is 0, every value takes `rate` bits. Returns how many
 * bytes were written or read; 0 means that libzfp failed. */
static size_t run(dw_shape shape, double rate, float tolerance, const float *values, uint8_t *bytes,
                  size_t len, bool backwards)
{
    zfp_field *field = field_of(shape, values);
    zfp_stream *stream = zfp_stream_open(NULL);
    bitstream *words = stream_open(bytes, len);
    size_t done = 0;
    if (field && stream && words) {
        if (tolerance > 0)
            zfp_stream_set_accuracy(stream, (double)tolerance);
        else
            zfp_stream_set_rate(stream, rate, zfp_type_float, 2, zfp_false);
        zfp_stream_set_bit_stream(stream, words);
        zfp_stream_rewind(stream);
        done = backwards ? zfp_decompress(stream, field) : zfp_compress(stream, field);
    }
    if (words) stream_close(words);
    if (stream) zfp_stream_close(stream);
    if (field) zfp_field_free(field);
    return done;
}

/* Returns how many bytes are always enough: 5 bytes for each value of each block of 4 x 4 values,
 * and 4096 more for headers. This is more than zfp_stream_maximum_size asks for. */
static size_t room(dw_shape shape, double setting)
{
    (void)setting;
    return (((size_t)shape.T + 3) / 4) * (((size_t)shape.C + 3) / 4) * 16 * 5 + 4096;
}

/* Writes the tolerance and then the compressed tensor. Returns the number of bytes, or 0 if libzfp
 * failed. */
static size_t encode_accuracy(dw_shape shape, double setting, const float *x, uint8_t *bytes)
{
    float tolerance = tolerance_of(shape, setting, x);
    uint8_t *at = bytes;
    dw_put_float(&at, tolerance);
    if (tolerance <= 0) return 4; /* all values are 0, and the decoder needs nothing else */
    size_t done = run(shape, 0, tolerance, x, at, room(shape, setting) - 4, false);
    return done ? 4 + done : 0;
}

static bool decode_accuracy(dw_shape shape, double setting, const uint8_t *bytes, size_t len,
                            float *y)
{
    (void)setting;
    const uint8_t *at = bytes;
    float tolerance = dw_take_float(&at);
    if (tolerance > 0)
        return run(shape, 0, tolerance, y, (uint8_t *)(uintptr_t)at, len - 4, true) != 0;
    memset(y, 0, (size_t)shape.T * shape.C * sizeof *y);
    return true;
}

static size_t encode_rate(dw_shape shape, double setting, const float *x, uint8_t *bytes)
{
    return run(shape, setting, 0, x, bytes, room(shape, setting), false);
}

static bool decode_rate(dw_shape shape, double setting, const uint8_t *bytes, size_t len, float *y)
{
    return run(shape, setting, 0, y, (uint8_t *)(uintptr_t)bytes, len, true) != 0;
}

const dw_peer dw_peer_zfp_accuracy = {.name = "ZFP, by tolerance",
                                      .codec = "zfp:tolerance=%s",
                                      .settings =
                                          "8 5.66 4 2.83 2 1.41 1 0.5 0.25 0.125 0.0625 0.0312",
                                      .between = true,
                                      .room = room,
                                      .encode = encode_accuracy,
                                      .decode = decode_accuracy};

const dw_peer dw_peer_zfp_rate = {.name = "ZFP, by rate",
                                  .codec = "zfp:rate=%s",
                                  .settings = "1 1.5 2 2.5 3 3.5 4 5 6 8",
                                  .between = true,
                                  .room = room,
                                  .encode = encode_rate,
                                  .decode = decode_rate};
