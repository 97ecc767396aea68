/* SPDX-License-Identifier: Apache-2.0
 * tah.c - the form of tiles that are rotated, with the largest value of a tile in front, and of
 * which some have 4 bits for each value and the others 3 (docs/format.md, 3.14).
 *
 * The sample is read twice. `measure` finds the pivot of each tile and the range of its rotated
 * values; `choose_scale` gives 4 bits to the tiles with the largest ranges; `encode` rotates again
 * and has the form quantized write the values. A chunk holds tiles of one kind, which lie anywhere
 * in the sample.
 *
 * Source: TAH-Quant (He et al., arXiv:2506.01352). docs/codecs/for_comparison.md says where
 * we differ. */
#include "codecs/tah.h"

#include <math.h>
#include <string.h>

#include "arithmetic/rotate.h"
#include "codecs/contraction.h"
#include "codecs/options.h"
#include "codecs/output.h"
#include "codecs/tiles.h"

static uint32_t magnitude(float value)
{
    return dw_bits_of(value) & 0x7fffffffu;
}

/* The place of a tile in x or y. */
static uint64_t place_of(const dw_tah *tah, int64_t stride, uint64_t tile)
{
    return tile / tah->per_token * (uint64_t)stride + tile % tah->per_token * tah->g;
}

static void exchange(float *tile, uint32_t pivot)
{
    float first = tile[0];
    tile[0] = tile[pivot];
    tile[pivot] = first;
}

/* The square root of a tile's width. A number that is added to the first element of a tile adds
 * this number, divided by the root, to every rotated value. */
static float root_of(const dw_tah *tah)
{
    return dw_rotate_root(tah->g);
}

/* Copies x - prev of a tile. */
static void load(const dw_encode_job *job, const dw_tah *tah, uint64_t tile, float *to)
{
    const void *x = dw_at(job->x, job->x_dtype, place_of(tah, job->stride, tile)),
               *prev = dw_at(job->prev, job->prev_dtype, tile * tah->g);
    job->kernels->rotate(x, job->x_dtype, prev, job->prev_dtype, tah->g, 1, to);
}

/* ---- Encode: pivots and ranges --------------------------------------------------------------- */

/* The extremes of a tile; a NaN is larger than all numbers. */
static dw_extremes extremes_of(const dw_encode_job *job, const float *tile, uint32_t g)
{
    dw_candidates found = {{0, 0}, {0, 0}};
    job->kernels->extremes(tile, DW_F32, NULL, DW_F32, g, &found);
    return found.delta;
}

static uint32_t largest_of(const dw_encode_job *job, const float *tile, uint32_t g)
{
    return dw_extremes_largest(extremes_of(job, tile, g));
}

/* The pivot of a tile: the first of its largest values, if that is more than tau times as large as
 * the second largest; else the first element, which is exchanged with itself. */
static uint32_t pivot_of(const dw_encode_job *job, float *tile, uint32_t g)
{
    double tau = job->plan->params.tau / 1000.0;
    uint32_t first = largest_of(job, tile, g), pivot = 0;
    if (first >= DW_F32_INFINITY) return 0;
    while (magnitude(tile[pivot]) != first) pivot++;
    float kept = tile[pivot];
    tile[pivot] = 0;
    uint32_t second = largest_of(job, tile, g);
    tile[pivot] = kept;
    return dw_float_of(first) > tau * (double)dw_float_of(second) ? pivot : 0;
}

/* Finds the pivot of a tile and writes it. Returns the key by which tiles are ordered: the range of
 * the rotated values. The values of tiles are distributed much alike once they are rotated, so the
 * entropy of values that are coded with the same step is larger where the range is. Without the
 * first element, which moves all rotated values alike, their mean is 0, so one extreme is the
 * smallest value and the other one the largest. */
