/* SPDX-License-Identifier: Apache-2.0
 * model.c - the parts of a stage, one after another; embedding and head. */
#include "model.h"

#include <stdlib.h>
#include <string.h>

#include "block.h"
#include "ops.h"

/* A micro-batch in progress. B is the number of rows, as in block.h; tensors are stored as slices.h
 * says.
 *
 * | samples    | (N, T + 1) | bytes                                           |
 * | received   | (B, R)     | with a bottleneck: what the stage before sent   |
 * | input      | (B, C)     | what the stage before sent, or the embedding    |
 * | blocks     | (n_blocks) | see block.h                                     |
 * | norm ...   | (B, C) (B) | the head's layer norm                           |
 * | logits     | (B, V)     | then their gradient                             |
 * | sent       | (B, R)     | with a bottleneck: for the next stage           | */
typedef struct slot {
    uint32_t N; /* samples of this micro-batch */
    uint8_t *samples;
    float *received, *input, *norm, *mean, *rstd, *logits, *sent;
    dw_block_memory *blocks;
} slot;

struct dw_model {
    dw_model_shape shape;
    uint32_t n_parts, n_blocks, n_slots;
    dw_slices slices; /* N: that of the micro-batch that is computed now */
    bool owns_embed, owns_head, widens, narrows;
    dw_part *parts, *first_block; /* blocks lie together */
    slot *slots;
    dw_block_scratch scratch;
    float *d_norm;   /* (R, C): gradient of `norm`; R: the number of rows of the longest slice */
    float *gradient; /* (R, C): see dw_model_gradient */
    float *boundary; /* with a bottleneck: the same, of its channels */
    dw_model_part_done *done; /* see dw_model_watch */
    void *done_context;
};

static dw_status create_slot(dw_model *model, slot *s)
{
    uint32_t room = model->slices.room;
    size_t C = model->shape.channels, B = (size_t)room * model->shape.context;
    s->samples = malloc(B + room);
    s->input = dw_floats(B * C);
    s->blocks = calloc(model->n_blocks ? model->n_blocks : 1, sizeof *s->blocks);
    if (!s->samples || !s->input || !s->blocks) return DW_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < model->n_blocks; i++) {
        dw_status status = dw_block_memory_create(&s->blocks[i], &model->shape, &model->slices);
        if (status < 0) return status;
    }
    size_t narrow = B * model->shape.bottleneck;
    if (model->widens && !(s->received = dw_floats(narrow))) return DW_ERR_NO_MEMORY;
    if (model->narrows && !(s->sent = dw_floats(narrow))) return DW_ERR_NO_MEMORY;
    if (!model->owns_head) return DW_OK;
    s->norm = dw_floats(B * C);
    s->mean = dw_floats(B);
    s->rstd = dw_floats(B);
    s->logits = dw_floats(B * DW_VOCABULARY);
    return s->norm && s->mean && s->rstd && s->logits ? DW_OK : DW_ERR_NO_MEMORY;
}

static void destroy_slot(dw_model *model, slot *s)
{
    for (uint32_t i = 0; s->blocks && i < model->n_blocks; i++)
        dw_block_memory_destroy(&s->blocks[i]);
    free(s->blocks);
    free(s->samples);
    free(s->input);
    free(s->received);
    free(s->sent);
    free(s->norm);
    free(s->mean);
    free(s->rstd);
    free(s->logits);
}

static dw_status create_rooms(dw_model *model)
{
    const dw_slices *slices = &model->slices;
    size_t C = model->shape.channels,
           R = (size_t)slices->room * dw_slice_longest(slices->T, slices->S);
    model->gradient = dw_floats(R * C);
    if (!model->gradient) return DW_ERR_NO_MEMORY;
    if ((model->widens || model->narrows) &&
        !(model->boundary = dw_floats(R * model->shape.bottleneck)))
        return DW_ERR_NO_MEMORY;
    if (model->owns_head && !(model->d_norm = dw_floats(R * C))) return DW_ERR_NO_MEMORY;
    dw_status status =
        dw_block_scratch_create(&model->scratch, &model->shape, slices, model->n_blocks);
    for (uint32_t i = 0; i < model->n_slots && status == DW_OK; i++)
        status = create_slot(model, &model->slots[i]);
    return status;
}

