/* SPDX-License-Identifier: Apache-2.0
 * lowrank.c - the form that sends a matrix as the product of two thin ones, p^T q (docs/format.md,
 * 3.12). p and q are r rows each, which another form writes: floats, or quantized if the config has
 * bits.
 *
 * The encoder finds them by subspace iteration: p = orthonormalized(M q^T), then q = p M. With
 * error feedback it keeps q of every key and begins there at the next visit, so that one iteration
 * for each visit is enough. Then p is written, and q is fitted to what the decoder will have as p.
 *
 * What is kept of a key:
 *
 * | words | meaning                                                                          |
 * |-------|----------------------------------------------------------------------------------|
 * | r * W | q, binary32, every row multiplied by a power of two. Rows of zeros say nothing    |
 * | 1     | how often the key was visited, mod 2^32                                           |
 *
 * Sources: Vogels, Karimireddy and Jaggi, PowerSGD (arXiv:1905.13727); PowerSGD+
 * (arXiv:2509.11254) for the restarts. */
#include <stdio.h>
#include <string.h>

#include "arithmetic/half.h"
#include "arithmetic/quant.h"
#include "codecs/elements.h"
#include "codecs/nested.h"
#include "codecs/output.h"
#include "codecs/plan.h"
#include "codecs/products.h"
#include "codecs/tiles.h"

/* The layout of a payload, and of the form's own memory. */
typedef struct shape {
    uint64_t n, rows, columns; /* of the matrix; its last row may be shorter */
    uint32_t r;
    dw_plan p, q; /* how the other form writes them */
} shape;

/* A row of p or q has at most so many values, and all of them together have at most so many words,
 * because the size of what is kept has 32 bits. */
#define MOST_WORDS (UINT64_C(1) << 31)

/* Returns the group for rows of so many channels. Where a smaller power of two from 16 to 256 holds
 * a whole row, it replaces `group`. Otherwise padding could make a payload longer than a frame may
 * be. */
static uint32_t group_for(uint32_t group, uint64_t channels)
{
    uint32_t narrow = 16;
    while (narrow < channels && narrow < 256) narrow *= 2;
    return narrow >= channels && narrow < group ? narrow : group;
}

/* Plans p or q: r rows of so many channels. */
static bool plan_factor(const dw_form_params *params, uint32_t r, uint64_t channels, dw_plan *made)
{
    return dw_nested_plan(params, r, channels, group_for(params->group, channels), made);
}

/* false: the sample is too large. *rank_fits: whether the sample's own shape allows the rank. */
static bool shape_of(const dw_plan *plan, shape *s, bool *rank_fits)
{
    const dw_form_params *params = &plan->params;
    uint64_t rank = params->rank;
    *s = (shape){.n = (uint64_t)plan->t * plan->c, .columns = plan->c, .rows = plan->t};
    if (params->width) {
        s->columns = params->width < s->n ? params->width : s->n;
        s->rows = (s->n + s->columns - 1) / s->columns;
    }
    uint64_t most = s->rows < s->columns ? s->rows : s->columns;
    *rank_fits = params->width || rank <= most;
    s->r = (uint32_t)(rank < most ? rank : most);
    return s->r * (s->rows + s->columns) < MOST_WORDS &&
           plan_factor(params, s->r, s->rows, &s->p) &&
           plan_factor(params, s->r, s->columns, &s->q);
}

/* Memory of the form itself. */
typedef struct room {
    float *p, *q, *lanes;
} room;

static uint64_t room_bytes(const shape *s)
{
    return 4 * s->r * (s->rows + s->columns + DW_PRODUCT_LANES);
}

static room room_of(const shape *s, uint8_t *memory)
{
    float *p = (float *)(void *)memory;
    return (room){p, p + s->r * s->rows, p + s->r * (s->rows + s->columns)};
}

static bool all_finite(const float *values, uint64_t n)
{
    return dw_elements_largest(values, n) < DW_F32_INFINITY;
}

/* ---- Decode ---------------------------------------------------------------------------------- */

