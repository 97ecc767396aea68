/* SPDX-License-Identifier: Apache-2.0
 * blocks.c - the form of 8-bit codes with a codebook: blocks of consecutive values of a sample,
 * each with a scale, or a codebook that is fitted to the sample (docs/format.md, 3.13).
 *
 * The payload is the codebook (quantile alone), then the scales of all blocks (without quantile),
 * then the codes of all values. A chunk is a run of whole blocks.
 *
 * Sources: codebook.c. */
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "codecs/codebook.h"
#include "codecs/elements.h"
#include "codecs/output.h"
#include "codecs/plan.h"
#include "codecs/tiles.h"

/* CHUNK: the elements of a chunk, as many as the largest block has. PART: elements that are worked
 * on at once; one part in DW_MEASURED_SHARE is measured for the counters. The last two: the codes
 * that stand for 0. */
enum { CHUNK = 65536, PART = DW_ELEMENTS_BLOCK, LINEAR_ZERO = 128, DYNAMIC_ZERO = 127 };

static bool is_fitted(const dw_plan *plan)
{
    return plan->params.codebook == DW_CODEBOOK_QUANTILE;
}

static uint64_t values_of(const dw_plan *plan)
{
    return (uint64_t)plan->t * plan->c;
}

static uint64_t blocks_of(const dw_plan *plan)
{
    return is_fitted(plan) ? 1 : (values_of(plan) + plan->params.block - 1) / plan->params.block;
}

/* How many entries a fitted codebook has. */
static uint32_t entries_of(const dw_plan *plan)
{
    uint64_t n = dw_round_up(values_of(plan), 4);
    return n < DW_CODEBOOK_ENTRIES ? (uint32_t)n : (uint32_t)DW_CODEBOOK_ENTRIES;
}

/* The bytes in front of the codes. */
static uint64_t front_of(const dw_plan *plan)
{
    return dw_round_up(4 * (is_fitted(plan) ? entries_of(plan) : blocks_of(plan)), 16);
}

/* The elements of a chunk, from `first` on; n: their number. */
typedef struct stretch {
    uint64_t first, n;
} stretch;

static stretch chunk_of(const dw_plan *plan, uint64_t chunk)
{
    uint64_t first = chunk * CHUNK, left = values_of(plan) - first;
    return (stretch){first, left < CHUNK ? left : (uint64_t)CHUNK};
}

static float read_float(const uint8_t *from)
{
    return dw_float_of((uint32_t)dw_get(from, 4));
}

static void write_float(uint8_t *to, float value)
{
    dw_put(to, dw_bits_of(value), 4);
}

/* What the codes stand for before they are multiplied by a scale. Entries that a fitted codebook
 * does not have are NaN. */
static void read_entries(const dw_plan *plan, const uint8_t *payload,
                         float entries[DW_CODEBOOK_ENTRIES])
{
    if (plan->params.codebook == DW_CODEBOOK_LINEAR) dw_codebook_linear(entries);
    if (plan->params.codebook == DW_CODEBOOK_DYNAMIC) dw_codebook_dynamic(entries);
    for (uint32_t i = 0; is_fitted(plan) && i < DW_CODEBOOK_ENTRIES; i++)
        entries[i] = i < entries_of(plan) ? read_float(payload + 4 * i) : dw_float_of(DW_F32_NAN);
}

/* The elements of a block. With a fitted codebook, which has no blocks, those of a chunk. */
static uint64_t length_of(const dw_plan *plan)
{
    return is_fitted(plan) ? (uint64_t)CHUNK : plan->params.block;
}

static float scale_at(const dw_plan *plan, const uint8_t *payload, uint64_t element)
{
    return is_fitted(plan) ? 1.0f : read_float(payload + 4 * (element / plan->params.block));
}

/* ---- Decode ---------------------------------------------------------------------------------- */

/* What the codes of a block stand for, in a dtype: y of every code. */
typedef union lookup {
    float wide[DW_CODEBOOK_ENTRIES];
    uint16_t half[DW_CODEBOOK_ENTRIES];
} lookup;

