/* SPDX-License-Identifier: Apache-2.0
 * engine_cpu.c - samples in main memory: cuts them into runs and hands these to the kernels. */
#include <string.h>

#include "engine.h"
#include "kernels.h"

/* The norms in the counters come from one part of one tile in so many: of one element in 32. */
enum { MEASURED_TILES = 4, MEASURED_PARTS = 8 };

static void *at(const void *base, dw_dtype dtype, uint64_t element)
{
    return base ? (unsigned char *)(uintptr_t)base + element * dw_dtype_bytes(dtype) : NULL;
}

/* What becomes of a sample's new prev behind the kernels: its state digest, and its way to memory. The digest takes a stretch as soon as it
 * is whole, while it is in the cache. */
typedef struct trail {
    const dw_audit *audit;
    unsigned char *next;
    dw_dtype dtype;
    uint64_t elements, first, sum; /* first: element of the next audited stretch */
    bool streams; /* a tile is a stretch: it is made in scratch, and goes past the caches */
    _Alignas(64) unsigned char scratch[4 * DW_TILE_ELEMENTS];
} trail;

/* Samples that no cache holds until they are needed again need not push others out of it, nor be read before they are written. */
enum { STREAMED_BYTES = 32 << 20 };

static void start_trail(trail *t, const dw_audit *audit, void *next, dw_dtype dtype, uint64_t elements)
{
    t->audit = audit;
    t->next = next;
    t->dtype = dtype;
    t->elements = next ? elements : 0;
    t->first = audit->into ? audit->sequence % audit->every * DW_TILE_ELEMENTS : UINT64_MAX;
    t->sum = 0;
    t->streams = false;
}

/* Tiles that are stretches of prev, each in one run. */
static void stream_trail(trail *t, const dw_layout *layout, bool touch)
{
    bool whole = layout->cut_rows ? layout->c % DW_TILE_ELEMENTS == 0
                                  : touch && layout->tile_pieces * layout->piece_width == DW_TILE_ELEMENTS;
    t->streams = whole && t->elements * dw_dtype_bytes(t->dtype) >= STREAMED_BYTES && (uintptr_t)t->next % 64 == 0;
}

/* The stretch at a->first, if it is audited and ends before `done`. from: its elements. */
static bool audit_stretch(const dw_engine *engine, trail *t, uint64_t done, const void *from)
{
    if (t->first >= t->elements) return false;
    uint64_t left = t->elements - t->first, n = left < DW_TILE_ELEMENTS ? left : DW_TILE_ELEMENTS;
    if (t->first + n > done) return false;
    t->sum += engine->kernels->digest(from ? from : t->next + t->first * dw_dtype_bytes(t->dtype), t->dtype, t->first, n);
    t->first += (uint64_t)t->audit->every * DW_TILE_ELEMENTS;
    return true;
}

static void *trail_place(trail *t, uint64_t element)
{
    if (!t->next) return NULL;
    return t->streams ? t->scratch : t->next + element * dw_dtype_bytes(t->dtype);
}

/* n elements from `element` on are made. */
static void follow(const dw_engine *engine, trail *t, uint64_t element, uint64_t n)
{
    uint64_t done = element + n, size = dw_dtype_bytes(t->dtype);
    if (!t->streams) {
        while (audit_stretch(engine, t, done, NULL)) {}
        return;
    }
    if (t->first == element) (void)audit_stretch(engine, t, done, t->scratch);
    engine->kernels->stream(t->next + element * size, t->scratch, n * size, done == t->elements);
}

static void finish_trail(const trail *t)
{
    uint64_t sum = t->sum;
    if (!t->audit->into) return;
    sum ^= sum >> 33;
    sum *= UINT64_C(0xC2B2AE3D27D4EB4F);
    sum ^= sum >> 29;
    sum *= UINT64_C(0x165667B19E3779F9);
    sum ^= sum >> 32;
    *t->audit->into = sum ? sum : 1;
}

/* A run: the pieces of one tile that one kernel call can take. */
typedef struct run {
    dw_tile tile;
    uint32_t first_piece, pieces; /* within the tile */
    uint64_t row, column, channels;
    void *next; /* where the new prev of these pieces goes first: its place, or a scratch */
} run;

