/* SPDX-License-Identifier: Apache-2.0
 * speed.c - measures the bytes, the times and the error of a codec with random tensors. */
#include "speed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "complain.h"

/* Samples are sent VISITS times. The first visit does not count in the figures, because the codec
 * delta then sends key entries, which are larger. Of a larger tensor only MOST_ELEMENTS elements
 * are sent. */
enum { VISITS = 5, MOST_ELEMENTS = 1 << 20 };

struct dw_speed {
    uint32_t n, t, c; /* the shape that is measured: samples, tokens, channels */
    size_t elements;
    double parts; /* how many times as large as this the tensor of the caller is */
    float *x[VISITS], *y;
    dw_key *keys; /* (n) */
};

/* ---- Tensors --------------------------------------------------------------------------------- */

/* Returns a random number between 0 and 1, by the generator SplitMix64. All runs begin with the
 * same state, so they have the same tensors. */
static double uniform(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return ((double)((z ^ z >> 31) >> 11) + 0.5) * 0x1p-53;
}

/* Returns a random number with the standard normal distribution (Box and Muller's method). */
static float normal(uint64_t *state)
{
    double radius = sqrt(-2 * log(uniform(state)));
    return (float)(radius * cos(6.283185307179586 * uniform(state)));
}

/* Fills the tensors of all visits. Each differs from the one before by `change` times its norm. */
static void fill(dw_speed *speed, double change)
{
    uint64_t state = 1;
    /* A visit is the sum of a part of the last one and a part of new random values. The squares of
     * the two factors add up to 1, so all visits have the same norm. */
    float of_old = (float)(1 - change * change / 2);
    float of_new = (float)(change * sqrt(1 - change * change / 4));
    for (size_t i = 0; i < speed->elements; i++) speed->x[0][i] = normal(&state);
    for (int v = 1; v < VISITS; v++)
        for (size_t i = 0; i < speed->elements; i++)
            speed->x[v][i] = of_old * speed->x[v - 1][i] + of_new * normal(&state);
}

/* Returns `extent`, but at most `room`, and at least 1. */
static uint32_t at_most(uint32_t extent, size_t room)
{
    return room < 1 ? 1 : room < extent ? (uint32_t)room : extent;
}

dw_status dw_speed_open(dw_speed **made, uint32_t n, uint32_t t, uint32_t c, double change,
                        dw_why *why)
{
    dw_speed *speed = *made = calloc(1, sizeof *speed);
    if (!speed) return dw_fail(why, DW_ERR_NO_MEMORY, "out of memory");
    speed->c = c;
    speed->t = at_most(t, MOST_ELEMENTS / c);
    speed->n = at_most(n, MOST_ELEMENTS / ((size_t)speed->t * c));
    speed->elements = (size_t)speed->n * speed->t * c;
    speed->parts = (double)n * t / ((double)speed->n * speed->t);
    speed->keys = calloc(speed->n, sizeof *speed->keys);
    speed->y = calloc(speed->elements, sizeof *speed->y);
    bool complete = speed->keys && speed->y;
    for (int v = 0; v < VISITS; v++) {
        speed->x[v] = malloc(speed->elements * sizeof *speed->x[v]);
        complete = complete && speed->x[v];
    }
    if (!complete) {
        dw_speed_close(speed);
        *made = NULL;
        return dw_fail(why, DW_ERR_NO_MEMORY, "out of memory for tensors to measure with");
    }
    for (uint32_t i = 0; i < speed->n; i++) speed->keys[i].sample = i;
    fill(speed, change);
    return DW_OK;
}

void dw_speed_close(dw_speed *speed)
{
    if (!speed) return;
    for (int v = 0; v < VISITS; v++) free(speed->x[v]);
    free(speed->y);
    free(speed->keys);
    free(speed);
}

/* ---- Measuring ------------------------------------------------------------------------------- */

typedef struct ends {
    dw_encoder *encoder;
    dw_decoder *decoder;
    void *frame, *reply;
    size_t frame_cap, reply_cap;
} ends;

