/* SPDX-License-Identifier: Apache-2.0
 * sparse.c - the form that sends some values of a sample, and where they stand: the largest ones,
 * random ones, the largest of random ones, or the largest of each chunk (docs/format.md, 3.10).
 *
 * The chosen values are gathered into one row, which another form writes (nested.h). All other
 * values arrive as 0.
 *
 * Sources: Stich, Cordonnier and Jaggi, Sparsified SGD with Memory (arXiv:1809.07599); Bian et al.
 * (arXiv:2301.02654); Wang et al., CocktailSGD (ICML 2023); Sarfi et al., SparseLoCo
 * (arXiv:2508.15706). */
#include "codecs/sparse.h"

#include <math.h>
#include <string.h>

#include "arithmetic/mx.h"
#include "codecs/elements.h"
#include "codecs/nested.h"
#include "codecs/options.h"
#include "codecs/output.h"
#include "codecs/selection.h"
#include "codecs/tiles.h"

/* How many of n values are sent or are candidates: a part in millionths, rounded up. */
static uint64_t part_of(uint64_t n, uint64_t part)
{
    return (n * part + DW_KEEP_ALL - 1) / DW_KEEP_ALL;
}

bool dw_sparse_of(const dw_plan *plan, dw_sparse *s)
{
    const dw_form_params *params = &plan->params;
    *s = (dw_sparse){.n = (uint64_t)plan->t * plan->c};
    if (s->n > DW_SPARSE_LARGEST) return false;
    s->draws = params->mask != 0;
    s->m = s->draws ? part_of(s->n, params->mask) : s->n;
    s->chunk = params->chunk && params->chunk < s->m ? params->chunk : s->m;
    s->keep = params->keep;
    s->k = s->m / s->chunk * part_of(s->chunk, s->keep) + part_of(s->m % s->chunk, s->keep);
    if (!dw_nested_plan(params, 1, s->k, params->group, &s->values)) return false;
    s->mask_bytes = dw_round_up((s->n + 7) / 8, 16);
    s->values_bytes = s->values.payload_bytes;
    s->gathered_at = s->mask_bytes + s->values_bytes;
    s->places_bytes = dw_round_up((s->m + 7) / 8, 16);
    s->places_at = s->draws ? s->gathered_at + dw_round_up(4 * s->k, 16) : 0;
    s->plain_bytes = s->draws ? s->places_at + s->places_bytes : s->gathered_at + 4 * s->k;
    return true;
}

dw_sparse_chunk dw_sparse_chunk_at(const dw_sparse *s, uint64_t at)
{
    uint64_t n = s->m - at < s->chunk ? s->m - at : s->chunk;
    return (dw_sparse_chunk){at, n, part_of(n, s->keep)};
}

void dw_sparse_spread(const dw_sparse *s, const dw_kernels *kernels, uint64_t draws_key,
                      const uint8_t *places, uint8_t *mask)
{
    uint32_t drawn[DW_SELECT_DRAWS];
    uint64_t first = UINT64_MAX;
    dw_mask_walk walk = {.mask = places, .n = s->m};
    while (dw_mask_next(&walk)) {
        uint64_t block = walk.at / DW_SELECT_DRAWS * DW_SELECT_DRAWS;
        if (block != first) dw_select_draw(kernels, draws_key, s->n, s->m, block, drawn);
        first = block;
        dw_mask_set(mask, drawn[walk.at - first]);
    }
}

/* The gathered values lie behind what the form hands on, in memory of the entry. */
static float *gathered_at(const dw_sparse *s, const uint8_t *plain)
{
    return (float *)(void *)((uint8_t *)(uintptr_t)plain + s->gathered_at);
}

/* ---- Decode ---------------------------------------------------------------------------------- */

/* Writes a value to y: rounded and clamped as quantized values are, or converted as floats are. */
static void write_value(const dw_decode_job *job, uint64_t at, float value, bool clamps)
{
    void *y = dw_at(job->y, job->y_dtype, at);
    uint16_t half;
    if (job->y_dtype == DW_F32) {
        memcpy(y, &value, sizeof value);
        return;
    }
    clamps = clamps && dw_is_finite(value);
    if (job->y_dtype == DW_F16)
        half = clamps ? dw_f16_finite(value) : dw_f16_round(value);
    else
        half = clamps ? dw_bf16_finite(value) : dw_bf16_round(value);
    memcpy(y, &half, sizeof half);
}

static void write_y(const dw_decode_job *job, const dw_sparse *s, const float *values)
{
    uint64_t c = job->plan->c, stride = (uint64_t)job->stride;
    bool is_dense = stride == c, clamps = s->values.form != &dw_form_floats;
    uint64_t rows = is_dense ? 1 : job->plan->t, row = is_dense ? s->n : c;
    for (uint64_t t = 0; t < rows; t++)
        memset(dw_at(job->y, job->y_dtype, t * stride), 0, row * dw_dtype_bytes(job->y_dtype));
    dw_mask_walk walk = {.mask = job->payload, .n = s->n};
    while (dw_mask_next(&walk)) {
        uint64_t at = is_dense ? walk.at : walk.at / c * stride + walk.at % c;
        write_value(job, at, *values++, clamps);
    }
}

