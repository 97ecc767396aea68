/* SPDX-License-Identifier: Apache-2.0
 * indices.c - the stage behind the form sparse: says in as few bytes as it can which values of a
 * sample are sent (docs/format.md, 3.10).
 *
 * The form leaves a mask, and the values. This stage replaces the mask by the shortest of three
 * things: the mask itself, the numbers of the elements, or the gaps between them in a Golomb-Rice
 * code. Where only candidates can be sent, they alone are counted, and the mask is one of them.
 * Numbers begin anew in each chunk. Where the elements are drawn at random, only the values are
 * sent. */
#include <string.h>

#include "codecs/selection.h"
#include "codecs/sparse.h"
#include "codecs/tiles.h"

enum { HEAD_BYTES = 16, MASK = 1, NUMBERS = 2, GAPS = 3, WIDTH_MOST = 31 };

/* What stands in front of the values. */
typedef struct head {
    uint32_t way, width; /* width: bits of a number, or of the lower part of a gap */
    uint64_t bytes;      /* how long the description is */
} head;

/* The bits that the number of an element takes. */
static uint32_t number_width(uint64_t n)
{
    uint32_t width = 0;
    while ((n - 1) >> width) width++;
    return width;
}

/* ---- Encode ---------------------------------------------------------------------------------- */

/* Lists the places that are set in a mask, in the entry's memory, which the form has used before.
 */
static const uint32_t *list_places(const dw_encode_job *job, const dw_sparse *s,
                                   const uint8_t *mask)
{
    uint32_t *places = (uint32_t *)(void *)job->scratch, *to = places;
    dw_mask_walk walk = {.mask = mask, .n = s->m};
    while (dw_mask_next(&walk)) *to++ = (uint32_t)walk.at;
    return places;
}

/* Chooses the shortest way. Of gaps, three widths around the best one for random places are
 * tried. */
static head choose(const dw_sparse *s, const uint32_t *places)
{
    enum { TRIED = 3 };
    head best = {.way = MASK, .bytes = (s->m + 7) / 8};
    uint32_t width = number_width(s->chunk), least = number_width(s->m / s->k + 1);
    uint64_t high[TRIED] = {0}, bytes = (s->k * width + 7) / 8;
    uint32_t next = 0;
    least = least > 2 ? least - 2 : 0;
    if (bytes < best.bytes) best = (head){NUMBERS, width, bytes};
    for (uint64_t k = 0; k < s->k; k++) {
        uint64_t gap = places[k] - next;
        for (uint32_t i = 0; i < TRIED; i++) high[i] += gap >> (least + i);
        next = places[k] + 1;
    }
    for (uint32_t i = 0; i < TRIED; i++) {
        bytes = (s->k * (least + i + 1) + high[i] + 7) / 8;
        if (bytes < best.bytes) best = (head){GAPS, least + i, bytes};
    }
    return best;
}

/* Bits that are written one after the other, the lowest first. */
typedef struct writer {
    uint8_t *to;
    uint64_t bits;
    uint32_t n;
} writer;

static void write_bits(writer *w, uint64_t value, uint32_t width)
{
    w->bits |= value << w->n;
    w->n += width;
    if (w->n < 32) return;
    dw_put(w->to, w->bits, 4);
    w->to += 4;
    w->bits >>= 32;
    w->n -= 32;
}

static void finish_bits(const writer *w)
{
    for (uint32_t i = 0; 8 * i < w->n; i++) w->to[i] = (uint8_t)(w->bits >> (8 * i));
}

