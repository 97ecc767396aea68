/* SPDX-License-Identifier: Apache-2.0
 * 04_link.c - two ranks and a channel between them. The channel handles replies, lost frames and
 * the transport.
 *
 * Two threads stand for two machines; "loop://" connects two ends within one process. On two
 * machines the URI would be "tcp://host:port", with role = DW_LINK_LISTEN at one end, and nothing
 * else would change.
 *
 * 04_link [URI]: try "shaped:rate=100mbit,delay=5ms/loop://example". */
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "deltawire/transport.h"

enum { SAMPLES = 4, T = 32, C = 256, EPOCHS = 3, CHANNEL = 1 };

static const char *uri = "loop://example";

/* Both ends run this function; they differ only in sends. */
static int open_ends(dw_link_role role, bool sends, dw_link **link, dw_channel **channel)
{
    dw_config codec;
    dw_why why;
    if (dw_config_parse(&codec, "delta:bits=4", &why) != DW_OK) {
        fprintf(stderr, "%s\n", why.text);
        return -1;
    }
    dw_link_options options = {.struct_size = sizeof options, .role = role};
    if (dw_link_open(link, uri, &options, &why) != DW_OK) {
        fprintf(stderr, "%s\n", why.text);
        return -1;
    }
    dw_channel_config config = {.struct_size = sizeof config, .id = CHANNEL};
    if (sends)
        config.send = &codec;
    else
        config.recv = &codec;
    if (dw_channel_open(channel, *link, &config, &why) != DW_OK) {
        fprintf(stderr, "%s\n", why.text);
        dw_link_close(*link);
        return -1;
    }
    return 0;
}

static float activation(int sample, int epoch, int i)
{
    return sinf((float)(sample * 911 + i) * 0.61f) +
           0.1f * cosf((float)i * 0.23f) / (float)(1 + epoch);
}

/* The first stage computes, hands the tensor over, and continues to compute while the tensor
 * travels. */
static void *first_stage(void *failed)
{
    dw_link *link = NULL;
    dw_channel *channel = NULL;
    if (open_ends(DW_LINK_LISTEN, true, &link, &channel) != 0) return failed;
    static float x[T * C];
    dw_tensor view = dw_tensor_3d(x, DW_F32, 1, T, C);
    void *result = NULL;
    for (int step = 0; step < EPOCHS * SAMPLES && !result; step++) {
        int epoch = step / SAMPLES, sample = step % SAMPLES;
        for (int i = 0; i < T * C; i++) x[i] = activation(sample, epoch, i);
        dw_key key = {.sample = (uint64_t)sample};
        if (dw_channel_send(channel, &key, &view, NULL) != DW_OK) {
            fprintf(stderr, "%s\n", dw_channel_why(channel));
            result = failed;
        }
    }
    dw_counters count = {.struct_size = sizeof count};
    dw_channel_count(channel, &count, NULL);
    printf("sent %llu tensors: %llu bytes became %llu\n", (unsigned long long)count.frames,
           (unsigned long long)count.raw_bytes, (unsigned long long)count.encoded_bytes);
    dw_channel_close(channel);
    dw_link_close(link); /* waits until all has been sent */
    return result;
}

/* The second stage receives the tensors in order, each with the key of its sample. */
static int second_stage(void)
{
    dw_link *link = NULL;
    dw_channel *channel = NULL;
    if (open_ends(DW_LINK_CONNECT, false, &link, &channel) != 0) return 1;
    static float y[T * C];
    dw_tensor view = dw_tensor_3d(y, DW_F32, 1, T, C);
    int failed = 0;
    double worst = 0;
    for (int step = 0; step < EPOCHS * SAMPLES && !failed; step++) {
        dw_key key;
        if (dw_channel_recv(channel, -1, &key, &view, NULL) != DW_OK) {
            fprintf(stderr, "%s\n", dw_channel_why(channel));
            failed = 1;
            break;
        }
        double square = 0, error = 0;
        for (int i = 0; i < T * C; i++) {
            double x = activation((int)key.sample, step / SAMPLES, i);
            square += x * x;
            error += (x - y[i]) * (x - y[i]);
        }
        worst = fmax(worst, sqrt(error / square));
    }
    dw_counters count = {.struct_size = sizeof count};
    dw_channel_count(channel, NULL, &count);
    printf("received %llu tensors, worst relative error %.4f\n", (unsigned long long)count.frames,
           worst);
    dw_channel_close(channel);
    dw_link_close(link);
    return failed || worst > 0.05;
}

int main(int argc, char **argv)
{
    if (argc > 1) uri = argv[1];
    static char failed;
    void *result = NULL;
    pthread_t thread;
    if (pthread_create(&thread, NULL, first_stage, &failed) != 0) return 1;
    int status = second_stage();
    pthread_join(thread, &result);
    return status || result ? 1 : 0;
}
