/* SPDX-License-Identifier: Apache-2.0
 * quantized.c - the form of 1 to 8 bits a value: cuts chunks of a sample into runs and hands these
 * to the kernels (docs/format.md, 3.2). */
#include "codecs/quantized.h"

#include <string.h>

#include "codecs/audit.h"
#include "codecs/emitting.h"
#include "codecs/plan.h"

/* The norms in the counters come from one part of one tile in so many. */
enum { MEASURED_PARTS = 8, MEASURED_TILES = DW_MEASURED_SHARE / MEASURED_PARTS };

/* What becomes of a chunk's new prev behind the kernels: its part of the state digest, and its way
 * to memory. The digest takes a stretch as soon as it is whole, while it is in the cache. */
typedef struct trail {
    dw_audit audit;
    unsigned char *next;
    dw_dtype dtype;
    /* end: element behind the chunk; first: of the next audited stretch. */
    uint64_t end, first, sum;
    uint64_t elements; /* of the sample */
    bool streams;      /* a tile is a stretch: it is made in scratch, and goes past the caches */
    _Alignas(64) unsigned char scratch[4 * DW_TILE_ELEMENTS];
} trail;

/* Samples that no cache holds until they are needed again need not push others out of it, nor be
 * read before they are written. */
enum { STREAMED_BYTES = 32 << 20 };

/* The same of y. Where one y is written and read again and again, and the cache has room for it, 16
 * MiB lose a tenth by that, a sum of y behind them included; where y comes from memory they gain a
 * half. */
enum { STREAMED_Y_BYTES = 16 << 20 };

/* Rows that fill their segments lie side by side in prev, and in a tensor without gaps: then a tile
 * is one run. */
static bool rows_touch(const dw_layout *layout, int64_t stride)
{
    return !layout->cut_rows && layout->last_channels == layout->segment_width &&
           stride == (int64_t)layout->c;
}

static void start_trail(trail *t, dw_audit audit, void *next, dw_dtype dtype,
                        const dw_layout *layout, const dw_chunk *chunk, bool touch)
{
    t->audit = audit;
    t->next = next;
    t->dtype = dtype;
    t->elements = next ? (uint64_t)layout->t * layout->c : 0;
    t->end = chunk->first_element + chunk->elements;
    t->first = next && audit.every ? dw_next_stretch(audit, chunk->first_element) : UINT64_MAX;
    t->sum = 0;
    /* Tiles that are stretches, each in one run. */
    bool whole = layout->cut_rows
                     ? layout->c % DW_TILE_ELEMENTS == 0
                     : touch && layout->tile_segments * layout->segment_width == DW_TILE_ELEMENTS;
    t->streams =
        whole && t->elements * dw_dtype_bytes(dtype) >= STREAMED_BYTES && (uintptr_t)next % 64 == 0;
}

/* A run that is the next audited stretch: where the kernel may add the stretch's sum, out of its
 * registers; else NULL. */
static uint64_t *run_sum(trail *t, uint64_t element, uint64_t n)
{
    if (t->first != element || n != DW_TILE_ELEMENTS) return NULL;
    t->first += (uint64_t)t->audit.every * DW_TILE_ELEMENTS;
    return &t->sum;
}

/* The stretch at t->first, if it is audited and ends before `done`. from: its elements. */
static bool audit_stretch(const dw_kernels *kernels, trail *t, uint64_t done, const void *from)
{
    if (t->first >= t->elements) return false;
    uint64_t left = t->elements - t->first, n = left < DW_TILE_ELEMENTS ? left : DW_TILE_ELEMENTS;
    if (t->first + n > done) return false;
    t->sum += dw_stretch_sum(kernels, from ? from : dw_at(t->next, t->dtype, t->first), t->dtype,
                             t->first, t->elements);
    t->first += (uint64_t)t->audit.every * DW_TILE_ELEMENTS;
    return true;
}

static void *trail_place(trail *t, uint64_t element)
{
    return t->next && t->streams ? t->scratch : dw_at(t->next, t->dtype, element);
}

/* n elements from `element` on are made. */
static void follow(const dw_kernels *kernels, trail *t, uint64_t element, uint64_t n)
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

