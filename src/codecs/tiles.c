/* SPDX-License-Identifier: Apache-2.0
 * tiles.c - functions shared by the forms whose payloads consist of tiles. */
#include "codecs/tiles.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "arithmetic/mx.h"
#include "codecs/elements.h"
#include "codecs/output.h"

/* ---- The walk of a chunk --------------------------------------------------------------------- */

/* All elements before `done` are complete. If these include the whole stretch that begins at
 * t->first, adds it to the state digest, advances t->first to the next audited stretch and returns
 * true. from: the elements of the stretch; NULL: reads them from next. */
static bool audit_stretch(const dw_kernels *kernels, dw_trail *t, uint64_t done, const void *from)
{
    if (t->first >= t->elements) return false;
    uint64_t left = t->elements - t->first, n = left < DW_TILE_ELEMENTS ? left : DW_TILE_ELEMENTS;
    if (t->first + n > done) return false;
    t->sum += dw_stretch_sum(kernels, from ? from : dw_at(t->next, t->dtype, t->first), t->dtype,
                             t->first, t->elements);
    t->first += (uint64_t)t->audit.every * DW_TILE_ELEMENTS;
    return true;
}

void dw_trail_follow(dw_trail *t, const dw_kernels *kernels, uint64_t element, uint64_t n)
{
    uint64_t done = element + n, size = dw_dtype_bytes(t->dtype);
    if (!t->streams) {
        while (audit_stretch(kernels, t, done, NULL)) {
        }
        return;
    }
    if (t->first == element) (void)audit_stretch(kernels, t, done, t->scratch);
    kernels->stream(t->next + element * size, t->scratch, n * size, done == t->end);
}

/* ---- Encode ---------------------------------------------------------------------------------- */

/* The last chunk clears up to the end of the choice bits, including their padding. */
void dw_tiles_clear(const dw_encode_job *job, const dw_chunk *chunk)
{
    const dw_layout *layout = &job->layout;
    uint64_t end = chunk->first_tile + chunk->tiles;
    if (layout->chooses) {
        uint64_t from = chunk->first_tile * layout->tile_segments / 8;
        uint64_t to = end == layout->tiles ? layout->choice_bytes : end * layout->tile_segments / 8;
        memset(job->payload + from, 0, (size_t)(to - from));
    }
    for (uint64_t i = chunk->first_tile; i < end; i++) {
        dw_tile tile = dw_layout_tile(layout, i);
        uint64_t scales_end = tile.codes;
        if (layout->scales_in_tiles)
            scales_end = tile.offset + layout->scale_size * (uint64_t)tile.segments;
        uint64_t codes_end = tile.codes + (uint64_t)tile.elements * layout->bits / 8;
        memset(job->payload + scales_end, 0, (size_t)(tile.codes - scales_end));
        memset(job->payload + codes_end, 0, (size_t)(tile.offset + tile.bytes - codes_end));
    }
}

uint64_t dw_tiles_payload_sum(const dw_encode_job *job, const dw_chunk *chunk)
{
    if (job->coded) return 0; /* a stage behind the form makes the payload of the frame */
    dw_tile first = dw_layout_tile(&job->layout, chunk->first_tile),
            last = dw_layout_tile(&job->layout, chunk->first_tile + chunk->tiles - 1);
    return job->kernels->digest_bytes(job->payload, first.offset,
                                      last.offset + last.bytes - first.offset);
}

/* Reduces a run of a measured tile to those of its segments that are measured. Such a tile is
 * divided into dw_measured_parts parts, and another part is measured each time, so that all
 * channels are covered. Returns false if no segment of the run is measured. */
static bool measured_part(const dw_layout *layout, dw_dtype prev_dtype, uint64_t tile, dw_run *r)
{
    uint32_t parts = dw_measured_parts(layout), count = layout->tile_segments / parts;
    uint32_t from = (uint32_t)(tile / (DW_MEASURED_SHARE / parts) % parts) * count;
    if (from >= r->tile.segments) from = 0;
    uint32_t to = from + count, end = r->first_segment + r->segments;
    if (to <= r->first_segment || from >= end) return false;
    uint32_t skipped = from > r->first_segment ? from - r->first_segment : 0;
    uint64_t most =
        (uint64_t)((to < end ? to : end) - r->first_segment - skipped) * layout->segment_channels;
    uint64_t left_out = (uint64_t)skipped * layout->segment_channels;
    r->first_segment += skipped;
    r->column += left_out;
    r->element += left_out;
    r->channels -= left_out;
    r->next = dw_at(r->next, prev_dtype, left_out);
    if (r->channels > most) r->channels = most;
    r->segments =
        (uint32_t)((r->channels + layout->segment_channels - 1) / layout->segment_channels);
    return true;
}