/* Rows that fill their pieces lie side by side in prev, and in a tensor without gaps: then a tile is one run. */
static bool rows_touch(const dw_layout *layout, int64_t stride)
{
    return !layout->cut_rows && layout->last_channels == layout->piece_width && stride == (int64_t)layout->c;
}

static run run_at(const dw_layout *layout, const dw_tile *tile, uint32_t first, bool touch)
{
    uint64_t piece = tile->first_piece + first;
    run r = {*tile, first, tile->pieces - first, piece / layout->row_pieces, 0, 0, NULL};
    uint32_t in_row = (uint32_t)(piece % layout->row_pieces);
    r.column = (uint64_t)in_row * layout->piece_channels;
    if (touch) {
        r.channels = (uint64_t)r.pieces * layout->piece_channels;
        return r;
    }
    uint32_t left = layout->row_pieces - in_row;
    if (r.pieces > left) r.pieces = left;
    bool ends_row = r.pieces == left;
    r.channels = (uint64_t)(r.pieces - ends_row) * layout->piece_channels + (ends_row ? layout->last_channels : 0);
    return r;
}

static uint64_t dense_element(const dw_layout *layout, const run *r)
{
    return r->row * layout->c + r->column;
}

static uint32_t stored_width(const dw_layout *layout, const run *r)
{
    return layout->cut_rows ? r->tile.elements : layout->piece_width;
}

static void decode_run(const dw_engine *engine, const dw_decode_job *job, const run *r)
{
    const dw_layout *layout = &job->layout;
    uint64_t dense = r->row * layout->c + r->column;
    bool state = job->next != NULL;
    dw_decode_run call = {
        .out_dtype = state ? job->prev_dtype : job->y_dtype,
        .prev_dtype = job->prev_dtype,
        .bits = layout->bits,
        .width = stored_width(layout, r),
        .pieces = r->pieces,
        .channels = r->channels,
        .prev = at(job->prev, job->prev_dtype, dense),
        .out = state ? r->next
                     : at(job->y, job->y_dtype, r->row * (uint64_t)job->stride + r->column),
        .poison_keeps = state,
        .scales = job->payload + r->tile.offset + 2 * (uint64_t)r->first_piece,
        .choices = layout->chooses ? job->payload : NULL,
        .codes = job->payload + r->tile.codes,
        .first_piece = r->tile.first_piece + r->first_piece,
        .tile_elements = r->tile.elements,
        .first = r->first_piece * layout->piece_width,
    };
    engine->kernels->decode(&call);
}

static void decode(const dw_engine *engine, const dw_decode_job *job)
{
    bool touch = rows_touch(&job->layout, job->next ? (int64_t)job->layout.c : job->stride);
    trail t;
    start_trail(&t, &job->audit, job->next, job->prev_dtype, (uint64_t)job->layout.t * job->layout.c);
    stream_trail(&t, &job->layout, touch);
    for (uint64_t i = 0; i < job->layout.tiles; i++) {
        dw_tile tile = dw_layout_tile(&job->layout, i);
        for (uint32_t first = 0; first < tile.pieces;) {
            run r = run_at(&job->layout, &tile, first, touch);
            uint64_t element = dense_element(&job->layout, &r);
            r.next = trail_place(&t, element);
            decode_run(engine, job, &r);
            follow(engine, &t, element, r.channels);
            first += r.pieces;
        }
    }
    finish_trail(&t);
}

static void fill_nan(void *y, dw_dtype dtype, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (dtype == DW_F32)
            ((uint32_t *)y)[i] = DW_F32_NAN;
        else
            ((uint16_t *)y)[i] = dtype == DW_F16 ? DW_F16_NAN : DW_BF16_NAN;
    }
}

