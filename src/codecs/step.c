/* SPDX-License-Identifier: Apache-2.0
 * step.c - the form of one step: values are coded as whole multiples of a step that many of them
 * share, in one byte each, which is meant for an entropy coder behind it (docs/format.md, 3.4).
 * Values that are more than 127 steps large are escaped (codecs/escapes.h).
 *
 * The step is a multiple of the root mean square of what is coded, without outliers
 * (arithmetic/step.h). If the config limits the error, the step follows from this limit and from x
 * instead. Where a whole sample shares one step, the sample is read twice: `measure` adds up the
 * squares of each chunk, `choose_scale` computes the step and writes it into the payload, and only
 * then are chunks encoded.
 *
 * With rounding=trellis a chunk is read twice in any case: `choose_codes` finds the codes of all
 * its tiles (codecs/trellis.h), and then its runs are completed as with other roundings.
 *
 * Source: subtractive dither is universal quantization (Ziv 1985; Zamir and Feder 1992). */
#include <string.h>

#include "arithmetic/coded.h"
#include "arithmetic/step.h"
#include "codecs/bulk.h"
#include "codecs/escapes.h"
#include "codecs/front.h"
#include "codecs/options.h"
#include "codecs/output.h"
#include "codecs/plan.h"
#include "codecs/profile.h"
#include "codecs/residual.h"
#include "codecs/tiles.h"
#include "codecs/tolerance.h"
#include "codecs/trellis.h"
#include "codecs/weighing.h"

/* A span: contiguous elements that share a step. That is a segment of a run, or, where a sample or
 * a cut row shares one, the whole run. */
typedef struct span {
    uint64_t at, n;  /* elements from the start of the run */
    uint32_t stored; /* codes, padding included */
    uint32_t codes;  /* where they begin, counted in codes from the start of the run */
} span;

static uint32_t spans_of(const dw_layout *layout, const dw_run *r)
{
    return layout->by_sample ? 1 : r->segments;
}

static span span_of(const dw_layout *layout, const dw_run *r, uint32_t i)
{
    uint32_t width = dw_run_width(layout, r);
    if (layout->by_sample) return (span){0, r->channels, r->segments * width, 0};
    uint64_t at = (uint64_t)i * layout->segment_channels, left = r->channels - at;
    uint64_t n = left < layout->segment_channels ? left : layout->segment_channels;
    return (span){at, n, width, i * width};
}

static uint64_t scale_offset(const dw_layout *layout, const dw_run *r, uint32_t i)
{
    return layout->by_sample ? layout->choice_bytes
                             : r->tile.offset + 2 * (uint64_t)(r->first_segment + i);
}

/* channels: with a profile, the sign of a step is that of the means and not its own. */
static uint16_t read_scale(const uint8_t *from, const dw_channels *channels)
{
    uint16_t scale = (uint16_t)(from[0] | from[1] << 8);
    return channels->weights ? scale & (uint16_t)~DW_PROFILE_SIGN : scale;
}

static void write_scale(uint8_t *to, uint16_t scale)
{
    to[0] = (uint8_t)scale;
    to[1] = (uint8_t)(scale >> 8);
}

static uint64_t codes_offset(const dw_layout *layout, const dw_run *r, uint32_t codes)
{
    return r->tile.codes + (uint64_t)r->first_segment * layout->segment_width + codes;
}

/* The codes of a tile of a payload, and the room for its escaped values. */
typedef struct tile_codes {
    uint8_t *codes, *room;
    uint32_t n;
} tile_codes;

static tile_codes codes_of(const dw_run *r, const uint8_t *payload)
{
    uint8_t *to = (uint8_t *)(uintptr_t)payload;
    return (tile_codes){to + r->tile.codes, to + r->tile.escapes, r->tile.elements};
}

/* Writes a value to element `at` of a span. */
static void put_value(const dw_kernels *kernels, float value, void *to, dw_dtype dtype, uint64_t at)
{
    kernels->convert(&value, DW_F32, dw_at(to, dtype, at), dtype, 1);
}