/* Returns |x - y| / |x|, of n values. */
static double error_of(const float *x, const float *y, size_t n)
{
    double lost = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        lost += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        all += (double)x[i] * x[i];
    }
    return sqrt(lost / all);
}

/* Writes the sentence to *why, or, if it is empty, what the status means. Returns status. */
static dw_status say(dw_why *why, dw_status status, const char *sentence)
{
    return dw_fail(why, status, "%s", *sentence ? sentence : dw_status_string(status));
}

/* Encodes and decodes the tensors of visit v, and gives the decoder's reply to the encoder. Sets
 * the bytes and the error in *way to those of this visit. Sets the times if they are shorter than
 * those in *way; visit 1 always sets them, since those of visit 0 do not count. */
static dw_status visit(const dw_speed *speed, int v, ends *e, dw_forecast_way *way, dw_why *why)
{
    dw_tensor x = dw_tensor_3d(speed->x[v], DW_F32, speed->n, speed->t, speed->c);
    dw_tensor y = dw_tensor_3d(speed->y, DW_F32, speed->n, speed->t, speed->c);
    size_t len = 0, reply_len = 0;
    double begin = dw_now_s();
    dw_status status = dw_encode(e->encoder, speed->keys, &x, e->frame, e->frame_cap, &len);
    double encoded = dw_now_s();
    if (status < 0) return say(why, status, dw_encoder_why(e->encoder));
    status = dw_decode(e->decoder, e->frame, len, &y, e->reply, e->reply_cap, &reply_len);
    double decoded = dw_now_s();
    if (status < 0) return say(why, status, dw_decoder_why(e->decoder));
    if (reply_len) status = dw_encoder_feedback(e->encoder, e->reply, reply_len);
    if (status < 0) return say(why, status, dw_encoder_why(e->encoder));
    double encode_s = (encoded - begin) * speed->parts,
           decode_s = (decoded - encoded) * speed->parts;
    way->bytes = (double)len * speed->parts;
    if (v <= 1 || encode_s < way->encode_s) way->encode_s = encode_s;
    if (v <= 1 || decode_s < way->decode_s) way->decode_s = decode_s;
    way->error = error_of(speed->x[v], speed->y, speed->elements);
    return DW_OK;
}

/* Creates an encoder and a decoder, and memory for frames and replies. After an error the caller
 * frees what *e has. */
static dw_status open_ends(const dw_speed *speed, const dw_config *config, ends *e, dw_why *why)
{
    dw_tensor x = dw_tensor_3d(speed->x[0], DW_F32, speed->n, speed->t, speed->c);
    dw_status status = dw_encoder_create_why(&e->encoder, config, why);
    if (status == DW_OK) status = dw_decoder_create_why(&e->decoder, config, why);
    if (status < 0) return status;
    e->frame_cap = dw_frame_bound(config, &x);
    e->reply_cap = dw_reply_bound(speed->n);
    e->frame = malloc(e->frame_cap);
    e->reply = malloc(e->reply_cap);
    if (e->frame && e->reply) return DW_OK;
    return dw_fail(why, DW_ERR_NO_MEMORY, "out of memory for a frame");
}

dw_status dw_speed_measure(const dw_speed *speed, const char *codec, dw_forecast_way *way,
                           dw_why *why)
{
    ends e = {0};
    dw_config config;
    dw_why reason = {.offset = -1};
    *way = (dw_forecast_way){0};
    dw_status status = dw_config_parse(&config, codec, &reason);
    if (status == DW_OK) status = open_ends(speed, &config, &e, &reason);
    for (int v = 0; v < VISITS && status == DW_OK; v++) status = visit(speed, v, &e, way, &reason);
    dw_encoder_destroy(e.encoder);
    dw_decoder_destroy(e.decoder);
    free(e.frame);
    free(e.reply);
    if (status == DW_OK) return DW_OK;
    if (reason.offset >= 0 && (size_t)reason.offset <= strlen(codec))
        return dw_fail(why, status, "codec \"%.60s\", at \"%.40s\": %.120s", codec,
                       codec + reason.offset, reason.text);
    return dw_fail(why, status, "codec \"%.60s\": %.180s", codec, reason.text);
}
