/* SPDX-License-Identifier: Apache-2.0
 * quantized_columns.c - payloads with a scale per channel: a chunk is a strip of channels, which is
 * walked over all tokens first to find the scales and then to write the codes. */
#include <string.h>

#include "codecs/output.h"
#include "codecs/quantized.h"
#include "codecs/residual.h"

typedef struct strip {
    const dw_layout *layout;
    uint8_t *payload; /* a decoder only reads it */
    uint32_t first;   /* first channel */
    dw_columns columns;
} strip;

static void open_strip(strip *s, const dw_layout *layout, const uint8_t *payload, uint64_t chunk)
{
    dw_chunk part = dw_layout_chunk(layout, chunk);
    uint32_t in_segment = part.first_channel % layout->segment_channels;
    bool last = part.first_channel / layout->segment_channels + 1 == layout->row_segments;
    uint32_t left = (last ? layout->last_width : layout->segment_width) - in_segment;
    memset(&s->columns, 0, sizeof s->columns);
    s->layout = layout;
    s->payload = (uint8_t *)(uintptr_t)payload;
    s->first = part.first_channel;
    s->columns.n = part.channels;
    s->columns.stored = left < DW_COLUMNS ? left : DW_COLUMNS;
}

/* Sets scale, inverse and masks of column i, which are the same for all rows. */
static void set_column(strip *s, uint32_t i, dw_chosen chosen)
{
    int flat = dw_scale_is_flat(chosen.scale);
    s->columns.base_mask[i] = chosen.direct ? 0 : ~0u;
    s->columns.keep_mask[i] = dw_scale_is_poisoned(chosen.scale) ? ~0u : 0;
    s->columns.scale[i] = flat ? 0.0f : dw_bf16_widen(chosen.scale);
    s->columns.inverse[i] = dw_scale_inverse(chosen.scale);
}

/* Finds where the codes of token t's part of the strip lie. */
static void place_codes(const strip *s, uint64_t t, dw_column_run *run)
{
    const dw_layout *layout = s->layout;
    uint64_t segment = t * layout->row_segments + s->first / layout->segment_channels;
    dw_tile tile = dw_layout_tile(layout, segment / layout->tile_segments);
    run->codes = s->payload + tile.codes;
    run->tile_elements = tile.elements;
    run->first = (uint32_t)(segment % layout->tile_segments) * layout->segment_width +
                 s->first % layout->segment_channels;
}

static dw_column_run encode_row(const strip *s, const dw_encode_job *job, uint64_t t)
{
    uint64_t dense = t * job->layout.c + s->first;
    return (dw_column_run){.x_dtype = job->x_dtype,
                           .prev_dtype = job->prev_dtype,
                           .bits = job->layout.bits,
                           .columns = &s->columns,
                           .x = dw_at(job->x, job->x_dtype, t * (uint64_t)job->stride + s->first),
                           .prev = dw_at(job->prev, job->prev_dtype, dense),
                           .out = dw_at(job->next, job->prev_dtype, dense),
                           .poison_keeps = 1};
}

static dw_extremes delta_of(const dw_column_extremes *extremes, uint32_t i)
{
    return (dw_extremes){extremes->delta_positive[i], extremes->delta_negative[i]};
}

static dw_extremes direct_of(const dw_column_extremes *extremes, uint32_t i)
{
    return (dw_extremes){extremes->direct_positive[i], extremes->direct_negative[i]};
}

