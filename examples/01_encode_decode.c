/* SPDX-License-Identifier: Apache-2.0
 * 01_encode_decode.c - encodes and decodes one tensor, and prints the size of the frame and the
 * error. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "deltawire/deltawire.h"

enum { T = 128, C = 768 }; /* tokens, channels */

/* Ends the program with a sentence. An application handles errors in its own way. */
static void check(dw_status status, const char *what)
{
    if (status == DW_OK) return;
    fprintf(stderr, "%s: %s\n", what, dw_status_string(status));
    exit(1);
}

int main(void)
{
    dw_config config;
    dw_why why;
    if (dw_config_parse(&config, "direct:bits=4,group=64", &why) != DW_OK) {
        fprintf(stderr, "%s\n", why.text);
        return 1;
    }
    dw_encoder *encoder;
    dw_decoder *decoder;
    check(dw_encoder_create(&encoder, &config, NULL, NULL), "dw_encoder_create");
    check(dw_decoder_create(&decoder, &config, NULL, NULL), "dw_decoder_create");

    /* A tensor is a view of memory; the memory remains yours. */
    static float x[T * C], y[T * C];
    for (int i = 0; i < T * C; i++) x[i] = sinf((float)i * 0.37f) * (1.0f + (float)(i % C) / C);
    dw_tensor sent = dw_tensor_3d(x, DW_F32, 1, T, C), received = dw_tensor_3d(y, DW_F32, 1, T, C);

    /* The largest size of a frame of this shape is known in advance, so allocate once. */
    size_t cap = dw_frame_bound(&config, &sent), len = 0;
    void *frame = malloc(cap);
    if (!frame) return 1;
    dw_key key = {.sample = 17};
    check(dw_encode(encoder, &key, &sent, NULL, frame, cap, &len), "dw_encode");

    /* ... send the len bytes of the frame to the other end, by any means ... */
    check(dw_decode(decoder, frame, len, &received, NULL, NULL, 0, NULL), "dw_decode");

    double square = 0, error = 0;
    for (int i = 0; i < T * C; i++) {
        square += (double)x[i] * x[i];
        error += (double)(x[i] - y[i]) * (x[i] - y[i]);
    }
    printf("%zu bytes became %zu: ratio %.2f\n", sizeof x, len, (double)sizeof x / (double)len);
    printf("relative error %.4f\n", sqrt(error / square));

    free(frame);
    dw_decoder_destroy(decoder);
    dw_encoder_destroy(encoder);
    return error < 0.02 * square && len < sizeof x / 7 ? 0 : 1;
}
