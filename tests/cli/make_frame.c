/* SPDX-License-Identifier: Apache-2.0
 * make_frame.c - writes a key frame, a delta frame and their replies into a directory, for
 * test_cli.py. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "deltawire/deltawire.h"

static int write_file(const char *directory, const char *name, const void *bytes, size_t len)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    if (!file) return -1;
    bool failed = fwrite(bytes, 1, len, file) != len;
    return fclose(file) || failed ? -1 : 0;
}

int main(int argc, char **argv)
{
    enum { N = 2, T = 3, C = 64 };
    static float x[N * T * C], y[N * T * C];
    static unsigned char frame[16384], reply[4096];
    const char *const names[][2] = {{"key", "key-reply"}, {"delta", "delta-reply"}};
    const dw_key keys[N] = {{.sample = 1234567890123456789u}, {.sample = 42, .slice = 7}};
    dw_config config;
    dw_encoder *encoder;
    dw_decoder *decoder;
    if (argc != 2 || dw_config_parse(&config, "delta:bits=3,group=32", NULL) ||
        dw_encoder_create(&encoder, &config, NULL, NULL) ||
        dw_decoder_create(&decoder, &config, NULL, NULL))
        return 1;
    for (int visit = 0; visit < 2; visit++) {
        for (int i = 0; i < N * T * C; i++) x[i] = sinf((float)i) + 0.1f * (float)visit;
        dw_tensor in = dw_tensor_3d(x, DW_F32, N, T, C), out = dw_tensor_3d(y, DW_F32, N, T, C);
        size_t len, reply_len;
        if (dw_encode(encoder, keys, &in, NULL, frame, sizeof frame, &len) ||
            dw_decode(decoder, frame, len, &out, NULL, reply, sizeof reply, &reply_len) ||
            dw_encoder_take_reply(encoder, reply, reply_len) ||
            write_file(argv[1], names[visit][0], frame, len) ||
            write_file(argv[1], names[visit][1], reply, reply_len))
            return 1;
    }
    dw_encoder_destroy(encoder);
    dw_decoder_destroy(decoder);
    return 0;
}