/* Writes the escaped values among the n elements of a span, whose first code is number `first` of
 * the tile, to `out`. */
static void put_escapes(const dw_kernels *kernels, const tile_codes *tile, uint64_t first,
                        uint64_t n, void *out, dw_dtype dtype)
{
    uint32_t count = dw_escapes_count(tile->room, tile->n);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t place = dw_escapes_place(tile->room, i);
        if (place >= first && place < first + n)
            put_value(kernels, dw_escapes_value(tile->room, tile->n, i), out, dtype, place - first);
    }
}

/* ---- Decode ---------------------------------------------------------------------------------- */

static void decode_span(const dw_decode_job *job, const dw_run *r, uint32_t i)
{
    const dw_layout *layout = &job->layout;
    bool state = job->next != NULL, adds = job->adds && !state;
    span s = span_of(layout, r, i);
    uint64_t at = r->row * (uint64_t)job->stride + r->column + s.at;
    float values[DW_TILE_ELEMENTS]; /* the values to be added to y */
    dw_dtype dtype = state ? job->prev_dtype : adds ? DW_F32 : job->y_dtype;
    void *out = state  ? dw_at(r->next, job->prev_dtype, s.at)
                : adds ? values
                       : dw_at(job->y, job->y_dtype, at);
    const void *prev = dw_at(job->prev, job->prev_dtype, r->element + s.at);
    uint16_t scale = read_scale(job->payload + scale_offset(layout, r, i), &job->channels);
    dw_step_run call = {
        .x_dtype = dtype,
        .prev_dtype = job->prev_dtype,
        .n = s.n,
        .stored = s.stored,
        .scale = scale,
        .rounding = layout->dithers ? DW_ROUNDING_DITHER : DW_ROUNDING_NEAREST,
        .prev = prev,
        .out = out,
        .codes = (uint8_t *)(uintptr_t)job->payload + codes_offset(layout, r, s.codes),
        .dither = {job->draws_key, r->element + s.at},
    };
    tile_codes tile = codes_of(r, job->payload);
    if (dw_scale_is_poisoned(scale)) {
        dw_fill_poisoned(prev, out, dtype, s.n, state);
    } else {
        job->kernels->step_decode(&call);
        put_escapes(job->kernels, &tile, (uint64_t)(call.codes - tile.codes), s.n, out, dtype);
    }
    if (adds) dw_output_add(job, values, at, s.n);
}

static void decode_run(const dw_decode_job *job, const dw_run *r)
{
    if (job->layout.rotates || job->layout.weighs) {
        dw_front_decode(job, r, decode_run);
        return;
    }
    for (uint32_t i = 0; i < spans_of(&job->layout, r); i++) decode_span(job, r, i);
}

static void decode(const dw_decode_job *job, uint64_t chunk, dw_chunk_result *result)
{
    dw_walk walk;
    *result = (dw_chunk_result){0};
    dw_walk_start(&walk, &job->layout, chunk, job->next ? (int64_t)job->layout.c : job->stride,
                  job->audit, job->next, job->prev_dtype);
    while (dw_walk_next(&walk)) {
        decode_run(job, &walk.run);
        dw_walk_done(&walk, job->kernels);
    }
    result->state_sum = walk.trail.sum;
}

/* ---- Encode ---------------------------------------------------------------------------------- */

/* Returns whether the squares of x must be measured besides those of what is coded. That is so if
 * the config limits the error, so that the step depends on x, and there is a base, prev or means,
 * that is subtracted from what is coded. With feedback, the error is limited to a part of what is
 * coded, so that it shrinks. */
static bool needs_x(const dw_encode_job *job)
{
    bool has_base = job->prev || job->channels.means[0];
    return (job->error > 0 || job->plan->params.bound > 0) && has_base && !job->keeps_residual;
}

