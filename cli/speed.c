/* SPDX-License-Identifier: Apache-2.0
 * speed.c - measures the bytes, the times and the error of a codec with random tensors. */
#include "speed.h"

#include <math.h>
#include <stdlib.h>

#include "complain.h"
#include "ends.h"

/* Samples are sent VISITS times. The first visit does not count in the figures, because the codec
 * delta then sends key entries, which are larger. Of a larger tensor only MOST_ELEMENTS elements
 * are sent. */
enum { VISITS = 5, MOST_ELEMENTS = 1 << 20 };

struct dw_speed {
    uint32_t n, t, c; /* the shape that is measured: samples, tokens, channels */
    size_t elements;
    double parts; /* how many times as large as this the tensor of the caller is */
    float *x[VISITS], *y;
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
    if (!speed) return dw_say(why, DW_ERR_NO_MEMORY, "out of memory");
    speed->c = c;
    speed->t = at_most(t, MOST_ELEMENTS / c);
    speed->n = at_most(n, MOST_ELEMENTS / ((size_t)speed->t * c));
    speed->elements = (size_t)speed->n * speed->t * c;
    speed->parts = (double)n * t / ((double)speed->n * speed->t);
    speed->y = calloc(speed->elements, sizeof *speed->y);
    bool complete = speed->y;
    for (int v = 0; v < VISITS; v++) {
        speed->x[v] = malloc(speed->elements * sizeof *speed->x[v]);
        complete = complete && speed->x[v];
    }
    if (!complete) {
        dw_speed_close(speed);
        *made = NULL;
        return dw_say(why, DW_ERR_NO_MEMORY, "out of memory for tensors to measure with");
    }
    fill(speed, change);
    return DW_OK;
}

void dw_speed_close(dw_speed *speed)
{
    if (!speed) return;
    for (int v = 0; v < VISITS; v++) free(speed->x[v]);
    free(speed->y);
    free(speed);
}

/* ---- Measuring ------------------------------------------------------------------------------- */

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

/* Encodes and decodes the tensors of visit v, and gives the decoder's reply to the encoder. Sets
 * the bytes and the error in *way to those of this visit. Sets the times if they are shorter than
 * those in *way; visit 1 always sets them, since those of visit 0 do not count. */
static dw_status visit(const dw_speed *speed, int v, dw_ends *e, dw_forecast_way *way, dw_why *why)
{
    dw_tensor x = dw_tensor_3d(speed->x[v], DW_F32, speed->n, speed->t, speed->c);
    dw_tensor y = dw_tensor_3d(speed->y, DW_F32, speed->n, speed->t, speed->c);
    dw_status status = dw_ends_visit(e, &x, &y, why);
    if (status < 0) return status;
    double encode_s = e->encode_s * speed->parts, decode_s = e->decode_s * speed->parts;
    way->bytes = (double)e->len * speed->parts;
    if (v <= 1 || encode_s < way->encode_s) way->encode_s = encode_s;
    if (v <= 1 || decode_s < way->decode_s) way->decode_s = decode_s;
    way->error = error_of(speed->x[v], speed->y, speed->elements);
    return DW_OK;
}

dw_status dw_speed_measure(const dw_speed *speed, const char *codec, dw_forecast_way *way,
                           dw_why *why)
{
    dw_ends e = {0};
    dw_config config;
    dw_why reason = {.offset = -1};
    dw_tensor x = dw_tensor_3d(speed->x[0], DW_F32, speed->n, speed->t, speed->c);
    *way = (dw_forecast_way){0};
    dw_status status = dw_config_parse(&config, codec, &reason);
    if (status == DW_OK) status = dw_ends_open(&e, &config, &x, &reason);
    for (int v = 0; v < VISITS && status == DW_OK; v++) status = visit(speed, v, &e, way, &reason);
    dw_ends_close(&e);
    return status == DW_OK ? DW_OK : dw_fail_codec(why, status, codec, &reason);
}
