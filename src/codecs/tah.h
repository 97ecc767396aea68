/* SPDX-License-Identifier: Apache-2.0
 * tah.h - the layout of a payload of the form tah (docs/format.md, 3.14).
 *
 * Every token is cut into tiles of G channels. Some tiles, the wide ones, have 4 bits for each
 * value, and all others 3. The values of all wide tiles are written by the form quantized, as if
 * they were the tokens of a sample of G channels, and so are those of all narrow ones.
 *
 * | part    | bytes   | meaning                                                              |
 * |---------|---------|----------------------------------------------------------------------|
 * | mask    | n / 8   | bit i % 8 of byte i / 8: tile i is wide                              |
 * | pivots  | n       | which element of the tile was exchanged with its first one           |
 * | offsets | 2 n     | bf16, which were taken from the first element                        |
 * | codes   |         | a payload of the form quantized for the wide tiles, then one for the |
 * |         |         | narrow ones                                                          |
 *
 * All begin at multiples of 16. Errors: LIMIT and SHAPE, from dw_tah_of. State: none. Threads:
 * any. */
#ifndef DW_TAH_H
#define DW_TAH_H

#include "codecs/plan.h"
#include "codecs/sparse.h"

enum { DW_TAH_WIDE, DW_TAH_NARROW, DW_TAH_KINDS };

/* A unit is a tile of the form quantized, which holds up to `rows` tiles of this form. Chunks
 * consist of whole units of one kind, so a kind has `chunk_units` of them in each chunk. */
typedef struct dw_tah {
    uint32_t g, per_token, rows;
    uint64_t n;                  /* tiles of the sample */
    uint64_t kind[DW_TAH_KINDS]; /* ... of each kind */
    uint64_t pivots_at, offsets_at, codes_at[DW_TAH_KINDS];
    uint64_t chunk_units, chunks[DW_TAH_KINDS];
    dw_plan of[DW_TAH_KINDS]; /* how the form quantized writes a kind, if it has tiles */
} dw_tah;

/* Computes the layout for a plan of which t, c and params are set. why may be NULL. */
dw_status dw_tah_of(const dw_plan *plan, dw_tah *tah, dw_why *why);

/* A walk through the tiles of one kind, in order. */
typedef struct dw_tah_walk {
    const uint8_t *mask;
    uint64_t next, word, flip; /* flip: all bits set for the narrow tiles */
} dw_tah_walk;

/* Begins a walk at tile number `first` of a kind. */
dw_tah_walk dw_tah_begin(const uint8_t *payload, int kind, uint64_t first);

/* Returns the number of the next tile. There must be one. */
static inline uint64_t dw_tah_next(dw_tah_walk *walk)
{
    while (walk->word == 0) {
        walk->word = dw_mask_word(walk->mask, walk->next) ^ walk->flip;
        walk->next += 64;
    }
    uint64_t at = walk->next - 64 + (uint64_t)__builtin_ctzll(walk->word);
    walk->word &= walk->word - 1;
    return at;
}

/* Decides which tiles are wide: as many as the layout says, with the largest keys, and of equal
 * ones the first. Writes the mask. */
void dw_tah_choose(const dw_tah *tah, const uint32_t *keys, uint8_t *mask);

#endif