dw_status dw_model_create(dw_model **out, const dw_model_shape *shape, uint32_t first,
                          uint32_t n_parts, uint32_t N, uint32_t n_slots, uint32_t slices)
{
    *out = NULL;
    dw_status status = dw_model_shape_check(shape, NULL);
    if (status < 0) return status;
    if (!n_parts || !N || !n_slots || first + n_parts > dw_model_parts(shape) || !slices ||
        slices > shape->context)
        return DW_ERR_ARGUMENT;
    /* Matrix products take extents of type int. The widest row has 4 C columns or H P weights, with
     * H <= C and P < T + 8. */
    uint64_t widest = (uint64_t)shape->channels * 4;
    if ((uint64_t)N * shape->context * widest > INT32_MAX * (uint64_t)16 ||
        (uint64_t)N * shape->context > INT32_MAX)
        return DW_ERR_LIMIT;
    dw_model *model = calloc(1, sizeof *model);
    if (!model) return DW_ERR_NO_MEMORY;
    model->shape = *shape;
    model->slices = (dw_slices){.room = N, .T = shape->context, .S = slices};
    model->n_parts = n_parts;
    model->n_slots = n_slots;
    model->owns_embed = first == 0;
    model->owns_head = first + n_parts == dw_model_parts(shape);
    model->widens = dw_part_place_of(shape, first).kind == DW_PART_WIDEN;
    model->narrows = dw_part_place_of(shape, first + n_parts - 1).kind == DW_PART_NARROW;
    model->n_blocks = n_parts - (uint32_t)model->owns_embed - (uint32_t)model->owns_head -
                      (uint32_t)model->widens - (uint32_t)model->narrows;
    model->parts = calloc(n_parts, sizeof *model->parts);
    model->slots = calloc(n_slots, sizeof *model->slots);
    status = model->parts && model->slots ? DW_OK : DW_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < n_parts && status == DW_OK; i++)
        status = dw_part_create(&model->parts[i], shape, first + i);
    if (status == DW_OK) {
        model->first_block = model->parts + model->owns_embed + model->widens;
        status = create_rooms(model);
    }
    if (status < 0) {
        dw_model_destroy(model);
        return status;
    }
    *out = model;
    return DW_OK;
}

void dw_model_destroy(dw_model *model)
{
    if (!model) return;
    for (uint32_t i = 0; model->parts && i < model->n_parts; i++) dw_part_destroy(&model->parts[i]);
    for (uint32_t i = 0; model->slots && i < model->n_slots; i++)
        destroy_slot(model, &model->slots[i]);
    dw_block_scratch_destroy(&model->scratch);
    free(model->parts);
    free(model->slots);
    free(model->d_norm);
    free(model->gradient);
    free(model->boundary);
    free(model);
}

void dw_model_initialize(dw_model *model, uint64_t seed)
{
    for (uint32_t i = 0; i < model->n_parts; i++) dw_part_initialize(&model->parts[i], seed);
}

uint32_t dw_model_part_count(const dw_model *model)
{
    return model->n_parts;
}

dw_part *dw_model_part(dw_model *model, uint32_t i)
{
    return &model->parts[i];
}

bool dw_model_owns_embed(const dw_model *model)
{
    return model->owns_embed;
}

bool dw_model_owns_head(const dw_model *model)
{
    return model->owns_head;
}

/* A slice of a tensor of the bottleneck's channels. */
static float *narrow_slice(const dw_model *model, float *whole, uint32_t slice)
{
    return whole + dw_slice_row(&model->slices, slice) * model->shape.bottleneck;
}

static float *input_of(const dw_model *model, const slot *s, uint32_t slice)
{
    return s->input + dw_slice_row(&model->slices, slice) * model->shape.channels;
}

float *dw_model_input(dw_model *model, uint32_t i, uint32_t slice)
{
    const slot *s = &model->slots[i];
    return model->widens ? narrow_slice(model, s->received, slice) : input_of(model, s, slice);
}

float *dw_model_gradient(dw_model *model)
{
    return model->boundary ? model->boundary : model->gradient;
}