/* Returns the error of n values, as a part of their norm, without those above a magnitude. */
static double bulk_error(const dw_norms_run *row, float limit)
{
    enum { ONCE = 16 };
    float x[DW_TILE_ELEMENTS + ONCE] = {0}, y[DW_TILE_ELEMENTS + ONCE] = {0};
    double of_x[ONCE] = {0}, of_error[ONCE] = {0};
    dw_elements_widen(row->x, row->x_dtype, row->n, x);
    dw_elements_widen(row->back, row->back_dtype, row->n, y);
    for (uint64_t i = 0; i < row->n; i += ONCE)
        for (int k = 0; k < ONCE; k++) {
            bool is_kept = fabsf(x[i + k]) <= limit;
            double value = is_kept ? (double)x[i + k] : 0,
                   error = is_kept ? (double)x[i + k] - (double)y[i + k] : 0;
            of_x[k] += value * value;
            of_error[k] += error * error;
        }
    for (int k = 1; k < ONCE; k++) {
        of_x[0] += of_x[k];
        of_error[0] += of_error[k];
    }
    return of_x[0] > 0 ? sqrt(of_error[0] / of_x[0]) : 0;
}

/* Adds the error of a row, or of the part of it that a run has, to the sums: that of all values,
 * and that of the bulk, which few rows make another one. norms: of this row. */
static void add_error(const dw_encode_job *job, const dw_norms_run *row, const dw_norms *norms,
                      dw_sums *sums)
{
    double part = sqrt(norms->error / norms->x), lanes[DW_NORM_LANES] = {0};
    uint32_t largest = 0;
    if (!(part <= DBL_MAX)) return; /* zeros */
    float limit = (float)(DW_BULK_LIMIT * sqrt(norms->x / (double)row->n));
    bool has_outliers = job->kernels->step_squares(row->x, row->x_dtype, NULL, row->x_dtype, row->n,
                                                   dw_bits_of(limit), lanes, &largest) > 0;
    sums->rows++;
    sums->row_error += part;
    sums->bulk_error += has_outliers ? bulk_error(row, limit) : part;
    if (part > sums->row_error_largest) sums->row_error_largest = part;
}

/* The same. With a profile, errors are in units of the weights of channels. column: of the first
 * value. */
static void add_row_error(const dw_encode_job *job, const dw_norms_run *row, uint64_t column,
                          const dw_norms *norms, dw_sums *sums)
{
    if (!job->layout.weighs) {
        add_error(job, row, norms, sums);
        return;
    }
    float x[DW_TILE_ELEMENTS], back[DW_TILE_ELEMENTS];
    const float *inverses = job->channels.inverses + column;
    dw_norms weighed = {0, 0, 0};
    dw_norms_run of = {.x = x, .back = back, .x_dtype = DW_F32, .back_dtype = DW_F32, .n = row->n};
    job->kernels->weigh(row->x, row->x_dtype, NULL, DW_F32, inverses, row->n, x);
    job->kernels->weigh(row->back, row->back_dtype, NULL, DW_F32, inverses, row->n, back);
    job->kernels->norms(&of, &weighed);
    add_error(job, &of, &weighed, sums);
}

/* Adds the norms of a run to the sums, and the errors of its rows. call: x, its base, and what
 * arrives of it. */
static void add_norms(const dw_encode_job *job, const dw_run *r, const dw_norms_run *call,
                      dw_sums *sums)
{
    const dw_layout *layout = &job->layout;
    uint64_t column = r->element % layout->c;
    for (uint64_t at = 0, n; at < r->channels; at += n, column = 0) {
        bool is_poisoned = false;
        uint32_t segment = (uint32_t)(at / layout->segment_channels);
        dw_norms norms = {0, 0, 0};
        dw_norms_run row = *call;
        n = layout->c - column < r->channels - at ? layout->c - column : r->channels - at;
        row.x = dw_at(call->x, call->x_dtype, at);
        row.base = dw_at(call->base, call->base_dtype, at);
        row.back = dw_at(call->back, call->back_dtype, at);
        row.n = n;
        job->kernels->norms(&row, &norms);
        sums->x_square += norms.x;
        sums->delta_square += norms.delta;
        sums->error_square += norms.error;
        for (; segment * (uint64_t)layout->segment_channels < at + n; segment++)
            is_poisoned = is_poisoned || dw_tiles_is_poisoned(layout, job->payload, r, segment);
        if (!is_poisoned && !job->keeps_residual) add_row_error(job, &row, column, &norms, sums);
    }
}

