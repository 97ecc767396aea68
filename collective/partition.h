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
 */
bool dw_job_reduces(const dw_group_job *job);
bool dw_job_gathers(const dw_settings *settings, const dw_group_job *job);
bool dw_job_is_one_shot(const dw_settings *settings, const dw_group_job *job);

/* How the buffer of an operation is cut. Each rank has a part; in a BROADCAST and in one hop the
 * whole buffer is one part, with the number only_part, in a BROADCAST that of the root. own_part:
 * the one that this rank adds. A rank's part has `each` whole tiles, and `more` of the ranks have
 * another one. A part is cut into pieces of the length `whole`, as long as more than two of them
 * are left, and then each time into half of what is left, until halves would be shorter than
 * `least`. It is kept for the whole operation, because to find it takes divisions: done for each
 * message, they were 4 % of the instructions of an all-reduce of 1 KiB. */
typedef struct dw_partition {
    uint64_t n;
    uint32_t ranks, own_part, only_part;
    bool has_one_part;
    uint32_t more;
    uint64_t each, whole, least;
} dw_partition;

dw_partition dw_partition_make(const dw_settings *settings, const dw_group_job *job);

/* pieces: the number of pieces of a part. An empty buffer has one empty piece, of which a message
 * without a frame is sent, so that the ranks compare what they have started. first_piece: of the
 * first part. */
dw_piece dw_partition_part(const dw_partition *cut, uint32_t part);
uint32_t dw_partition_pieces(const dw_partition *cut, uint32_t part);
dw_piece dw_partition_piece(const dw_partition *cut, uint32_t part, uint32_t piece);
dw_piece dw_partition_first_piece(const dw_partition *cut);

/* How many floats this rank reads from x, and writes to y. */
uint64_t dw_job_reads(const dw_settings *settings, const dw_group_job *job);
uint64_t dw_job_writes(const dw_settings *settings, const dw_group_job *job);

/* `count` floats as a tensor, which has rows of 2048, or one row if count is not a multiple of
 * 2048. */
dw_tensor dw_flat_view(const void *data, dw_dtype dtype, uint64_t count);

#endif
