/* SPDX-License-Identifier: Apache-2.0
 * frequencies.h - how the 4096 slots of a block are shared out among its symbols, in integers
 * (docs/format.md, 3.7).
 *
 * wide table:
 * | name    | meaning                                                                                |
 * | weight  | of a symbol: its share of 2^24, at least 1 where the symbol occurs, else 0             |
 * | symbols | how many there are, from 2 to 256; the first and the last of them occur                |
 * | start   | (symbols + 1) symbol s has the slots start[s] to start[s + 1] - 1                      |
 *
 * Errors: none; callers have checked what they give. Threads: the functions have no state. */
#ifndef DW_FREQUENCIES_H
#define DW_FREQUENCIES_H

#include <stdint.h>

/* Weights of codes that occur so often among n. counts: of `symbols` codes in a row. */
void dw_weights_of_counts(const uint32_t *counts, uint32_t symbols, uint64_t n, uint32_t *weights);

/* Weights of codes that have these frequencies, which add up to 4096. */
void dw_weights_of_frequencies(const uint16_t *frequencies, uint32_t range, uint32_t *weights);

/* Weights of all pairs of two symbols: pair number first + symbols * second. Returns how many there
 * are. */
uint32_t dw_weights_of_pairs(const uint32_t *weights, uint32_t symbols, uint32_t *pairs);

/* Divides the 4096 slots among the symbols: symbol s gets the slots start[s] to start[s + 1] - 1.
 * Every symbol whose weight is not 0 gets one slot. The remaining slots are divided in proportion
 * to the part of each weight that is above what one slot is worth. */
void dw_slots_of_weights(const uint32_t *weights, uint32_t symbols, uint16_t *start);

/* About how many bits n symbols take that occur as these weights say, and have these slots. */
uint64_t dw_bits_of_slots(const uint32_t *weights, uint32_t symbols, const uint16_t *start,
                          uint64_t n);

#endif