/* Decodes both. false: not all values are finite, so that the sample is poisoned. */
static bool decode_factors(const struct dw_kernels *kernels, const shape *s, const uint8_t *payload,
                           const room *own)
{
    dw_nested_decode(kernels, &s->p, payload, own->p);
    dw_nested_decode(kernels, &s->q, payload + s->p.payload_bytes, own->q);
    return all_finite(own->p, s->r * (s->rows + s->columns));
}

/* Writes n values to y, from number `at` of its memory on. There they are contiguous: in one token,
 * or in several tokens with no gaps between them. */
static void write_part(const dw_decode_job *job, const float *values, uint64_t at, uint64_t n)
{
    if (all_finite(values, n)) {
        dw_output_write(job, values, DW_F32, at, n);
        return;
    }
    for (uint64_t i = 0; i < n; i++, at++)
        if (dw_is_finite(values[i]))
            dw_output_write(job, values + i, DW_F32, at, 1);
        else if (job->adds)
            dw_output_add(job, values + i, at, 1);
        else
            dw_fill_nan(dw_at(job->y, job->y_dtype, at), job->y_dtype, 1);
}

/* Takes the n values from number `at` of the sample on to y. */
static void write_values(const dw_decode_job *job, const float *values, uint64_t at, uint64_t n)
{
    uint64_t c = job->plan->c, stride = (uint64_t)job->stride;
    for (uint64_t done = 0, now; done < n; done += now) {
        uint64_t column = (at + done) % c, left = c - column;
        now = stride == c || n - done < left ? n - done : left;
        write_part(job, values + done, (at + done) / c * stride + column, now);
    }
}

/* Replaces every NaN by the canonical one, and clamps other values to finite binary32 numbers. */
static void clamp(float *values, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        bool is_nan = (dw_bits_of(values[i]) & 0x7fffffffu) > DW_F32_INFINITY;
        values[i] = is_nan ? dw_float_of(DW_F32_NAN) : dw_f32_finite(values[i]);
    }
}

/* Computes n values of p^T q as a decoder does, from number `at` of the sample on. All of them are
 * in one row of the matrix. */
static void make_values(const shape *s, const room *own, uint64_t at, uint64_t n, float *values)
{
    dw_product_values(s->r, s->rows, own->p, s->columns, own->q, at / s->columns, at % s->columns,
                      n, values);
    clamp(values, n);
}

/* How many values from number `at` on are in one block: in the same row, and not too many. */
static uint64_t block_at(const shape *s, uint64_t at)
{
    uint64_t left = s->columns - at % s->columns;
    if (left > s->n - at) left = s->n - at;
    return left < DW_PRODUCT_BLOCK ? left : (uint64_t)DW_PRODUCT_BLOCK;
}

/* Codecs with this form keep no state at the decoder. */
static void decode(const dw_decode_job *job, uint64_t chunk, dw_chunk_result *result)
{
    shape s;
    bool rank_fits;
    float values[DW_PRODUCT_BLOCK];
    (void)chunk; /* always 0: this form has one chunk */
    (void)result;
    (void)shape_of(job->plan, &s, &rank_fits);
    room own = room_of(&s, job->room);
    bool is_valid = decode_factors(job->kernels, &s, job->payload, &own);
    for (uint64_t at = 0, now; at < s.n; at += now) {
        now = block_at(&s, at);
        if (is_valid)
            make_values(&s, &own, at, now, values);
        else
            dw_fill_nan(values, DW_F32, now);
        write_values(job, values, at, now);
    }
}

static void count(const dw_decode_job *job, dw_counters *counters)
{
    shape s;
    bool rank_fits;
    (void)shape_of(job->plan, &s, &rank_fits);
    dw_nested_count(job, &s.p, job->payload, counters);
    dw_nested_count(job, &s.q, job->payload + s.p.payload_bytes, counters);
}

/* ---- Encode: where the iteration begins ------------------------------------------------------ */

static uint64_t q_words(const shape *s)
{
    return s->r * s->columns;
}

