/* SPDX-License-Identifier: Apache-2.0
 * 03_lost_frame.c - a frame is lost: the decoder refuses the next delta frame, reports what it
 * holds, and is resynchronized. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deltawire/deltawire.h"

enum { T = 16, C = 256, STEPS = 6, LOST = 2 };

static void check(dw_status status, const char *what)
{
    if (status == DW_OK) return;
    fprintf(stderr, "%s: %s\n", what, dw_status_string(status));
    exit(1);
}

/* Both ends must hold the same bits of the sample, otherwise every later delta would be decoded
 * wrongly. */
static bool in_step(dw_encoder *encoder, dw_decoder *decoder, dw_key key)
{
    dw_tensor sent, received;
    check(dw_encoder_peek(encoder, key, &sent), "dw_encoder_peek");
    check(dw_decoder_peek(decoder, key, &received), "dw_decoder_peek");
    return memcmp(sent.data, received.data, (size_t)T * C * dw_dtype_bytes(sent.dtype)) == 0;
}

int main(void)
{
    dw_config config;
    check(dw_config_parse(&config, "delta:bits=4", NULL), "dw_config_parse");
    dw_encoder *encoder;
    dw_decoder *decoder;
    check(dw_encoder_create(&encoder, &config, NULL, NULL), "dw_encoder_create");
    check(dw_decoder_create(&decoder, &config, NULL, NULL), "dw_decoder_create");

    static float x[T * C], y[T * C];
    dw_tensor sent = dw_tensor_3d(x, DW_F32, 1, T, C), received = dw_tensor_3d(y, DW_F32, 1, T, C);
    dw_config exact = config; /* a resync frame contains prev itself, so it needs room for floats */
    exact.key = DW_KEY_F32;
    exact.key_error = exact.rate = 0;
    size_t cap = dw_frame_bound(&exact, &sent), reply_cap = dw_reply_bound(1);
    void *frame = malloc(cap), *reply = malloc(reply_cap);
    if (!frame || !reply) return 1;
    dw_key key = {.sample = 42};

    int refused = 0;
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < T * C; i++) x[i] = sinf((float)i * 0.7f) + 0.05f * (float)step;
        size_t len = 0, reply_len = 0;
        check(dw_encode(encoder, &key, &sent, NULL, frame, cap, &len), "dw_encode");
        if (step == LOST) {
            printf("step %d: %4zu bytes, lost on the way\n", step, len);
            continue;
        }
        dw_status status =
            dw_decode(decoder, frame, len, &received, NULL, reply, reply_cap, &reply_len);
        printf("step %d: %4zu bytes, %s\n", step, len, dw_status_string(status));
        check(dw_encoder_take_reply(encoder, reply, reply_len), "dw_encoder_take_reply");
        if (status != DW_ERR_BASE) {
            check(status, "dw_decode");
            continue;
        }
        /* The reply names the version that the decoder holds, and the encoder still has that
         * version. It sends prev itself, so that the tensor of this step is not lost either. */
        refused++;
        check(dw_encoder_resync(encoder, &key, 1, frame, cap, &len), "dw_encoder_resync");
        check(dw_decode(decoder, frame, len, &received, NULL, reply, reply_cap, &reply_len),
              "dw_decode");
        check(dw_encoder_take_reply(encoder, reply, reply_len), "dw_encoder_take_reply");
        printf("        %4zu bytes heal it\n", len);
    }
    bool same = in_step(encoder, decoder, key);
    dw_counters count = {.struct_size = sizeof count};
    (void)dw_encoder_count(encoder, &count);
    printf("both ends hold %s bits; %llu NACK, %llu resync\n", same ? "the same" : "DIFFERENT",
           (unsigned long long)count.nacks, (unsigned long long)count.resyncs);

    free(frame);
    free(reply);
    dw_decoder_destroy(decoder);
    dw_encoder_destroy(encoder);
    return same && refused == 1 ? 0 : 1;
}