static void make_lookup(const float *entries, float scale, dw_dtype dtype, lookup *to)
{
    float values[DW_CODEBOOK_ENTRIES];
    for (int i = 0; i < DW_CODEBOOK_ENTRIES; i++)
        values[i] = dw_f32_finite(0.0f + entries[i] * scale);
    for (int i = 0; dtype == DW_F16 && i < DW_CODEBOOK_ENTRIES; i++)
        to->half[i] = dw_f16_finite(values[i]);
    for (int i = 0; dtype == DW_BF16 && i < DW_CODEBOOK_ENTRIES; i++)
        to->half[i] = dw_bf16_finite(values[i]);
    if (dtype == DW_F32) memcpy(to->wide, values, sizeof values);
    for (int i = 0; i < DW_CODEBOOK_ENTRIES; i++)
        if (!dw_is_finite(scale) || !dw_is_finite(entries[i]))
            dw_fill_nan(dw_at(to, dtype, (uint64_t)i), dtype, 1);
}

/* A block while it is decoded. The values of a short block are multiplied one by one, because a
 * lookup does not pay for so few codes. Poisoned blocks, and those whose values are wanted in 16
 * bits, always use a lookup. */
typedef struct block {
    const float *entries;
    float scale;
    bool multiplies;
    lookup of;
} block;

enum { SHORT = 512 };

static void open_block(block *b, const float *entries, float scale, dw_dtype dtype, uint64_t length)
{
    b->entries = entries;
    b->scale = scale;
    b->multiplies = length <= SHORT && dtype == DW_F32 && dw_is_finite(scale);
    if (!b->multiplies) make_lookup(entries, scale, dtype, &b->of);
}

static void multiply(const block *b, const uint8_t *codes, uint64_t n, float *to)
{
    for (uint64_t i = 0; i < n; i++) to[i] = 0.0f + b->entries[codes[i]] * b->scale;
    for (uint64_t i = 0; i < n; i++) to[i] = dw_f32_finite(to[i]);
}

/* Writes y, or what is added to it, of n codes. */
static void look_up(const block *b, dw_dtype dtype, const uint8_t *codes, uint64_t n, void *to)
{
    const lookup *from = &b->of;
    float *wide = to;
    uint16_t *half = to;
    if (b->multiplies)
        multiply(b, codes, n, to);
    else if (dtype == DW_F32)
        for (uint64_t i = 0; i < n; i++) wide[i] = from->wide[codes[i]];
    else
        for (uint64_t i = 0; i < n; i++) half[i] = from->half[codes[i]];
}

/* Takes n values of a block, from element `at` of the sample on, to y, a part of a row at a time.
 */
static void write_values(const dw_decode_job *job, const block *from, uint64_t at, uint64_t n)
{
    uint64_t c = job->plan->c, stride = (uint64_t)job->stride, now;
    const uint8_t *codes = job->payload + front_of(job->plan) + at;
    bool is_dense = stride == c;
    for (; n > 0; at += now, codes += now, n -= now) {
        float values[PART];
        uint64_t left = is_dense ? n : c - at % c;
        now = n < left ? n : left;
        if (job->adds && now > PART) now = PART;
        uint64_t place = is_dense ? at : at / c * stride + at % c;
        if (!job->adds) {
            look_up(from, job->y_dtype, codes, now, dw_at(job->y, job->y_dtype, place));
            continue;
        }
        look_up(from, DW_F32, codes, now, values);
        dw_output_add(job, values, place, now);
    }
}

/* Codecs with this form keep no state at the decoder. */
static void decode(const dw_decode_job *job, uint64_t chunk, dw_chunk_result *result)
{
    const dw_plan *plan = job->plan;
    stretch all = chunk_of(plan, chunk);
    uint64_t length = length_of(plan);
    dw_dtype dtype = job->adds ? DW_F32 : job->y_dtype;
    float entries[DW_CODEBOOK_ENTRIES];
    block from;
    *result = (dw_chunk_result){0};
    read_entries(plan, job->payload, entries);
    for (uint64_t at = all.first, end = all.first + all.n, n; at < end; at += n) {
        n = end - at < length ? end - at : length;
        open_block(&from, entries, scale_at(plan, job->payload, at), dtype, length);
        write_values(job, &from, at, n);
    }
}

static void count(const dw_decode_job *job, dw_counters *counters)
{
    const dw_plan *plan = job->plan;
    float entries[DW_CODEBOOK_ENTRIES];
    counters->groups += blocks_of(plan);
    if (is_fitted(plan)) {
        read_entries(plan, job->payload, entries);
        counters->poisoned_groups += !dw_is_finite(entries[entries_of(plan) - 1]);
        return;
    }
    for (uint64_t i = 0; i < blocks_of(plan); i++) {
        float scale = read_float(job->payload + 4 * i);
        counters->zero_groups += scale == 0;
        counters->poisoned_groups += !dw_is_finite(scale);
    }
}

