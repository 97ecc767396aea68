/* SPDX-License-Identifier: Apache-2.0
 * speed.c - how fast one thread encodes and decodes a tensor with each of several codecs, and how
 * many bits and what error that makes. Prints a line of JSON for each codec; compare.py reads them.
 *
 * The tensor has normal values, and 1 % of its channels are 20 times as large. Every visit of it is
 * a little different from the one before, so that codecs which keep something from visit to visit
 * find what they are made for. A codec that the library does not know gets a line that says why. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "deltawire/deltawire.h"

enum { T = 512, C = 1024, VISITS = 4, FAILED = 1, USAGE = 2 };
static const size_t COUNT = (size_t)T * C;
static const double LEAST_S = 0.2; /* how long each codec is measured */

/* Splitmix64, and the method of Box and Muller. */
static double uniform(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return ((double)((z ^ z >> 31) >> 11) + 0.5) * 0x1p-53;
}

static float normal(uint64_t *state)
{
    double radius = sqrt(-2 * log(uniform(state)));
    return (float)(radius * cos(6.283185307179586 * uniform(state)));
}

/* Fills the tensors of all visits. A visit has a fifth of a new tensor added to the last one. */
static void fill(float *x)
{
    uint64_t state = 1;
    for (size_t i = 0; i < VISITS * COUNT; i++) {
        float value = normal(&state) * (i % C % 100 == 7 ? 20.0f : 1.0f);
        x[i] = i < COUNT ? value : x[i - COUNT] + 0.2f * value;
    }
}

/* What was measured: seconds of the fastest encode and decode, bytes of the last frame, and the
 * relative error of the last visit. */
typedef struct figures {
    double encode_s, decode_s, bytes, error;
} figures;

/* Sends one visit, and measures it. The ends, and their frame of `cap` bytes. */
static dw_status send(dw_encoder *encoder, dw_decoder *decoder, const float *x, float *y,
                      uint8_t *frame, size_t cap, figures *f)
{
    const dw_key key = {1, 0};
    uint8_t reply[1024];
    size_t len, reply_len = 0;
    dw_tensor tx = dw_tensor_3d((void *)(uintptr_t)x, DW_F32, 1, T, C),
              ty = dw_tensor_3d(y, DW_F32, 1, T, C);
    double start = dw_now_s();
    dw_status status = dw_encode(encoder, &key, &tx, NULL, frame, cap, &len);
    double between = dw_now_s();
    if (!status)
        status = dw_decode(decoder, frame, len, &ty, NULL, reply, sizeof reply, &reply_len);
    double end = dw_now_s();
    if (!status && reply_len) status = dw_encoder_take_reply(encoder, reply, reply_len);
    if (status) return status;
    if (between - start < f->encode_s) f->encode_s = between - start;
    if (end - between < f->decode_s) f->decode_s = end - between;
    f->bytes = (double)len;
    return DW_OK;
}

static double error_of(const float *x, const float *y)
{
    double off = 0, all = 0;
    for (size_t i = 0; i < COUNT; i++) {
        off += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        all += (double)x[i] * x[i];
    }
    return sqrt(off / all);
}

/* Measures a codec. On an error, *why says what an end says of it, if it does. */
static dw_status measure(const dw_config *config, const float *x, float *y, figures *f, dw_why *why)
{
    dw_encoder *encoder = NULL;
    dw_decoder *decoder = NULL;
    dw_tensor shape = dw_tensor_3d(y, DW_F32, 1, T, C);
    size_t cap = dw_frame_bound(config, &shape);
    uint8_t *frame = malloc(cap ? cap : 1);
    dw_status status = frame ? dw_encoder_create(&encoder, config, NULL, NULL) : DW_ERR_NO_MEMORY;
    if (!status) status = dw_decoder_create(&decoder, config, NULL, NULL);
    *f = (figures){.encode_s = 1e9, .decode_s = 1e9};
    double start = dw_now_s();
    for (int visit = 0; !status && (visit < VISITS || dw_now_s() - start < LEAST_S); visit++) {
        /* The first visit of all costs more than others with some codecs. */
        if (visit == 1) f->encode_s = f->decode_s = 1e9;
        /* Forth and back, so that neighbouring visits are always similar. */
        int turn = visit % (2 * VISITS - 2), which = turn < VISITS ? turn : 2 * VISITS - 2 - turn;
        const float *now_x = x + (size_t)which * COUNT;
        status = send(encoder, decoder, now_x, y, frame, cap, f);
        if (!status) f->error = error_of(now_x, y);
        if (status)
            snprintf(why->text, sizeof why->text, "%s",
                     *dw_encoder_why(encoder) ? dw_encoder_why(encoder) : dw_decoder_why(decoder));
    }
    if (encoder) dw_encoder_destroy(encoder);
    if (decoder) dw_decoder_destroy(decoder);
    free(frame);
    return status;
}

/* Prints a text within a JSON string. */
static void print_quoted(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') putchar('\\');
        putchar((unsigned char)*text < ' ' ? ' ' : *text);
    }
    putchar('"');
}

static void report(const char *text, const float *x, float *y)
{
    dw_config config;
    dw_why why = {.text = ""};
    figures f = {0};
    printf("{\"codec\": ");
    print_quoted(text);
    dw_status status = dw_config_parse(&config, text, &why);
    if (!status && x) status = measure(&config, x, y, &f, &why);
    if (status) {
        printf(", \"refused\": ");
        print_quoted(*why.text ? why.text : dw_status_string(status));
    } else if (x) {
        double bytes = 4.0 * (double)COUNT;
        printf(", \"encode_GBps\": %.4g, \"decode_GBps\": %.4g, \"bits\": %.4g, \"error\": %.4g",
               bytes / f.encode_s / 1e9, bytes / f.decode_s / 1e9, 8 * f.bytes / (double)COUNT,
               f.error);
    }
    printf("}\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    bool only_parses = argc > 1 && strcmp(argv[1], "--parse") == 0;
    if (argc < 2 + only_parses) {
        fprintf(stderr, "usage: speed [--parse] CODEC...\n"
                        "Measures each codec, or, with --parse, only says whether it is known.\n");
        return USAGE;
    }
    float *x = only_parses ? NULL : malloc(VISITS * COUNT * sizeof *x),
          *y = only_parses ? NULL : malloc(COUNT * sizeof *y);
    if (!only_parses && (!x || !y)) return FAILED;
    if (x) fill(x);
    for (int i = 1 + only_parses; i < argc; i++) report(argv[i], x, y);
    free(x);
    free(y);
    return 0;
}
