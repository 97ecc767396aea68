/* SPDX-License-Identifier: Apache-2.0
 * data.h - a file as samples of T + 1 bytes that do not overlap, and the order in which they are
 * visited.
 *
 * Sample id i is the i-th piece of the file behind the offset: it never changes, whatever the
 * epoch, the shuffle or the number of samples. The first `samples` are trained on, the `held_out`
 * behind them are measured on. Any bytes will do; nothing is decoded. */
#ifndef DW_TRAINER_DATA_H
#define DW_TRAINER_DATA_H

#include "deltawire/deltawire.h"

typedef struct dw_data {
    uint8_t *bytes; /* (samples + held_out, T + 1) */
    uint32_t samples, held_out, T;
    uint64_t digest; /* XXH3 of those bytes: do two ranks read the same text? */
    uint32_t *order; /* (samples): sample ids in the order of the epoch */
    uint64_t seed;
    uint32_t epoch; /* that order belongs to it; UINT32_MAX: none yet */
} dw_data;

/* samples 0: as many as the file has, less held_out. Errors, each with a sentence in *why: IO
 * (cannot be read, empty, too short for a batch, for the samples asked for or for held_out),
 * ARGUMENT (samples fewer than a batch), LIMIT, NO_MEMORY. */
dw_status dw_data_open(dw_data *data, const char *path, uint64_t offset, uint32_t samples,
                       uint32_t held_out, uint32_t T, uint32_t batch, uint64_t seed, dw_why *why);
void dw_data_close(dw_data *data);

/* The ids of n samples at position `at` of an epoch, n <= samples - at. Each epoch has its own
 * order (Fisher and Yates; seed and epoch decide), which does not depend on the epochs before. */
const uint32_t *dw_data_order(dw_data *data, uint32_t epoch, uint32_t at);

const uint8_t *dw_data_sample(const dw_data *data, uint32_t id);

#endif