/* ---- Encode ---------------------------------------------------------------------------------- */

/* The memory that the form has in job->room: of a dynamic codebook `nearest` alone. */
typedef struct room {
    dw_nearest nearest;
    uint32_t sampled[DW_CODEBOOK_SAMPLED], spare[DW_CODEBOOK_SAMPLED];
} room;

static room *room_of(const dw_encode_job *job)
{
    return (room *)(void *)job->room;
}

static uint64_t part_of(uint64_t left)
{
    return left < PART ? left : (uint64_t)PART;
}

/* Finds the extremes of what is coded, both as maxima of integers. largest: dw_order_of the largest
 * finite value; x_largest: dw_order_of the smallest one, with all bits inverted. n: how many values
 * are not finite. */
static void measure(const dw_encode_job *job, uint64_t chunk, dw_chunk_result *result)
{
    float part[PART];
    stretch all = chunk_of(job->plan, chunk);
    *result = (dw_chunk_result){0};
    if (!is_fitted(job->plan)) return;
    dw_squares *found = &result->squares;
    for (uint64_t done = 0, n; done < all.n; done += n) {
        n = part_of(all.n - done);
        const float *values = dw_elements_load(job, all.first + done, n, part);
        for (uint64_t i = 0; i < n; i++) {
            bool counts = dw_is_finite(values[i]);
            uint32_t order = counts ? dw_order_of(values[i]) : 0, below = counts ? ~order : 0;
            found->n += !counts;
            if (order > found->largest) found->largest = order;
            if (below > found->x_largest) found->x_largest = below;
        }
    }
}

/* Takes one value of each of as many equal stretches of the sample as are sampled. Where in its
 * stretch it stands follows from the number of the stretch, in such a way that the places do not
 * fall on the same channels again and again. */
static uint32_t take_sample(const dw_encode_job *job, uint32_t *sampled)
{
    uint64_t n = values_of(job->plan), count = n < DW_CODEBOOK_SAMPLED ? n : DW_CODEBOOK_SAMPLED;
    uint32_t found = 0;
    for (uint64_t i = 0; i < count; i++) {
        float one[1];
        uint64_t first = i * n / count, length = (i + 1) * n / count - first;
        uint64_t at = first + ((uint64_t)((uint32_t)i * 2654435769u) * length >> 32);
        float value = *dw_elements_load(job, at, 1, one);
        if (dw_is_finite(value)) sampled[found++] = dw_order_of(value);
    }
    return found;
}

/* Fits the codebook, if it is to be fitted, and prepares the search for the nearest entry. */
static void choose_scale(const dw_encode_job *job, const dw_chunk_result *joined)
{
    const dw_plan *plan = job->plan;
    const dw_squares *found = &joined->squares;
    float entries[DW_CODEBOOK_ENTRIES];
    room *own = room_of(job);
    if (!is_fitted(plan)) {
        dw_codebook_dynamic(entries);
        dw_nearest_make(&own->nearest, entries, DW_CODEBOOK_ENTRIES);
        return;
    }
    dw_fit fit = {.least = found->largest ? dw_order_value(~found->x_largest) : 0.0f,
                  .most = found->largest ? dw_order_value(found->largest) : 0.0f,
                  .has_bad = found->n > 0,
                  .entries = entries_of(plan),
                  .sampled = own->sampled,
                  .n_sampled = take_sample(job, own->sampled),
                  .spare = own->spare};
    dw_codebook_fit(&fit, entries);
    for (uint32_t i = 0; i < fit.entries; i++) write_float(job->payload + 4 * i, entries[i]);
    dw_nearest_make(&own->nearest, entries, fit.entries - fit.has_bad);
}

/* The largest magnitude of n values of a sample, as bits: NaN > infinity > finite. */
static uint32_t largest_of(const dw_encode_job *job, uint64_t first, uint64_t n)
{
    float part[PART];
    uint32_t most = 0;
    for (uint64_t done = 0, now; done < n; done += now) {
        now = part_of(n - done);
        uint32_t largest = dw_elements_largest(dw_elements_load(job, first + done, now, part), now);
        most = largest > most ? largest : most;
    }
    return most;
}

