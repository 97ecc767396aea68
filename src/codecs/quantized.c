/* SPDX-License-Identifier: Apache-2.0
 * quantized.c - the form of 1 to 8 bits per value: cuts the chunks of a sample into runs and passes
 * each to a kernel (docs/format.md, 3.2). */
#include "codecs/quantized.h"

#include "codecs/front.h"
#include "codecs/output.h"
#include "codecs/plan.h"
#include "codecs/residual.h"

/* Whether y is written past the caches. With state, y is written by write_output instead. */
static bool streams_y(const dw_decode_job *job)
{
    return !job->next && !job->adds && !job->layout.rotates && job->bypasses_caches;
}

static dw_run_decoder decode_encoded;

static void decode_run(const dw_decode_job *job, const dw_run *r, uint64_t *sum, bool past)
{
    const dw_layout *layout = &job->layout;
    bool state = job->next != NULL, adds = job->adds && !state;
    uint64_t at = r->row * (uint64_t)job->stride + r->column;
    if (layout->rotates) {
        dw_front_decode(job, r, decode_encoded);
        return;
    }
    dw_decode_run call = {
        .out_dtype = state ? job->prev_dtype : job->y_dtype,
        .prev_dtype = job->prev_dtype,
        .bits = layout->bits,
        .width = dw_run_width(layout, r),
        .pieces = r->segments,
        .channels = r->channels,
        .prev = dw_at(job->prev, job->prev_dtype, r->element),
        .out = state ? r->next : dw_at(job->y, job->y_dtype, at),
        .poison_keeps = state,
        .scales = job->payload + r->tile.offset + 2 * (uint64_t)r->first_segment,
        .choices = layout->chooses ? job->payload : NULL,
        .codes = job->payload + r->tile.codes,
        .first_piece = r->tile.first_segment + r->first_segment,
        .tile_elements = r->tile.elements,
        .first = r->first_segment * layout->segment_width,
        .sum = sum,
        .element = r->element,
        .past = past,
        .adds = adds,
        .factor = job->factor,
    };
    job->kernels->decode(&call);
}

static void decode(const dw_decode_job *job, uint64_t index, dw_chunk_result *result)
{
    const dw_layout *layout = &job->layout;
    *result = (dw_chunk_result){0};
    if (layout->by_channel) {
        dw_columns_decode(job, index);
        return;
    }
    bool past = streams_y(job);
    dw_walk walk;
    dw_walk_start(&walk, layout, index, job->next ? (int64_t)layout->c : job->stride, job->audit,
                  job->next, job->prev_dtype);
    while (dw_walk_next(&walk)) {
        decode_run(job, &walk.run, dw_walk_sum(&walk), past);
        dw_walk_done(&walk, job->kernels);
    }
    if (past) job->kernels->stream(job->y, job->payload, 0, true);
    result->state_sum = walk.trail.sum;
}

static void write_output(const dw_decode_job *job, uint64_t index)
{
    const dw_layout *layout = &job->layout;
    if (!layout->by_channel) {
        dw_tiles_write_output(job, index);
        return;
    }
    dw_chunk chunk = dw_layout_chunk(layout, index);
    for (uint64_t t = 0; t < layout->t; t++)
        dw_tiles_write_rows(job, t * layout->c + chunk.first_channel, chunk.channels);
    dw_columns_poison(job, index);
}

/* What the runs of a chunk share while it is encoded. */
typedef struct encoding {
    const dw_encode_job *job; /* with a rotation, that of the rotated values */
    dw_piece_counts counts;
    dw_chosen row;
    bool is_far;
    bool completes; /* the kernel completes the residual */
    bool past;      /* the kernel stores it past the caches */
} encoding;