static uint32_t measure_tile(const dw_encode_job *job, const dw_tah *tah, uint64_t tile)
{
    float values[DW_ROTATE_MOST], rotated[DW_ROTATE_MOST];
    load(job, tah, tile, values);
    uint32_t pivot = pivot_of(job, values, tah->g);
    job->payload[tah->pivots_at + tile] = (uint8_t)pivot;
    exchange(values, pivot);
    bool is_poisoned = magnitude(values[0]) >= DW_F32_INFINITY;
    values[0] = 0;
    job->kernels->rotate(values, DW_F32, NULL, DW_F32, tah->g, tah->g, rotated);
    dw_extremes e = extremes_of(job, rotated, tah->g);
    if (is_poisoned || dw_extremes_largest(e) >= DW_F32_INFINITY) return 0; /* 3 bits will do */
    return magnitude(dw_float_of(e.positive) + dw_float_of(e.negative));
}

static void measure(const dw_encode_job *job, uint64_t chunk, dw_chunk_result *result)
{
    dw_tah tah;
    uint32_t *keys = (uint32_t *)(void *)job->room;
    *result = (dw_chunk_result){0};
    (void)dw_tah_of(job->plan, &tah, NULL);
    uint64_t chunks = job->plan->chunks, each = (tah.n + chunks - 1) / chunks,
             from = each * chunk < tah.n ? each * chunk : tah.n,
             end = from + each < tah.n ? from + each : tah.n;
    for (uint64_t tile = from; tile < end; tile++) keys[tile] = measure_tile(job, &tah, tile);
}

static void choose_scale(const dw_encode_job *job, const dw_chunk_result *joined)
{
    dw_tah tah;
    (void)joined;
    (void)dw_tah_of(job->plan, &tah, NULL);
    dw_tah_choose(&tah, (const uint32_t *)(const void *)job->room, job->payload);
    uint8_t *pivots_end = job->payload + tah.pivots_at + tah.n,
            *offsets_end = job->payload + tah.offsets_at + 2 * tah.n;
    memset(pivots_end, 0, (size_t)(job->payload + tah.offsets_at - pivots_end));
    memset(offsets_end, 0, (size_t)(job->payload + tah.codes_at[DW_TAH_WIDE] - offsets_end));
}

/* ---- Units: runs of tiles of one kind that the form quantized writes together ---------------- */

typedef struct unit {
    dw_plan plan; /* of these tiles alone, as a sample */
    uint32_t rows;
    uint64_t codes; /* where the unit begins in the payload */
    uint64_t tiles[DW_TILE_ELEMENTS / 16];
} unit;

/* The units of a chunk. Begin with units_of; then each call of next_unit sets `at`. */
typedef struct units {
    const dw_tah *tah;
    int kind;
    uint64_t next, end; /* numbers of units of the kind */
    dw_tah_walk walk;
    unit at;
} units;

static void units_of(units *u, const dw_tah *tah, const uint8_t *payload, uint64_t chunk)
{
    u->tah = tah;
    u->kind = chunk < tah->chunks[DW_TAH_WIDE] ? DW_TAH_WIDE : DW_TAH_NARROW;
    if (u->kind == DW_TAH_NARROW) chunk -= tah->chunks[DW_TAH_WIDE];
    uint64_t all = tah->of[u->kind].layout.tiles;
    u->next = chunk * tah->chunk_units;
    u->end = u->next + tah->chunk_units < all ? u->next + tah->chunk_units : all;
    u->walk = dw_tah_begin(payload, u->kind, u->next * tah->rows);
    u->at.rows = 0;
}

static bool next_unit(units *u)
{
    const dw_tah *tah = u->tah;
    const dw_plan *whole = &tah->of[u->kind];
    if (u->next == u->end) return false;
    uint64_t left = whole->t - u->next * tah->rows;
    uint32_t rows = left < tah->rows ? (uint32_t)left : tah->rows;
    if (rows != u->at.rows) { /* the first unit of a chunk, or the last one of all */
        u->at.plan = *whole;
        u->at.plan.t = u->at.rows = rows;
        (void)whole->form->plan(&u->at.plan, NULL);
    }
    u->at.codes = tah->codes_at[u->kind] + u->next * whole->layout.tile_bytes;
    for (uint32_t i = 0; i < rows; i++) u->at.tiles[i] = dw_tah_next(&u->walk);
    u->next++;
    return true;
}