/* Draws row k of random matrix number `number`. A value is one of 256 equally probable ones, half
 * of them negative. The format leaves the start to the encoder, so any key will do. */
static void draw_row(const dw_encode_job *job, const shape *s, uint32_t number, uint32_t k,
                     float *q)
{
    uint8_t bytes[DW_ELEMENTS_BLOCK];
    dw_dither dither = {.key = UINT64_C(0x6c6f7772616e6b00) + ((uint64_t)number << 32) + k};
    for (uint64_t at = 0, now; at < s->columns; at += now) {
        now = s->columns - at < DW_ELEMENTS_BLOCK ? s->columns - at : (uint64_t)DW_ELEMENTS_BLOCK;
        dither.element = at;
        job->kernels->dither_bytes(&dither, now, bytes);
        for (uint64_t i = 0; i < now; i++)
            q[k * s->columns + at + i] = ((float)bytes[i] - 127.5f) / 128;
    }
}

static uint32_t visits_of(const dw_encode_job *job, const shape *s)
{
    uint32_t visits = 0;
    if (job->kept) memcpy(&visits, (const float *)job->kept + q_words(s), sizeof visits);
    return visits;
}

/* Sets q to the matrix from which the iteration begins: the one that was kept of the key, or a
 * random one. A kept row of zeros is replaced by a random row, because no iteration changes it. */
static void start(const dw_encode_job *job, const shape *s, float *q)
{
    uint32_t visits = visits_of(job, s), restart = job->plan->params.restart;
    bool is_kept = job->kept && !(restart && visits % restart == 0);
    if (is_kept) memcpy(q, job->kept, (size_t)(4 * q_words(s)));
    for (uint32_t k = 0; k < s->r; k++)
        if (!is_kept || dw_elements_largest(q + k * s->columns, s->columns) == 0)
            draw_row(job, s, visits, k, q);
}

/* The power of two that brings a magnitude of these bits to [1, 2); of those below 2^-126, 2^126.
 */
static float scale_of(uint32_t magnitude)
{
    uint32_t exponent = magnitude >> 23;
    if (exponent == 254) return 0x1p-127f;
    return dw_float_of((254 - (exponent ? exponent : 1)) << 23);
}

/* Keeps q, with rows of a size that stays far from the ends of the number range. */
static void keep_start(const dw_encode_job *job, const shape *s, const float *q)
{
    float *to = job->keeps;
    uint32_t visits = visits_of(job, s) + 1;
    if (!job->keeps) return;
    for (uint32_t k = 0; k < s->r; k++) {
        const float *row = q + k * s->columns;
        float scale = scale_of(dw_elements_largest(row, s->columns));
        for (uint64_t i = 0; i < s->columns; i++) to[k * s->columns + i] = row[i] * scale;
    }
    memcpy(to + q_words(s), &visits, sizeof visits);
}

/* For a sample that is poisoned or counts as 0: keeps the old q, or zeros if there is none, and
 * counts the visit. */
static void keep_as_it_was(const dw_encode_job *job, const shape *s)
{
    uint32_t visits = visits_of(job, s) + 1;
    if (!job->keeps) return;
    if (job->kept)
        memcpy(job->keeps, job->kept, (size_t)(4 * q_words(s)));
    else
        memset(job->keeps, 0, (size_t)(4 * q_words(s)));
    memcpy((float *)job->keeps + q_words(s), &visits, sizeof visits);
}

/* ---- Encode ---------------------------------------------------------------------------------- */

/* Writes p or q. number: 0 or 1. */
static void encode_factor(const dw_encode_job *job, const dw_plan *plan, const float *values,
                          uint8_t *payload, uint32_t number, dw_sums *sums)
{
    dw_encode_job clamped = *job;
    clamped.is_exact = false; /* values that are too large for the dtype are clamped */
    dw_nested_encode(&clamped, plan, values, number, payload, sums);
}