void dw_tiles_measure_run(const dw_encode_job *job, uint64_t tile, const dw_run *run,
                          dw_run_decoder *decode, dw_sums *sums)
{
    dw_run r = *run;
    if (!measured_part(&job->layout, job->prev_dtype, tile, &r)) return;
    float decoded[DW_TILE_ELEMENTS];
    dw_norms_run call = {.x = dw_at(job->x, job->x_dtype, r.row * (uint64_t)job->stride + r.column),
                         .x_dtype = job->x_dtype,
                         .base = dw_at(job->prev, job->prev_dtype, r.element),
                         .base_dtype = job->prev_dtype,
                         .back = r.next,
                         .back_dtype = job->prev_dtype,
                         .n = r.channels};
    if (!r.next) {
        dw_decode_job again = {.layout = job->layout,
                               .kernels = job->kernels,
                               .payload = job->payload,
                               .prev = job->prev,
                               .prev_dtype = job->prev_dtype,
                               .next = job->next ? decoded : NULL,
                               .y = decoded,
                               .y_dtype = DW_F32,
                               .channels = job->channels,
                               .draws_key = job->draws_key};
        r.next = again.next;
        if (!r.next) r.row = r.column = 0; /* its place in y */
        decode(&again, &r);
        call.back = decoded;
        call.back_dtype = DW_F32;
    }
    add_norms(job, &r, &call, sums);
}

/* Adds the digests of the choice bits and of the stretches that lie in several chunks. */
void dw_tiles_encoded(const dw_encode_job *job, dw_chunk_result *result)
{
    uint64_t left = dw_layout_undigested(&job->layout);
    result->payload_sum += job->kernels->digest_bytes(job->payload, 0, left);
    if (job->next)
        result->state_sum +=
            dw_seam_sum(job->kernels, &job->layout, job->next, job->prev_dtype, job->audit);
}

/* ---- Decode ---------------------------------------------------------------------------------- */

void dw_tiles_decoded(const dw_decode_job *job, dw_chunk_result *result)
{
    result->state_sum +=
        dw_seam_sum(job->kernels, &job->layout, job->next, job->prev_dtype, job->audit);
}

void dw_fill_nan(void *y, dw_dtype dtype, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (dtype == DW_F32)
            ((uint32_t *)y)[i] = DW_F32_NAN;
        else
            ((uint16_t *)y)[i] = dtype == DW_F16 ? DW_F16_NAN : DW_BF16_NAN;
    }
}

void dw_fill_poisoned(const void *prev, void *out, dw_dtype dtype, uint64_t n, bool has_state)
{
    if (!has_state)
        dw_fill_nan(out, dtype, n);
    else if (prev)
        memcpy(out, prev, n * dw_dtype_bytes(dtype));
    else
        memset(out, 0, n * dw_dtype_bytes(dtype));
}

/* How many segments share a fate if one of them is poisoned: those of a rotated block, which may
 * have several. Tiles consist of whole blocks. */
static uint32_t shared_segments(const dw_layout *layout)
{
    return layout->rotates > layout->segment_channels ? layout->rotates / layout->segment_channels
                                                      : 1;
}

bool dw_tiles_is_poisoned(const dw_layout *layout, const uint8_t *payload, const dw_run *run,
                          uint32_t i)
{
    if (layout->by_sample) return dw_scale_at_is_poisoned(payload + layout->choice_bytes);
    uint32_t shared = shared_segments(layout), first = (run->first_segment + i) / shared * shared;
    const uint8_t *scales = payload + run->tile.offset;
    for (uint32_t p = first; p < first + shared; p++)
        if (layout->scale_size == 1 ? scales[p] == DW_MX_POISONED
                                    : dw_scale_at_is_poisoned(scales + 2 * (size_t)p))
            return true;
    return false;
}

/* Writes NaN to y where segment p of a tile lies. */
static void poison_segment(const dw_decode_job *job, const dw_tile *tile, uint32_t p)
{
    const dw_layout *layout = &job->layout;
    uint64_t segment = tile->first_segment + p, row = segment / layout->row_segments;
    uint32_t in_row = (uint32_t)(segment % layout->row_segments);
    uint32_t n =
        in_row + 1 == layout->row_segments ? layout->last_channels : layout->segment_channels;
    uint64_t column = (uint64_t)in_row * layout->segment_channels;
    dw_fill_nan(dw_at(job->y, job->y_dtype, row * (uint64_t)job->stride + column), job->y_dtype, n);
}

/* The same for piece p, and all that it poisons. */
static void poison_piece(const dw_decode_job *job, const dw_tile *tile, uint32_t p)
{
    uint32_t shared = shared_segments(&job->layout), first = p / shared * shared;
    for (uint32_t i = first; i < first + shared; i++) poison_segment(job, tile, i);
}

