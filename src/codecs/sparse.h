/* SPDX-License-Identifier: Apache-2.0
 * sparse.h - what the files of the form sparse share: how its plain payload is laid out, and masks.
 *
 * The form sends k of the n values of a sample. They are gathered into one row, and another form,
 * quantized or floats, writes this row as if it were a sample of one token with k channels.
 *
 * Candidates are the values among which those that are sent are chosen: all n, or, with the codec
 * cocktail, m at random places. Of each chunk of candidates a fixed number is sent. Only the codec
 * chunk has more than one chunk.
 *
 * The plain payload stays in memory; the stage indices.c makes of it what is sent.
 *
 * | part     | bytes         | meaning                                                        |
 * |----------|---------------|----------------------------------------------------------------|
 * | mask     | mask_bytes    | bit i % 8 of byte i / 8: value i is sent; zeros up to 16 bytes |
 * | values   | values_bytes  | the payload of the other form                                  |
 * | gathered | 4 k           | binary32: the values before they are coded, or decoded         |
 * | places   | places_bytes  | like mask, with a bit for each candidate. The mask itself where |
 * |          |               | all values are candidates                                      |
 *
 * Errors: none but those named. State: none. Threads: any, on different memory. */
#ifndef DW_SPARSE_H
#define DW_SPARSE_H

#include "base/bytes.h"
#include "codecs/plan.h"

/* How many values a sample may have: places are stored in 32 bits. */
#define DW_SPARSE_LARGEST (UINT64_C(1) << 31)

typedef struct dw_sparse {
    uint64_t n, m, k;
    uint64_t chunk, keep; /* candidates of a chunk; which part of them is sent, in millionths */
    bool draws;           /* candidates are at random places */
    uint64_t mask_bytes, values_bytes, gathered_at, places_bytes, places_at, plain_bytes;
    dw_plan values; /* how the other form writes the gathered values */
} dw_sparse;

/* Computes the layout for a plan of which t, c and params are set. false: the sample is too
 * large. */
bool dw_sparse_of(const dw_plan *plan, dw_sparse *sparse);

/* A chunk, the last one of which may be shorter. Begin with at = 0; the next one is behind it. */
typedef struct dw_sparse_chunk {
    uint64_t at, n, k;
} dw_sparse_chunk;

dw_sparse_chunk dw_sparse_chunk_at(const dw_sparse *sparse, uint64_t at);

/* Sets the bits of a mask that belong to the candidates whose bits in `places` are set. */
void dw_sparse_spread(const dw_sparse *sparse, const struct dw_kernels *kernels, uint64_t draws_key,
                      const uint8_t *places, uint8_t *mask);

/* Reads, without an engine, which elements payloads carry. Begin with dw_sparse_reader_of. */
typedef struct dw_sparse_reader {
    const dw_plan *plan;
    const struct dw_kernels *kernels;
    dw_sparse sparse;
    uint64_t room_bytes; /* of memory that dw_sparse_read needs */
} dw_sparse_reader;

dw_sparse_reader dw_sparse_reader_of(const dw_plan *plan);

/* Reads a payload of a frame: the mask of the elements that it carries becomes the first (T * C +
 * 7) / 8 bytes of room, of room_bytes. *sum becomes the sum to which the payload's digest belongs.
 * Returns NULL, or what is wrong. */
const char *dw_sparse_read(const dw_sparse_reader *reader, const uint8_t *payload, uint64_t bytes,
                           uint64_t draws_key, uint8_t *room, uint64_t *sum);

/* 64 bits of a mask, of which the lowest is that of element `at`, a multiple of 64. */
static inline uint64_t dw_mask_word(const uint8_t *mask, uint64_t at)
{
    return dw_get(mask + at / 8, 8);
}

/* Adds up neighbouring bits, pairs of bits and so on. Compilers make a call of their own library of
 * the builtin function, which the pure layer does not link. */
static inline uint64_t dw_mask_ones(uint64_t word)
{
    word -= word >> 1 & UINT64_C(0x5555555555555555);
    word = (word & UINT64_C(0x3333333333333333)) + (word >> 2 & UINT64_C(0x3333333333333333));
    word = (word + (word >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return word * UINT64_C(0x0101010101010101) >> 56;
}

static inline void dw_mask_set(uint8_t *mask, uint64_t at)
{
    mask[at / 8] |= (uint8_t)(1u << at % 8);
}

/* A walk through the elements whose bits are set. Begin with {.mask = mask, .n = n}. */
typedef struct dw_mask_walk {
    const uint8_t *mask;
    uint64_t n, next, word, at; /* at: the element that was found */
} dw_mask_walk;

/* Finds the next element. Returns false at the end. */
static inline bool dw_mask_next(dw_mask_walk *walk)
{
    while (walk->word == 0) {
        if (walk->next >= walk->n) return false;
        walk->word = dw_mask_word(walk->mask, walk->next);
        walk->next += 64;
    }
    walk->at = walk->next - 64 + (uint64_t)__builtin_ctzll(walk->word);
    walk->word &= walk->word - 1;
    return true;
}

#endif