/* Adding 3 * 2^22 rounds to the nearest whole number, ties to even, which then stands in the lowest
 * bits. */
static void linear_codes(const float *values, float factor, uint64_t n, uint8_t *codes)
{
    for (uint64_t i = 0; i < n; i++)
        codes[i] = (uint8_t)(dw_bits_of(values[i] * factor + 12582912.0f) + LINEAR_ZERO);
}

/* What encode_block does with a block. */
typedef struct coding {
    float scale, factor; /* factor: what a value is multiplied with before its code is found */
    bool is_flat;        /* all codes stand for 0 */
} coding;

static coding choose(const dw_encode_job *job, uint64_t first, uint64_t n, dw_sums *sums)
{
    static const uint32_t least = 0x0f800000u; /* 2^-96 */
    bool is_linear = job->plan->params.codebook == DW_CODEBOOK_LINEAR;
    sums->pieces++;
    if (is_fitted(job->plan)) return (coding){1.0f, 1.0f, false};
    uint32_t largest = largest_of(job, first, n);
    coding chosen = {dw_float_of(largest), 0, false};
    if (largest >= DW_F32_INFINITY)
        chosen = (coding){dw_float_of(DW_F32_NAN), 0, true};
    else if (largest < least)
        chosen = (coding){0, 0, true};
    else
        chosen.factor = (is_linear ? 127.0f : 1.0f) / chosen.scale;
    sums->zero += chosen.is_flat && chosen.scale == 0;
    sums->poisoned += largest >= DW_F32_INFINITY;
    write_float(job->payload + 4 * (first / job->plan->params.block), chosen.scale);
    return chosen;
}

/* Writes the codes of a part of a block. */
static void write_codes(const dw_encode_job *job, const coding *how, const float *values,
                        uint64_t n, uint8_t *codes)
{
    bool is_linear = job->plan->params.codebook == DW_CODEBOOK_LINEAR;
    if (how->is_flat)
        memset(codes, is_linear ? LINEAR_ZERO : DYNAMIC_ZERO, n);
    else if (is_linear)
        linear_codes(values, how->factor, n, codes);
    else
        dw_nearest_codes(&room_of(job)->nearest, values, how->factor, n, codes);
    if (!is_fitted(job->plan)) return;
    uint8_t last = (uint8_t)(entries_of(job->plan) - 1);
    for (uint64_t i = 0; i < n; i++) codes[i] = dw_is_finite(values[i]) ? codes[i] : last;
}

/* Makes the new residual of a part (codecs/residual.h). Where nothing arrives, it stays. */
static void keep_residual(const dw_encode_job *job, uint64_t at, uint64_t n, const float *arrives)
{
    float part[PART], *next = (float *)job->next + at;
    const float *prev = job->prev ? (const float *)job->prev + at : NULL;
    dw_encode_job plain = *job;
    plain.prev = NULL;
    const float *x = dw_elements_load(&plain, at, n, part);
    for (uint64_t i = 0; i < n; i++)
        next[i] = dw_residual_next(prev ? prev[i] : 0, arrives[i], x[i]);
}

/* Adds the norms of what is coded of a part, and of its error, to the counters' sums. */
static void measure_part(const dw_encode_job *job, uint64_t at, uint64_t n, const float *coded,
                         const float *arrives, dw_sums *sums)
{
    float part[PART];
    dw_norms norms = {0, 0, 0}, of_x = {0, 0, 0};
    dw_encode_job plain = *job;
    plain.prev = NULL;
    const float *x = dw_elements_load(&plain, at, n, part);
    dw_norms_run call = {.x = coded,
                         .back = arrives,
                         .x_dtype = DW_F32,
                         .base_dtype = DW_F32,
                         .back_dtype = DW_F32,
                         .n = n};
    job->kernels->norms(&call, &norms);
    call.x = call.back = x;
    job->kernels->norms(&call, &of_x);
    sums->x_square += of_x.x;
    sums->delta_square += norms.x;
    sums->error_square += norms.error;
}