/* Writes numbers or gaps to a description that is all zeros. */
static void write_places(const dw_sparse *s, const uint32_t *places, const head *h, uint8_t *to)
{
    writer low = {.to = to};
    uint64_t at = s->k * h->width, lower = (UINT64_C(1) << h->width) - 1;
    uint32_t next = 0, chunk = (uint32_t)s->chunk;
    for (uint64_t k = 0; k < s->k; k++) {
        uint32_t value = h->way == GAPS ? places[k] - next : places[k] % chunk;
        write_bits(&low, value & lower, h->width);
        next = places[k] + 1;
    }
    finish_bits(&low);
    if (h->way != GAPS) return;
    next = 0;
    for (uint64_t k = 0; k < s->k; k++) {
        at += (places[k] - next) >> h->width;
        dw_mask_set(to, at++);
        next = places[k] + 1;
    }
}

static void encode(const dw_encode_job *job, uint64_t chunk, uint64_t area)
{
    (void)area;
    dw_sparse s;
    (void)chunk;
    (void)dw_sparse_of(job->plan, &s);
    const uint8_t *mask = job->payload + s.places_at, *values = job->payload + s.mask_bytes;
    if (job->plan->params.is_random) {
        memcpy(job->coded, values, (size_t)s.values_bytes);
        return;
    }
    const uint32_t *places = list_places(job, &s, mask);
    head h = choose(&s, places);
    uint8_t *to = job->coded + HEAD_BYTES;
    uint64_t padded = dw_round_up(h.bytes, 16);
    memset(job->coded, 0, HEAD_BYTES + (size_t)padded);
    job->coded[0] = (uint8_t)h.way;
    job->coded[1] = (uint8_t)h.width;
    dw_put(job->coded + 4, h.bytes, 4);
    if (h.way == MASK)
        memcpy(to, mask, (size_t)h.bytes);
    else
        write_places(&s, places, &h, to);
    memcpy(to + padded, values, (size_t)s.values_bytes);
}

static void join(const dw_encode_job *job, dw_chunk_result *result)
{
    dw_sparse s;
    (void)dw_sparse_of(job->plan, &s);
    uint64_t bytes = s.values_bytes;
    if (!job->plan->params.is_random)
        bytes += HEAD_BYTES + dw_round_up(dw_get(job->coded + 4, 4), 16);
    result->payload_bytes = bytes;
    result->payload_sum = job->kernels->digest_bytes(job->coded, 0, bytes);
}

/* ---- Decode ---------------------------------------------------------------------------------- */

static head read_head(const uint8_t *from)
{
    return (head){from[0], from[1], dw_get(from + 4, 4)};
}

/* Checks that the sizes add up, before anything behind the head is read. */
static const char *prepare(const dw_decode_job *job)
{
    dw_sparse s;
    (void)dw_sparse_of(job->plan, &s);
    if (job->plan->params.is_random) return NULL;
    if (job->payload_bytes < HEAD_BYTES + s.values_bytes) return "a sparse payload is too short";
    head h = read_head(job->coded);
    if (dw_get(job->coded + 2, 2) || dw_get(job->coded + 8, 8))
        return "the head of a sparse payload has bits that must be zero";
    if (HEAD_BYTES + dw_round_up(h.bytes, 16) + s.values_bytes != job->payload_bytes)
        return "the sizes in a sparse payload do not add up to its own";
    uint64_t numbers = (s.k * h.width + 7) / 8;
    if (h.way == MASK && h.width == 0 && h.bytes == (s.m + 7) / 8) return NULL;
    if (h.way == NUMBERS && h.width == number_width(s.chunk) && h.bytes == numbers) return NULL;
    if (h.way == GAPS && h.width <= WIDTH_MOST && h.bytes >= (s.k * (h.width + 1) + 7) / 8)
        return NULL;
    return "a sparse payload does not say in a valid way which values it has";
}

/* Up to 57 bits from bit `at` on. Bits behind the end are read as 0. */
static uint64_t read_bits(const uint8_t *from, uint64_t bytes, uint64_t at)
{
    uint64_t first = at / 8, bits = 0;
    if (first + 8 <= bytes) return dw_get(from + first, 8) >> at % 8;
    for (uint64_t i = first; i < bytes; i++) bits |= (uint64_t)from[i] << (8 * (i - first));
    return bits >> at % 8;
}

