/* SPDX-License-Identifier: Apache-2.0
 * main.c - a program of a user that embeds the library. It prints a digest of all results.
 *
 * It is built against the installed library, from CMake, and as the host of a Meson subproject with
 * -ffast-math. Every build must print the same digest: the arithmetic is part of the format. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deltawire/deltawire.h"

enum { N = 3, T = 5, C = 200, EPOCHS = 6 };

static void check(dw_status status, const char *what)
{
    if (status == DW_OK) return;
    fprintf(stderr, "%s: %s\n", what, dw_status_string(status));
    exit(1);
}

static uint64_t fnv1a(uint64_t digest, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++) digest = (digest ^ p[i]) * 0x100000001b3u;
    return digest;
}

/* Makes floats from bits, so that the flags of this file cannot change them. They have full
 * mantissas; the exponents of groups reach from the smallest subnormals to 2^100; a few values are
 * -0 or NaN. */
static void fill(float *x, uint32_t *seed, int epoch)
{
    for (int i = 0; i < N * T * C; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        uint32_t group = (uint32_t)i / 64u;
        uint32_t exponent = group % 7 == 0 ? group % 3 : 20 + (group * 29u) % 200u;
        uint32_t bits = (*seed & 0x80000000u) | exponent << 23 | (*seed >> 9);
        if (i % 997 == 0) bits = 0x80000000u;
        if (i == 64 * 11 && epoch == 2) bits = 0x7fc00000u;
        memcpy(&x[i], &bits, sizeof bits);
    }
}

static uint64_t digest_of(const char *text)
{
    dw_config config;
    dw_why why;
    if (dw_config_parse(&config, text, &why) != DW_OK) {
        fprintf(stderr, "%s\n", why.text);
        exit(1);
    }
    config.incarnation = 7; /* otherwise it is random, and it is in every frame */
    dw_encoder *encoder;
    dw_decoder *decoder;
    check(dw_encoder_create(&encoder, &config, NULL, NULL), "dw_encoder_create");
    check(dw_decoder_create(&decoder, &config, NULL, NULL), "dw_decoder_create");

    static float x[N * T * C], y[N * T * C];
    dw_tensor tx = dw_tensor_3d(x, DW_F32, N, T, C), ty = dw_tensor_3d(y, DW_F32, N, T, C);
    const dw_key keys[N] = {{.sample = 17}, {.sample = 42}, {.sample = 99}};
    size_t cap = dw_frame_bound(&config, &tx), reply_cap = dw_reply_bound(N);
    unsigned char *frame = malloc(cap), *reply = malloc(reply_cap);
    if (!frame || !reply) exit(1);
    uint64_t digest = 0xcbf29ce484222325u;
    uint32_t seed = 1;
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        size_t len = 0, reply_len = 0;
        fill(x, &seed, epoch);
        check(dw_encode(encoder, keys, &tx, NULL, frame, cap, &len), "dw_encode");
        check(dw_decode(decoder, frame, len, &ty, NULL, reply, reply_cap, &reply_len), "dw_decode");
        if (reply_len > 0)
            check(dw_encoder_take_reply(encoder, reply, reply_len), "dw_encoder_take_reply");
        digest = fnv1a(fnv1a(digest, frame, len), y, sizeof y);
    }
    dw_counters counters = {.struct_size = sizeof counters};
    if (dw_encoder_count(encoder, &counters) || counters.frames != EPOCHS) exit(1);
    dw_encoder_destroy(encoder);
    dw_decoder_destroy(decoder);
    free(frame);
    free(reply);
    return digest;
}

int main(void)
{
    static const char *const configs[] = {"raw:f32",
                                          "direct:bits=3,group=32",
                                          "delta:bits=2,scale=signed",
                                          "delta:bits=4,prev=bf16",
                                          "delta:bits=8,group=row,key=raw",
                                          "delta:bits=4,group=16,key=raw,choose=never"};
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++)
        printf("%s %016" PRIx64 "\n", configs[i], digest_of(configs[i]));
    return strcmp(dw_version(), DW_VERSION_STRING) == 0 ? 0 : 1;
}
