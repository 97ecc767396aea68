/* SPDX-License-Identifier: Apache-2.0
 * quantized.c - samples in main memory: cuts chunks of them into runs and hands these to the
 * kernels. */
#include <string.h>

#include "quantized.h"

/* The norms in the counters come from one part of one tile in so many. */
enum { MEASURED_PARTS = 8, MEASURED_TILES = DW_MEASURED_SHARE / MEASURED_PARTS };

/* What becomes of a chunk's new prev behind the kernels: its part of the state digest, and its way
 * to memory. The digest takes a stretch as soon as it is whole, while it is in the cache. */
typedef struct trail {
    dw_audit audit;
    unsigned char *next;
    dw_dtype dtype;
    uint64_t end, first, sum; /* end: element behind the chunk; first: of the next audited stretch
                               */
    uint64_t elements;        /* of the sample */
    bool streams; /* a tile is a stretch: it is made in scratch, and goes past the caches */
    _Alignas(64) unsigned char scratch[4 * DW_TILE_ELEMENTS];
} trail;

/* Samples that no cache holds until they are needed again need not push others out of it, nor be
 * read before they are written. */
enum { STREAMED_BYTES = 32 << 20 };

/* The first audited stretch that does not begin before `element`, as an element. */
static uint64_t next_stretch(dw_audit audit, uint64_t element)
{
    uint64_t stretch = (element + DW_TILE_ELEMENTS - 1) / DW_TILE_ELEMENTS,
             phase = audit.sequence % audit.every;
    return (stretch + (phase + audit.every - stretch % audit.every) % audit.every) *
           DW_TILE_ELEMENTS;
}

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
    t->first = next && audit.every ? next_stretch(audit, chunk->first_element) : UINT64_MAX;
    t->sum = 0;
    bool whole = layout->cut_rows
                     ? layout->c % DW_TILE_ELEMENTS == 0 /* tiles that are stretches, each in one
                                                            run */
                     : touch && layout->tile_segments * layout->segment_width == DW_TILE_ELEMENTS;
    t->streams =
        whole && t->elements * dw_dtype_bytes(dtype) >= STREAMED_BYTES && (uintptr_t)next % 64 == 0;
}

