/* SPDX-License-Identifier: Apache-2.0
 * parameters.c - the tensors of each part, their shapes and their initial values. */
#include "parameters.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops.h"
#include "random.h"

enum { CACHE_LINE = 64 };

float *dw_floats(size_t n)
{
    if (n > SIZE_MAX / sizeof(float) - CACHE_LINE) return NULL;
    size_t bytes = (n * sizeof(float) + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    float *room = aligned_alloc(CACHE_LINE, bytes ? bytes : CACHE_LINE);
    if (room) memset(room, 0, bytes);
    return room;
}

dw_status dw_model_shape_check(const dw_model_shape *shape, dw_why *why)
{
    dw_why unused;
    if (!why) why = &unused;
    why->offset = -1;
    uint32_t L = shape->layers, C = shape->channels, H = shape->heads, T = shape->context;
    if (L < 1 || L > 9999)
        snprintf(why->text, sizeof why->text, "layers is %u; give 1 to 9999", L);
    else if (C < DW_LANES || C > 65536 || C % DW_LANES)
        snprintf(why->text, sizeof why->text, "channels is %u; give a multiple of %d up to 65536",
                 C, DW_LANES);
    else if (H < 1 || C % H)
        snprintf(why->text, sizeof why->text,
                 "heads is %u; give a number that divides the %u channels", H, C);
    else if (T < 1 || T > 65536)
        snprintf(why->text, sizeof why->text, "context is %u; give 1 to 65536 tokens", T);
    else
        return DW_OK;
    return DW_ERR_ARGUMENT;
}

uint32_t dw_model_parts(const dw_model_shape *shape)
{
    return shape->layers + 2;
}

const char *dw_model_shape_text(const dw_model_shape *shape, char text[DW_SHAPE_TEXT_BYTES])
{
    snprintf(text, DW_SHAPE_TEXT_BYTES, "%u layers, %u channels, %u heads, context %u%s",
             shape->layers, shape->channels, shape->heads, shape->context,
             shape->tied ? ", tied embeddings" : "");
    return text;
}

static void add_tensor(dw_part *part, const char *name, uint32_t rows, uint32_t columns,
                       float deviation, float start)
{
    uint32_t stream = part->index * DW_PARAMETERS_MAX + part->n_tensors;
    part->tensors[part->n_tensors++] = (dw_parameter){.name = name,
                                                      .rows = rows,
                                                      .columns = columns,
                                                      .offset = part->n,
                                                      .deviation = deviation,
                                                      .start = start,
                                                      .stream = stream};
    part->n += (size_t)rows * columns;
}

/* The order is that of the enumerations in parameters.h. */
static void list_tensors(dw_part *part, const dw_model_shape *shape)
{
    uint32_t L = shape->layers, C = shape->channels, T = shape->context, V = DW_VOCABULARY;
    float deviation = 0.02f;
    if (part->index == 0) {
        strcpy(part->name, "embed");
        add_tensor(part, "tokens", V, C, deviation, 0);
        add_tensor(part, "positions", T, C, deviation, 0);
        return;
    }
    if (part->index == L + 1) {
        strcpy(part->name, "head");
        add_tensor(part, "norm.scale", 1, C, 0, 1);
        add_tensor(part, "norm.shift", 1, C, 0, 0);
        add_tensor(part, "logits", V, C, deviation, 0);
        /* The same values as embed.tokens, whose stream is the first one. */
        if (shape->tied) part->tensors[DW_HEAD_LOGITS].stream = DW_EMBED_TOKENS;
        return;
    }
    /* 2 L products are added to the residual stream; with this scale the variance of their sum does
     * not depend on L. */
    float residual = deviation / sqrtf(2.0f * (float)L);
    snprintf(part->name, sizeof part->name, "block-%02u", part->index - 1);
    add_tensor(part, "norm1.scale", 1, C, 0, 1);
    add_tensor(part, "norm1.shift", 1, C, 0, 0);
    add_tensor(part, "qkv", 3 * C, C, deviation, 0);
    add_tensor(part, "qkv.bias", 1, 3 * C, 0, 0);
    add_tensor(part, "join", C, C, residual, 0);
    add_tensor(part, "join.bias", 1, C, 0, 0);
    add_tensor(part, "norm2.scale", 1, C, 0, 1);
    add_tensor(part, "norm2.shift", 1, C, 0, 0);
    add_tensor(part, "widen", 4 * C, C, deviation, 0);
    add_tensor(part, "widen.bias", 1, 4 * C, 0, 0);
    add_tensor(part, "narrow", C, 4 * C, residual, 0);
    add_tensor(part, "narrow.bias", 1, C, 0, 0);
}

dw_status dw_part_create(dw_part *part, const dw_model_shape *shape, uint32_t index)
{
    memset(part, 0, sizeof *part);
    part->index = index;
    list_tensors(part, shape);
    bool has_copy = shape->tied && index == shape->layers + 1;
    part->n_own = has_copy ? part->tensors[DW_HEAD_LOGITS].offset : part->n;
    part->params = dw_floats(4 * part->n);
    if (!part->params) return DW_ERR_NO_MEMORY;
    part->grads = part->params + part->n;
    part->mean = part->grads + part->n;
    part->square = part->mean + part->n;
    return DW_OK;
}

void dw_part_destroy(dw_part *part)
{
    free(part->params);
    part->params = NULL;
}

/* (0, 1], so that its logarithm is finite. */
static double unit(uint32_t bits)
{
    return ((double)bits + 1.0) / 4294967296.0;
}

/* The Box-Muller transform makes four normal numbers of four random words. */
static void draw_normal(float *x, size_t n, float deviation, uint64_t seed, uint32_t stream)
{
    double turn = 6.283185307179586;
    for (size_t i = 0; i < n; i += 4) {
        philox4x32_ctr_t word = dw_random(seed, DW_RANDOM_PARAMETERS, stream, i / 4);
        for (size_t pair = 0; pair < 2; pair++) {
            double radius = deviation * sqrt(-2.0 * log(unit(word.v[2 * pair])));
            double angle = turn * unit(word.v[2 * pair + 1]);
            if (i + 2 * pair < n) x[i + 2 * pair] = (float)(radius * cos(angle));
            if (i + 2 * pair + 1 < n) x[i + 2 * pair + 1] = (float)(radius * sin(angle));
        }
    }
}

void dw_part_initialize(dw_part *part, uint64_t seed)
{
    for (uint32_t k = 0; k < part->n_tensors; k++) {
        const dw_parameter *tensor = &part->tensors[k];
        size_t n = (size_t)tensor->rows * tensor->columns;
        float *x = part->params + tensor->offset;
        if (tensor->deviation > 0)
            draw_normal(x, n, tensor->deviation, seed, tensor->stream);
        else
            for (size_t i = 0; i < n; i++) x[i] = tensor->start;
    }
}
