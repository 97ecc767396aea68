/* SPDX-License-Identifier: Apache-2.0
 * selection.c - which values of a sample the form sparse sends: the largest ones, exactly and
 * without sorting, or random ones.
 *
 * The k-th largest magnitude is found by counting: the bits of a magnitude, taken as an integer,
 * are ordered as magnitudes are. A histogram of them says in which of 2048 bins the k-th largest
 * lies; more histograms, each of the magnitudes in the bin that was found, narrow it down to one
 * magnitude. A large sample is not counted so often: a few of its elements show a limit that
 * slightly more than k magnitudes probably reach. These are collected in one pass and counted. If
 * fewer than k reach the limit, or far too many, all elements are counted. So the result never
 * depends on the guess. Chunks, which are small, begin with the limit of the chunk before. */
#include "codecs/selection.h"

#include <math.h>
#include <string.h>

#include "codecs/elements.h"
#include "codecs/sparse.h"
#include "codecs/tiles.h"

enum {
    GUESSED_FROM = 65536, /* smaller samples are counted whole */
    LINES = 1024,         /* how many places of a sample are looked at, ... */
    LINE = 16,            /* ... and how many neighbours at each: a line of the cache */
    SPARE = LINES * LINE, /* room for the elements of all these places */
    FEW = 32
};

/* Where magnitudes are read from: what a job codes from element `at` on or, where list is not NULL,
 * a list. */
typedef struct source {
    const dw_encode_job *job;
    const float *list;
    uint64_t at, n;
} source;

static const float *read_block(const source *from, uint64_t at, uint64_t n, float *block)
{
    return from->list ? from->list + at : dw_elements_load(from->job, from->at + at, n, block);
}

static uint64_t block_size(uint64_t n, uint64_t at)
{
    return n - at < DW_ELEMENTS_BLOCK ? n - at : (uint64_t)DW_ELEMENTS_BLOCK;
}

static uint32_t magnitude(float value)
{
    return dw_bits_of(value) & 0x7fffffffu;
}

/* ---- Counting -------------------------------------------------------------------------------- */

/* The largest values are those whose magnitude is above `least`, and the first `ties` of those
 * whose magnitude is equal to it. */
typedef struct cut {
    uint32_t least;
    uint64_t ties;
} cut;

/* Whether a value belongs to the largest. Call it for all values in order. */
static bool takes(cut *c, float value)
{
    uint32_t m = magnitude(value);
    if (m != c->least || c->ties == 0) return m > c->least;
    c->ties--;
    return true;
}

/* Few values need few bins, which are cleared and searched sooner. */
enum { BITS = 11, BINS = 1 << BITS, BITS_OF_SMALL = 8, SMALL = 4096 };

/* Counts the magnitudes from low to high, by their distance from low in units of 2^shift. */
static void count_bins(const source *from, uint32_t low, uint32_t high, int shift,
                       uint32_t counts[BINS])
{
    float room[DW_ELEMENTS_BLOCK];
    uint32_t range = high - low;
    memset(counts, 0, ((range >> shift) + 1) * sizeof *counts);
    for (uint64_t at = 0; at < from->n; at += DW_ELEMENTS_BLOCK) {
        uint64_t n = block_size(from->n, at);
        const float *values = read_block(from, at, n, room);
        for (uint64_t i = 0; i < n; i++) {
            uint32_t above = magnitude(values[i]) - low; /* those below low become very large */
            if (above <= range) counts[above >> shift]++;
        }
    }
}

/* The smallest magnitude of a list and the largest. */
static void find_range(const source *from, uint32_t *low, uint32_t *high)
{
    *low = 0x7fffffffu;
    *high = 0;
    for (uint64_t i = 0; i < from->n; i++) {
        uint32_t m = magnitude(from->list[i]);
        if (m < *low) *low = m;
        if (m > *high) *high = m;
    }
}

/* Finds the k largest of a source. 1 <= k <= n. */
static cut find_cut(const source *from, uint64_t k)
{
    uint32_t counts[BINS], low = 0, high = 0x7fffffffu;
    int bits = from->n < SMALL ? BITS_OF_SMALL : BITS;
    if (from->list) find_range(from, &low, &high);
    for (;;) {
        int shift = 0;
        while ((high - low) >> shift >> bits) shift++;
        uint32_t bin = (high - low) >> shift;
        count_bins(from, low, high, shift, counts);
        while (k > counts[bin]) k -= counts[bin--];
        low += bin << shift;
        if (shift == 0) return (cut){low, k};
        if ((high - low) >> shift) high = low + (1u << shift) - 1;
    }
}

/* ---- The largest ----------------------------------------------------------------------------- */

/* How many values can be collected. */
static uint64_t list_most(uint64_t n, uint64_t k)
{
    uint64_t most = 2 * k + SPARE;
    return (most < n ? most : n) + DW_ELEMENTS_BLOCK;
}

uint64_t dw_select_room(uint64_t n, uint64_t k)
{
    return sizeof(float) * list_most(n, k);
}

/* 2^32 divided by the golden ratio: its multiples, mod 2^32, are spread evenly. Places at equal
 * distances would often be of the same few channels, of which some may be strong. */
#define GOLDEN 2654435769u

