/* SPDX-License-Identifier: Apache-2.0
 * dither_parts.h - sorts the dithered codes of a block into parts, for the entropy coder
 * (docs/format.md, 3.9).
 *
 * Both ends know the dither z of every code, and it makes the code easier to guess. A small value
 * is rounded to level 0 nearly always where z is near 0, and only half of the time where z is near
 * 1/2. So the codes are sorted into DW_PARTS parts by |z|, and each part gets frequencies of its
 * own. A level q at dither -z is as frequent as -q at z; therefore the levels of codes with z < 0
 * change their sign before they are sorted.
 *
 * wide table:
 * | name   | meaning                                                                                 |
 * | high   | (n) the high byte of each code's random number; 128 for padding                         |
 * | codes  | (n) the codes in the order of the payload                                               |
 * | parted | the codes of part 0, then those of part 1 and so on, with their signs changed where     |
 * |        | z < 0, and DW_PART_GAP unused bytes behind each part                                    |
 * | counts | (DW_PARTS) the number of codes in each part                                             |
 *
 * Errors: none. Threads: the functions have no state. */
#ifndef DW_DITHER_PARTS_H
#define DW_DITHER_PARTS_H

#include "arithmetic/layout.h"
#include "entropy/rans.h"

/* Computes the random numbers of the codes in `tiles` tiles, from first_tile on, and writes their
 * high bytes to `high`. The numbers are the same as when the codes were made. key: draws_key of the
 * job (codecs/job.h). */
void dw_dither_parts_draw(const dw_layout *layout, const dw_kernels *kernels, uint64_t key,
                          uint64_t first_tile, uint64_t tiles, uint8_t *high);

/* Sorts n codes into their parts. counts: what kernels->count_parts finds in `high`. parted: has
 * room for dw_dither_parts_bytes(n) bytes. */
void dw_dither_parts_sort(const dw_kernels *kernels, const uint8_t *high, const uint8_t *codes,
                          uint64_t n, const uint32_t *counts, uint8_t *parted);

/* The inverse of dw_dither_parts_sort: writes the codes in the order of the payload. */
void dw_dither_parts_restore(const dw_kernels *kernels, const uint8_t *high, const uint8_t *parted,
                             uint64_t n, const uint32_t *counts, uint8_t *codes);

/* Returns the bytes that n sorted codes take, with the gaps behind their parts. */
static inline uint64_t dw_dither_parts_bytes(uint64_t n)
{
    return n + DW_PARTS * DW_PART_GAP;
}

#endif