/* Whether y goes past the caches. With state it is written from the new prev. */
static bool streams_y(const dw_decode_job *job)
{
    uint64_t elements = (uint64_t)job->layout.t * job->layout.c;
    return !job->next && !job->adds && elements * dw_dtype_bytes(job->y_dtype) >= STREAMED_Y_BYTES;
}

/* A run: the segments of one tile that one kernel call can take. */
typedef struct run {
    dw_tile tile;
    uint32_t first_segment, segments; /* within the tile */
    uint64_t row, column, channels;
    void *next; /* where the new prev of these segments goes first: its place, or a scratch */
} run;

static run run_at(const dw_layout *layout, const dw_tile *tile, uint32_t first, bool touch)
{
    uint64_t segment = tile->first_segment + first;
    run r = {*tile, first, tile->segments - first, segment / layout->row_segments, 0, 0, NULL};
    uint32_t in_row = (uint32_t)(segment % layout->row_segments);
    r.column = (uint64_t)in_row * layout->segment_channels;
    if (touch) {
        r.channels = (uint64_t)r.segments * layout->segment_channels;
        return r;
    }
    uint32_t left = layout->row_segments - in_row;
    if (r.segments > left) r.segments = left;
    bool ends_row = r.segments == left;
    r.channels = (uint64_t)(r.segments - ends_row) * layout->segment_channels +
                 (ends_row ? layout->last_channels : 0);
    return r;
}

static uint64_t dense_element(const dw_layout *layout, const run *r)
{
    return r->row * layout->c + r->column;
}

static uint32_t stored_width(const dw_layout *layout, const run *r)
{
    return layout->cut_rows ? r->tile.elements : layout->segment_width;
}

static void decode_run(const dw_decode_job *job, const run *r, uint64_t *sum, bool past)
{
    const dw_layout *layout = &job->layout;
    bool state = job->next != NULL, adds = job->adds && !state;
    uint64_t at = r->row * (uint64_t)job->stride + r->column;
    float values[DW_TILE_ELEMENTS]; /* what is added to y */
    dw_decode_run call = {
        .out_dtype = state  ? job->prev_dtype
                     : adds ? DW_F32
                            : job->y_dtype,
        .prev_dtype = job->prev_dtype,
        .bits = layout->bits,
        .width = stored_width(layout, r),
        .pieces = r->segments,
        .channels = r->channels,
        .prev = dw_at(job->prev, job->prev_dtype, dense_element(layout, r)),
        .out = state  ? r->next
               : adds ? values
                      : dw_at(job->y, job->y_dtype, at),
        .poison_keeps = state,
        .scales = job->payload + r->tile.offset + 2 * (uint64_t)r->first_segment,
        .choices = layout->chooses ? job->payload : NULL,
        .codes = job->payload + r->tile.codes,
        .first_piece = r->tile.first_segment + r->first_segment,
        .tile_elements = r->tile.elements,
        .first = r->first_segment * layout->segment_width,
        .sum = sum,
        .element = dense_element(layout, r),
        .past = past,
    };
    job->kernels->decode(&call);
    if (adds) dw_emit_added(job, values, at, r->channels);
}

