/* SPDX-License-Identifier: Apache-2.0
 * dither_parts.h - the parts of a block of dithered codes, for the entropy coder (docs/format.md,
 * 3.9).
 *
 * Both ends know the dither z of every code, and it says something about the code: near z = 1/2 a
 * small value rounds up as often as not, near z = 0 nearly never. So codes are sorted by |z|, and
 * the sign of those with z < 0 is turned around, because q for -z is distributed like -q for z.
 *
 * wide table:
 * | name   | meaning                                                                                 |
 * | high   | (n) the high byte of each code's random number; of padding 128                          |
 * | codes  | (n) in the order of the payload                                                         |
 * | parted | those of part 0 first, with their signs turned; DW_PART_GAP bytes between parts         |
 * | counts | (DW_PARTS) the codes of each part                                                       |
 *
 * Errors: none. Threads: the functions have no state. */
#ifndef DW_DITHER_PARTS_H
#define DW_DITHER_PARTS_H

#include "arithmetic/layout.h"
#include "entropy/rans.h"

/* Draws the numbers of the codes in these tiles again. key: the draws_key of the visit. */
void dw_dither_parts_draw(const dw_layout *layout, const dw_kernels *kernels, uint64_t key,
                          uint64_t first_tile, uint64_t tiles, uint8_t *high);

/* counts is what kernels->count_parts finds in `high`. parted has room for dw_dither_parts_bytes.
 */
void dw_dither_parts_sort(const dw_kernels *kernels, const uint8_t *high, const uint8_t *codes,
                          uint64_t n, const uint32_t *counts, uint8_t *parted);

/* The inverse of sort. */
void dw_dither_parts_restore(const dw_kernels *kernels, const uint8_t *high, const uint8_t *parted,
                             uint64_t n, const uint32_t *counts, uint8_t *codes);

static inline uint64_t dw_dither_parts_bytes(uint64_t n)
{
    return n + DW_PARTS * DW_PART_GAP;
}

#endif