static void search_scales(strip *s, const dw_encode_job *job, const dw_column_extremes *extremes,
                          dw_chosen *chosen)
{
    dw_column_squares squares;
    dw_attempts attempts[DW_COLUMNS];
    memset(&squares, 0, sizeof squares);
    for (uint32_t i = 0; i < s->columns.n; i++) {
        /* The inverse of a flat column stays 0, which keeps infinite values out of the sums. (Sums
         * of poisoned columns are not used.) */
        if (dw_scale_is_flat(chosen[i].scale)) continue;
        attempts[i] = dw_attempts_of(
            chosen[i].direct ? direct_of(extremes, i) : delta_of(extremes, i), job->layout.bits);
        for (int k = 0; k < DW_ATTEMPTS; k++) squares.inverse[k][i] = attempts[i].inverse[k];
    }
    for (uint64_t t = 0; t < job->layout.t; t++) {
        dw_column_run run = encode_row(s, job, t);
        job->kernels->column_squares(&run, &squares);
    }
    for (uint32_t i = 0; i < s->columns.n; i++) {
        float sums[DW_ATTEMPTS];
        if (dw_scale_is_flat(chosen[i].scale)) continue;
        for (int k = 0; k < DW_ATTEMPTS; k++) sums[k] = squares.sum[k][i];
        chosen[i].scale = dw_attempts_best(&attempts[i], sums);
    }
}

static void choose_columns(strip *s, const dw_encode_job *job, dw_chosen *chosen)
{
    const dw_layout *layout = s->layout;
    dw_column_extremes extremes;
    memset(&extremes, 0, sizeof extremes);
    for (uint64_t t = 0; t < layout->t; t++) {
        dw_column_run run = encode_row(s, job, t);
        job->kernels->column_extremes(&run, &extremes);
    }
    for (uint32_t i = 0; i < s->columns.n; i++) {
        dw_extremes delta = delta_of(&extremes, i), direct = direct_of(&extremes, i);
        chosen[i].direct = layout->chooses && dw_is_direct_better(direct, delta);
        chosen[i].scale = dw_scale_of(chosen[i].direct ? direct : delta, layout->bits,
                                      job->rule.scale != DW_SCALE_ABSMAX);
        set_column(s, i, chosen[i]);
    }
    if (job->rule.scale != DW_SCALE_MSE) return;
    search_scales(s, job, &extremes, chosen);
    for (uint32_t i = 0; i < s->columns.n; i++) set_column(s, i, chosen[i]);
}

/* Writes scales and choice bits in front of the tiles. The last strip also clears the padding
 * there. */
static void put_front(const strip *s, const dw_chosen *chosen, dw_sums *sums)
{
    const dw_layout *layout = s->layout;
    bool last = s->first + s->columns.n == layout->c;
    uint8_t *choices = s->payload + s->first / 8,
            *scales = s->payload + layout->choice_bytes + 2 * (uint64_t)s->first;
    if (layout->chooses)
        memset(choices, 0, (size_t)(last ? layout->choice_bytes - s->first / 8 : DW_COLUMNS / 8));
    if (last) memset(scales, 0, (size_t)(layout->scale_bytes - 2 * (uint64_t)s->first));
    for (uint32_t i = 0; i < s->columns.n; i++) {
        if (chosen[i].direct) choices[i / 8] = (uint8_t)(choices[i / 8] | 1u << i % 8);
        scales[2 * i] = (uint8_t)chosen[i].scale;
        scales[2 * i + 1] = (uint8_t)(chosen[i].scale >> 8);
        sums->direct += chosen[i].direct != 0;
        sums->zero += chosen[i].scale == 0;
        sums->poisoned += dw_scale_is_poisoned(chosen[i].scale) != 0;
    }
    sums->pieces += s->columns.n;
}

/* Clears the padding behind the codes of all tiles; only the first strip calls this. */
static void clear_ends(const dw_encode_job *job)
{
    for (uint64_t i = 0; i < job->layout.tiles; i++) {
        dw_tile tile = dw_layout_tile(&job->layout, i);
        uint64_t end = tile.codes + (uint64_t)tile.elements * job->layout.bits / 8;
        memset(job->payload + end, 0, (size_t)(tile.offset + tile.bytes - end));
    }
}