/* Returns a magnitude that probably a few more than k elements reach. Of the elements that are
 * looked at, a share k / n is expected to belong to the largest; four standard deviations are
 * added. */
static uint32_t guess(const source *from, uint64_t k, float *room)
{
    float block[LINE];
    for (uint64_t i = 0; i < LINES; i++) {
        uint64_t at = (uint64_t)((uint32_t)i * GOLDEN) * (from->n - LINE) >> 32;
        memcpy(room + i * LINE, read_block(from, at, LINE, block), sizeof block);
    }
    double expected = (double)k / (double)from->n * SPARE;
    double rank = expected + 4 * sqrt(expected) + 4;
    if (rank >= SPARE) return 0;
    return find_cut(&(source){.list = room, .n = SPARE}, (uint64_t)rank).least;
}

/* Sets the bits of all elements whose magnitude is at least `least`, and lists what is coded of
 * them. Returns their number; UINT64_MAX where there is no room for all. */
static uint64_t collect(const source *from, uint32_t least, uint8_t *mask, float *list,
                        uint64_t most)
{
    float room[DW_ELEMENTS_BLOCK];
    uint64_t found = 0;
    for (uint64_t at = 0; at < from->n; at += DW_ELEMENTS_BLOCK) {
        uint64_t now = block_size(from->n, at);
        if (found + now > most) return UINT64_MAX;
        const float *values = read_block(from, at, now, room);
        found += from->job->kernels->collect(values, now, least, mask + at / 8, list + found);
    }
    uint64_t bytes = (from->n + 7) / 8;
    memset(mask + bytes, 0, (size_t)(dw_round_up(bytes, 8) - bytes)); /* words are read */
    return found;
}

/* Removes the elements that are not among the k largest from those that were collected. */
static cut thin(const float *list, uint64_t listed, uint64_t n, uint64_t k, uint8_t *mask,
                float *chosen)
{
    cut found = find_cut(&(source){.list = list, .n = listed}, k), c = found;
    for (uint64_t at = 0; at < n; at += 64) {
        uint64_t word = dw_mask_word(mask, at), kept = word;
        for (; word; word &= word - 1) {
            float value = *list++;
            if (takes(&c, value))
                *chosen++ = value;
            else
                kept &= ~(word & -word);
        }
        dw_put(mask + at / 8, kept, 8);
    }
    return found;
}

/* Counts all elements. */
static cut count_all(const source *from, uint64_t k, uint8_t *mask, float *chosen)
{
    float room[DW_ELEMENTS_BLOCK];
    cut found = find_cut(from, k), c = found;
    memset(mask, 0, (size_t)dw_round_up((from->n + 7) / 8, 16));
    for (uint64_t at = 0; at < from->n; at += DW_ELEMENTS_BLOCK) {
        uint64_t now = block_size(from->n, at);
        const float *values = read_block(from, at, now, room);
        for (uint64_t i = 0; i < now; i++)
            if (takes(&c, values[i])) {
                dw_mask_set(mask, at + i);
                *chosen++ = values[i];
            }
    }
    return found;
}

/* Returns a guess for the next chunk: a little below the k-th largest magnitude of the last one. If
 * k is small, this magnitude differs more from chunk to chunk, so the distance is larger. */
static uint32_t below(cut last, uint64_t k)
{
    uint32_t less = k < FEW ? 1u << 21 : 1u << 20; /* a fourth or an eighth of an octave */
    return last.least > less ? last.least - less : 1;
}

void dw_select_largest(const dw_encode_job *job, uint64_t at, uint64_t n, uint64_t k, uint8_t *mask,
                       float *chosen, float *room, uint32_t *limit)
{
    source from = {.job = job, .at = at, .n = n};
    uint64_t found = UINT64_MAX;
    if (n >= GUESSED_FROM) *limit = guess(&from, k, room);
    if (n >= GUESSED_FROM || *limit) found = collect(&from, *limit, mask, room, list_most(n, k));
    cut c = found >= k && found != UINT64_MAX ? thin(room, found, n, k, mask, chosen)
                                              : count_all(&from, k, mask, chosen);
    *limit = below(c, k);
}

/* ---- Random ones ----------------------------------------------------------------------------- */

uint64_t dw_select_stretch(uint64_t n, uint64_t k, uint64_t stretch)
{
    return n / k + (stretch < n % k);
}

/* Every draw is a number of 32 bits, which is made of the high bytes of four random numbers. */
uint64_t dw_select_draw(const dw_kernels *kernels, uint64_t draws_key, uint64_t n, uint64_t k,
                        uint64_t first, uint32_t places[DW_SELECT_DRAWS])
{
    enum { DRAW = 4 };
    uint8_t bytes[DRAW * DW_SELECT_DRAWS];
    uint64_t now = k - first < DW_SELECT_DRAWS ? k - first : (uint64_t)DW_SELECT_DRAWS;
    uint64_t size = n / k, longer = n % k, start = first * size + (first < longer ? first : longer);
    kernels->dither_bytes(&(dw_dither){draws_key, DRAW * first}, DRAW * now, bytes);
    for (uint64_t i = 0; i < now; i++) {
        uint64_t has = size + (first + i < longer);
        places[i] = (uint32_t)(start + (dw_get(bytes + DRAW * i, DRAW) * has >> 32));
        start += has;
    }
    return now;
}
