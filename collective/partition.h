/* SPDX-License-Identifier: Apache-2.0
 * partition.h - how a buffer is cut into parts and pieces, and which of them an operation reads,
 * adds and writes. */
#ifndef DW_GROUP_PARTITION_H
#define DW_GROUP_PARTITION_H

#include "settings.h"

/* A range of a buffer, in floats: a part, or a piece of one. */
typedef struct dw_piece {
    uint64_t begin; /* from the start of the buffer */
    uint64_t count;
} dw_piece;

/* reduces: whether the operation has hop 1. gathers: whether it has hop 2. is_one_shot: whether it
 * is an all-reduce in one hop. Then the whole buffer is one part, which every rank adds for itself.
 * own_part: the part that this rank adds. */
bool dw_job_reduces(const dw_group_job *job);
bool dw_job_gathers(const dw_settings *settings, const dw_group_job *job);
bool dw_job_is_one_shot(const dw_settings *settings, const dw_group_job *job);
uint32_t dw_job_own_part(const dw_settings *settings, const dw_group_job *job);

/* part: a part of the buffer. In a BROADCAST the whole buffer is one part, which belongs to root.
 * pieces: the number of pieces of a part. An empty buffer has one empty piece, of which a message
 * without a frame is sent, so that the ranks compare what they have started. piece: one of the
 * pieces. first_piece: of the first part. */
dw_piece dw_job_part(const dw_settings *settings, const dw_group_job *job, uint32_t part);
uint32_t dw_job_pieces(const dw_settings *settings, const dw_group_job *job, uint32_t part);
dw_piece dw_job_piece(const dw_settings *settings, const dw_group_job *job, uint32_t part,
                      uint32_t piece);
dw_piece dw_job_first_piece(const dw_settings *settings, const dw_group_job *job);

/* How many floats this rank reads from x, and writes to y. */
uint64_t dw_job_reads(const dw_settings *settings, const dw_group_job *job);
uint64_t dw_job_writes(const dw_settings *settings, const dw_group_job *job);

/* `count` floats as a tensor, which has rows of 2048, or one row if count is not a multiple of
 * 2048. */
dw_tensor dw_flat_view(const void *data, dw_dtype dtype, uint64_t count);

#endif