/* Writes both with all values alike: zeros or NaN. */
static void write_alike(const dw_encode_job *job, const shape *s, const room *own, uint32_t bits,
                        dw_sums *sums)
{
    for (uint64_t i = 0; i < s->r * (s->rows + s->columns); i++) own->p[i] = dw_float_of(bits);
    encode_factor(job, &s->p, own->p, job->payload, 0, sums);
    encode_factor(job, &s->q, own->q, job->payload + s->p.payload_bytes, 1, sums);
}

/* The largest magnitude of what is coded, as bits; those of an infinity or NaN where a value is not
 * finite. */
static uint32_t largest_coded(const dw_encode_job *job, const shape *s)
{
    float block[DW_ELEMENTS_BLOCK];
    uint32_t most = 0;
    for (uint64_t at = 0, now; at < s->n; at += now) {
        now = s->n - at < DW_ELEMENTS_BLOCK ? s->n - at : (uint64_t)DW_ELEMENTS_BLOCK;
        uint32_t largest = dw_elements_largest(dw_elements_load(job, at, now, block), now);
        most = largest > most ? largest : most;
    }
    return most;
}

/* Finds p and q, and writes them. magnitude: the largest magnitude of what is coded. All values are
 * first multiplied by the power of two that brings it to [1, 2), so that no sum overflows. */
static void factorize(const dw_encode_job *job, const shape *s, const room *own, uint32_t magnitude,
                      dw_sums *sums)
{
    dw_matrix m = {job, s->n, s->rows, s->columns, scale_of(magnitude)};
    float back = 1 / m.scale;
    start(job, s, own->q);
    for (uint32_t i = 0; i < job->plan->params.iterations; i++) {
        if (i) dw_product_columns(&m, s->r, own->p, own->q);
        dw_product_rows(&m, s->r, own->q, own->p, own->lanes);
        dw_orthonormalize(s->r, s->rows, own->p);
    }
    encode_factor(job, &s->p, own->p, job->payload, 0, sums);
    dw_nested_decode(job->kernels, &s->p, job->payload, own->p);
    dw_product_columns(&m, s->r, own->p, own->q);
    dw_product_fit(s->r, s->rows, own->p, s->columns, own->q);
    keep_start(job, s, own->q);
    for (uint64_t i = 0; i < q_words(s); i++) own->q[i] = dw_f32_finite(own->q[i] * back);
    encode_factor(job, &s->q, own->q, job->payload + s->p.payload_bytes, 1, sums);
}

/* The new residual of a value. Where p and q are binary16 and q was clamped, what is left of a
 * value that binary16 cannot hold would take as many visits as it is times too large, and all of
 * them would be about it. So it is dropped, and counted. */
static float residual_of(const dw_encode_job *job, float held, float arrives, float x,
                         dw_sums *sums)
{
    const dw_form_params *params = &job->plan->params;
    float next = dw_residual_next(held, arrives, x);
    if (params->bits || params->dtype != DW_F16 || !dw_overflows(next, 1)) return next;
    sums->overflowed += !dw_overflows(x, 1); /* the counters count such an x already */
    return 0;
}

/* Makes the new residual (codecs/residual.h), where y is p^T q. Returns whether its norm is at most
 * that of what was coded. */
static bool keep_residual(const dw_encode_job *job, const shape *s, const room *own, dw_sums *sums)
{
    float block[DW_PRODUCT_BLOCK], values[DW_PRODUCT_BLOCK], *next = job->next;
    double coded[DW_PRODUCT_LANES] = {0}, left[DW_PRODUCT_LANES] = {0};
    const float *prev = job->prev;
    dw_encode_job plain = *job;
    plain.prev = NULL;
    for (uint64_t at = 0, now; at < s->n; at += now) {
        now = block_at(s, at);
        const float *x = dw_elements_load(&plain, at, now, block);
        make_values(s, own, at, now, values);
        for (uint64_t i = 0; i < now; i++) {
            float held = prev ? prev[at + i] : 0;
            next[at + i] = residual_of(job, held, values[i], x[i], sums);
            double whole = (double)x[i] - (double)held, less = (double)next[at + i];
            coded[i % DW_PRODUCT_LANES] += whole * whole;
            left[i % DW_PRODUCT_LANES] += less * less;
        }
    }
    for (int i = 1; i < DW_PRODUCT_LANES; i++) {
        coded[0] += coded[i];
        left[0] += left[i];
    }
    return left[0] <= coded[0];
}

