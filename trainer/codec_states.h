/* SPDX-License-Identifier: Apache-2.0
 * codec_states.h - what the codecs of a rank's boundaries keep, in a file of the checkpoint: prev,
 * residuals, versions and chains of all samples, and with which numbers drawing goes on.
 *
 * The file codecs-R-<digest>.state of rank R is little-endian: a header of 48 bytes
 * (codec_states.c), then one piece after the other, each a head of 16 bytes (which of the four ends
 * 4, kind 4, bytes of the state 8) and the saved state of a key (docs/format.md, 7). It is written
 * and read piece by piece, so neither takes memory for more than one. Kind 0: the whole state
 * follows. Kind 1: its header does, and the name of its values in the rank's file for prev
 * (deltawire/storage.h), which has them in a snapshot. A file with pieces of kind 1 has format 2,
 * and ends with the number of the snapshot, 8 bytes. The storage keeps that of the last checkpoint
 * beside the new one until all manifests name the new one.
 *
 * Both ends of a boundary must go on from states of the same step. The manifest names every file by
 * its digest, and ranks that begin compare their manifests. So no rank can go on from a file of
 * another step or run. Then the two ends of each boundary compare what they have, and drop the keys
 * that differ, as where one of them had lost a copy when it was saved.
 *
 * Errors: IO, NO_MEMORY, CORRUPT, FORMAT, those of channel/saved.h, each with a sentence in the
 * stage's why. */
#ifndef DW_TRAINER_CODEC_STATES_H
#define DW_TRAINER_CODEC_STATES_H

#include "checkpoint.h"
#include "stage.h"

/* The ends of the channels of a rank. */
typedef enum dw_codec_end {
    DW_END_AFTER_SENT,      /* activations, to the next stage */
    DW_END_AFTER_RECEIVED,  /* gradients, from it */
    DW_END_BEFORE_SENT,     /* gradients, to the stage before */
    DW_END_BEFORE_RECEIVED, /* activations, from it */
    DW_CODEC_ENDS
} dw_codec_end;

/* Writes the file of this rank, if its codecs keep anything; *digest: of its bytes, 0: they keep
 * nothing. To be called by all ranks after the same step. */
dw_status dw_codec_states_write(dw_stage *stage, const dw_checkpoint_place *place,
                                uint64_t *digest);

/* Fills in what a manifest says, from the digests of all ranks. codecs->stages is 0 if no rank
 * keeps anything. The caller frees them, whatever the status. */
dw_status dw_codec_states_describe(dw_stage *stage, const uint64_t *digests,
                                   dw_checkpoint_codecs *codecs);

/* Gives the codecs of this rank what the checkpoint has of them. To be called by all ranks, before
 * the first step. What fits no more is left out at both ends of a boundary, and rank 0 says so
 * (on_misfit). If the files of all ranks are missing, or the snapshot of any rank, all is left out.
 */
dw_status dw_codec_states_load(dw_stage *stage, const dw_checkpoint *start);

#endif