/* Adds all values to y, also the zeros, part of a row at a time. */
static void add_to_y(const dw_decode_job *job, const dw_sparse *s, const float *values)
{
    float block[DW_TILE_ELEMENTS];
    uint64_t c = job->plan->c;
    dw_mask_walk walk = {.mask = job->payload, .n = s->n};
    bool has_next = dw_mask_next(&walk);
    for (uint64_t at = 0, now; at < s->n; at += now) {
        uint64_t left = c - at % c;
        now = left < DW_TILE_ELEMENTS ? left : (uint64_t)DW_TILE_ELEMENTS;
        memset(block, 0, sizeof block);
        for (; has_next && walk.at < at + now; has_next = dw_mask_next(&walk))
            block[walk.at - at] = *values++;
        dw_output_add(job, block, at / c * (uint64_t)job->stride + at % c, now);
    }
}

/* Codecs with this form keep no state at the decoder. */
static void decode(const dw_decode_job *job, uint64_t chunk, dw_chunk_result *result)
{
    dw_sparse s;
    (void)chunk; /* always 0: this form has one chunk */
    (void)result;
    (void)dw_sparse_of(job->plan, &s);
    float *values = gathered_at(&s, job->payload);
    dw_nested_decode(job->kernels, &s.values, job->payload + s.mask_bytes, values);
    if (job->adds)
        add_to_y(job, &s, values);
    else
        write_y(job, &s, values);
}

static void count(const dw_decode_job *job, dw_counters *counters)
{
    dw_sparse s;
    (void)dw_sparse_of(job->plan, &s);
    dw_nested_count(job, &s.values, job->payload + s.mask_bytes, counters);
}

/* ---- Encode ---------------------------------------------------------------------------------- */

/* Gathers the values at random places. Each is multiplied by the number of elements that it was
 * drawn from, if the mean of y is to be x. */
static void gather_drawn(const dw_encode_job *job, const dw_sparse *s, float *values)
{
    uint32_t places[DW_SELECT_DRAWS];
    for (uint64_t first = 0; first < s->k; first += DW_SELECT_DRAWS) {
        uint64_t now = dw_select_draw(job->kernels, job->draws_key, s->n, s->k, first, places);
        float *to = values + first;
        dw_elements_gather(job, places, now, to);
        for (uint64_t i = 0; i < now; i++) {
            dw_mask_set(job->payload, places[i]);
            if (job->plan->params.unbiased)
                to[i] *= (float)dw_select_stretch(s->n, s->k, first + i);
        }
    }
}

/* Gathers the candidates, and of these the largest. */
static void gather_masked(const dw_encode_job *job, const dw_sparse *s, float *values)
{
    uint32_t drawn[DW_SELECT_DRAWS];
    float *candidates = (float *)(void *)job->room;
    uint8_t *places = job->payload + s->places_at;
    for (uint64_t first = 0; first < s->m; first += DW_SELECT_DRAWS) {
        uint64_t now = dw_select_draw(job->kernels, job->draws_key, s->n, s->m, first, drawn);
        dw_elements_gather(job, drawn, now, candidates + first);
    }
    dw_encode_job inner = {.layout = {.t = 1, .c = (uint32_t)s->m},
                           .x = candidates,
                           .x_dtype = DW_F32,
                           .stride = (int64_t)s->m,
                           .kernels = job->kernels};
    uint32_t limit = 0;
    memset(places, 0, (size_t)s->places_bytes);
    dw_select_largest(&inner, 0, s->m, s->k, places, values, (float *)(void *)job->scratch, &limit);
    dw_sparse_spread(s, job->kernels, job->draws_key, places, job->payload);
}

/* Gathers the largest values of each chunk. */
static void gather_largest(const dw_encode_job *job, const dw_sparse *s, float *values)
{
    dw_sparse_chunk chunk = {0};
    uint32_t limit = 0;
    for (uint64_t at = 0; at < s->m; at += chunk.n) {
        chunk = dw_sparse_chunk_at(s, at);
        dw_select_largest(job, at, chunk.n, chunk.k, job->payload + at / 8, values,
                          (float *)(void *)job->scratch, &limit);
        values += chunk.k;
    }
}

/* Makes the new residual of n elements of which nothing is sent. That of values that are not finite
 * stays as it was. */
static void keep_all(const dw_encode_job *job, uint64_t at, uint64_t n, const float *x)
{
    float unused[DW_ELEMENTS_BLOCK], *next = (float *)job->next + at;
    const float *prev = job->prev ? (const float *)job->prev + at : NULL;
    uint8_t mask[DW_ELEMENTS_BLOCK / 8] = {0};
    if (prev)
        memcpy(next, prev, (size_t)n * sizeof *next);
    else
        memset(next, 0, (size_t)n * sizeof *next);
    job->kernels->subtract(x, DW_F32, next, n);
    if (!job->kernels->collect(x, n, DW_F32_INFINITY, mask, unused)) return;
    dw_mask_walk walk = {.mask = mask, .n = n};
    while (dw_mask_next(&walk)) next[walk.at] = prev ? prev[walk.at] : 0;
}