static void emit(const dw_engine *engine, const dw_decode_job *job)
{
    const dw_layout *layout = &job->layout;
    for (uint32_t t = 0; t < layout->t; t++)
        engine->kernels->convert(at(job->next, job->prev_dtype, (uint64_t)t * layout->c), job->prev_dtype,
                         at(job->y, job->y_dtype, t * (uint64_t)job->stride), job->y_dtype, layout->c);
    for (uint64_t i = 0; i < layout->tiles; i++) {
        dw_tile tile = dw_layout_tile(layout, i);
        for (uint32_t p = 0; p < tile.pieces; p++) {
            const uint8_t *scale = job->payload + tile.offset + 2 * (uint64_t)p;
            if (!dw_scale_is_poisoned((uint16_t)(scale[0] | scale[1] << 8))) continue;
            uint64_t piece = tile.first_piece + p, row = piece / layout->row_pieces;
            uint32_t in_row = (uint32_t)(piece % layout->row_pieces);
            uint32_t n = in_row + 1 == layout->row_pieces ? layout->last_channels : layout->piece_channels;
            uint64_t column = (uint64_t)in_row * layout->piece_channels;
            fill_nan(at(job->y, job->y_dtype, row * (uint64_t)job->stride + column), job->y_dtype, n);
        }
    }
}

static void encode_run(const dw_engine *engine, const dw_encode_job *job, const run *r, const dw_candidates *row, dw_piece_counts *counts)
{
    const dw_layout *layout = &job->layout;
    uint64_t dense = r->row * layout->c + r->column;
    dw_encode_run call = {
        .x_dtype = job->x_dtype,
        .prev_dtype = job->prev_dtype,
        .bits = layout->bits,
        .width = stored_width(layout, r),
        .pieces = r->pieces,
        .is_signed = job->is_signed,
        .channels = r->channels,
        .x = at(job->x, job->x_dtype, r->row * (uint64_t)job->stride + r->column),
        .prev = at(job->prev, job->prev_dtype, dense),
        .next = r->next,
        .scales = job->payload + r->tile.offset + 2 * (uint64_t)r->first_piece,
        .choices = layout->chooses ? job->payload : NULL,
        .codes = job->payload + r->tile.codes,
        .first_piece = r->tile.first_piece + r->first_piece,
        .tile_elements = r->tile.elements,
        .first = r->first_piece * layout->piece_width,
        .row = row,
        .counts = counts,
    };
    engine->kernels->encode(&call);
}

/* Narrows a run to the pieces of its tile that are measured: one eighth of the tile, another one each time, so that no channel is
 * always left out. false: none of them. */
static bool measured_part(const dw_layout *layout, dw_dtype prev_dtype, uint64_t tile, run *r)
{
    uint32_t parts = layout->tile_pieces < MEASURED_PARTS ? layout->tile_pieces : MEASURED_PARTS;
    uint64_t apart = MEASURED_TILES * MEASURED_PARTS / parts;
    uint32_t count = layout->tile_pieces / parts, from = (uint32_t)(tile / apart % parts) * count;
    if (tile % apart) return false;
    if (from >= r->tile.pieces) from = 0;
    uint32_t to = from + count, end = r->first_piece + r->pieces;
    if (to <= r->first_piece || from >= end) return false;
    uint32_t skipped = from > r->first_piece ? from - r->first_piece : 0;
    uint64_t most = (uint64_t)((to < end ? to : end) - r->first_piece - skipped) * layout->piece_channels;
    r->first_piece += skipped;
    r->column += (uint64_t)skipped * layout->piece_channels;
    r->channels -= (uint64_t)skipped * layout->piece_channels;
    r->next = at(r->next, prev_dtype, (uint64_t)skipped * layout->piece_channels);
    if (r->channels > most) r->channels = most;
    r->pieces = (uint32_t)((r->channels + layout->piece_channels - 1) / layout->piece_channels);
    return true;
}

/* How far x was from its base, and how far the reconstruction is from x. */
static void measure(const dw_engine *engine, const dw_encode_job *job, uint64_t tile, const run *encoded)
{
    const dw_layout *layout = &job->layout;
    run r = *encoded;
    if (!measured_part(layout, job->prev_dtype, tile, &r)) return;
    uint64_t dense = r.row * layout->c + r.column;
    float decoded[DW_TILE_ELEMENTS];
    dw_norms norms = {0, 0, 0};
    dw_norms_run call = {.x = at(job->x, job->x_dtype, r.row * (uint64_t)job->stride + r.column),
                         .x_dtype = job->x_dtype,
                         .base = at(job->prev, job->prev_dtype, dense),
                         .base_dtype = job->prev_dtype,
                         .back = r.next,
                         .back_dtype = job->prev_dtype,
                         .n = r.channels};
    if (!job->next) {
        dw_decode_job again = {.layout = *layout, .payload = job->payload, .y = decoded, .y_dtype = DW_F32};
        run local = r;
        local.row = local.column = 0;
        decode_run(engine, &again, &local);
        call.back = decoded;
        call.back_dtype = DW_F32;
    }
    engine->kernels->norms(&call, &norms);
    job->sums->x_square += norms.x;
    job->sums->delta_square += norms.delta;
    job->sums->error_square += norms.error;
}