static void encode_run(encoding *e, const dw_run *r)
{
    const dw_encode_job *job = e->job;
    const dw_layout *layout = &job->layout;
    dw_dither dither = {job->rule.dither_key, r->element};
    dw_encode_run call = {
        .x_dtype = job->x_dtype,
        .prev_dtype = job->prev_dtype,
        .bits = layout->bits,
        .width = dw_run_width(layout, r),
        .pieces = r->segments,
        .scale = job->rule.scale,
        .channels = r->channels,
        .x = dw_at(job->x, job->x_dtype, r->row * (uint64_t)job->stride + r->column),
        .prev = dw_at(job->prev, job->prev_dtype, r->element),
        .next = r->next,
        .scales = job->payload + r->tile.offset + 2 * (uint64_t)r->first_segment,
        .choices = layout->chooses ? job->payload : NULL,
        .codes = job->payload + r->tile.codes,
        .first_piece = r->tile.first_segment + r->first_segment,
        .tile_elements = r->tile.elements,
        .first = r->first_segment * layout->segment_width,
        .row = layout->cut_rows ? &e->row : NULL,
        .dither = job->rule.is_stochastic ? &dither : NULL,
        .is_far = e->is_far,
        .rests = e->completes,
        .past = e->past,
        .counts = &e->counts,
    };
    e->job->kernels->encode(&call);
}

static void decode_encoded(const dw_decode_job *job, const dw_run *r)
{
    decode_run(job, r, NULL, false);
}

/* Scale and choice of a whole row, for layouts where a row is cut into several tiles. */
static dw_chosen choose_row(const dw_encode_job *job, uint64_t row)
{
    const dw_kernels *kernels = job->kernels;
    uint64_t c = job->layout.c;
    float buffer[DW_TILE_ELEMENTS];
    dw_candidates found = {{0, 0}, {0, 0}};
    dw_source s;
    for (uint64_t at = 0; at < c; at += s.n) {
        s = dw_front_source(job, row, at, buffer);
        kernels->extremes(s.x, s.x_dtype, s.prev, s.prev_dtype, s.n, &found);
    }
    dw_chosen chosen = {0, job->layout.chooses && dw_is_direct_better(found.direct, found.delta)};
    dw_extremes extremes = chosen.direct ? found.direct : found.delta;
    chosen.scale = dw_scale_of(extremes, job->layout.bits, job->rule.scale != DW_SCALE_ABSMAX);
    if (job->rule.scale != DW_SCALE_MSE || dw_scale_is_flat(chosen.scale)) return chosen;
    dw_attempts attempts = dw_attempts_of(extremes, job->layout.bits);
    float lanes[DW_ATTEMPTS][DW_NORM_LANES] = {{0}}, sums[DW_ATTEMPTS];
    for (uint64_t at = 0; at < c; at += s.n) {
        s = dw_front_source(job, row, at, buffer);
        kernels->squares(s.x, s.x_dtype, chosen.direct ? NULL : s.prev, s.prev_dtype, s.n,
                         job->layout.bits, &attempts, lanes);
    }
    for (int k = 0; k < DW_ATTEMPTS; k++) sums[k] = dw_lanes_sum(lanes[k]);
    chosen.scale = dw_attempts_best(&attempts, sums);
    return chosen;
}

/* Whether the kernel may complete the residual itself, in the same pass. A rotation still needs
 * what the decoder gets. */
static bool may_complete(const dw_encode_job *job)
{
    return job->keeps_residual && !job->layout.rotates && !job->layout.chooses;
}