/* Makes the new residual (codecs/residual.h). What is sent of an x that is not finite is not finite
 * either. */
static void keep_residual(const dw_encode_job *job, const dw_sparse *s, float *values,
                          dw_sums *sums)
{
    float room[DW_ELEMENTS_BLOCK], *next = job->next;
    const float *prev = job->prev;
    bool is_f16 = job->plan->params.dtype == DW_F16;
    dw_encode_job plain = *job;
    plain.prev = NULL;
    dw_nested_decode(job->kernels, &s->values, job->payload + s->mask_bytes, values);
    dw_mask_walk walk = {.mask = job->payload, .n = s->n};
    bool has_next = dw_mask_next(&walk);
    for (uint64_t at = 0, now; at < s->n; at += now) {
        now = s->n - at < DW_ELEMENTS_BLOCK ? s->n - at : (uint64_t)DW_ELEMENTS_BLOCK;
        const float *x = dw_elements_load(&plain, at, now, room);
        keep_all(job, at, now, x);
        for (; has_next && walk.at < at + now; has_next = dw_mask_next(&walk)) {
            float held = prev ? prev[walk.at] : 0, sent = *values++;
            next[walk.at] = dw_residual_next(held, sent, x[walk.at - at]);
            sums->overflowed += dw_residual_overflows(sent, x[walk.at - at], is_f16);
        }
    }
}

static void encode(const dw_encode_job *job, uint64_t chunk, dw_chunk_result *result)
{
    dw_sparse s;
    (void)chunk;
    *result = (dw_chunk_result){0};
    (void)dw_sparse_of(job->plan, &s);
    float *values = gathered_at(&s, job->payload);
    memset(job->payload, 0, (size_t)s.mask_bytes);
    if (job->plan->params.is_random)
        gather_drawn(job, &s, values);
    else if (s.draws)
        gather_masked(job, &s, values);
    else
        gather_largest(job, &s, values);
    dw_nested_encode(job, &s.values, values, 0, job->payload + s.mask_bytes, &result->sums);
    if (job->keeps_residual) keep_residual(job, &s, values, &result->sums);
}

/* ---- The row --------------------------------------------------------------------------------- */

static dw_status plan(dw_plan *made, dw_why *why)
{
    dw_sparse s;
    if (!dw_sparse_of(made, &s)) return dw_plan_too_large(made, DW_SPARSE_LARGEST, why);
    made->payload_bytes = s.plain_bytes;
    made->layout = (dw_layout){.t = made->t, .c = made->c};
    made->chunks = 1;
    made->draws = made->params.is_random || s.draws;
    made->room_bytes = s.draws ? 4 * s.m : 0; /* for the candidates */
    return DW_OK;
}

/* The k largest of n values have at least k / n of the sum of squares, and the largest of each
 * chunk have that of their chunks. A random one of m values has 1 / m of the sum on average.
 *
 * Rounding changes a float by at most a part c (nested.part) of itself. Of a quantized group, or a
 * microscaled block, of g values only the largest is sure to come that close. The others come at
 * least as close as 0 would, so at least (1 - c^2) / g of the group's sum of squares arrives. With
 * stochastic rounding the mean square of an error is at most (c A)^2 / 4, where A is the largest
 * value in the group. With 1 bit a value near 0 becomes larger, and a whole row can have any number
 * of values: then nothing is known. */
static dw_contraction contracts(const dw_form_params *params, const dw_config *config)
{
    bool is_stochastic = params->bits && config->rounding == DW_ROUNDING_STOCHASTIC;
    dw_contraction nested = dw_nested_contracts(params, config), none = {DW_CONTRACTS_NOT, 1};
    double lost = nested.part * nested.part, arrives = 1 - lost;
    if (nested.kind != DW_CONTRACTS_ALWAYS || params->unbiased || params->bits == 1) return none;
    uint32_t group = params->element ? DW_MX_BLOCK : params->bits ? params->group : 1;
    if (group == DW_GROUP_ROW) return none;
    if (is_stochastic)
        arrives = 1 - group * lost / 4;
    else
        arrives /= group;
    if (arrives <= 0) return none;
    uint32_t part = params->is_random ? params->keep : params->mask;
    if (!params->is_random) arrives *= (double)params->keep / DW_KEEP_ALL;
    if (part) arrives /= ceil((double)DW_KEEP_ALL / part);
    return (dw_contraction){part || is_stochastic ? DW_CONTRACTS_ON_AVERAGE : DW_CONTRACTS_BY_NORM,
                            sqrt(1 - arrives)};
}

const dw_form dw_form_sparse = {
    .wire = DW_FORM_SPARSE,
    .name = "sparse",
    .plan = plan,
    .encode = encode,
    .decode = decode,
    .count = count,
    .contracts = contracts,
};
