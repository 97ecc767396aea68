/* SPDX-License-Identifier: Apache-2.0
 * record.h - files of the tensors that a rank sends, for comparing codecs on real tensors.
 * study/replay.c reads them.
 *
 * DIR/forward-R.record holds the activations that rank R sends to rank R + 1, DIR/backward-R.record
 * the gradients that it sends to rank R - 1, in the order in which they were sent, including those
 * of held-out samples. They are the encoder's input, not the decoder's output.
 *
 *     file   = header (32 bytes), then tensors up to the file's end
 *     tensor = step (4 bytes), zero (4), sample (8), T*C values f32, token-major
 *
 * | offset | bytes | header's field | meaning, little-endian                                |
 * | 0      | 8     | magic          | DW-SENT and a zero                                    |
 * | 8      | 4     | version        | 1                                                     |
 * | 12     | 4     | direction      | 1: forward, 2: backward                               |
 * | 16     | 4     | rank           | who sends                                             |
 * | 20     | 4     | T              | tokens of a sample                                    |
 * | 24     | 4     | C              | channels                                              |
 * | 28     | 4     | samples        | ids below it were trained on; the others are held out |
 *
 * step: the current step, counted from 1; for held-out samples the last step before the evaluation.
 * sample: the id of the sample, which is also the tensor's key.
 *
 * Errors: NO_MEMORY, LIMIT (a name too long), IO, each with a sentence. State: after a run that
 * ended early the file holds what was sent until then; after a full disk its last tensor may be
 * incomplete. Threads: one at a time. */
#ifndef DW_TRAINER_RECORD_H
#define DW_TRAINER_RECORD_H

#include "deltawire/deltawire.h"

typedef enum dw_direction { DW_FORWARD = 1, DW_BACKWARD = 2 } dw_direction;

typedef struct dw_record dw_record;

/* Creates the directory if it is missing, and in it a new file, which replaces an existing one. */
dw_status dw_record_create(dw_record **record, const char *directory, dw_direction direction,
                           uint32_t rank, uint32_t T, uint32_t C, uint32_t samples, dw_why *why);

/* x: (N, T, C), the samples of ids. */
dw_status dw_record_add(dw_record *record, uint32_t step, const uint32_t *ids, uint32_t N,
                        const float *x, dw_why *why);

/* Writes the buffer to the file and returns whether that succeeded. record may be NULL. */
dw_status dw_record_flush(dw_record *record, dw_why *why);

void dw_record_close(dw_record *record); /* NULL is fine */

#endif