/* The residual of a poisoned sample stays as it was. */
static void keep_old_residual(const dw_encode_job *job, const shape *s)
{
    if (job->prev)
        memcpy(job->next, job->prev, (size_t)(4 * s->n));
    else
        memset(job->next, 0, (size_t)(4 * s->n));
}

static void encode(const dw_encode_job *job, uint64_t chunk, dw_chunk_result *result)
{
    static const uint32_t tiny = 31u << 23; /* 2^-96: below it, the sample counts as 0 */
    shape s;
    bool rank_fits;
    (void)chunk;
    *result = (dw_chunk_result){0};
    (void)shape_of(job->plan, &s, &rank_fits);
    room own = room_of(&s, job->room);
    uint32_t magnitude = largest_coded(job, &s);
    bool is_poisoned = magnitude >= DW_F32_INFINITY, is_zero = magnitude < tiny;
    if (is_poisoned || is_zero) {
        write_alike(job, &s, &own, is_poisoned ? DW_F32_NAN : 0, &result->sums);
        keep_as_it_was(job, &s);
    } else {
        factorize(job, &s, &own, magnitude, &result->sums);
    }
    if (job->keeps_residual && is_poisoned) keep_old_residual(job, &s);
    if (job->keeps_residual && !is_poisoned) {
        (void)decode_factors(job->kernels, &s, job->payload, &own);
        if (!keep_residual(job, &s, &own, &result->sums)) {
            /* p and q are rounded so coarsely that y is further from M than 0 is: sends zeros. */
            result->sums = (dw_sums){0};
            write_alike(job, &s, &own, 0, &result->sums);
            (void)keep_residual(job, &s, &own, &result->sums);
        }
    }
    result->payload_sum = job->kernels->digest_bytes(job->payload, 0, job->plan->payload_bytes);
}

/* ---- The row --------------------------------------------------------------------------------- */

static dw_status plan(dw_plan *made, dw_why *why)
{
    shape s;
    bool rank_fits;
    if (!shape_of(made, &s, &rank_fits)) return dw_plan_too_large(made, 0, why);
    if (!rank_fits) {
        if (why)
            snprintf(why->text, sizeof why->text,
                     "rank is %u, but a sample of %u tokens and %u channels is a matrix whose rank "
                     "can be 1 to %u: choose such a rank, or a width",
                     (unsigned)made->params.rank, (unsigned)made->t, (unsigned)made->c,
                     (unsigned)s.r);
        return DW_ERR_SHAPE;
    }
    made->payload_bytes = s.p.payload_bytes + s.q.payload_bytes;
    made->layout = (dw_layout){.t = made->t, .c = made->c};
    made->chunks = 1;
    made->room_bytes = room_bytes(&s);
    made->kept_bytes = 4 * (q_words(&s) + 1);
    return DW_OK;
}

/* With error feedback, the encoder sends zeros if y would be further from M than 0 is, so the error
 * is never larger than M in norm. Fitting q to p removes the projection of M onto the rows of p
 * from the error: at least r / min(rows, columns) of M's squared norm, on average over random
 * starts. Feedback is refused if p and q are rounded so coarsely that y may be no closer to M than
 * 0 is. */
static dw_contraction contracts(const dw_form_params *params, const dw_config *config)
{
    bool is_fine = dw_nested_contracts(params, config).kind != DW_CONTRACTS_NOT;
    return is_fine ? (dw_contraction){DW_CONTRACTS_BY_SHAPE, 1}
                   : (dw_contraction){DW_CONTRACTS_NOT, 1};
}

const dw_form dw_form_lowrank = {
    .wire = DW_FORM_LOWRANK,
    .name = "lowrank",
    .plan = plan,
    .encode = encode,
    .decode = decode,
    .count = count,
    .contracts = contracts,
};