/* The output of the last block of the stage, for one slice. */
static float *stream(const dw_model *model, const slot *s, uint32_t slice)
{
    float *whole = model->n_blocks ? s->blocks[model->n_blocks - 1].y : s->input;
    return whole + dw_slice_row(&model->slices, slice) * model->shape.channels;
}

float *dw_model_output(dw_model *model, uint32_t i, uint32_t slice)
{
    const slot *s = &model->slots[i];
    if (model->narrows) return narrow_slice(model, s->sent, slice);
    return model->owns_head ? NULL : stream(model, s, slice);
}

static void embed(const dw_model *model, slot *s, dw_slice slice, float *x)
{
    size_t C = model->shape.channels, T = model->shape.context;
    const dw_part *part = &model->parts[0];
    const float *tokens = part->params + part->tensors[DW_EMBED_TOKENS].offset;
    const float *positions = part->params + part->tensors[DW_EMBED_POSITIONS].offset;
    for (size_t n = 0; n < s->N; n++)
        for (size_t t = slice.start; t < slice.start + slice.tokens; t++, x += C) {
            const float *token = tokens + s->samples[n * (T + 1) + t] * C,
                        *position = positions + t * C;
            for (size_t c = 0; c < C; c++) x[c] = token[c] + position[c];
        }
}

static void embed_backward(dw_model *model, const slot *s, dw_slice slice)
{
    size_t C = model->shape.channels, T = model->shape.context;
    dw_part *part = &model->parts[0];
    float *tokens = part->grads + part->tensors[DW_EMBED_TOKENS].offset;
    float *positions = part->grads + part->tensors[DW_EMBED_POSITIONS].offset;
    const float *d = model->gradient;
    for (size_t n = 0; n < s->N; n++)
        for (size_t t = slice.start; t < slice.start + slice.tokens; t++, d += C) {
            float *token = tokens + s->samples[n * (T + 1) + t] * C, *position = positions + t * C;
            for (size_t c = 0; c < C; c++) {
                token[c] += d[c];
                position[c] += d[c];
            }
        }
}

/* Returns a copy of the slot whose pointers of the head lead to one slice. */
static slot head_of(const dw_model *model, const slot *s, uint32_t slice)
{
    size_t row = dw_slice_row(&model->slices, slice);
    slot at = *s;
    at.norm += row * model->shape.channels;
    at.mean += row;
    at.rstd += row;
    at.logits += row * DW_VOCABULARY;
    return at;
}

static dw_slice slice_of(const dw_model *model, uint32_t i)
{
    return dw_slice_of(model->slices.T, model->slices.S, i);
}

static void score(const dw_model *model, const slot *whole, uint32_t slice)
{
    uint32_t C = model->shape.channels, B = whole->N * slice_of(model, slice).tokens;
    const dw_part *head = &model->parts[model->n_parts - 1];
    const float *p = head->params;
    slot s = head_of(model, whole, slice);
    dw_layernorm(s.norm, s.mean, s.rstd, stream(model, whole, slice),
                 p + head->tensors[DW_HEAD_NORM_SCALE].offset,
                 p + head->tensors[DW_HEAD_NORM_SHIFT].offset, B, C);
    dw_matmul(s.logits, s.norm, p + head->tensors[DW_HEAD_LOGITS].offset, 0, B, DW_VOCABULARY, C);
}

static void score_backward(dw_model *model, const slot *whole, uint32_t slice)
{
    uint32_t C = model->shape.channels, B = whole->N * slice_of(model, slice).tokens;
    dw_part *head = &model->parts[model->n_parts - 1];
    const dw_parameter *at = head->tensors;
    slot s = head_of(model, whole, slice);
    dw_matmul_dx(model->d_norm, s.logits, head->params + at[DW_HEAD_LOGITS].offset, B,
                 DW_VOCABULARY, C);
    dw_matmul_dw(head->grads + at[DW_HEAD_LOGITS].offset, s.logits, s.norm, B, DW_VOCABULARY, C);
    memset(model->gradient, 0, (size_t)B * C * sizeof(float));
    dw_layernorm_backward(model->gradient, head->grads + at[DW_HEAD_NORM_SCALE].offset,
                          head->grads + at[DW_HEAD_NORM_SHIFT].offset, model->d_norm,
                          stream(model, whole, slice), head->params + at[DW_HEAD_NORM_SCALE].offset,
                          s.mean, s.rstd, B, C);
}