static void encode(const dw_encode_job *job, uint64_t index, dw_chunk_result *result)
{
    const dw_layout *layout = &job->layout;
    *result = (dw_chunk_result){0};
    if (layout->by_channel) {
        dw_columns_encode(job, index, result);
        return;
    }
    dw_walk walk;
    dw_front front;
    dw_walk_encode(&walk, job, index);
    encoding e = {.job = dw_front_begin(&front, job),
                  .is_far = walk.trail.streams && !layout->rotates,
                  .completes = may_complete(job)};
    /* Nothing here reads a complete residual, so the kernel can store it to its place at once. */
    e.past = e.completes && walk.trail.streams && !job->audit.every;
    walk.trail.streams &= !e.past;
    dw_tiles_clear(job, &walk.chunk);
    while (dw_walk_next(&walk)) {
        if (layout->cut_rows && walk.tile % layout->row_segments == 0)
            e.row = choose_row(job, walk.run.row);
        encode_run(&e, dw_front_load(&front, &walk.run));
        dw_front_store(&front, &walk.run);
        dw_run made = walk.run;
        if (e.completes) made.next = NULL; /* it does not hold what the decoder gets any more */
        dw_tiles_measure(job, walk.tile, &made, decode_encoded, &result->sums);
        if (!e.completes) dw_residual_follow(job, &walk.run);
        dw_walk_done(&walk, job->kernels);
    }
    if (e.past) job->kernels->stream(job->next, job->payload, 0, true);
    result->state_sum = walk.trail.sum;
    result->payload_sum = dw_tiles_payload_sum(job, &walk.chunk);
    dw_tiles_take_counts(&e.counts, &result->sums);
}

static dw_status plan(dw_plan *made, dw_why *why)
{
    const dw_form_params *params = &made->params;
    if (!dw_layout_make(&made->layout, made->t, made->c, params->bits, params->group,
                        params->chooses))
        return dw_plan_too_large(made, 0, why);
    made->payload_bytes = made->layout.payload_bytes;
    made->chunks = dw_layout_chunks(&made->layout);
    return dw_front_plan(made, why);
}

/* The scale s is such that the largest magnitude A of a piece is at most L steps: s * L >= A.
 * Nearest rounding is wrong by at most s / 2, stochastic rounding by at most s. Besides, the levels
 * reach farther down than up, so with the rules signed and mse a value can lie above the highest
 * level. With mse, the lowest level is at one of several parts of A: the smallest part and the
 * largest decide. Rounding the scale up to a bf16 can make it larger by 2^-7. */
static dw_contraction contracts(const dw_form_params *params, const dw_config *config)
{
    uint32_t bits = params->bits;
    bool is_stochastic = config->rounding == DW_ROUNDING_STOCHASTIC;
    bool is_absmax = config->scale == DW_SCALE_ABSMAX, is_mse = config->scale == DW_SCALE_MSE;
    double low = is_mse ? dw_attempt_part(bits, 0) / 64.0 : 1,
           high = is_mse ? dw_attempt_part(bits, DW_ATTEMPTS - 1) / 64.0 : 1;
    double levels = dw_levels(bits, !is_absmax), step = high / levels * (1 + 0x1p-7);
    double rounded = is_stochastic ? step : step / 2;
    /* One bit has the levels -s and s, so a value near 0 is wrong by s. */
    if (bits == 1) rounded = is_stochastic ? 2 * step : step;
    double top = is_absmax || bits == 1 ? low : low * (levels - 1) / levels;
    double above = 1 - top;
    return dw_contraction_by(DW_CONTRACTS_ALWAYS, above > rounded ? above : rounded);
}

static const dw_device_kernels kernels_on_a_device = {
    .encode = "dw_encode",
    .choose = "dw_choose_scales",
    .encode_search = "dw_encode_mse",
    .decode = "dw_decode",
    .decode_direct = "dw_decode_direct",
    .encode_columns = "dw_encode_columns",
    .decode_columns = "dw_decode_columns",
    .decode_direct_columns = "dw_decode_direct_columns",
};

const dw_form dw_form_quantized = {
    .wire = DW_FORM_QUANTIZED,
    .name = "quantized",
    .has_codes = true,
    .plan = plan,
    .encode = encode,
    .decode = decode,
    .write_output = write_output,
    .encoded = dw_tiles_encoded,
    .decoded = dw_tiles_decoded,
    .count = dw_tiles_count,
    .contracts = contracts,
    .device = &kernels_on_a_device,
};
