/* SPDX-License-Identifier: Apache-2.0
 * tile.c - calls the kernels directly, with all data in the cache. */
#include "tile.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/kernels.h"

enum { TILE = 2048, ROUNDS = 15, CALLS = 100 };

typedef struct tile {
    _Alignas(64) unsigned char x[4 * TILE], prev[4 * TILE], next[4 * TILE];
    uint8_t payload[2 * TILE / 16 + TILE + 64]; /* scales, codes */
    uint8_t choices[TILE / 16 / 8 + 8];
    dw_encode_run encode;
    dw_decode_run decode;
    dw_dither dither;
    dw_mx_encode_run mx_encode; /* used instead of both where the config has an element */
    dw_mx_decode_run mx_decode;
    dw_step_run step; /* of one piece; used instead where its `stored` is not 0 */
    dw_piece_counts counts;
    uint64_t sum, payload_bytes;
    bool encodes, has_state, audits;
} tile;

/* Values between -1 and 1 with the resolution of a half, and changes of a sixteenth of that. */
static void make_values(unsigned char *to, const unsigned char *base, dw_dtype dtype)
{
    uint32_t seed = 1;
    for (size_t i = 0; i < TILE; i++) {
        seed = seed * 1664525u + 1013904223u;
        float value = (float)(int32_t)seed * (1.0f / 2147483648.0f), from = 0;
        if (base && dtype == DW_F32) {
            memcpy(&from, base + 4 * i, 4);
            value = from + value / 16;
        }
        if (dtype == DW_F32) {
            memcpy(to + 4 * i, &value, 4);
        } else {
            uint16_t half = base ? (uint16_t)(base[2 * i] | base[2 * i + 1] << 8)
                                 : (uint16_t)(seed >> 16 & 0x83ff);
            half = (uint16_t)(base ? half + (seed >> 16 & 7) : half | 0x3c00);
            memcpy(to + 2 * i, &half, 2);
        }
    }
}

static void set_up(tile *t, const dw_config *config, bool encodes, dw_dtype x)
{
    uint32_t pieces = TILE / config->group;
    bool chooses = config->codec == DW_CODEC_DELTA && config->choose == DW_CHOOSE_GROUP;
    t->encodes = encodes;
    t->has_state = config->codec == DW_CODEC_DELTA;
    t->audits = t->has_state && config->audit != DW_AUDIT_NEVER;
    t->dither = (dw_dither){.key = 1};
    t->payload_bytes = (2 * pieces + TILE * config->bits / 8 + 15) / 16 * 16;
    make_values(t->prev, NULL, t->has_state ? config->prev : x);
    make_values(t->x, t->has_state && config->prev == x ? t->prev : NULL, x);
    uint8_t *codes = t->payload + 2 * pieces;
    t->encode =
        (dw_encode_run){.x_dtype = x,
                        .prev_dtype = t->has_state ? config->prev : x,
                        .bits = config->bits,
                        .width = config->group,
                        .pieces = pieces,
                        .scale = config->scale ? config->scale : DW_SCALE_SIGNED,
                        .channels = TILE,
                        .x = t->x,
                        .prev = t->has_state ? t->prev : NULL,
                        .next = t->has_state ? t->next : NULL,
                        .scales = t->payload,
                        .choices = chooses ? t->choices : NULL,
                        .codes = codes,
                        .tile_elements = TILE,
                        .dither = config->rounding == DW_ROUNDING_STOCHASTIC ? &t->dither : NULL,
                        .counts = &t->counts};
    t->decode = (dw_decode_run){.out_dtype = t->has_state ? config->prev : x,
                                .prev_dtype = t->has_state ? config->prev : x,
                                .bits = config->bits,
                                .width = config->group,
                                .pieces = pieces,
                                .channels = TILE,
                                .prev = t->has_state ? t->prev : NULL,
                                .out = t->next,
                                .poison_keeps = t->has_state,
                                .scales = t->payload,
                                .choices = chooses ? t->choices : NULL,
                                .codes = codes,
                                .tile_elements = TILE,
                                .sum = t->audits ? &t->sum : NULL};
}

/* The same for runs of blocks of 32. */
static void set_up_mx(tile *t, dw_element element)
{
    uint32_t blocks = TILE / DW_MX_BLOCK;
    const dw_encode_run *e = &t->encode;
    const dw_decode_run *d = &t->decode;
    t->payload_bytes = blocks + TILE * dw_element_facts_of(element).bits / 8;
    t->mx_encode = (dw_mx_encode_run){.x_dtype = e->x_dtype,
                                      .prev_dtype = e->prev_dtype,
                                      .element = element,
                                      .blocks = blocks,
                                      .channels = TILE,
                                      .x = e->x,
                                      .prev = e->prev,
                                      .next = e->next,
                                      .scales = t->payload,
                                      .choices = e->choices,
                                      .codes = t->payload + blocks,
                                      .tile_elements = TILE,
                                      .counts = &t->counts};
    t->mx_decode = (dw_mx_decode_run){.out_dtype = d->out_dtype,
                                      .prev_dtype = d->prev_dtype,
                                      .element = element,
                                      .blocks = blocks,
                                      .channels = TILE,
                                      .prev = d->prev,
                                      .out = d->out,
                                      .poison_keeps = d->poison_keeps,
                                      .scales = t->payload,
                                      .choices = d->choices,
                                      .codes = t->payload + blocks,
                                      .tile_elements = TILE,
                                      .sum = d->sum};
}

