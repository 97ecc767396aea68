/* SPDX-License-Identifier: Apache-2.0
 * data.h - a file as samples of T + 1 bytes that do not overlap, and the order in which they are
 * visited.
 *
 * Sample i is the i-th piece of the file after the offset, independent of the epoch, the shuffle
 * and the number of samples. The first `samples` are for training and the next `held_out` for
 * evaluation. The bytes are not decoded, so any file will do.
 *
 * Each of D replicas has a share of n = samples / D samples, which it keeps for all epochs, so that
 * codecs which keep the last visit of a sample (delta) find it on the same rank again. The shares
 * follow from the order of the first epoch. Of D consecutive batches of that order each replica
 * gets one, so in this epoch a step of all replicas visits the same samples as a step of one
 * pipeline with a batch D times as large. The samples that do not fill a step of all replicas are
 * divided evenly. In later epochs each replica shuffles its share. */
#ifndef DW_TRAINER_DATA_H
#define DW_TRAINER_DATA_H

#include "deltawire/deltawire.h"

typedef struct dw_data {
    uint8_t *bytes; /* (samples + held_out, T + 1) */
    uint32_t samples, held_out, T;
    uint64_t digest; /* XXH3 of those bytes, to compare the texts of two ranks */
    uint32_t *order; /* (samples): sample ids in the order of the epoch; the first n are visited */
    uint32_t n;      /* samples of this replica */
    uint32_t replica, replicas, batch;
    uint32_t *share; /* (n): the ids of this replica, ascending; NULL: there is one replica */
    uint64_t seed;
    uint32_t epoch; /* the epoch of that order; UINT32_MAX: none yet */
} dw_data;

/* samples = 0 means as many as the file has, less held_out. Errors, each with a sentence in *why:
 * IO (cannot be read, empty, too short for a batch, for the samples asked for or for held_out),
 * ARGUMENT (samples fewer than a batch), LIMIT, NO_MEMORY. */
dw_status dw_data_open(dw_data *data, const char *path, uint64_t offset, uint32_t samples,
                       uint32_t held_out, uint32_t T, uint32_t batch, uint64_t seed, dw_why *why);
void dw_data_close(dw_data *data);

/* Restricts the data to the share of one replica; to be called after open. If the samples cannot be
 * divided evenly, the last ones are not used. Errors: ARGUMENT (a share is smaller than a batch),
 * NO_MEMORY. */
dw_status dw_data_share(dw_data *data, uint32_t replica, uint32_t replicas, uint32_t batch,
                        dw_why *why);

/* The ids of m samples at position `at` of an epoch, m <= n - at. Each epoch has its own
 * order, a Fisher-Yates shuffle that depends on seed and epoch and not on earlier epochs. */
const uint32_t *dw_data_order(dw_data *data, uint32_t epoch, uint32_t at);

const uint8_t *dw_data_sample(const dw_data *data, uint32_t id);

#endif
