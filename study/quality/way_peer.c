/* SPDX-License-Identifier: Apache-2.0
 * way_peer.c - the way to send tensors through a baseline: each tensor as it is, or, as in AQ-SGD,
 * its change since the sample's previous visit. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "way.h"

typedef struct loop {
    dw_way way; /* must be the first field, because a pointer to it is used as one to this struct */
    const dw_peer *peer;
    dw_shape shape;
    double setting;
    size_t n; /* how many values a tensor has */
    uint8_t *bytes;
    float *change; /* (n) */
    float *prev;   /* (places, n): what arrived at each sample's last visit; NULL without delta */
} loop;

/* Writes to *why that the baseline cannot do `what`. Returns an error. */
static dw_status fail(dw_why *why, const loop *l, const char *what)
{
    snprintf(why->text, sizeof why->text, "%s cannot %s", l->peer->name, what);
    return DW_ERR_FORMAT;
}

/* Returns whether all of n values are finite. The baselines convert values to integers, which is
 * not defined for NaN and infinities. */
static bool are_finite(const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(values[i])) return false;
    return true;
}

/* Encodes and decodes a tensor, or with prev its change. Subtracting prev counts as encoding, and
 * adding it as decoding, because deltawire's codecs do this in their calls, too. */
static dw_status send(dw_way *way, const dw_bench_visit *visit, float *y, dw_cost *cost,
                      dw_why *why)
{
    loop *l = (loop *)way;
    float *prev = l->prev ? l->prev + visit->place * l->n : NULL;
    const float *x = visit->x;
    cost->encode_s = cost->decode_s = 0;
    cost->bytes = l->n * sizeof *x;
    if (!are_finite(x, l->n)) return fail(why, l, "encode NaN or infinity, which a tensor has");
    if (prev && visit->first) {
        memcpy(prev, x, l->n * sizeof *x);
        memcpy(y, x, l->n * sizeof *x);
        return DW_OK;
    }
    double begin = dw_now_s();
    if (prev) {
        for (size_t i = 0; i < l->n; i++) l->change[i] = x[i] - prev[i];
        x = l->change;
    }
    cost->bytes = l->peer->encode(l->shape, l->setting, x, l->bytes);
    double middle = dw_now_s();
    if (!cost->bytes) return fail(why, l, "encode a tensor");
    if (!l->peer->decode(l->shape, l->setting, l->bytes, cost->bytes, y))
        return fail(why, l, "decode what it encoded");
    if (prev)
        for (size_t i = 0; i < l->n; i++) prev[i] = y[i] = prev[i] + y[i];
    cost->decode_s = dw_now_s() - middle;
    cost->encode_s = middle - begin;
    return DW_OK;
}

static uint64_t outside(const dw_way *way)
{
    (void)way;
    return 0; /* baselines do not count such values */
}

/* Frees the way and all that it has. */
static void part(dw_way *way)
{
    loop *l = (loop *)way;
    free(l->bytes);
    free(l->change);
    free(l->prev);
    free(l);
}

dw_status dw_way_of_peer(dw_way **way, const dw_bench_record *set, const dw_peer *peer,
                         double setting, bool delta, dw_why *why)
{
    loop *l = calloc(1, sizeof *l);
    bool made = l != NULL;
    if (made) {
        l->way = (dw_way){send, outside, part};
        l->peer = peer;
        l->shape = (dw_shape){set->T, set->C};
        l->setting = setting;
        l->n = (size_t)set->T * set->C;
        l->bytes = malloc(peer->room(l->shape, setting));
        l->change = malloc(l->n * sizeof *l->change);
        l->prev = delta ? calloc(set->places, l->n * sizeof *l->prev) : NULL;
        made = l->bytes && l->change && (l->prev || !delta);
    }
    if (made) {
        *way = &l->way;
        return DW_OK;
    }
    if (l) part(&l->way);
    snprintf(why->text, sizeof why->text, "%s", dw_status_string(DW_ERR_NO_MEMORY));
    return DW_ERR_NO_MEMORY;
}
