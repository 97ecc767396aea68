/* SPDX-License-Identifier: Apache-2.0
 * speed.c - measures bytes, times and error of a codec on random tensors. */
#include "speed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "complain.h"

/* The first visit is not measured: delta sends something else then. */
enum { VISITS = 5, MOST_ELEMENTS = 1 << 20 };

struct dw_speed {
    uint32_t n, t, c;
    size_t elements;
    double parts; /* the tensor has so many times what is measured */
    float *x[VISITS], *y;
    dw_key *keys;
};

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- Tensors --------------------------------------------------------------------------------- */

/* SplitMix64: the same numbers in every run. */
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

static void fill(dw_speed *speed, double change)
{
    uint64_t state = 1;
    /* A part of the last visit and a part of something new, so that the norm stays the same. */
    float of_old = (float)(1 - change * change / 2);
    float of_new = (float)(change * sqrt(1 - change * change / 4));
    for (size_t i = 0; i < speed->elements; i++) speed->x[0][i] = normal(&state);
    for (int v = 1; v < VISITS; v++)
        for (size_t i = 0; i < speed->elements; i++)
            speed->x[v][i] = of_old * speed->x[v - 1][i] + of_new * normal(&state);
}

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

static double error_of(const float *x, const float *y, size_t n)
{
    double lost = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        lost += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        all += (double)x[i] * x[i];
    }
    return sqrt(lost / all);
}

/* One visit. *way gets its figures, and keeps its times where they are shorter. */
static dw_status visit(const dw_speed *speed, int v, ends *e, dw_forecast_way *way)
{
    dw_tensor x = dw_tensor_3d(speed->x[v], DW_F32, speed->n, speed->t, speed->c);
    dw_tensor y = dw_tensor_3d(speed->y, DW_F32, speed->n, speed->t, speed->c);
    size_t len = 0, reply_len = 0;
    double begin = now_s();
    dw_status status = dw_encode(e->encoder, speed->keys, &x, e->frame, e->frame_cap, &len);
    double encoded = now_s();
    if (status == DW_OK)
        status = dw_decode(e->decoder, e->frame, len, &y, e->reply, e->reply_cap, &reply_len);
    double decoded = now_s();
    if (status == DW_OK && reply_len) status = dw_encoder_feedback(e->encoder, e->reply, reply_len);
    if (status < 0) return status;
    double encode_s = (encoded - begin) * speed->parts,
           decode_s = (decoded - encoded) * speed->parts;
    way->bytes = (double)len * speed->parts;
    if (v <= 1 || encode_s < way->encode_s) way->encode_s = encode_s;
    if (v <= 1 || decode_s < way->decode_s) way->decode_s = decode_s;
    way->error = error_of(speed->x[v], speed->y, speed->elements);
    return DW_OK;
}

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
    for (int v = 0; v < VISITS && status == DW_OK; v++) {
        status = visit(speed, v, &e, way);
        if (status < 0) dw_fail(&reason, status, "%s", dw_status_string(status));
    }
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
