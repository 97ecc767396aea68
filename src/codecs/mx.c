/* SPDX-License-Identifier: Apache-2.0
 * mx.c - the form of the OCP microscaling formats: blocks of 32 values with a power of two as their
 * common scale (docs/format.md, 3.3).
 *
 * Source: OCP Microscaling Formats (MX) Specification 1.0. The payload has the layout of the
 * quantized form with groups of 32, except that a scale takes one byte. So this file uses the walk,
 * the digests and the counters of tiles.h, and only adds one kernel call per run. */
#include "arithmetic/mx.h"

#include "codecs/front.h"
#include "codecs/output.h"
#include "codecs/plan.h"
#include "codecs/residual.h"
#include "codecs/tiles.h"

static dw_element element_of(const dw_layout *layout)
{
    return (dw_element)layout->element;
}

static dw_run_decoder decode_encoded;

static void decode_run(const dw_decode_job *job, const dw_run *r, uint64_t *sum)
{
    const dw_layout *layout = &job->layout;
    bool state = job->next != NULL, adds = job->adds && !state;
    uint64_t at = r->row * (uint64_t)job->stride + r->column;
    float values[DW_TILE_ELEMENTS]; /* the values to be added to y */
    if (layout->rotates) {
        dw_front_decode(job, r, decode_encoded);
        return;
    }
    dw_mx_decode_run call = {
        .out_dtype = state  ? job->prev_dtype
                     : adds ? DW_F32
                            : job->y_dtype,
        .prev_dtype = job->prev_dtype,
        .element = element_of(layout),
        .blocks = r->segments,
        .channels = r->channels,
        .prev = dw_at(job->prev, job->prev_dtype, r->element),
        .out = state  ? r->next
               : adds ? values
                      : dw_at(job->y, job->y_dtype, at),
        .poison_keeps = state,
        .scales = job->payload + r->tile.offset + r->first_segment,
        .choices = layout->chooses ? job->payload : NULL,
        .codes = job->payload + r->tile.codes,
        .first_piece = r->tile.first_segment + r->first_segment,
        .tile_elements = r->tile.elements,
        .first = r->first_segment * DW_MX_BLOCK,
        .sum = sum,
        .element_number = r->element,
    };
    job->kernels->mx_decode(&call);
    if (adds) dw_output_add(job, values, at, r->channels);
}

static void decode(const dw_decode_job *job, uint64_t chunk, dw_chunk_result *result)
{
    dw_walk walk;
    *result = (dw_chunk_result){0};
    dw_walk_start(&walk, &job->layout, chunk, job->next ? (int64_t)job->layout.c : job->stride,
                  job->audit, job->next, job->prev_dtype);
    while (dw_walk_next(&walk)) {
        decode_run(job, &walk.run, dw_walk_sum(&walk));
        dw_walk_done(&walk, job->kernels);
    }
    result->state_sum = walk.trail.sum;
}

static void decode_encoded(const dw_decode_job *job, const dw_run *r)
{
    decode_run(job, r, NULL);
}

static void encode_run(const dw_encode_job *job, const dw_run *r, dw_piece_counts *counts)
{
    const dw_layout *layout = &job->layout;
    dw_mx_encode_run call = {
        .x_dtype = job->x_dtype,
        .prev_dtype = job->prev_dtype,
        .element = element_of(layout),
        .blocks = r->segments,
        .channels = r->channels,
        .x = dw_at(job->x, job->x_dtype, r->row * (uint64_t)job->stride + r->column),
        .prev = dw_at(job->prev, job->prev_dtype, r->element),
        .next = r->next,
        .scales = job->payload + r->tile.offset + r->first_segment,
        .choices = layout->chooses ? job->payload : NULL,
        .codes = job->payload + r->tile.codes,
        .first_piece = r->tile.first_segment + r->first_segment,
        .tile_elements = r->tile.elements,
        .first = r->first_segment * DW_MX_BLOCK,
        .counts = counts,
    };
    job->kernels->mx_encode(&call);
}

static void encode(const dw_encode_job *job, uint64_t chunk, dw_chunk_result *result)
{
    dw_walk walk;
    dw_piece_counts counts = {0};
    *result = (dw_chunk_result){0};
    dw_front front;
    const dw_encode_job *coded = dw_front_begin(&front, job);
    dw_walk_encode(&walk, job, chunk);
    dw_tiles_clear(job, &walk.chunk);
    while (dw_walk_next(&walk)) {
        encode_run(coded, dw_front_load(&front, &walk.run), &counts);
        dw_front_store(&front, &walk.run);
        dw_tiles_measure(job, walk.tile, &walk.run, decode_encoded, &result->sums);
        dw_residual_follow(job, &walk.run);
        dw_walk_done(&walk, job->kernels);
    }
    result->state_sum = walk.trail.sum;
    result->payload_sum = dw_tiles_payload_sum(job, &walk.chunk);
    dw_tiles_take_counts(&counts, &result->sums);
}

static dw_status plan(dw_plan *made, dw_why *why)
{
    const dw_form_params *params = &made->params;
    dw_element_facts facts = dw_element_facts_of(params->element);
    if (!dw_layout_make_mx(&made->layout, made->t, made->c, params->element, facts.bits,
                           params->chooses))
        return dw_plan_too_large(made, 0, why);
    made->payload_bytes = made->layout.payload_bytes;
    made->chunks = dw_layout_chunks(&made->layout);
    return dw_front_plan(made, why);
}

/* The largest magnitude A of a block, divided by the block's power of two, is between 2^top and
 * 2^(top + 1). Elements near A are rounded by half of their last place; and what is larger than the
 * largest element is clamped to it. */
static dw_contraction contracts(const dw_form_params *params, const dw_config *config)
{
    (void)config;
    dw_element_facts facts = dw_element_facts_of(params->element);
    double end = (double)(UINT64_C(2) << facts.top), clamped = 1 - (double)facts.most / end,
           rounded = 0.5 / (double)(1u << facts.fraction);
    return dw_contraction_by(DW_CONTRACTS_ALWAYS, clamped > rounded ? clamped : rounded);
}

static const dw_device_kernels kernels_on_a_device = {
    .encode = "dw_mx_encode", .decode = "dw_mx_decode", .decode_direct = "dw_mx_decode_direct"};

const dw_form dw_form_mx = {
    .wire = DW_FORM_MX,
    .name = "mx",
    .has_codes = true,
    .plan = plan,
    .encode = encode,
    .decode = decode,
    .write_output = dw_tiles_write_output,
    .encoded = dw_tiles_encoded,
    .decoded = dw_tiles_decoded,
    .count = dw_tiles_count,
    .contracts = contracts,
    .device = &kernels_on_a_device,
};
