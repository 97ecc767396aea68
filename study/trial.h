/* SPDX-License-Identifier: Apache-2.0
 * trial.h - sends a record through an encoder and a decoder, and measures the error.
 *
 * Every tensor is a frame of its own with its sample's id as key, in the order of the record, and
 * every reply is handed to the encoder. All elements are compared, in binary64; the library's own
 * counters sample only a few. */
#ifndef DELTAWIRE_BENCH_TRIAL_H
#define DELTAWIRE_BENCH_TRIAL_H

#include "record.h"

/* Sums over the visits of one kind. */
typedef struct dw_trial_sums {
    uint64_t tensors, elements, frame_bytes;
    uint64_t left_out; /* elements that are not finite, before or after; excluded from the squares
                        */
    double x_square, error_square; /* of x, of x - y */
    double change_square;          /* later visits: of x - y of the previous visit */
} dw_trial_sums;

typedef struct dw_trial {
    char codec[DW_CONFIG_TEXT_BYTES]; /* canonical */
    dw_trial_sums first, later;
} dw_trial;

/* Called from time to time with the fraction that is done, below 1. */
typedef void dw_trial_progress(void *context, double share);

dw_trial_sums dw_trial_all(const dw_trial *trial);

/* sqrt(part / whole); NaN where there is nothing to divide by. */
double dw_trial_relative(double part_square, double whole_square);

/* Errors: those of config, encoder and decoder, each with a sentence. */
dw_status dw_trial_run(dw_trial *trial, const dw_bench_record *record, const char *codec,
                       dw_trial_progress *progress, void *context, dw_why *why);

#endif