static bool is_poisoned(const uint8_t *payload, const dw_tah *tah, const unit *u, uint32_t row)
{
    return dw_scale_at_is_poisoned(payload + u->codes + 2 * (size_t)row) ||
           dw_scale_at_is_poisoned(payload + tah->offsets_at + 2 * u->tiles[row]);
}

/* Makes a tile of what was decoded of its rotated values. `back` is rotated back already. */
static void finish(const uint8_t *payload, const dw_tah *tah, uint64_t tile, float *back)
{
    const uint8_t *offset = payload + tah->offsets_at + 2 * tile;
    back[0] += dw_bf16_widen((uint16_t)(offset[0] | offset[1] << 8));
    exchange(back, payload[tah->pivots_at + tile]);
}

/* ---- Encode: values -------------------------------------------------------------------------- */

/* Chooses the offset of a tile and writes it. first: the first element, which was replaced by 0
 * before the tile was rotated. Adds to every rotated value what remains of it: (first - offset) /
 * root. The offset is chosen so that the lowest rotated value then lies on the lowest level and the
 * highest on the highest; there is one level less above zero than below it. */
static void take_offset(const dw_encode_job *job, const dw_tah *tah, int kind, uint64_t tile,
                        float first, float *rotated)
{
    uint8_t *to = job->payload + tah->offsets_at + 2 * tile;
    float root = root_of(tah), half = kind == DW_TAH_WIDE ? 8.0f : 4.0f;
    dw_extremes e = extremes_of(job, rotated, tah->g);
    uint16_t offset = 0; /* of a tile that will be poisoned by its scale */
    if (dw_extremes_largest(e) < DW_F32_INFINITY && magnitude(first) < DW_F32_INFINITY) {
        float low = -dw_float_of(e.negative), high = dw_float_of(e.positive);
        offset = dw_bf16_finite(first + (low + (high - low) * (half / (2 * half - 1))) * root);
    }
    float part = (first - dw_bf16_widen(offset)) / root;
    for (uint32_t i = 0; i < tah->g; i++) rotated[i] += part;
    to[0] = (uint8_t)offset;
    to[1] = (uint8_t)(offset >> 8);
}

/* Makes the new residual of the tiles of a unit (codecs/residual.h). coded: what the form quantized
 * says will be decoded. */
static void keep_residual(const dw_encode_job *job, const dw_tah *tah, const unit *u,
                          const float *coded)
{
    float back[DW_TILE_ELEMENTS];
    job->kernels->rotate(coded, DW_F32, NULL, DW_F32, (uint64_t)u->rows * tah->g, tah->g, back);
    for (uint32_t i = 0; i < u->rows; i++) {
        uint64_t element = u->tiles[i] * tah->g;
        const void *prev = dw_at(job->prev, DW_F32, element);
        float *next = (float *)job->next + element, *tile = back + (size_t)i * tah->g;
        if (is_poisoned(job->payload, tah, u, i)) {
            dw_fill_poisoned(prev, next, DW_F32, tah->g, true);
            continue;
        }
        finish(job->payload, tah, u->tiles[i], tile);
        job->kernels->unrotate(tile, tah->g, 1, prev, DW_F32, next, DW_F32);
        job->kernels->subtract(dw_at(job->x, job->x_dtype, place_of(tah, job->stride, u->tiles[i])),
                               job->x_dtype, next, tah->g);
    }
}

