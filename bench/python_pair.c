/* SPDX-License-Identifier: Apache-2.0
 * python_pair.c - encode, decode and feedback in C, as bench/python.py does them from Python: it
 * reads numbers of rounds, and answers each with the nanoseconds of the fastest and of all. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "deltawire/deltawire.h"

enum { N = 4, T = 128, C = 768, BYTES = N * T * C * 2 };

typedef struct pair {
    dw_encoder *encoder;
    dw_decoder *decoder;
    dw_tensor x, y;
    dw_key keys[N];
    void *frame, *reply;
    size_t cap, reply_cap;
} pair;

static dw_status once(pair *p)
{
    size_t len, reply_len;
    dw_status status = dw_encode(p->encoder, p->keys, &p->x, NULL, p->frame, p->cap, &len);
    if (!status)
        status =
            dw_decode(p->decoder, p->frame, len, &p->y, NULL, p->reply, p->reply_cap, &reply_len);
    return status ? status : dw_encoder_take_reply(p->encoder, p->reply, reply_len);
}

static int serve(pair *p)
{
    int rounds;
    while (scanf("%d", &rounds) == 1) {
        uint64_t fastest = UINT64_MAX, start = dw_now_ns();
        for (int i = 0; i < rounds; i++) {
            uint64_t from = dw_now_ns();
            dw_status status = once(p);
            uint64_t took = dw_now_ns() - from;
            if (took < fastest) fastest = took;
            if (status) {
                fprintf(stderr, "python_pair: %s\n", dw_status_string(status));
                return 1;
            }
        }
        printf("%" PRIu64 " %" PRIu64 "\n", fastest, dw_now_ns() - start);
        fflush(stdout);
    }
    return 0;
}

/* usage: python_pair CONFIG FILE, which has the bits of x */
int main(int argc, char **argv)
{
    static unsigned char x[BYTES], y[BYTES];
    pair p = {.x = dw_tensor_3d(x, DW_BF16, N, T, C), .y = dw_tensor_3d(y, DW_BF16, N, T, C)};
    dw_config config;
    dw_why why = {.text = ""};
    FILE *file = argc == 3 ? fopen(argv[2], "rb") : NULL;
    if (!file || fread(x, 1, BYTES, file) != BYTES) {
        fprintf(stderr, "usage: python_pair CONFIG FILE\n");
        return 2;
    }
    fclose(file);
    if (dw_config_parse(&config, argv[1], &why) ||
        dw_encoder_create(&p.encoder, &config, NULL, &why) ||
        dw_decoder_create(&p.decoder, &config, NULL, &why)) {
        fprintf(stderr, "python_pair: %s\n", why.text);
        return 2;
    }
    p.cap = dw_frame_bound(&config, &p.x);
    p.reply_cap = dw_reply_bound(N);
    p.frame = malloc(p.cap);
    p.reply = malloc(p.reply_cap);
    for (uint32_t i = 0; i < N; i++) p.keys[i].sample = i;
    int code = p.frame && p.reply ? serve(&p) : 2;
    free(p.frame);
    free(p.reply);
    dw_encoder_destroy(p.encoder);
    dw_decoder_destroy(p.decoder);
    return code;
}