static void decode(const dw_decode_job *job, uint64_t index, dw_chunk_result *result)
{
    const dw_layout *layout = &job->layout;
    *result = (dw_chunk_result){0};
    if (layout->by_channel) {
        dw_columns_decode(job, index);
        return;
    }
    bool touch = rows_touch(layout, job->next ? (int64_t)layout->c : job->stride);
    dw_chunk chunk = dw_layout_chunk(layout, index);
    trail t;
    start_trail(&t, job->audit, job->next, job->prev_dtype, layout, &chunk, touch);
    bool past = streams_y(job);
    for (uint64_t i = chunk.first_tile; i < chunk.first_tile + chunk.tiles; i++) {
        dw_tile tile = dw_layout_tile(layout, i);
        for (uint32_t first = 0; first < tile.segments;) {
            run r = run_at(layout, &tile, first, touch);
            uint64_t element = dense_element(layout, &r);
            r.next = trail_place(&t, element);
            decode_run(job, &r, run_sum(&t, element, r.channels), past);
            follow(job->kernels, &t, element, r.channels);
            first += r.segments;
        }
    }
    if (past) job->kernels->stream(job->y, job->payload, 0, true);
    result->state_sum = t.sum;
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

/* NaN where the pieces of a tile are poisoned. */
static void emit_poison(const dw_decode_job *job, const dw_tile *tile)
{
    const dw_layout *layout = &job->layout;
    for (uint32_t p = 0; p < tile->segments; p++) {
        const uint8_t *scale = job->payload + tile->offset + 2 * (uint64_t)p;
        if (!dw_scale_is_poisoned((uint16_t)(scale[0] | scale[1] << 8))) continue;
        uint64_t segment = tile->first_segment + p, row = segment / layout->row_segments;
        uint32_t in_row = (uint32_t)(segment % layout->row_segments);
        uint32_t n =
            in_row + 1 == layout->row_segments ? layout->last_channels : layout->segment_channels;
        uint64_t column = (uint64_t)in_row * layout->segment_channels;
        dw_fill_nan(dw_at(job->y, job->y_dtype, row * (uint64_t)job->stride + column), job->y_dtype,
                    n);
    }
}

/* Rows [.., ..) of next into y: n elements of every row, from a column on. */
static void emit_rows(const dw_decode_job *job, uint64_t element, uint64_t n)
{
    uint64_t c = job->layout.c;
    while (n > 0) {
        uint64_t row = element / c, column = element % c,
                 now = job->stride == (int64_t)c ? n : c - column;
        if (now > n) now = n;
        dw_emit_values(job, dw_at(job->next, job->prev_dtype, element), job->prev_dtype,
                       row * (uint64_t)job->stride + column, now);
        element += now;
        n -= now;
    }
}

static void emit(const dw_decode_job *job, uint64_t index)
{
    const dw_layout *layout = &job->layout;
    dw_chunk chunk = dw_layout_chunk(layout, index);
    if (layout->by_channel) {
        for (uint64_t t = 0; t < layout->t; t++)
            emit_rows(job, t * layout->c + chunk.first_channel, chunk.channels);
        dw_columns_poison(job, index);
        return;
    }
    emit_rows(job, chunk.first_element, chunk.elements);
    for (uint64_t i = chunk.first_tile; i < chunk.first_tile + chunk.tiles; i++) {
        dw_tile tile = dw_layout_tile(layout, i);
        emit_poison(job, &tile);
    }
}

/* What the pieces of a chunk share. */
typedef struct encoding {
    const dw_encode_job *job;
    dw_piece_counts counts;
    dw_chosen row;
    bool is_far;
    dw_sums *sums;
} encoding;

static void encode_run(encoding *e, const run *r)
{
    const dw_encode_job *job = e->job;
    const dw_layout *layout = &job->layout;
    uint64_t dense = dense_element(layout, r);
    dw_dither dither = {job->rule.dither_key, dense};
    dw_encode_run call = {
        .x_dtype = job->x_dtype,
        .prev_dtype = job->prev_dtype,
        .bits = layout->bits,
        .width = stored_width(layout, r),
        .pieces = r->segments,
        .scale = job->rule.scale,
        .channels = r->channels,
        .x = dw_at(job->x, job->x_dtype, r->row * (uint64_t)job->stride + r->column),
        .prev = dw_at(job->prev, job->prev_dtype, dense),
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
        .counts = &e->counts,
    };
    e->job->kernels->encode(&call);
}

/* Narrows a run to the segments of its tile that are measured: one eighth of the tile, another one
 * each time, so that no channel is always left out. false: none of them. */
static bool measured_part(const dw_layout *layout, dw_dtype prev_dtype, uint64_t tile, run *r)
{
    uint32_t parts =
        layout->tile_segments < MEASURED_PARTS ? layout->tile_segments : MEASURED_PARTS;
    uint64_t apart = MEASURED_TILES * MEASURED_PARTS / parts;
    uint32_t count = layout->tile_segments / parts, from = (uint32_t)(tile / apart % parts) * count;
    if (tile % apart) return false;
    if (from >= r->tile.segments) from = 0;
    uint32_t to = from + count, end = r->first_segment + r->segments;
    if (to <= r->first_segment || from >= end) return false;
    uint32_t skipped = from > r->first_segment ? from - r->first_segment : 0;
    uint64_t most =
        (uint64_t)((to < end ? to : end) - r->first_segment - skipped) * layout->segment_channels;
    r->first_segment += skipped;
    r->column += (uint64_t)skipped * layout->segment_channels;
    r->channels -= (uint64_t)skipped * layout->segment_channels;
    r->next = dw_at(r->next, prev_dtype, (uint64_t)skipped * layout->segment_channels);
    if (r->channels > most) r->channels = most;
    r->segments =
        (uint32_t)((r->channels + layout->segment_channels - 1) / layout->segment_channels);
    return true;
}

/* How far x was from its base, and how far the reconstruction is from x. */
static void measure(encoding *e, uint64_t tile, const run *encoded)
{
    const dw_encode_job *job = e->job;
    const dw_layout *layout = &job->layout;
    run r = *encoded;
    if (!measured_part(layout, job->prev_dtype, tile, &r)) return;
    float decoded[DW_TILE_ELEMENTS];
    dw_norms norms = {0, 0, 0};
    dw_norms_run call = {.x = dw_at(job->x, job->x_dtype, r.row * (uint64_t)job->stride + r.column),
                         .x_dtype = job->x_dtype,
                         .base = dw_at(job->prev, job->prev_dtype, dense_element(layout, &r)),
                         .base_dtype = job->prev_dtype,
                         .back = r.next,
                         .back_dtype = job->prev_dtype,
                         .n = r.channels};
    if (!job->next) {
        dw_decode_job again = {.layout = *layout,
                               .kernels = job->kernels,
                               .payload = job->payload,
                               .y = decoded,
                               .y_dtype = DW_F32};
        run local = r;
        local.row = local.column = 0;
        decode_run(&again, &local, NULL, false);
        call.back = decoded;
        call.back_dtype = DW_F32;
    }
    e->job->kernels->norms(&call, &norms);
    e->sums->x_square += norms.x;
    e->sums->delta_square += norms.delta;
    e->sums->error_square += norms.error;
}

/* Scale and choice of a whole row, where a row is cut into several tiles that share them. */
static dw_chosen choose_row(const encoding *e, uint64_t row)
{
    const dw_encode_job *job = e->job;
    const dw_kernels *kernels = e->job->kernels;
    uint64_t c = job->layout.c;
    const void *x = dw_at(job->x, job->x_dtype, row * (uint64_t)job->stride),
               *prev = dw_at(job->prev, job->prev_dtype, row * c);
    dw_candidates found = {{0, 0}, {0, 0}};
    kernels->extremes(x, job->x_dtype, prev, job->prev_dtype, c, &found);
    dw_chosen chosen = {0, job->layout.chooses && dw_extremes_largest(found.direct) <
                                                      dw_extremes_largest(found.delta)};
    dw_extremes extremes = chosen.direct ? found.direct : found.delta;
    chosen.scale = dw_scale_of(extremes, job->layout.bits, job->rule.scale != DW_SCALE_ABSMAX);
    if (job->rule.scale != DW_SCALE_MSE || dw_scale_is_flat(chosen.scale)) return chosen;
    dw_attempts attempts = dw_attempts_of(extremes, job->layout.bits);
    float lanes[DW_ATTEMPTS][DW_NORM_LANES] = {{0}}, sums[DW_ATTEMPTS];
    kernels->squares(x, job->x_dtype, chosen.direct ? NULL : prev, job->prev_dtype, c,
                     job->layout.bits, &attempts, lanes);
    for (int k = 0; k < DW_ATTEMPTS; k++) sums[k] = dw_lanes_sum(lanes[k]);
    chosen.scale = dw_attempts_best(&attempts, sums);
    return chosen;
}

/* Choice bits are set one by one, and what pads a tile must be zero. The last chunk clears up to
 * the end of the choice bits. */
static void clear_chunk(const dw_encode_job *job, const dw_chunk *chunk)
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
        uint64_t scales_end = tile.offset + 2 * (uint64_t)tile.segments;
        uint64_t codes_end = tile.codes + (uint64_t)tile.elements * layout->bits / 8;
        memset(job->payload + scales_end, 0, (size_t)(tile.codes - scales_end));
        memset(job->payload + codes_end, 0, (size_t)(tile.offset + tile.bytes - codes_end));
    }
}