static void encode_unit(const dw_encode_job *job, const dw_tah *tah, int kind, const unit *u,
                        dw_sums *sums)
{
    _Alignas(64) float values[DW_TILE_ELEMENTS], rotated[DW_TILE_ELEMENTS], coded[DW_TILE_ELEMENTS];
    float first[DW_TILE_ELEMENTS / 16];
    dw_chunk_result result;
    for (uint32_t i = 0; i < u->rows; i++) {
        float *tile = values + (size_t)i * tah->g;
        load(job, tah, u->tiles[i], tile);
        exchange(tile, job->payload[tah->pivots_at + u->tiles[i]]);
        first[i] = tile[0];
        tile[0] = 0;
    }
    job->kernels->rotate(values, DW_F32, NULL, DW_F32, (uint64_t)u->rows * tah->g, tah->g, rotated);
    for (uint32_t i = 0; i < u->rows; i++)
        take_offset(job, tah, kind, u->tiles[i], first[i], rotated + (size_t)i * tah->g);
    dw_encode_job inner = {.layout = u->plan.layout,
                           .rule = {.scale = job->rule.scale},
                           .x = rotated,
                           .x_dtype = DW_F32,
                           .stride = (int64_t)tah->g,
                           .next = job->next ? coded : NULL,
                           .prev_dtype = DW_F32,
                           .payload = job->payload + u->codes,
                           .plan = &u->plan,
                           .kernels = job->kernels};
    u->plan.form->encode(&inner, 0, &result);
    sums->pieces += u->rows;
    sums->zero += result.sums.zero;
    for (uint32_t i = 0; i < u->rows; i++) sums->poisoned += is_poisoned(job->payload, tah, u, i);
    if (job->next) keep_residual(job, tah, u, coded);
}

static void encode(const dw_encode_job *job, uint64_t chunk, dw_chunk_result *result)
{
    dw_tah tah;
    units u;
    *result = (dw_chunk_result){0};
    (void)dw_tah_of(job->plan, &tah, NULL);
    units_of(&u, &tah, job->payload, chunk);
    while (next_unit(&u)) {
        encode_unit(job, &tah, u.kind, &u.at, &result->sums);
        result->payload_sum +=
            job->kernels->digest_bytes(job->payload, u.at.codes, u.at.plan.layout.payload_bytes);
    }
}

/* Adds the digest of what lies in front of the codes. */
static void encoded(const dw_encode_job *job, dw_chunk_result *result)
{
    dw_tah tah;
    (void)dw_tah_of(job->plan, &tah, NULL);
    result->payload_sum += job->kernels->digest_bytes(job->payload, 0, tah.codes_at[DW_TAH_WIDE]);
}

/* ---- Decode ---------------------------------------------------------------------------------- */

static const char *check(const dw_plan *plan, const uint8_t *payload, uint64_t bytes)
{
    dw_tah tah;
    uint64_t wide = 0;
    (void)bytes; /* follows from shape and parameters */
    (void)dw_tah_of(plan, &tah, NULL);
    if (tah.n % 8 && payload[tah.n / 8] >> tah.n % 8) return "a mask has bits behind its last tile";
    for (uint64_t at = 0; at < tah.n; at += 64) {
        uint64_t left = tah.n - at, used = left < 64 ? (UINT64_C(1) << left) - 1 : UINT64_MAX;
        wide += dw_mask_ones(dw_mask_word(payload, at) & used);
    }
    if (wide != tah.kind[DW_TAH_WIDE])
        return "a mask does not have as many bits as there are tiles with 4 bits";
    for (uint64_t i = 0; i < tah.n; i++)
        if (payload[tah.pivots_at + i] >= tah.g) return "a pivot is not an element of its tile";
    return NULL;
}