/* Moves *at to the next bit that is 1. Returns false where there is none. */
static bool find_one(const uint8_t *from, uint64_t bytes, uint64_t *at)
{
    enum { SURE = 57 };
    while (*at < 8 * bytes) {
        uint64_t bits = read_bits(from, bytes, *at);
        if (bits) {
            *at += (uint64_t)__builtin_ctzll(bits);
            return true;
        }
        *at += SURE;
    }
    return false;
}

static const char *read_mask(const dw_sparse *s, const uint8_t *from, uint64_t bytes, uint8_t *mask)
{
    uint64_t ones = 0;
    memcpy(mask, from, (size_t)bytes);
    for (uint64_t at = 0; at < s->m; at += 64) ones += dw_mask_ones(dw_mask_word(mask, at));
    if (s->m % 8 && from[bytes - 1] >> s->m % 8) return "a mask has bits behind its last element";
    return ones == s->k ? NULL : "a mask does not have as many bits as the payload has values";
}

static const char *read_numbers(const dw_sparse *s, const head *h, const uint8_t *from,
                                uint8_t *mask)
{
    uint64_t lower = (UINT64_C(1) << h->width) - 1, next = 0, left = 0;
    dw_sparse_chunk chunk = {0};
    for (uint64_t i = 0; i < s->k; i++, left--) {
        if (left == 0) {
            chunk = dw_sparse_chunk_at(s, chunk.at + chunk.n);
            left = chunk.k;
            next = 0;
        }
        uint64_t number = read_bits(from, h->bytes, i * h->width) & lower;
        if (number >= chunk.n) return "the number of an element is out of range";
        if (number < next) return "the numbers of elements are out of order";
        dw_mask_set(mask, chunk.at + number);
        next = number + 1;
    }
    return read_bits(from, h->bytes, s->k * h->width) ? "there are more numbers than values" : NULL;
}

static const char *read_gaps(const dw_sparse *s, const head *h, const uint8_t *from, uint8_t *mask)
{
    uint64_t lower = (UINT64_C(1) << h->width) - 1, next = 0, at = s->k * h->width;
    for (uint64_t i = 0; i < s->k; i++) {
        uint64_t start = at;
        if (!find_one(from, h->bytes, &at)) return "gaps between elements are missing";
        uint64_t high = at++ - start;
        /* Checked before the shift, which could overflow. */
        if (high <= s->m >> h->width)
            next += (high << h->width) + (read_bits(from, h->bytes, i * h->width) & lower);
        else
            next = s->m;
        if (next >= s->m) return "a gap between elements is out of range";
        dw_mask_set(mask, next++);
    }
    bool is_end = (at + 7) / 8 == h->bytes && !find_one(from, h->bytes, &at);
    return is_end ? NULL : "there are more gaps than values";
}

/* Checks that every chunk has as many values as are sent of it. Where places are sent as numbers
 * this need not be checked: the position of a number in the list says to which chunk it belongs. */
static const char *check_chunks(const dw_sparse *s, const uint8_t *mask)
{
    dw_sparse_chunk chunk = {0};
    for (uint64_t at = 0; at < s->m && s->chunk < s->m; at += chunk.n) {
        chunk = dw_sparse_chunk_at(s, at);
        uint64_t ones = 0;
        for (uint64_t i = 0; i < chunk.n; i += 64) ones += dw_mask_ones(dw_mask_word(mask, at + i));
        if (ones != chunk.k) return "a chunk does not have as many values as are sent of it";
    }
    return NULL;
}

static const char *read_places(const dw_sparse *s, const uint8_t *from, uint8_t *mask)
{
    head h = read_head(from);
    from += HEAD_BYTES;
    if (h.way == NUMBERS) return read_numbers(s, &h, from, mask);
    const char *why =
        h.way == MASK ? read_mask(s, from, h.bytes, mask) : read_gaps(s, &h, from, mask);
    return why ? why : check_chunks(s, mask);
}