static uint64_t chunk_bytes_sum(const encoding *e, const dw_chunk *chunk)
{
    const dw_layout *layout = &e->job->layout;
    dw_tile first = dw_layout_tile(layout, chunk->first_tile),
            last = dw_layout_tile(layout, chunk->first_tile + chunk->tiles - 1);
    return e->job->kernels->digest_bytes(e->job->payload, first.offset,
                                         last.offset + last.bytes - first.offset);
}

static void encode(const dw_encode_job *job, uint64_t index, dw_chunk_result *result)
{
    const dw_layout *layout = &job->layout;
    *result = (dw_chunk_result){0};
    if (layout->by_channel) {
        dw_columns_encode(job, index, result);
        return;
    }
    bool touch = rows_touch(layout, job->stride);
    dw_chunk chunk = dw_layout_chunk(layout, index);
    encoding e = {.job = job, .sums = &result->sums};
    trail t;
    start_trail(&t, job->audit, job->next, job->prev_dtype, layout, &chunk, touch);
    e.is_far = t.streams;
    clear_chunk(job, &chunk);
    for (uint64_t i = chunk.first_tile; i < chunk.first_tile + chunk.tiles; i++) {
        dw_tile tile = dw_layout_tile(layout, i);
        if (layout->cut_rows && i % layout->row_segments == 0)
            e.row = choose_row(&e, i / layout->row_segments);
        for (uint32_t first = 0; first < tile.segments;) {
            run r = run_at(layout, &tile, first, touch);
            uint64_t element = dense_element(layout, &r);
            r.next = trail_place(&t, element);
            encode_run(&e, &r);
            measure(&e, i, &r);
            follow(job->kernels, &t, element, r.channels);
            first += r.segments;
        }
    }
    result->state_sum = t.sum;
    result->payload_sum = chunk_bytes_sum(&e, &chunk);
    result->sums.pieces = e.counts.pieces;
    result->sums.direct = e.counts.direct;
    result->sums.zero = e.counts.zero;
    result->sums.poisoned = e.counts.poisoned;
}

