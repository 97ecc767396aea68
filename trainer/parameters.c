/* SPDX-License-Identifier: Apache-2.0
 * parameters.c - the tensors of each part, their shapes and their initial values. */
#include "parameters.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layout.h"
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
    else if (shape->bottleneck > C)
        snprintf(why->text, sizeof why->text, "bottleneck is %u; give 1 to the %u channels",
                 shape->bottleneck, C);
    else if (shape->bottleneck && (shape->stages < 2 || shape->stages > L))
        snprintf(why->text, sizeof why->text,
                 "bottleneck has a meaning only with several stages, but there is %u; give 2 or "
                 "more, or leave it out",
                 shape->stages);
    else
        return DW_OK;
    return DW_ERR_ARGUMENT;
}

const char *dw_model_shape_text(const dw_model_shape *shape, char text[DW_SHAPE_TEXT_BYTES])
{
    snprintf(text, DW_SHAPE_TEXT_BYTES, "%u layers, %u channels, %u heads, context %u%s",
             shape->layers, shape->channels, shape->heads, shape->context,
             shape->tied ? ", tied embeddings" : "");
    size_t used = strlen(text);
    if (shape->bottleneck)
        snprintf(text + used, DW_SHAPE_TEXT_BYTES - used, ", bottleneck %u of %u stages",
                 shape->bottleneck, shape->stages);
    return text;
}

static void add_tensor(dw_part *part, const char *name, uint32_t rows, uint32_t columns,
                       float deviation, float start)
{
    uint32_t stream = part->first_stream + part->n_tensors;
    part->tensors[part->n_tensors++] = (dw_parameter){.name = name,
                                                      .rows = rows,
                                                      .columns = columns,
                                                      .offset = part->n,
                                                      .deviation = deviation,
                                                      .start = start,
                                                      .stream = stream};
    part->n += (size_t)rows * columns;
}

/* Lists the matrix of a part narrow-b or widen-b. Both parts of boundary b draw from one stream of
 * random numbers. These streams come after those of a model without a bottleneck. */
static void list_boundary(dw_part *part, const dw_model_shape *shape, dw_part_place place)
{
    uint32_t R = shape->bottleneck, C = shape->channels;
    bool widens = place.kind == DW_PART_WIDEN;
    add_tensor(part, "matrix", widens ? C : R, widens ? R : C, 1 / sqrtf((float)C), 0);
    part->tensors[DW_BOUNDARY_MATRIX].stream =
        (shape->layers + 2 + place.number) * DW_PARAMETERS_MAX;
    part->tensors[DW_BOUNDARY_MATRIX].is_turned = widens;
}

/* The order is that of the enumerations in parameters.h. */
static void list_tensors(dw_part *part, const dw_model_shape *shape, dw_part_place place)
{
    uint32_t L = shape->layers, C = shape->channels, T = shape->context, V = DW_VOCABULARY;
    float deviation = 0.02f;
    if (place.kind == DW_PART_EMBED) {
        add_tensor(part, "tokens", V, C, deviation, 0);
        add_tensor(part, "positions", T, C, deviation, 0);
        return;
    }
    if (place.kind == DW_PART_HEAD) {
        add_tensor(part, "norm.scale", 1, C, 0, 1);
        add_tensor(part, "norm.shift", 1, C, 0, 0);
        add_tensor(part, "logits", V, C, deviation, 0);
        /* The same values as embed.tokens, whose stream is the first one. */
        if (shape->tied) part->tensors[DW_HEAD_LOGITS].stream = DW_EMBED_TOKENS;
        return;
    }
    if (place.kind != DW_PART_BLOCK) {
        list_boundary(part, shape, place);
        return;
    }
    /* 2 L products are added to the residual stream; with this scale the variance of their sum does
     * not depend on L. */
    float residual = deviation / sqrtf(2.0f * (float)L);
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
    dw_part_place place = dw_part_place_of(shape, index);
    /* The number of the part in a model without a bottleneck, so that a bottleneck does not change
     * the initial values of embedding, blocks and head. Other parts: see list_boundary. */
    uint32_t number = place.kind == DW_PART_EMBED  ? 0
                      : place.kind == DW_PART_HEAD ? shape->layers + 1
                                                   : place.number + 1;
    part->first_stream = number * DW_PARAMETERS_MAX;
    dw_part_name(shape, index, part->name);
    list_tensors(part, shape, place);
    bool has_copy = shape->tied && place.kind == DW_PART_HEAD;
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
static void draw_normal(float *x, const dw_parameter *tensor, uint64_t seed)
{
    double turn = 6.283185307179586;
    size_t rows = tensor->rows, columns = tensor->columns, n = rows * columns;
    for (size_t i = 0; i < n; i += 4) {
        philox4x32_ctr_t word = dw_random(seed, DW_RANDOM_PARAMETERS, tensor->stream, i / 4);
        for (size_t k = 0; k < 4 && i + k < n; k++) {
            size_t pair = k / 2, at = i + k;
            double radius = tensor->deviation * sqrt(-2.0 * log(unit(word.v[2 * pair])));
            double angle = turn * unit(word.v[2 * pair + 1]);
            if (tensor->is_turned) at = at % rows * columns + at / rows;
            x[at] = (float)(radius * (k % 2 ? sin(angle) : cos(angle)));
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
            draw_normal(x, tensor, seed);
        else
            for (size_t i = 0; i < n; i++) x[i] = tensor->start;
    }
}
