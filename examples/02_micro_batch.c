/* SPDX-License-Identifier: Apache-2.0
 * 02_micro_batch.c - sends the same samples in several epochs: first as a key frame, then only
 * their changes.
 *
 * Four samples travel in micro-batches of two, in a different order in each epoch. As in
 * fine-tuning, the activation of a sample changes little from one epoch to the next. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "deltawire/deltawire.h"

enum { SAMPLES = 4, N = 2, T = 64, C = 512, EPOCHS = 4 };

static void check(dw_status status, const char *what)
{
    if (status == DW_OK) return;
    fprintf(stderr, "%s: %s\n", what, dw_status_string(status));
    exit(1);
}

/* The model's activation for a sample in an epoch. Training changes it by an amount that shrinks
 * with every epoch. */
static void forward(float *x, int sample, int epoch)
{
    for (int i = 0; i < T * C; i++)
        x[i] = sinf((float)(sample * 911 + i) * 0.61f) +
               0.1f * cosf((float)i * 0.23f) / (float)(1 + epoch);
}

static double relative_error(const float *x, const float *y)
{
    double square = 0, error = 0;
    for (int i = 0; i < N * T * C; i++) {
        square += (double)x[i] * x[i];
        error += (double)(x[i] - y[i]) * (x[i] - y[i]);
    }
    return sqrt(error / square);
}

int main(void)
{
    dw_config config;
    check(dw_config_parse(&config, "delta:bits=2,scale=signed", NULL), "dw_config_parse");
    dw_encoder *encoder;
    dw_decoder *decoder;
    check(dw_encoder_create(&encoder, &config, NULL, NULL), "dw_encoder_create");
    check(dw_decoder_create(&decoder, &config, NULL, NULL), "dw_decoder_create");

    static float x[N * T * C], y[N * T * C];
    dw_tensor sent = dw_tensor_3d(x, DW_F32, N, T, C), received = dw_tensor_3d(y, DW_F32, N, T, C);
    size_t cap = dw_frame_bound(&config, &sent), reply_cap = dw_reply_bound(N);
    void *frame = malloc(cap), *reply = malloc(reply_cap);
    if (!frame || !reply) return 1;

    double first = 0, last = 0;
    printf("epoch  bytes of x  bytes sent  ratio  error\n");
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        size_t bytes = 0;
        for (int batch = 0; batch < SAMPLES / N; batch++) {
            dw_key keys[N];
            for (int n = 0; n < N; n++) {
                /* The order does not matter, because the key names the sample. */
                int sample = (batch * N + n + epoch) % SAMPLES;
                keys[n] = (dw_key){.sample = (uint64_t)sample};
                forward(x + n * T * C, sample, epoch);
            }
            size_t len = 0, reply_len = 0;
            check(dw_encode(encoder, keys, &sent, NULL, frame, cap, &len), "dw_encode");
            check(dw_decode(decoder, frame, len, &received, NULL, reply, reply_cap, &reply_len),
                  "dw_decode");
            check(dw_encoder_take_reply(encoder, reply, reply_len), "dw_encoder_take_reply");
            bytes += len;
            last = relative_error(x, y);
        }
        if (epoch == 0) first = last;
        size_t raw = (size_t)SAMPLES * T * C * sizeof(float);
        printf("%5d  %10zu  %10zu  %5.1f  %.5f\n", epoch + 1, raw, bytes,
               (double)raw / (double)bytes, last);
    }
    dw_counters count = {.struct_size = sizeof count};
    (void)dw_encoder_count(encoder, &count);
    printf("%llu key entries, %llu delta entries; |x - prev| / |x| = %.3f\n",
           (unsigned long long)count.key_entries, (unsigned long long)count.delta_entries,
           sqrt(count.delta_square / count.x_square));

    free(frame);
    free(reply);
    dw_decoder_destroy(decoder);
    dw_encoder_destroy(encoder);
    /* The first visit of each sample is a key entry, every later one a delta entry. */
    return count.key_entries == SAMPLES && count.delta_entries == SAMPLES * (EPOCHS - 1) &&
                   first < 0.05 && last < 0.05
               ? 0
               : 1;
}