/* Returns the step with which every error keeps to the bound. A sample with NaN or infinite values
 * has no bound and is not checked against one (codecs/tolerance.h): if values of its other pieces
 * would escape with this step, returns a step with which the room suffices for them. */
static uint16_t bounded_step(const dw_squares *of, const dw_bound *bound)
{
    uint16_t step = dw_tolerance_step(of, bound), least = dw_step_below(of->least);
    double reach = DW_STEPS_UNESCAPED * (double)dw_bf16_widen(step);
    bool escapes = (double)dw_float_of(of->largest) > reach; /* false for NaN */
    return escapes && least > step ? least : step;
}

/* Returns the step of a piece, as a bf16, from what was measured of it. */
static uint16_t step_of(const dw_encode_job *job, const dw_squares *squares)
{
    const dw_form_params *params = &job->plan->params;
    dw_squares of = *squares;
    dw_bound bound = {params->bound, job->x_dtype, job->next ? job->prev_dtype : (dw_dtype)0,
                      job->rule.is_stochastic};
    if (!needs_x(job)) { /* x is what is coded */
        of.x_sum = of.sum;
        of.x_largest = of.largest;
    }
    if (job->error > 0 && job->rule.is_trellis)
        return dw_step_of_error(&of, job->error, DW_TRELLIS_PARTS);
    if (job->error > 0) return dw_step_of_error(&of, job->error, job->rule.is_stochastic ? 6 : 12);
    if (params->bound > 0) return bounded_step(&of, &bound);
    return dw_step_scale(squares, job->step);
}

/* Adds up the squares of a chunk, tile after tile, if all of the sample shares a step. */
static void measure(const dw_encode_job *job, uint64_t chunk, dw_chunk_result *result)
{
    dw_walk walk;
    dw_bulk_tile of;
    dw_bulk_begin(&of);
    *result = (dw_chunk_result){0};
    dw_walk_start(&walk, &job->layout, chunk, job->stride, (dw_audit){0}, NULL, job->prev_dtype);
    for (uint64_t tile = walk.tile; dw_walk_next(&walk); tile = walk.tile) {
        const dw_run *r = &walk.run;
        if (walk.tile != tile) dw_bulk_measure(job, job, &of, needs_x(job), &result->squares);
        uint64_t x_at = r->row * (uint64_t)job->stride + r->column;
        dw_bulk_add(&of, (dw_bulk_range){x_at, x_at, r->element, r->channels});
    }
    dw_bulk_measure(job, job, &of, needs_x(job), &result->squares);
}

/* Computes the step that the whole sample shares and writes it in front of the tiles. */
static void choose_scale(const dw_encode_job *job, const dw_chunk_result *joined)
{
    uint8_t *front = job->payload + job->layout.choice_bytes;
    memset(front, 0, (size_t)job->layout.scale_bytes);
    write_scale(front, step_of(job, &joined->squares));
}

/* What the runs of a chunk share while it is encoded. */
typedef struct encoding {
    const dw_encode_job *job;
    const dw_encode_job *coded; /* the same, or, with a rotation, that of the rotated values */
    uint16_t row;               /* the step of a row that is cut into several tiles */
    dw_sums *sums;
} encoding;

static uint16_t choose_row(const dw_encode_job *job, uint64_t row)
{
    uint64_t c = job->layout.c;
    dw_squares squares = {0};
    dw_bulk_tile of;
    dw_bulk_begin(&of);
    for (uint64_t at = 0, n; at < c; at += n) {
        uint64_t x_at = row * (uint64_t)job->stride + at;
        n = c - at < DW_TILE_ELEMENTS ? c - at : DW_TILE_ELEMENTS;
        dw_bulk_add(&of, (dw_bulk_range){x_at, x_at, row * c + at, n});
        dw_bulk_measure(job, job, &of, needs_x(job), &squares);
    }
    return step_of(job, &squares);
}

/* Determines the step of span i of a run and writes it, unless `choose_scale` has done so for all
 * of them. coded_at: the place of the span in the x of e->coded. */