/* The same for codes of one step, which all of the tile or a group of it shares. The step is fixed:
 * it is about the root mean square of what make_values makes. */
static void set_up_step(tile *t, const dw_config *config)
{
    uint32_t width = config->group <= 256 ? config->group : TILE;
    t->payload_bytes = TILE + (width < TILE ? 2 * TILE / width : 0);
    t->step = (dw_step_run){.x_dtype = t->encode.x_dtype,
                            .prev_dtype = t->encode.prev_dtype,
                            .n = width,
                            .stored = width,
                            .scale = t->has_state ? 0x3d14 : 0x3f14,
                            .rounding = config->rounding,
                            .dither = t->dither};
}

/* Encodes or decodes the pieces of a tile in steps, one after the other. */
static void run_steps(const dw_kernels *kernels, tile *t, bool encodes)
{
    dw_step_run run = t->step;
    size_t of_x = dw_dtype_bytes(run.x_dtype), of_prev = dw_dtype_bytes(run.prev_dtype);
    if (!encodes && t->has_state) run.x_dtype = run.prev_dtype;
    for (size_t at = 0; at < TILE; at += run.stored) {
        double lanes[DW_NORM_LANES] = {0};
        uint32_t largest = 0;
        run.x = t->x + at * of_x;
        run.prev = t->has_state ? t->prev + at * of_prev : NULL;
        run.next = t->has_state ? t->next + at * of_prev : NULL;
        run.out = t->next + at * (t->has_state ? of_prev : of_x);
        run.codes = t->payload + at;
        run.dither.element = at;
        if (encodes) {
            kernels->step_squares(run.x, run.x_dtype, run.prev, run.prev_dtype, run.n, DW_NO_LIMIT,
                                  lanes, &largest);
            kernels->step_encode(&run);
        } else {
            kernels->step_decode(&run);
            if (t->audits) t->sum += kernels->digest(run.out, run.prev_dtype, at, run.n);
        }
        t->sum += largest;
    }
}

static void encode(const dw_kernels *kernels, tile *t)
{
    if (t->step.stored) {
        run_steps(kernels, t, true);
        return;
    }
    memset(t->choices, 0, sizeof t->choices); /* bits are set one by one */
    if (t->mx_encode.element)
        kernels->mx_encode(&t->mx_encode);
    else
        kernels->encode(&t->encode);
}

static void decode(const dw_kernels *kernels, tile *t)
{
    if (t->step.stored)
        run_steps(kernels, t, false);
    else if (t->mx_decode.element)
        kernels->mx_decode(&t->mx_decode);
    else
        kernels->decode(&t->decode);
}

static void call(const dw_kernels *kernels, tile *t)
{
    if (t->encodes) {
        encode(kernels, t);
        if (t->audits) t->sum += kernels->digest(t->next, t->encode.prev_dtype, 0, TILE);
    } else {
        decode(kernels, t);
    }
    t->sum += kernels->digest_bytes(t->payload, 0, t->payload_bytes);
}

static int by_size(const void *a, const void *b)
{
    double first = *(const double *)a, second = *(const double *)b;
    return (first > second) - (first < second);
}

static double seconds_between(struct timespec from, struct timespec to)
{
    return (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) * 1e-9;
}

double dw_bench_tile_seconds(const char *table, const dw_config *config, bool encodes, dw_dtype x)
{
    static tile t;
    const dw_kernels *kernels = dw_kernels_find(table);
    dw_config own = *config;
    if (own.element) own.group = DW_MX_BLOCK;
    bool steps = own.form == DW_FORM_STEP;
    if (!kernels || own.codec == DW_CODEC_RAW || own.group == 0 ||
        (steps ? own.group == DW_GROUP_ROW : own.group > 256 || TILE % own.group))
        return 0;
    memset(&t, 0, sizeof t);
    set_up(&t, &own, encodes, x);
    if (steps) set_up_step(&t, &own);
    if (own.element) set_up_mx(&t, own.element);
    if (!encodes) encode(kernels, &t); /* realistic codes and scales */
    double rounds[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        struct timespec begin, end;
        timespec_get(&begin, TIME_UTC);
        for (int i = 0; i < CALLS; i++) call(kernels, &t);
        timespec_get(&end, TIME_UTC);
        rounds[round] = seconds_between(begin, end);
    }
    qsort(rounds, ROUNDS, sizeof *rounds, by_size);
    return rounds[ROUNDS / 2] / CALLS / (double)(TILE * dw_dtype_bytes(x));
}