void dw_model_forward(dw_model *model, uint32_t i, uint32_t slice, uint32_t N,
                      const uint8_t *samples)
{
    slot *s = &model->slots[i];
    model->slices.N = s->N = N;
    if (samples) memcpy(s->samples, samples, (size_t)N * (model->shape.context + 1));
    uint32_t C = model->shape.channels, R = model->shape.bottleneck,
             rows = N * slice_of(model, slice).tokens;
    if (model->owns_embed) embed(model, s, slice_of(model, slice), input_of(model, s, slice));
    if (model->widens)
        dw_matmul(input_of(model, s, slice), narrow_slice(model, s->received, slice),
                  model->parts[0].params, 0, rows, C, R);
    const float *x = s->input;
    for (uint32_t b = 0; b < model->n_blocks; b++) {
        dw_block_forward(&model->first_block[b], &model->shape, &s->blocks[b], &model->slices,
                         slice, x);
        x = s->blocks[b].y;
    }
    if (model->owns_head) score(model, s, slice);
    if (model->narrows)
        dw_matmul(narrow_slice(model, s->sent, slice), stream(model, s, slice),
                  model->parts[model->n_parts - 1].params, 0, rows, R, C);
}

double dw_model_loss(dw_model *model, uint32_t i, uint32_t slice, bool backward, float scale)
{
    const slot *s = &model->slots[i];
    dw_slice of = slice_of(model, slice);
    float *logits = head_of(model, s, slice).logits;
    size_t T = model->shape.context;
    double loss = 0;
    for (size_t n = 0; n < s->N; n++)
        loss += dw_cross_entropy(logits + n * of.tokens * DW_VOCABULARY,
                                 s->samples + n * (T + 1) + of.start + 1, backward, scale,
                                 of.tokens, DW_VOCABULARY);
    return loss;
}

void dw_model_watch(dw_model *model, dw_model_part_done *done, void *context)
{
    model->done = done;
    model->done_context = context;
}

static void tell_done(const dw_model *model, uint32_t i)
{
    if (model->done) model->done(model->done_context, i);
}

/* From the gradient at the boundary to that of the last block's output. */
static void narrow_backward(dw_model *model, const slot *s, uint32_t slice)
{
    uint32_t C = model->shape.channels, R = model->shape.bottleneck,
             rows = s->N * slice_of(model, slice).tokens;
    dw_part *part = &model->parts[model->n_parts - 1];
    dw_matmul_dw(part->grads, model->boundary, stream(model, s, slice), rows, R, C);
    dw_matmul_dx(model->gradient, model->boundary, part->params, rows, R, C);
}

/* From the gradient of the first block's input to that at the boundary. */
static void widen_backward(dw_model *model, const slot *s, uint32_t slice)
{
    uint32_t C = model->shape.channels, R = model->shape.bottleneck,
             rows = s->N * slice_of(model, slice).tokens;
    dw_part *part = &model->parts[0];
    dw_matmul_dw(part->grads, model->gradient, narrow_slice(model, s->received, slice), rows, C, R);
    dw_matmul_dx(model->boundary, model->gradient, part->params, rows, C, R);
}

void dw_model_backward(dw_model *model, uint32_t i, uint32_t slice)
{
    const slot *s = &model->slots[i];
    model->slices.N = s->N;
    if (model->owns_head) {
        score_backward(model, s, slice);
        tell_done(model, model->n_parts - 1);
    }
    if (model->narrows) {
        narrow_backward(model, s, slice);
        tell_done(model, model->n_parts - 1);
    }
    for (uint32_t b = model->n_blocks; b-- > 0;) {
        dw_block_backward(&model->first_block[b], &model->shape, &s->blocks[b], &model->slices,
                          slice, &model->scratch, b, model->gradient);
        tell_done(model, b + model->owns_embed + model->widens);
    }
    if (model->owns_embed) embed_backward(model, s, slice_of(model, slice));
    if (model->widens) widen_backward(model, s, slice);
    if (model->owns_embed || model->widens) tell_done(model, 0);
}
