/* SPDX-License-Identifier: Apache-2.0
 * trellis_run.h - what the kernels of trellis-coded quantization work on (arithmetic/trellis.h).
 *
 * A row is 32 consecutive elements, one for each lane.
 *
 * wide table:
 * | name    | meaning                                                                               |
 * | scaled  | (rows, 32) the values in steps; NaN: an element of padding, which gets code 128       |
 * | rows    | at most 64                                                                            |
 * | shrink  | what the values are multiplied by before they are rounded, finite                     |
 * | zero_costs | what level 0 costs besides its error in states 2 and 3, in squares of a step       |
 * | states  | (32) in: in front of the first row; out: behind the last one                          |
 * | codes   | (rows, 32) out: the codes                                                             |
 * | clamped | out: adds how many values were limited to DW_TRELLIS_MOST steps                       |
 *
 * Errors: none. Threads: the functions have no state. */
#ifndef DW_TRELLIS_RUN_H
#define DW_TRELLIS_RUN_H

#include "arithmetic/trellis.h"

enum { DW_TRELLIS_ROWS = 64, DW_TRELLIS_VALUES = DW_TRELLIS_ROWS * DW_TRELLIS_LANES };

typedef struct dw_trellis_run {
    const float *scaled;
    uint32_t rows;
    float shrink, zero_costs;
    uint8_t *states, *codes;
    uint64_t clamped;
} dw_trellis_run;

#endif