/* The choice bits, which no chunk digests, and the stretches that no chunk has seen whole. */
static void encoded(const dw_encode_job *job, dw_chunk_result *result)
{
    const dw_layout *layout = &job->layout;
    uint64_t left = dw_layout_undigested(layout);
    result->payload_sum += job->kernels->digest_bytes(job->payload, 0, left);
    if (job->next)
        result->state_sum +=
            dw_seam_sum(job->kernels, layout, job->next, job->prev_dtype, job->audit);
}

static void decoded(const dw_decode_job *job, dw_chunk_result *result)
{
    result->state_sum +=
        dw_seam_sum(job->kernels, &job->layout, job->next, job->prev_dtype, job->audit);
}

static void count_scales(dw_counters *counters, const uint8_t *scales, uint64_t n)
{
    /* Sums of their own: stores to counters would keep the loop from being vectorized. */
    uint64_t zero = 0, poisoned = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits = scales[2 * i] | (uint32_t)scales[2 * i + 1] << 8;
        zero += bits == 0;
        poisoned += (bits & 0x7f80u) == 0x7f80u;
    }
    counters->zero_groups += zero;
    counters->poisoned_groups += poisoned;
}

static void count(const dw_decode_job *job, dw_counters *counters)
{
    const dw_layout *layout = &job->layout;
    const uint8_t *payload = job->payload;
    counters->groups += layout->pieces;
    if (layout->by_channel) count_scales(counters, payload + layout->choice_bytes, layout->pieces);
    for (uint64_t i = 0; !layout->by_channel && i < layout->tiles; i++) {
        dw_tile tile = dw_layout_tile(layout, i);
        count_scales(counters, payload + tile.offset, tile.segments);
    }
    for (uint64_t i = 0; layout->chooses && i < layout->pieces; i++)
        counters->direct_groups += payload[i / 8] >> i % 8 & 1;
}

static bool plan(dw_plan *made)
{
    const dw_form_params *params = &made->params;
    if (!dw_layout_make(&made->layout, made->t, made->c, params->bits, params->group,
                        params->chooses))
        return false;
    made->payload_bytes = made->layout.payload_bytes;
    made->chunks = dw_layout_chunks(&made->layout);
    return true;
}

static const dw_device_names kernels_on_a_device = {"dw_encode", "dw_decode"};

const dw_form dw_form_quantized = {
    .wire = DW_FORM_QUANTIZED,
    .name = "quantized",
    .plan = plan,
    .encode = encode,
    .decode = decode,
    .emit = emit,
    .encoded = encoded,
    .decoded = decoded,
    .count = count,
    .device = &kernels_on_a_device,
};