static void draw_all(const dw_decode_job *job, const dw_sparse *s, uint8_t *mask)
{
    uint32_t places[DW_SELECT_DRAWS];
    for (uint64_t first = 0; first < s->k; first += DW_SELECT_DRAWS) {
        uint64_t now = dw_select_draw(job->kernels, job->draws_key, s->n, s->k, first, places);
        for (uint64_t i = 0; i < now; i++) dw_mask_set(mask, places[i]);
    }
}

/* Makes the mask. places: where it says which candidates are sent; the same as mask where all
 * elements are candidates. */
static const char *make_mask(const dw_decode_job *job, const dw_sparse *s, uint8_t *mask,
                             uint8_t *places)
{
    memset(mask, 0, (size_t)s->mask_bytes);
    if (job->plan->params.is_random) {
        draw_all(job, s, mask);
        return NULL;
    }
    if (s->draws) memset(places, 0, (size_t)s->places_bytes);
    const char *why = read_places(s, job->coded, places);
    if (s->draws && !why) dw_sparse_spread(s, job->kernels, job->draws_key, places, mask);
    return why;
}

static const char *decode(const dw_decode_job *job, uint64_t chunk, uint64_t area)
{
    (void)area;
    dw_sparse s;
    (void)chunk;
    (void)dw_sparse_of(job->plan, &s);
    uint8_t *mask = job->plain;
    const char *why = make_mask(job, &s, mask, mask + s.places_at);
    const uint8_t *values = job->coded;
    if (!job->plan->params.is_random)
        values += HEAD_BYTES + dw_round_up(read_head(job->coded).bytes, 16);
    memcpy(mask + s.mask_bytes, values, (size_t)s.values_bytes);
    return why;
}

/* ---- Without an engine ----------------------------------------------------------------------- */

dw_sparse_reader dw_sparse_reader_of(const dw_plan *plan)
{
    dw_sparse_reader reader = {.plan = plan, .kernels = dw_kernels_choose(~0u)};
    (void)dw_sparse_of(plan, &reader.sparse);
    reader.room_bytes = reader.sparse.mask_bytes;
    if (reader.sparse.draws) reader.room_bytes += reader.sparse.places_bytes;
    return reader;
}

const char *dw_sparse_read(const dw_sparse_reader *reader, const uint8_t *payload, uint64_t bytes,
                           uint64_t draws_key, uint8_t *room, uint64_t *sum)
{
    const dw_sparse *s = &reader->sparse;
    dw_decode_job job = {.layout = reader->plan->layout,
                         .coded = payload,
                         .draws_key = draws_key,
                         .payload_bytes = bytes,
                         .plan = reader->plan,
                         .kernels = reader->kernels};
    *sum = job.kernels->digest_bytes(payload, 0, bytes);
    const char *why = prepare(&job);
    return why ? why : make_mask(&job, s, room, s->draws ? room + s->mask_bytes : room);
}

/* ---- The row --------------------------------------------------------------------------------- */

static dw_status plan(dw_plan *made, dw_why *why)
{
    dw_sparse s;
    if (!dw_sparse_of(made, &s)) return dw_plan_too_large(made, DW_SPARSE_LARGEST, why);
    made->plain_bytes = s.plain_bytes;
    made->size_varies = !made->params.is_random;
    if (made->size_varies) {
        uint64_t listed = sizeof(uint32_t) * s.k; /* list_places */
        made->scratch_bytes = dw_select_room(s.chunk, dw_sparse_chunk_at(&s, 0).k);
        if (made->scratch_bytes < listed) made->scratch_bytes = listed;
    }
    made->payload_bytes = s.values_bytes;
    if (made->size_varies) made->payload_bytes += HEAD_BYTES + s.places_bytes;
    return DW_OK;
}

const dw_stage dw_stage_indices = {
    .plan = plan,
    .encode = encode,
    .join = join,
    .prepare = prepare,
    .decode = decode,
};