static void measure(const dw_kernels *kernels, const dw_column_run *run, dw_sums *sums)
{
    float decoded[DW_COLUMNS];
    dw_norms norms = {0, 0, 0};
    dw_norms_run call = {.x = run->x,
                         .x_dtype = run->x_dtype,
                         .base = run->prev,
                         .base_dtype = run->prev_dtype,
                         .back = run->out,
                         .back_dtype = run->prev_dtype,
                         .n = run->columns->n};
    if (!run->out) {
        dw_column_run back = *run;
        back.x_dtype = DW_F32;
        back.out = decoded;
        kernels->decode_columns(&back);
        call.back = decoded;
        call.back_dtype = DW_F32;
    }
    kernels->norms(&call, &norms);
    sums->x_square += norms.x;
    sums->delta_square += norms.delta;
    sums->error_square += norms.error;
}

void dw_columns_encode(const dw_encode_job *job, uint64_t chunk, dw_chunk_result *result)
{
    strip s;
    dw_chosen chosen[DW_COLUMNS];
    open_strip(&s, &job->layout, job->payload, chunk);
    choose_columns(&s, job, chosen);
    put_front(&s, chosen, &result->sums);
    if (chunk == 0) clear_ends(job);
    for (uint64_t t = 0; t < job->layout.t; t++) {
        dw_column_run run = encode_row(&s, job, t);
        dw_dither dither = {job->rule.dither_key, t * job->layout.c + s.first};
        run.dither = job->rule.is_stochastic ? &dither : NULL;
        place_codes(&s, t, &run);
        job->kernels->encode_columns(&run);
        if (t % DW_MEASURED_SHARE == chunk % DW_MEASURED_SHARE)
            measure(job->kernels, &run, &result->sums);
        if (job->keeps_residual) dw_residual_of_columns(job, &run);
    }
}

static dw_chosen read_column(const strip *s, uint32_t i)
{
    const dw_layout *layout = s->layout;
    uint64_t channel = (uint64_t)s->first + i;
    const uint8_t *scale = s->payload + dw_layout_scale(layout, channel);
    return (dw_chosen){(uint16_t)(scale[0] | scale[1] << 8),
                       layout->chooses && (s->payload[channel / 8] >> channel % 8 & 1)};
}

void dw_columns_decode(const dw_decode_job *job, uint64_t chunk)
{
    strip s;
    bool state = job->next != NULL, adds = job->adds && !state;
    float values[DW_COLUMNS]; /* the values to be added to y */
    open_strip(&s, &job->layout, job->payload, chunk);
    for (uint32_t i = 0; i < s.columns.n; i++) set_column(&s, i, read_column(&s, i));
    for (uint64_t t = 0; t < job->layout.t; t++) {
        uint64_t dense = t * job->layout.c + s.first;
        uint64_t at = t * (uint64_t)job->stride + s.first;
        dw_column_run run = {.x_dtype = state  ? job->prev_dtype
                                        : adds ? DW_F32
                                               : job->y_dtype,
                             .prev_dtype = job->prev_dtype,
                             .bits = job->layout.bits,
                             .columns = &s.columns,
                             .prev = dw_at(job->prev, job->prev_dtype, dense),
                             .out = state  ? dw_at(job->next, job->prev_dtype, dense)
                                    : adds ? values
                                           : dw_at(job->y, job->y_dtype, at),
                             .poison_keeps = state};
        place_codes(&s, t, &run);
        job->kernels->decode_columns(&run);
        if (adds) dw_output_add(job, values, at, s.columns.n);
    }
}

void dw_columns_poison(const dw_decode_job *job, uint64_t chunk)
{
    strip s;
    open_strip(&s, &job->layout, job->payload, chunk);
    for (uint32_t i = 0; i < s.columns.n; i++) {
        if (!dw_scale_is_poisoned(read_column(&s, i).scale)) continue;
        for (uint64_t t = 0; t < job->layout.t; t++)
            dw_fill_nan(dw_at(job->y, job->y_dtype, t * (uint64_t)job->stride + s.first + i),
                        job->y_dtype, 1);
    }
}