/* The extremes of a whole row, where a row is cut into several tiles that share its scale. */
static dw_candidates row_extremes(const dw_engine *engine, const dw_encode_job *job, uint64_t row)
{
    dw_candidates found = {{0, 0}, {0, 0}};
    uint64_t c = job->layout.c;
    engine->kernels->extremes(at(job->x, job->x_dtype, row * (uint64_t)job->stride), job->x_dtype,
                      at(job->prev, job->prev_dtype, row * c), job->prev_dtype, c, &found);
    return found;
}

static void encode(const dw_engine *engine, const dw_encode_job *job)
{
    const dw_layout *layout = &job->layout;
    bool touch = rows_touch(layout, job->stride);
    trail t;
    start_trail(&t, &job->audit, job->next, job->prev_dtype, (uint64_t)layout->t * layout->c);
    stream_trail(&t, layout, touch);
    dw_piece_counts counts = {0, 0, 0, 0};
    dw_candidates row = {{0, 0}, {0, 0}};
    memset(job->payload, 0, (size_t)layout->choice_bytes);
    for (uint64_t i = 0; i < layout->tiles; i++) {
        dw_tile tile = dw_layout_tile(layout, i);
        uint64_t scales_end = tile.offset + 2 * (uint64_t)tile.pieces;
        uint64_t codes_end = tile.codes + (uint64_t)tile.elements * layout->bits / 8;
        memset(job->payload + scales_end, 0, (size_t)(tile.codes - scales_end));
        memset(job->payload + codes_end, 0, (size_t)(tile.offset + tile.bytes - codes_end));
        if (layout->cut_rows && i % layout->row_pieces == 0) row = row_extremes(engine, job, i / layout->row_pieces);
        for (uint32_t first = 0; first < tile.pieces;) {
            run r = run_at(layout, &tile, first, touch);
            uint64_t element = dense_element(layout, &r);
            r.next = trail_place(&t, element);
            encode_run(engine, job, &r, layout->cut_rows ? &row : NULL, &counts);
            measure(engine, job, i, &r);
            follow(engine, &t, element, r.channels);
            first += r.pieces;
        }
    }
    finish_trail(&t);
    job->sums->pieces += counts.pieces;
    job->sums->direct += counts.direct;
    job->sums->zero += counts.zero;
    job->sums->poisoned += counts.poisoned;
}

/* One value between formats. Exact: IEEE, as kind RAW wants it; else RN, with NaN for all that is not finite. */
static uint32_t load_bits(const unsigned char *from, dw_dtype dtype)
{
    uint32_t single = from[0] | (uint32_t)from[1] << 8;
    if (dtype == DW_F32) return single | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
    return dw_bits_of(dtype == DW_F16 ? dw_f16_widen((uint16_t)single) : dw_bf16_widen((uint16_t)single));
}

static uint32_t round_to(float value, dw_dtype dtype, int exact)
{
    if ((dw_bits_of(value) & 0x7f800000u) == DW_F32_INFINITY && !exact)
        return dtype == DW_F32 ? DW_F32_NAN : dtype == DW_F16 ? DW_F16_NAN : DW_BF16_NAN;
    if (dtype == DW_F32) return dw_bits_of(value);
    if (dtype == DW_F16) return exact ? dw_f16_round(value) : dw_f16_finite(value);
    return exact ? dw_bf16_round(value) : dw_bf16_finite(value);
}

static void store_bits(unsigned char *to, dw_dtype dtype, uint32_t bits)
{
    for (size_t i = 0; i < dw_dtype_bytes(dtype); i++) to[i] = (unsigned char)(bits >> (8 * i));
}

static void store_native(void *to, dw_dtype dtype, uint32_t bits)
{
    uint16_t half = (uint16_t)bits;
    if (dtype == DW_F32)
        memcpy(to, &bits, sizeof bits);
    else
        memcpy(to, &half, sizeof half);
}