static void write_tile(const dw_decode_job *job, const dw_tah *tah, uint64_t tile, float *back,
                       bool poisoned)
{
    uint64_t at = place_of(tah, job->stride, tile);
    float values[DW_ROTATE_MOST]; /* to be added to y */
    dw_dtype dtype = job->adds ? DW_F32 : job->y_dtype;
    void *out = job->adds ? values : dw_at(job->y, job->y_dtype, at);
    if (poisoned) {
        dw_fill_nan(out, dtype, tah->g);
    } else {
        finish(job->payload, tah, tile, back);
        job->kernels->unrotate(back, tah->g, 1, NULL, DW_F32, out, dtype);
    }
    if (job->adds) dw_output_add(job, values, at, tah->g);
}

/* Codecs with this form keep no state at the decoder. */
static void decode(const dw_decode_job *job, uint64_t chunk, dw_chunk_result *result)
{
    _Alignas(64) float rotated[DW_TILE_ELEMENTS], back[DW_TILE_ELEMENTS];
    dw_tah tah;
    units u;
    dw_chunk_result unused;
    (void)result;
    (void)dw_tah_of(job->plan, &tah, NULL);
    units_of(&u, &tah, job->payload, chunk);
    while (next_unit(&u)) {
        /* As with state, because then poisoned pieces are 0. */
        dw_decode_job inner = {.layout = u.at.plan.layout,
                               .payload = job->payload + u.at.codes,
                               .next = rotated,
                               .prev_dtype = DW_F32,
                               .plan = &u.at.plan,
                               .kernels = job->kernels};
        u.at.plan.form->decode(&inner, 0, &unused);
        job->kernels->rotate(rotated, DW_F32, NULL, DW_F32, (uint64_t)u.at.rows * tah.g, tah.g,
                             back);
        for (uint32_t i = 0; i < u.at.rows; i++)
            write_tile(job, &tah, u.at.tiles[i], back + (size_t)i * tah.g,
                       is_poisoned(job->payload, &tah, &u.at, i));
    }
}

static void count(const dw_decode_job *job, dw_counters *counters)
{
    dw_tah tah;
    (void)dw_tah_of(job->plan, &tah, NULL);
    for (int kind = 0; kind < DW_TAH_KINDS; kind++) {
        dw_decode_job inner = {.layout = tah.of[kind].layout,
                               .payload = job->payload + tah.codes_at[kind],
                               .plan = &tah.of[kind]};
        if (tah.kind[kind]) dw_form_quantized.count(&inner, counters);
    }
}

/* ---- The row --------------------------------------------------------------------------------- */

static dw_status plan(dw_plan *made, dw_why *why)
{
    dw_tah tah;
    dw_status status = dw_tah_of(made, &tah, why);
    if (status) return status;
    made->layout = (dw_layout){.t = made->t, .c = made->c};
    made->payload_bytes = tah.codes_at[DW_TAH_NARROW] + tah.of[DW_TAH_NARROW].payload_bytes;
    made->chunks = tah.chunks[DW_TAH_WIDE] + tah.chunks[DW_TAH_NARROW];
    made->measures = true;
    made->room_bytes = tah.n * sizeof(uint32_t);
    return DW_OK;
}

/* The range of g values is at most the square root of 2 times their norm. The step is the range
 * divided by 7 or 15, rounded up to a bf16, which makes it larger by at most 2^-7. Each value is
 * wrong by at most half a step. The offset, a bf16, can be wrong by 2^-8 of the largest value. */
static dw_contraction contracts(const dw_form_params *params, const dw_config *config)
{
    double levels = params->share < DW_KEEP_ALL ? 7 : 15,
           each = sqrt(2.0) / (2 * levels) * (1 + 0x1p-7) + 0x1p-8;
    (void)config;
    return dw_contraction_by(DW_CONTRACTS_BY_NORM, sqrt((double)params->tile) * each);
}

const dw_form dw_form_tah = {
    .wire = DW_FORM_TAH,
    .name = "tah",
    .plan = plan,
    .check = check,
    .measure = measure,
    .choose_scale = choose_scale,
    .encode = encode,
    .decode = decode,
    .encoded = encoded,
    .count = count,
    .contracts = contracts,
};