static uint16_t find_scale(const encoding *e, const dw_run *r, uint32_t i, uint64_t coded_at,
                           const span *s)
{
    const dw_encode_job *job = e->job;
    const dw_layout *layout = &job->layout;
    uint8_t *place = job->payload + scale_offset(layout, r, i);
    uint64_t x_at = r->row * (uint64_t)job->stride + r->column + s->at;
    dw_squares squares = {0};
    if (layout->by_sample) return read_scale(place, &job->channels);
    uint16_t scale = e->row;
    if (!layout->cut_rows) {
        dw_bulk_tile of;
        dw_bulk_begin(&of);
        dw_bulk_add(&of, (dw_bulk_range){x_at, coded_at, r->element + s->at, s->n});
        dw_bulk_measure(job, e->coded, &of, needs_x(job), &squares);
        scale = step_of(job, &squares);
    }
    bool has_sign = layout->weighs && !dw_scale_is_poisoned(scale);
    write_scale(place,
                has_sign ? scale | dw_weighing_sign(job, (r->element + s->at) / layout->c) : scale);
    return scale;
}

/* Loads the values of a run into the tile, and writes its scales. coded: as for encode_span. */
static void load_run(const encoding *e, const dw_run *r, const dw_run *coded, dw_trellis_tile *tile)
{
    const dw_encode_job *job = e->coded;
    for (uint32_t i = 0; i < spans_of(&job->layout, r); i++) {
        span s = span_of(&job->layout, r, i);
        uint64_t x_at = coded->row * (uint64_t)job->stride + coded->column + s.at;
        dw_trellis_span values = {.x = dw_at(job->x, job->x_dtype, x_at),
                                  .prev = dw_at(job->prev, job->prev_dtype, r->element + s.at),
                                  .x_dtype = job->x_dtype,
                                  .prev_dtype = job->prev_dtype,
                                  .n = s.n,
                                  .scale = find_scale(e, r, i, x_at, &s)};
        dw_trellis_load(tile, job->kernels, &values,
                        r->first_segment * job->layout.segment_width + s.codes);
    }
}

/* Writes the codes and scales of all tiles of a chunk. */
static void choose_codes(encoding *e, dw_front *front, uint64_t chunk)
{
    const dw_encode_job *job = e->job;
    const dw_layout *layout = &job->layout;
    dw_walk walk;
    dw_trellis_tile tile = {.frugal = !(job->error > 0)};
    dw_walk_start(&walk, layout, chunk, job->stride, (dw_audit){0}, NULL, job->prev_dtype);
    while (dw_walk_next(&walk)) {
        const dw_run *r = &walk.run;
        if (r->first_segment == 0)
            dw_trellis_begin(&tile, (walk.tile - walk.chunk.first_tile) % DW_BLOCK_TILES == 0);
        if (layout->cut_rows && !layout->by_sample && walk.tile % layout->row_segments == 0)
            e->row = choose_row(job, r->row);
        load_run(e, r, dw_front_load(front, r), &tile);
        if (r->first_segment + r->segments == r->tile.segments)
            dw_trellis_finish(&tile, job->kernels, r->tile.elements, job->payload + r->tile.codes);
    }
}

/* Makes the new prev of a span whose codes were chosen before, as a decoder does. */
static void follow_codes(const dw_kernels *kernels, const dw_step_run *call)
{
    dw_step_run again = *call;
    again.x_dtype = call->prev_dtype;
    again.out = call->next;
    if (again.out) kernels->step_decode(&again);
}

/* Stores the escaped values of a span, whose codes are 0 until then, in the room of their tile: x
 * itself, or what is coded of it where prev is a residual. Counts them, and completes the new prev.
 * If there were no room, which cannot be (arithmetic/step.h, DW_STEP_LEAST), a code would stay 0,
 * as which the new prev has been computed. */