static void encode_block(const dw_encode_job *job, const float *entries, uint64_t first, uint64_t n,
                         dw_sums *sums)
{
    float part[PART], arrives[PART];
    coding how = choose(job, first, n, sums);
    block from;
    bool is_made = false;
    for (uint64_t done = 0, now; done < n; done += now) {
        uint64_t at = first + done;
        bool is_measured = at / PART % DW_MEASURED_SHARE == 0;
        uint8_t *codes = job->payload + front_of(job->plan) + at;
        now = part_of(n - done);
        const float *values = dw_elements_load(job, at, now, part);
        write_codes(job, &how, values, now, codes);
        if (!is_measured && !job->keeps_residual) continue;
        if (!is_made) open_block(&from, entries, how.scale, DW_F32, length_of(job->plan));
        is_made = true;
        look_up(&from, DW_F32, codes, now, arrives);
        if (is_measured) measure_part(job, at, now, values, arrives, sums);
        if (job->keeps_residual) keep_residual(job, at, now, arrives);
    }
}

static void encode(const dw_encode_job *job, uint64_t chunk, dw_chunk_result *result)
{
    const dw_plan *plan = job->plan;
    stretch all = chunk_of(plan, chunk);
    uint64_t length = length_of(plan), front = front_of(plan);
    uint64_t end = all.first + all.n, coded_end = front + end;
    float entries[DW_CODEBOOK_ENTRIES];
    *result = (dw_chunk_result){0};
    read_entries(plan, job->payload, entries);
    for (uint64_t at = all.first, n; at < end; at += n) {
        n = end - at < length ? end - at : length;
        encode_block(job, entries, at, n, &result->sums);
    }
    if (end == values_of(plan)) {
        memset(job->payload + coded_end, 0, (size_t)(plan->payload_bytes - coded_end));
        coded_end = plan->payload_bytes;
    }
    result->payload_sum =
        job->kernels->digest_bytes(job->payload, front + all.first, coded_end - front - all.first);
}

/* Clears what is left behind the scales, and adds the digest of codebook and scales. */
static void encoded(const dw_encode_job *job, dw_chunk_result *result)
{
    const dw_plan *plan = job->plan;
    uint64_t front = front_of(plan),
             used = 4 * (is_fitted(plan) ? entries_of(plan) : blocks_of(plan));
    memset(job->payload + used, 0, (size_t)(front - used));
    result->payload_sum += job->kernels->digest_bytes(job->payload, 0, front);
    if (is_fitted(plan)) {
        result->sums.pieces = 1;
        result->sums.poisoned = !dw_is_finite(read_float(job->payload + used - 4));
    }
}

/* ---- The row --------------------------------------------------------------------------------- */

static dw_status plan(dw_plan *made, dw_why *why)
{
    uint64_t n, bytes;
    if (!dw_size_multiply(made->t, made->c, &n) || !dw_size_multiply(n, 2, &bytes) ||
        bytes > PTRDIFF_MAX - 4096)
        return dw_plan_too_large(made, 0, why);
    made->layout = (dw_layout){.t = made->t, .c = made->c};
    made->payload_bytes = front_of(made) + dw_round_up(n, 16);
    made->chunks = (n + CHUNK - 1) / CHUNK;
    made->measures = made->params.codebook != DW_CODEBOOK_LINEAR;
    if (made->measures) made->room_bytes = is_fitted(made) ? sizeof(room) : sizeof(dw_nearest);
    return DW_OK;
}

/* The error is at most half of the largest distance of two neighbouring entries. If the largest
 * magnitude of a block is 1, that is 1 / 254 with linear and 0.9 / 128 with dynamic. The parts
 * below are a little larger, because the quotient of value and scale is rounded. With quantile, 0
 * and both extremes are entries, so neighbours are at most as far apart as the largest magnitude.
 */
static dw_contraction contracts(const dw_form_params *params, const dw_config *config)
{
    (void)config;
    double part = params->codebook == DW_CODEBOOK_QUANTILE  ? 0.5
                  : params->codebook == DW_CODEBOOK_DYNAMIC ? 0.00704
                                                            : 0.00394;
    return dw_contraction_by(DW_CONTRACTS_ALWAYS, part);
}

const dw_form dw_form_blocks = {
    .wire = DW_FORM_BLOCKS,
    .name = "blocks",
    .plan = plan,
    .measure = measure,
    .choose_scale = choose_scale,
    .encode = encode,
    .decode = decode,
    .encoded = encoded,
    .count = count,
    .contracts = contracts,
};
