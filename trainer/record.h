/* SPDX-License-Identifier: Apache-2.0
 * record.h - what a rank sends, as files: for whoever compares codecs on real tensors
 * (bench/replay.c reads them).
 *
 * DIR/forward-R.record holds the activations that rank R sends to rank R + 1, DIR/backward-R.record
 * the gradients that it sends to rank R - 1, in the order in which they were sent, held-out samples
 * included; as the encoder was given them, not as they arrive.
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
 * step: the one under way, from 1; of held-out samples the one before the evaluation. sample: the
 * id that is the tensor's key.
 *
 * Errors: NO_MEMORY, LIMIT (a name too long), IO, each with a sentence. State: a run that ended
 * early leaves what it had sent by then, a full disk a last tensor that is cut short. Threads: one
 * at a time. */
#ifndef DW_TRAINER_RECORD_H
#define DW_TRAINER_RECORD_H

#include "deltawire/deltawire.h"

typedef enum dw_direction { DW_FORWARD = 1, DW_BACKWARD = 2 } dw_direction;

typedef struct dw_record dw_record;

/* Makes the directory where it is missing, and a new file in it, in place of an old one. */
dw_status dw_record_create(dw_record **record, const char *directory, dw_direction direction,
                           uint32_t rank, uint32_t T, uint32_t C, uint32_t samples, dw_why *why);

/* x: (N, T, C), the samples of ids. */
dw_status dw_record_add(dw_record *record, uint32_t step, const uint32_t *ids, uint32_t N,
                        const float *x, dw_why *why);

/* Only what has been flushed is known to be in the file. NULL is fine. */
dw_status dw_record_flush(dw_record *record, dw_why *why);

void dw_record_close(dw_record *record); /* NULL is fine */

#endif