static void store_escapes(const encoding *e, const dw_run *r, const dw_step_run *call)
{
    const dw_encode_job *job = e->coded;
    const dw_kernels *kernels = job->kernels;
    tile_codes tile = codes_of(r, job->payload);
    uint8_t *end = call->codes + call->n;
    for (uint8_t *code = call->codes; (code = memchr(code, 0, (size_t)(end - code))); code++) {
        uint64_t at = (uint64_t)(code - call->codes);
        float value = 0, base = 0, next;
        kernels->convert(dw_at(call->x, call->x_dtype, at), call->x_dtype, &value, DW_F32, 1);
        next = value;
        if (job->keeps_residual && call->prev) {
            kernels->convert(dw_at(call->prev, call->prev_dtype, at), call->prev_dtype, &base,
                             DW_F32, 1);
            value -= base;
            next = base + value;
        }
        uint32_t place = (uint32_t)(code - tile.codes);
        if (!dw_escapes_put(tile.room, tile.n, place, dw_bits_of(value))) return;
        *code = DW_STEP_ZERO;
        e->sums->escaped++;
        if (call->next) put_value(kernels, next, call->next, call->prev_dtype, at);
    }
}

static void encode_poisoned(const dw_step_run *call)
{
    memset(call->codes, DW_STEP_ZERO, call->stored);
    if (call->next) dw_fill_poisoned(call->prev, call->next, call->prev_dtype, call->n, true);
}

/* r: a run of the sample; coded: the same, or, with a rotation, that of the rotated values. */
static void encode_span(const encoding *e, const dw_run *r, const dw_run *coded, uint32_t i)
{
    const dw_encode_job *job = e->coded;
    const dw_layout *layout = &job->layout;
    span s = span_of(layout, r, i);
    uint64_t x_at = coded->row * (uint64_t)job->stride + coded->column + s.at;
    dw_step_run call = {
        .x_dtype = job->x_dtype,
        .prev_dtype = job->prev_dtype,
        .n = s.n,
        .stored = s.stored,
        .scale = job->rule.is_trellis
                     ? read_scale(job->payload + scale_offset(layout, r, i), &job->channels)
                     : find_scale(e, r, i, x_at, &s),
        .rounding = layout->dithers           ? DW_ROUNDING_DITHER
                    : job->rule.is_stochastic ? DW_ROUNDING_STOCHASTIC
                                              : DW_ROUNDING_NEAREST,
        .zone = job->zone,
        .x = dw_at(job->x, job->x_dtype, x_at),
        .prev = dw_at(job->prev, job->prev_dtype, r->element + s.at),
        .next = dw_at(coded->next, job->prev_dtype, s.at),
        .codes = job->payload + codes_offset(layout, r, s.codes),
        .dither = {layout->dithers ? job->draws_key : job->rule.dither_key, r->element + s.at},
    };
    bool poisoned = dw_scale_is_poisoned(call.scale);
    if (poisoned)
        encode_poisoned(&call);
    else if (job->rule.is_trellis)
        follow_codes(job->kernels, &call);
    else
        job->kernels->step_encode(&call);
    if (call.escapes || (job->rule.is_trellis && !poisoned)) store_escapes(e, r, &call);
    /* A step that the whole sample shares is counted with the first span of the sample alone. */
    if (layout->by_sample && (r->tile.first_segment || r->first_segment)) return;
    e->sums->pieces++;
    e->sums->zero += call.scale == 0;
    e->sums->poisoned += poisoned;
}

static void decode_encoded(const dw_decode_job *job, const dw_run *r)
{
    decode_run(job, r);
}

