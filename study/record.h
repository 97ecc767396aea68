/* SPDX-License-Identifier: Apache-2.0
 * record.h - reads a file of recorded tensors, whose format trainer/record.h describes. */
#ifndef DELTAWIRE_BENCH_RECORD_H
#define DELTAWIRE_BENCH_RECORD_H

#include <stdbool.h>

#include "deltawire/deltawire.h"

/* | name    | shape     | meaning                                                |
 * | tensors |           | whole ones in the file                                 |
 * | cut     |           | not 0: behind them lies a part of one more             |
 * | places  |           | different samples; each has a place among them, from 0 |
 * | visits  | (tensors) | which sample, and whether it comes for the first time  | */
typedef struct dw_bench_visit {
    uint64_t sample;
    uint32_t step, place;
    bool first;
    const float *x; /* (T, C), in the file's memory: not to be written */
} dw_bench_visit;

typedef struct dw_bench_record {
    uint32_t direction, rank, T, C, samples;
    size_t tensors, places;
    bool cut;
    dw_bench_visit *visits;
    void *memory; /* the mapped file */
    size_t bytes;
} dw_bench_record;

/* Errors: IO, FORMAT, VERSION, LIMIT, NO_MEMORY, each with a sentence; *record then needs no
 * close. */
dw_status dw_bench_record_open(dw_bench_record *record, const char *path, dw_why *why);
void dw_bench_record_close(dw_bench_record *record);

#endif