/* Writes NaN for the poisoned pieces of a tile. There is one loop per size of scales, because every
 * piece is tested and few are poisoned. */
static void write_poison(const dw_decode_job *job, const dw_tile *tile)
{
    const uint8_t *scales = job->payload + tile->offset;
    if (job->layout.by_sample) {
        if (!dw_scale_at_is_poisoned(job->payload + job->layout.choice_bytes)) return;
        for (uint32_t p = 0; p < tile->segments; p++) poison_piece(job, tile, p);
        return;
    }
    if (job->layout.scale_size == 1) {
        for (uint32_t p = 0; p < tile->segments; p++)
            if (scales[p] == DW_MX_POISONED) poison_piece(job, tile, p);
        return;
    }
    for (uint32_t p = 0; p < tile->segments; p++)
        if (dw_scale_at_is_poisoned(scales + 2 * (size_t)p)) poison_piece(job, tile, p);
}

void dw_tiles_write_rows(const dw_decode_job *job, uint64_t element, uint64_t n)
{
    uint64_t c = job->layout.c;
    while (n > 0) {
        uint64_t row = element / c, column = element % c,
                 now = job->stride == (int64_t)c ? n : c - column;
        if (now > n) now = n;
        dw_output_write(job, dw_at(job->next, job->prev_dtype, element), job->prev_dtype,
                        row * (uint64_t)job->stride + column, now);
        element += now;
        n -= now;
    }
}

void dw_tiles_write_output(const dw_decode_job *job, uint64_t index)
{
    dw_chunk chunk = dw_layout_chunk(&job->layout, index);
    dw_tiles_write_rows(job, chunk.first_element, chunk.elements);
    for (uint64_t i = chunk.first_tile; i < chunk.first_tile + chunk.tiles; i++) {
        dw_tile tile = dw_layout_tile(&job->layout, i);
        write_poison(job, &tile);
    }
}

/* ---- Counters -------------------------------------------------------------------------------- */

static void count_scales(dw_counters *counters, const uint8_t *scales, uint64_t n, uint32_t mask)
{
    /* Local sums: stores to *counters would prevent vectorization of the loop. */
    uint64_t zero = 0, poisoned = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits = scales[2 * i] | (uint32_t)scales[2 * i + 1] << 8;
        zero += (bits & mask) == 0;
        poisoned += (bits & 0x7f80u) == 0x7f80u;
    }
    counters->zero_groups += zero;
    counters->poisoned_groups += poisoned;
}

/* Here a scale of 0 does not mean that all values of the block are 0, only that they are very
 * small; the codes would have to be read to tell. */
static void count_exponents(dw_counters *counters, const uint8_t *scales, uint64_t n)
{
    uint64_t zero = 0, poisoned = 0;
    for (uint64_t i = 0; i < n; i++) {
        zero += scales[i] == 0;
        poisoned += scales[i] == DW_MX_POISONED;
    }
    counters->zero_groups += zero;
    counters->poisoned_groups += poisoned;
}

/* The scales of a tile lie a tile's bytes behind those of the one before, too far apart for the
 * processor to foresee. In a large payload they are in main memory again by now. */
enum { TILES_AHEAD = 16 };

void dw_tiles_count(const dw_decode_job *job, dw_counters *counters)
{
    const dw_layout *layout = &job->layout;
    const uint8_t *payload = job->payload;
    counters->groups += layout->pieces;
    bool in_tiles = layout->scales_in_tiles;
    uint32_t mask = layout->weighs ? 0x7fff : 0xffff; /* there the sign is not one of the step */
    if (!in_tiles) count_scales(counters, payload + layout->choice_bytes, layout->pieces, mask);
    for (uint64_t i = 0; in_tiles && i < layout->tiles; i++) {
        dw_tile tile = dw_layout_tile(layout, i);
        if (i + TILES_AHEAD < layout->tiles) {
            dw_tile later = dw_layout_tile(layout, i + TILES_AHEAD);
            uint64_t end = later.offset + (uint64_t)layout->scale_size * later.segments + 63;
            for (uint64_t at = later.offset; at < end; at += 64) __builtin_prefetch(payload + at);
        }
        if (layout->scale_size == 1)
            count_exponents(counters, payload + tile.offset, tile.segments);
        else
            count_scales(counters, payload + tile.offset, tile.segments, mask);
    }
    for (uint64_t i = 0; layout->chooses && i < layout->pieces; i++)
        counters->direct_groups += payload[i / 8] >> i % 8 & 1;
}
