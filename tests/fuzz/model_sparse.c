/* SPDX-License-Identifier: Apache-2.0
 * model_sparse.c - the model's payloads of form 5: section 3.10 of docs/format.md. */
#include <Random123/philox.h>

#include "model_values.h"
#include "reach.h"

enum { FLOATS = 1, QUANTIZED = 2, HEAD = 16, MASK = 1, NUMBERS = 2, GAPS = 3 };

static uint64_t up16(uint64_t n)
{
    return (n + 15) / 16 * 16;
}

static uint64_t part_of(uint64_t n, uint64_t part)
{
    return (n * part + 999999) / 1000000;
}

/* m: how many candidates a sample of n values has. */
static uint64_t candidates_of(const model_way *way, uint64_t n)
{
    return way->mask ? part_of(n, way->mask) : n;
}

/* How many candidates the chunk that begins with candidate `at` has. */
static uint64_t chunk_of(const model_way *way, uint64_t m, uint64_t at)
{
    return way->chunk && m - at > way->chunk ? way->chunk : m - at;
}

static uint64_t kept_of(const model_way *way, uint64_t n)
{
    uint64_t m = candidates_of(way, n), k = 0, size;
    for (uint64_t at = 0; at < m; at += size) {
        size = chunk_of(way, m, at);
        k += part_of(size, way->keep);
    }
    return k;
}

/* The way in which the k values are written. */
static model_way inner_of(const model_way *way)
{
    if (way->element) return model_microscaled(way->element);
    return (model_way){.form = way->bits ? QUANTIZED : FLOATS,
                       .bits = way->bits,
                       .group = way->group,
                       .dtype = way->dtype};
}

size_t model_sparse_most(const model_way *way, uint32_t t, uint32_t c, size_t most)
{
    uint64_t n = (uint64_t)t * c;
    if (n > (uint64_t)1 << 31) return SIZE_MAX;
    model_way inner = inner_of(way);
    size_t values = model_size(&inner, 1, (uint32_t)kept_of(way, n), most);
    if (values == SIZE_MAX || way->is_random) return values;
    return values + HEAD + (size_t)up16((candidates_of(way, n) + 7) / 8);
}

void model_sparse_store(const model_way *way, uint32_t t, uint32_t c, uint8_t *payload)
{
    uint64_t m = candidates_of(way, (uint64_t)t * c), bytes = (m + 7) / 8, size;
    if (way->is_random) return;
    memset(payload, 0, HEAD + (size_t)up16(bytes));
    payload[0] = MASK;
    for (int i = 0; i < 4; i++) payload[4 + i] = (uint8_t)(bytes >> (8 * i));
    for (uint64_t at = 0; at < m; at += size) {
        size = chunk_of(way, m, at);
        for (uint64_t i = at; i < at + part_of(size, way->keep); i++)
            payload[HEAD + i / 8] |= (uint8_t)(1 << i % 8);
    }
}

static bool breaks(const char *what)
{
    char text[80];
    snprintf(text, sizeof text, "FORMAT: sparse: %s", what);
    fuzz_reach(text);
    return false;
}

/* The upper byte of the 16-bit part of an element (3.6; 5, step 6). */
static uint32_t upper_byte(uint64_t key, uint64_t element)
{
    philox4x32_key_t halves = {{(uint32_t)key, (uint32_t)(key >> 32)}};
    philox4x32_ctr_t counter = {{(uint32_t)(element / 8), (uint32_t)(element / 8 >> 32), 0, 0}};
    philox4x32_ctr_t words = philox4x32_R(10, counter, halves);
    return words.v[element % 8 / 2] >> (element % 2 * 16 + 8) & 0xff;
}

static void draw(uint64_t draws, uint64_t n, uint64_t k, uint64_t *places)
{
    uint64_t start = 0;
    for (uint64_t j = 0; j < k; j++) {
        uint64_t m = n / k + (j < n % k), u = 0;
        for (uint64_t b = 0; b < 4; b++) u |= (uint64_t)upper_byte(draws, 4 * j + b) << (8 * b);
        places[j] = start + (u * m >> 32);
        start += m;
    }
}

/* Replaces the numbers of k candidates by the places that they were drawn from. */
static void spread(const model_way *way, uint64_t draws, uint64_t n, uint64_t k, uint64_t *places)
{
    uint64_t m = candidates_of(way, n), *all = calloc((size_t)m, sizeof *all);
    REQUIRE(all);
    draw(draws, n, m, all);
    for (uint64_t j = 0; j < k; j++) places[j] = all[places[j]];
    free(all);
}

/* A string of bits, and where to read on. */
typedef struct bits {
    const uint8_t *from;
    uint64_t n, at;
} bits;

/* Bits behind the end are zero. */
static uint32_t next_bit(bits *b)
{
    uint64_t at = b->at++;
    return at < b->n ? b->from[at / 8] >> at % 8 & 1u : 0;
}

static uint64_t number_at(const bits *b, uint64_t at, uint32_t width)
{
    bits part = {b->from, b->n, at};
    uint64_t number = 0;
    for (uint32_t i = 0; i < width; i++) number |= (uint64_t)next_bit(&part) << i;
    return number;
}

