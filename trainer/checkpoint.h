/* SPDX-License-Identifier: Apache-2.0
 * checkpoint.h - a model on disk: one file per part and a manifest, independent of the number of
 * stages.
 *
 * DIR/manifest.json names the model, the step and the digest of each part; DIR/<part>-<digest>.part
 * holds the part's params, mean and square. A file is written under another name, flushed to the
 * disk and renamed, and its name contains its digest, so a new checkpoint never overwrites the old
 * one's files: until the new manifest replaces the old one, the old checkpoint stays complete.
 * Every rank writes its own parts and, when all ranks have done so, the same manifest. If the ranks
 * run on several machines, the files of all DIRs must be copied into one.
 *
 * A part file is little-endian: a header of 64 bytes (checkpoint.c), then 3 n floats. */
#ifndef DW_TRAINER_CHECKPOINT_H
#define DW_TRAINER_CHECKPOINT_H

#include <stdbool.h>

#include "parameters.h"

typedef struct dw_checkpoint {
    char directory[4096];
    dw_model_shape shape;
    uint32_t step;
    uint32_t n_parts;
    uint64_t *digests; /* (n_parts): XXH3 of each part's floats */
    uint64_t digest;   /* of the manifest, to compare the checkpoints of two ranks */
} dw_checkpoint;

/* Reads the manifest. Errors: IO (no checkpoint, unreadable), FORMAT, VERSION, CORRUPT,
 * NO_MEMORY. */
dw_status dw_checkpoint_open(dw_checkpoint *checkpoint, const char *directory, dw_why *why);
void dw_checkpoint_close(dw_checkpoint *checkpoint);

/* Reads params, and mean and square where optimizer is not 0. The part must have the shape that the
 * checkpoint has. Errors: IO, FORMAT, CORRUPT, NO_MEMORY; the part is then as it was. */
dw_status dw_checkpoint_read(const dw_checkpoint *checkpoint, dw_part *part, bool optimizer,
                             dw_why *why);

/* Creates the directory if it is missing. Refuses a directory with a checkpoint of another model,
 * so that a run fails at its start and not at its end. Errors: IO, MISMATCH. */
dw_status dw_checkpoint_prepare(const char *directory, const dw_model_shape *shape, dw_why *why);

/* Writes one part. No manifest names the file yet. Errors: IO, NO_MEMORY. */
dw_status dw_checkpoint_write(const char *directory, const dw_model_shape *shape,
                              const dw_part *part, uint32_t step, uint64_t *digest, dw_why *why);

/* Replaces the manifest; from then on this is the checkpoint. writer is the rank, which makes the
 * names of temporary files different where ranks share a directory. Errors: IO, NO_MEMORY. */
dw_status dw_checkpoint_commit(const char *directory, const dw_model_shape *shape, uint32_t step,
                               const uint64_t *digests, uint32_t writer, dw_why *why);

/* Removes the files of a part that the manifest does not name. Errors are ignored, for leftover
 * files do no harm. */
void dw_checkpoint_tidy(const char *directory, const dw_part *part);

#endif