static uint64_t stretch_sum(const dw_engine *engine, const void *from, dw_dtype dtype,
                            uint64_t first, uint64_t elements)
{
    uint64_t left = elements - first;
    return engine->kernels->digest(from, dtype, first,
                                   left < DW_TILE_ELEMENTS ? left : DW_TILE_ELEMENTS);
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
static bool audit_stretch(const dw_engine *engine, trail *t, uint64_t done, const void *from)
{
    if (t->first >= t->elements) return false;
    uint64_t left = t->elements - t->first, n = left < DW_TILE_ELEMENTS ? left : DW_TILE_ELEMENTS;
    if (t->first + n > done) return false;
    t->sum += stretch_sum(engine, from ? from : dw_at(t->next, t->dtype, t->first), t->dtype,
                          t->first, t->elements);
    t->first += (uint64_t)t->audit.every * DW_TILE_ELEMENTS;
    return true;
}

static void *trail_place(trail *t, uint64_t element)
{
    return t->next && t->streams ? t->scratch : dw_at(t->next, t->dtype, element);
}

/* n elements from `element` on are made. */
static void follow(const dw_engine *engine, trail *t, uint64_t element, uint64_t n)
{
    uint64_t done = element + n, size = dw_dtype_bytes(t->dtype);
    if (!t->streams) {
        while (audit_stretch(engine, t, done, NULL)) {
        }
        return;
    }
    if (t->first == element) (void)audit_stretch(engine, t, done, t->scratch);
    engine->kernels->stream(t->next + element * size, t->scratch, n * size, done == t->end);
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

static void decode_run(const dw_engine *engine, const dw_decode_job *job, const run *r,
                       uint64_t *sum)
{
    const dw_layout *layout = &job->layout;
    bool state = job->next != NULL;
    dw_decode_run call = {
        .out_dtype = state ? job->prev_dtype : job->y_dtype,
        .prev_dtype = job->prev_dtype,
        .bits = layout->bits,
        .width = stored_width(layout, r),
        .pieces = r->segments,
        .channels = r->channels,
        .prev = dw_at(job->prev, job->prev_dtype, dense_element(layout, r)),
        .out = state ? r->next
                     : dw_at(job->y, job->y_dtype, r->row * (uint64_t)job->stride + r->column),
        .poison_keeps = state,
        .scales = job->payload + r->tile.offset + 2 * (uint64_t)r->first_segment,
        .choices = layout->chooses ? job->payload : NULL,
        .codes = job->payload + r->tile.codes,
        .first_piece = r->tile.first_segment + r->first_segment,
        .tile_elements = r->tile.elements,
        .first = r->first_segment * layout->segment_width,
        .sum = sum,
        .element = dense_element(layout, r),
    };
    engine->kernels->decode(&call);
}

static void decode(const dw_engine *engine, const dw_decode_job *job, uint64_t index,
                   dw_chunk_result *result)
{
    const dw_layout *layout = &job->layout;
    *result = (dw_chunk_result){0};
    if (layout->by_channel) {
        dw_columns_decode(engine, job, index);
        return;
    }
    bool touch = rows_touch(layout, job->next ? (int64_t)layout->c : job->stride);
    dw_chunk chunk = dw_layout_chunk(layout, index);
    trail t;
    start_trail(&t, job->audit, job->next, job->prev_dtype, layout, &chunk, touch);
    for (uint64_t i = chunk.first_tile; i < chunk.first_tile + chunk.tiles; i++) {
        dw_tile tile = dw_layout_tile(layout, i);
        for (uint32_t first = 0; first < tile.segments;) {
            run r = run_at(layout, &tile, first, touch);
            uint64_t element = dense_element(layout, &r);
            r.next = trail_place(&t, element);
            decode_run(engine, job, &r, run_sum(&t, element, r.channels));
            follow(engine, &t, element, r.channels);
            first += r.segments;
        }
    }
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
static void emit_rows(const dw_engine *engine, const dw_decode_job *job, uint64_t element,
                      uint64_t n)
{
    uint64_t c = job->layout.c;
    while (n > 0) {
        uint64_t row = element / c, column = element % c,
                 now = job->stride == (int64_t)c ? n : c - column;
        if (now > n) now = n;
        engine->kernels->convert(dw_at(job->next, job->prev_dtype, element), job->prev_dtype,
                                 dw_at(job->y, job->y_dtype, row * (uint64_t)job->stride + column),
                                 job->y_dtype, now);
        element += now;
        n -= now;
    }
}

static void emit(const dw_engine *engine, const dw_decode_job *job, uint64_t index)
{
    const dw_layout *layout = &job->layout;
    dw_chunk chunk = dw_layout_chunk(layout, index);
    if (layout->by_channel) {
        for (uint64_t t = 0; t < layout->t; t++)
            emit_rows(engine, job, t * layout->c + chunk.first_channel, chunk.channels);
        dw_columns_poison(job, index);
        return;
    }
    emit_rows(engine, job, chunk.first_element, chunk.elements);
    for (uint64_t i = chunk.first_tile; i < chunk.first_tile + chunk.tiles; i++) {
        dw_tile tile = dw_layout_tile(layout, i);
        emit_poison(job, &tile);
    }
}

/* What the pieces of a chunk share. */
typedef struct encoding {
    const dw_engine *engine;
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
    e->engine->kernels->encode(&call);
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
        dw_decode_job again = {
            .layout = *layout, .payload = job->payload, .y = decoded, .y_dtype = DW_F32};
        run local = r;
        local.row = local.column = 0;
        decode_run(e->engine, &again, &local, NULL);
        call.back = decoded;
        call.back_dtype = DW_F32;
    }
    e->engine->kernels->norms(&call, &norms);
    e->sums->x_square += norms.x;
    e->sums->delta_square += norms.delta;
    e->sums->error_square += norms.error;
}

/* Scale and choice of a whole row, where a row is cut into several tiles that share them. */
static dw_chosen choose_row(const encoding *e, uint64_t row)
{
    const dw_encode_job *job = e->job;
    const dw_kernels *kernels = e->engine->kernels;
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

static uint64_t bytes_sum(const dw_engine *engine, const uint8_t *payload, uint64_t from,
                          uint64_t bytes)
{
    return engine->kernels->digest_bytes(payload, from, bytes);
}

static uint64_t chunk_bytes_sum(const encoding *e, const dw_chunk *chunk)
{
    const dw_layout *layout = &e->job->layout;
    dw_tile first = dw_layout_tile(layout, chunk->first_tile),
            last = dw_layout_tile(layout, chunk->first_tile + chunk->tiles - 1);
    return bytes_sum(e->engine, e->job->payload, first.offset,
                     last.offset + last.bytes - first.offset);
}

static void encode(const dw_engine *engine, const dw_encode_job *job, uint64_t index,
                   dw_chunk_result *result)
{
    const dw_layout *layout = &job->layout;
    *result = (dw_chunk_result){0};
    if (layout->by_channel) {
        dw_columns_encode(engine, job, index, result);
        return;
    }
    bool touch = rows_touch(layout, job->stride);
    dw_chunk chunk = dw_layout_chunk(layout, index);
    encoding e = {.engine = engine, .job = job, .sums = &result->sums};
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
            follow(engine, &t, element, r.channels);
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

static uint64_t state_sum(const dw_engine *engine, const void *prev, dw_dtype dtype,
                          uint64_t elements, dw_audit audit)
{
    uint64_t sum = 0, apart = (uint64_t)audit.every * DW_TILE_ELEMENTS;
    for (uint64_t first = next_stretch(audit, 0); first < elements; first += apart)
        sum += stretch_sum(engine, dw_at(prev, dtype, first), dtype, first, elements);
    return sum;
}

/* The stretches into which a chunk's end falls. */
static uint64_t seam_sum(const dw_engine *engine, const dw_layout *layout, const void *prev,
                         dw_dtype dtype, dw_audit audit)
{
    uint64_t elements = (uint64_t)layout->t * layout->c, sum = 0, chunks = dw_layout_chunks(layout),
             last = UINT64_MAX;
    if (layout->by_channel) return state_sum(engine, prev, dtype, elements, audit);
    for (uint64_t i = 1; i < chunks; i++) {
        uint64_t seam = dw_layout_chunk(layout, i).first_element,
                 stretch = seam / DW_TILE_ELEMENTS * DW_TILE_ELEMENTS;
        if (seam == stretch || stretch == last || next_stretch(audit, stretch) != stretch) continue;
        last = stretch;
        sum += stretch_sum(engine, dw_at(prev, dtype, stretch), dtype, stretch, elements);
    }
    return sum;
}

dw_engine dw_engine_cpu(const dw_kernels *kernels)
{
    if (!kernels) kernels = dw_kernels_choose(~0u);
    return (dw_engine){"cpu",         kernels,        encode,    decode,   emit,
                       dw_put_floats, dw_take_floats, bytes_sum, seam_sum, state_sum};
}