static void encode(const dw_encode_job *job, uint64_t chunk, dw_chunk_result *result)
{
    const dw_layout *layout = &job->layout;
    dw_walk walk;
    dw_front front;
    *result = (dw_chunk_result){0};
    encoding e = {.job = job, .coded = dw_front_begin(&front, job), .sums = &result->sums};
    dw_walk_encode(&walk, job, chunk);
    dw_tiles_clear(job, &walk.chunk);
    if (job->rule.is_trellis) choose_codes(&e, &front, chunk);
    while (dw_walk_next(&walk)) {
        if (layout->cut_rows && !layout->by_sample && !job->rule.is_trellis &&
            walk.tile % layout->row_segments == 0)
            e.row = choose_row(job, walk.run.row);
        const dw_run *coded = dw_front_load(&front, &walk.run);
        for (uint32_t i = 0; i < spans_of(layout, &walk.run); i++)
            encode_span(&e, &walk.run, coded, i);
        dw_front_store(&front, &walk.run);
        dw_tiles_measure(job, walk.tile, &walk.run, decode_encoded, &result->sums);
        dw_residual_follow(job, &walk.run);
        dw_walk_done(&walk, job->kernels);
    }
    result->state_sum = walk.trail.sum;
    result->payload_sum = dw_tiles_payload_sum(job, &walk.chunk);
}

static dw_status plan(dw_plan *made, dw_why *why)
{
    const dw_form_params *params = &made->params;
    if (!dw_layout_make_step(&made->layout, made->t, made->c, params->group, params->dithers))
        return dw_plan_too_large(made, 0, why);
    made->layout.weighs = params->weighs;
    made->payload_bytes = made->layout.payload_bytes;
    made->chunks = dw_layout_chunks(&made->layout);
    made->draws = params->dithers;
    made->measures = made->layout.by_sample;
    dw_status status = dw_profile_fits(params->profile, made->c, why);
    return status ? status : dw_front_plan(made, why);
}

/* Rounding to the nearest step and dither are wrong by at most half a step, a dead zone by at most
 * its width, stochastic rounding by at most a step; the largest magnitude of a piece is at least
 * its root mean square. The mean square of the error is step^2 / 12 with dither, and at most step^2
 * / 4 with stochastic rounding, whatever is coded. Along a trellis it was at most 0.5 step^2 with
 * all values that were measured, which include values that are all the same. */
static dw_contraction contracts(const dw_form_params *params, const dw_config *config)
{
    static const double root_of_6 = 2.449489742783178, root_of_12 = 3.4641016151377546;
    bool is_stochastic = config->rounding == DW_ROUNDING_STOCHASTIC;
    double step = (config->rate ? dw_option_step_most(config) : params->step) / 1000.0,
           zone = config->deadzone ? config->deadzone / 1000.0 : 0.5;
    if (config->rounding == DW_ROUNDING_TRELLIS)
        return dw_contraction_by(DW_CONTRACTS_ON_AVERAGE,
                                 0.75 * (params->error > 0 ? 1.94 * params->error : step));
    if (params->error > 0) step = params->error * (is_stochastic ? root_of_6 : root_of_12);
    dw_contraction always =
        dw_contraction_by(DW_CONTRACTS_ALWAYS, is_stochastic ? step : step * zone);
    if (always.kind == DW_CONTRACTS_ALWAYS || (!is_stochastic && !params->dithers)) return always;
    return dw_contraction_by(DW_CONTRACTS_ON_AVERAGE, is_stochastic ? step / 2 : step / root_of_12);
}

static const dw_device_kernels kernels_on_a_device = {
    .encode = "dw_step_encode",
    .choose = "dw_step_measure",
    .decode = "dw_step_decode",
    .decode_direct = "dw_step_decode_direct",
    .chooses_by_tile = true,
};

const dw_form dw_form_step = {
    .wire = DW_FORM_STEP,
    .name = "step",
    .has_codes = true,
    .plan = plan,
    .measure = measure,
    .choose_scale = choose_scale,
    .encode = encode,
    .decode = decode,
    .write_output = dw_tiles_write_output,
    .encoded = dw_tiles_encoded,
    .decoded = dw_tiles_decoded,
    .count = dw_tiles_count,
    .contracts = contracts,
    .device = &kernels_on_a_device,
};