static uint32_t load_native(const void *from, dw_dtype dtype, int same)
{
    uint32_t bits = 0;
    uint16_t half;
    if (dtype == DW_F32) {
        memcpy(&bits, from, sizeof bits);
        return bits;
    }
    memcpy(&half, from, sizeof half);
    if (same) return half;
    return dw_bits_of(dtype == DW_F16 ? dw_f16_widen(half) : dw_bf16_widen(half));
}

static bool is_finite(uint32_t bits)
{
    return (bits & DW_F32_INFINITY) != DW_F32_INFINITY;
}

/* Little-endian hosts hold floats as the wire does: whole rows can be copied. */
static bool wire_order(void)
{
    const uint16_t one = 1;
    unsigned char first;
    memcpy(&first, &one, 1);
    return first == 1;
}

static void put_floats(const dw_float_job *job)
{
    uint64_t size = dw_dtype_bytes(job->form), n = (uint64_t)job->t * job->c;
    int same = job->exact && job->form == job->dtype;
    memset(job->payload + n * size, 0, (size_t)(job->bytes - n * size));
    if (same && wire_order()) {
        for (uint64_t t = 0; t < job->t; t++)
            memcpy(job->payload + t * job->c * size, at(job->tensor, job->dtype, t * (uint64_t)job->stride), job->c * size);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        const void *x = at(job->tensor, job->dtype, i / job->c * (uint64_t)job->stride + i % job->c);
        uint32_t bits = load_native(x, job->dtype, same);
        if (!same) bits = round_to(dw_float_of(bits), job->form, job->exact);
        store_bits(job->payload + i * size, job->form, bits);
        if (!same) job->sums->poisoned += !is_finite(load_bits(job->payload + i * size, job->form)) && !job->exact;
    }
}

static void take_floats(const dw_float_job *job, int to_next)
{
    uint64_t size = dw_dtype_bytes(job->form);
    int same = job->exact && job->form == job->dtype;
    if (same && !to_next && wire_order()) {
        for (uint64_t t = 0; t < job->t; t++)
            memcpy(at(job->tensor, job->dtype, t * (uint64_t)job->stride), job->payload + t * job->c * size, job->c * size);
        return;
    }
    for (uint64_t i = 0; i < (uint64_t)job->t * job->c; i++) {
        const unsigned char *from = job->payload + i * size;
        if (to_next) {
            uint32_t bits = load_bits(from, job->form);
            uint32_t kept = is_finite(bits) ? round_to(dw_float_of(bits), job->prev_dtype, 0) : 0;
            store_native(at(job->next, job->prev_dtype, i), job->prev_dtype, kept);
            continue;
        }
        void *y = at(job->tensor, job->dtype, i / job->c * (uint64_t)job->stride + i % job->c);
        if (same) {
            uint32_t bits = from[0] | (uint32_t)from[1] << 8;
            if (size == 4) bits |= (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
            store_native(y, job->dtype, bits);
        } else if (job->exact) {
            store_native(y, job->dtype, round_to(dw_float_of(load_bits(from, job->form)), job->dtype, 1));
        } else if (!is_finite(load_bits(from, job->form))) {
            store_native(y, job->dtype, round_to(dw_float_of(DW_F32_NAN), job->dtype, 0));
        } else { /* y = RN(prev') */
            uint32_t kept = load_native(at(job->next, job->prev_dtype, i), job->prev_dtype, 0);
            store_native(y, job->dtype, round_to(dw_float_of(kept), job->dtype, 0));
        }
    }
}

static uint64_t digest(const dw_engine *engine, const void *prev, dw_dtype dtype, uint64_t elements, uint32_t every,
                       uint64_t sequence)
{
    uint64_t value;
    dw_audit audit = {every, sequence, &value};
    trail t;
    start_trail(&t, &audit, (void *)(uintptr_t)prev, dtype, elements);
    follow(engine, &t, 0, elements);
    finish_trail(&t);
    return value;
}

dw_engine dw_engine_cpu(const dw_kernels *kernels)
{
    if (!kernels) kernels = dw_kernels_choose(~0u);
    return (dw_engine){"cpu", kernels, encode, decode, emit, put_floats, take_floats, digest};
}
