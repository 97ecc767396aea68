/* SPDX-License-Identifier: Apache-2.0
 * selection.h - which values of a sample the form sparse sends.
 *
 * | name   | shape | meaning                                                        | owner  |
 * | mask   | (n)   | bits (codecs/sparse.h); zeros before the call                  | caller |
 * | chosen | (k)   | binary32: what is coded of the chosen elements, in their order | caller |
 * | room   |       | dw_select_room(n, k) bytes                                     | caller |
 *
 * Errors: none. State: none. Threads: any, on different memory. */
#ifndef DW_SELECTION_H
#define DW_SELECTION_H

#include "codecs/job.h"

uint64_t dw_select_room(uint64_t n, uint64_t k);

/* Of the n elements from `at` on, chooses the k of the largest magnitude; of equal ones those with
 * lower numbers. A NaN is larger than an infinity. 1 <= k <= n.
 * *limit: a guess, slightly too low, of the k-th largest magnitude; 0: no guess. The call replaces
 * it by a guess for the next n elements. It affects only the speed, never the result. */
void dw_select_largest(const dw_encode_job *job, uint64_t at, uint64_t n, uint64_t k, uint8_t *mask,
                       float *chosen, float *room, uint32_t *limit);

/* n elements are cut into k stretches, and one element of each is drawn (docs/format.md, 3.10).
 * Writes the numbers of those from stretch `first` on, a multiple of DW_SELECT_DRAWS, and returns
 * how many they are: DW_SELECT_DRAWS, or fewer at the end. */
enum { DW_SELECT_DRAWS = 512 };
uint64_t dw_select_draw(const struct dw_kernels *kernels, uint64_t draws_key, uint64_t n,
                        uint64_t k, uint64_t first, uint32_t places[DW_SELECT_DRAWS]);

/* How many elements stretch number `stretch` has. */
uint64_t dw_select_stretch(uint64_t n, uint64_t k, uint64_t stretch);

#endif