static bool read_mask(bits *b, uint64_t n, uint64_t k, uint64_t *places)
{
    uint64_t found = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (!next_bit(b)) continue;
        if (found == k) return breaks("mask with too many values");
        places[found++] = i;
    }
    return found == k || breaks("mask with too few values");
}

static bool read_numbers(const model_way *way, bits *b, uint32_t width, uint64_t m,
                         uint64_t *places)
{
    uint64_t j = 0, size;
    for (uint64_t at = 0; at < m; at += size) {
        size = chunk_of(way, m, at);
        uint64_t first = j, end = j + part_of(size, way->keep);
        for (; j < end; j++) {
            uint64_t number = number_at(b, j * width, width);
            if (number >= size) return breaks("number out of range");
            places[j] = at + number;
            if (j > first && places[j] <= places[j - 1]) return breaks("number out of order");
        }
    }
    b->at = j * width;
    return true;
}

/* Whether each chunk has its number of values. */
static bool chunks_are_full(const model_way *way, uint64_t m, uint64_t k, const uint64_t *places)
{
    uint64_t j = 0, size;
    for (uint64_t at = 0; at < m; at += size) {
        uint64_t first = j;
        size = chunk_of(way, m, at);
        while (j < k && places[j] < at + size) j++;
        if (j - first != part_of(size, way->keep)) return breaks("values of a chunk");
    }
    return true;
}

static bool read_gaps(bits *b, uint32_t width, uint64_t n, uint64_t k, uint64_t *places)
{
    uint64_t next = 0;
    b->at = k * width;
    for (uint64_t j = 0; j < k; j++) {
        uint64_t high = 0;
        bool ends = false;
        while (b->at < b->n && !(ends = next_bit(b))) high++;
        if (!ends) return breaks("missing gap");
        if (high > n >> width) return breaks("gap out of range");
        places[j] = next + (high << width) + number_at(b, j * width, width);
        if (places[j] >= n) return breaks("gap out of range");
        next = places[j] + 1;
    }
    return (b->at + 7) / 8 == b->n / 8 || breaks("length of gaps");
}

static bool read_places(const model_way *way, const uint8_t *payload, uint64_t length, uint64_t n,
                        uint64_t k, uint64_t *places)
{
    uint32_t width = payload[1], wanted = 0;
    bits b = {payload + HEAD, 8 * length, 0};
    bool read = false;
    while ((chunk_of(way, n, 0) - 1) >> wanted) wanted++;
    switch (payload[0]) {
    case MASK:
        if (width || length != (n + 7) / 8) return breaks("mask of another size");
        read = read_mask(&b, n, k, places);
        break;
    case NUMBERS:
        if (width != wanted || length != (k * width + 7) / 8) return breaks("numbers' size");
        read = read_numbers(way, &b, width, n, places);
        break;
    case GAPS:
        if (width > 31 || length < (k * width + k + 7) / 8) return breaks("gaps of another size");
        read = read_gaps(&b, width, n, k, places);
        break;
    default: return breaks("way");
    }
    while (read && b.at < b.n)
        if (next_bit(&b)) return breaks("bits that are left over");
    return read && chunks_are_full(way, n, k, places);
}

/* Checks the head of a payload that has one, and returns where its values begin; 0: it breaks a
 * rule. */
static uint64_t values_at(const uint8_t *payload, uint64_t bytes, uint64_t values, uint64_t *length)
{
    if (bytes < HEAD + values) return breaks("short payload");
    *length = payload[4] | (uint64_t)payload[5] << 8 | (uint64_t)payload[6] << 16 |
              (uint64_t)payload[7] << 24;
    for (int i = 0; i < HEAD; i++)
        if ((i == 2 || i == 3 || i >= 8) && payload[i]) return breaks("zeros of the head");
    if (HEAD + up16(*length) + values != bytes) return breaks("sizes");
    return bytes - values;
}

bool model_sparse_values(const model_way *way, uint32_t t, uint32_t c, const uint8_t *payload,
                         uint64_t bytes, uint64_t draws, model_value *values)
{
    uint64_t n = (uint64_t)t * c, k = kept_of(way, n), at = 0, length = 0;
    model_way inner = inner_of(way);
    uint64_t size = model_size(&inner, 1, (uint32_t)k, SIZE_MAX - 1);
    uint64_t *places = calloc((size_t)k, sizeof *places);
    model_value *kept = calloc((size_t)k, sizeof *kept);
    REQUIRE(places && kept);
    bool valid = true;
    if (way->is_random) {
        draw(draws, n, k, places);
    } else {
        at = values_at(payload, bytes, size, &length);
        valid = at && read_places(way, payload, length, candidates_of(way, n), k, places);
    }
    if (valid && way->mask) spread(way, draws, n, k, places);
    if (valid) {
        fuzz_reach(way->is_random ? "sparse: random" : "sparse: places");
        model_values(&inner, 1, (uint32_t)k, payload + at, NULL, 0, draws, kept);
        for (uint64_t i = 0; i < n; i++) values[i] = (model_value){.r = 0};
        for (uint64_t j = 0; j < k; j++) values[places[j]] = kept[j];
    }
    free(places);
    free(kept);
    return valid;
}
