/* SPDX-License-Identifier: Apache-2.0
 * checkpoint.h - a model on disk: one file per part and a manifest, independent of the number of
 * stages.
 *
 * DIR/manifest.json names the model, the step and the digest of each part; DIR/<part>-<digest>.part
 * holds the part's params, mean and square. A file is written under another name, flushed to the
 * disk and renamed, and its name contains its digest, so a new checkpoint never overwrites the old
 * one's files: whatever happens before the new manifest takes its place, the old checkpoint is
 * whole. Every rank writes its own parts and, when all have, the same manifest; ranks on several
 * machines leave DIRs to be gathered into one.
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
    uint64_t digest;   /* of the manifest: do two ranks hold the same checkpoint? */
} dw_checkpoint;

/* Reads the manifest. Errors: IO (no checkpoint, unreadable), FORMAT, VERSION, CORRUPT,
 * NO_MEMORY. */
dw_status dw_checkpoint_open(dw_checkpoint *checkpoint, const char *directory, dw_why *why);
void dw_checkpoint_close(dw_checkpoint *checkpoint);

/* Reads params, and mean and square where optimizer is not 0. The part must be of the checkpoint's
 * shape. Errors: IO, FORMAT, CORRUPT, NO_MEMORY; the part is then as it was. */
dw_status dw_checkpoint_read(const dw_checkpoint *checkpoint, dw_part *part, bool optimizer,
                             dw_why *why);

/* Makes the directory where it is missing and refuses one that holds another model's checkpoint, so
 * that a run does not learn of it at its end. Errors: IO, MISMATCH. */
dw_status dw_checkpoint_prepare(const char *directory, const dw_model_shape *shape, dw_why *why);

/* Writes one part; its name on disk is not yet in any manifest. Errors: IO, NO_MEMORY. */
dw_status dw_checkpoint_write(const char *directory, const dw_model_shape *shape,
                              const dw_part *part, uint32_t step, uint64_t *digest, dw_why *why);

/* Puts the manifest in its place: from here on this is the checkpoint. writer tells the ranks that
 * share a directory apart. Errors: IO, NO_MEMORY. */
dw_status dw_checkpoint_commit(const char *directory, const dw_model_shape *shape, uint32_t step,
                               const uint64_t *digests, uint32_t writer, dw_why *why);

/* Removes the files of a part that the manifest does not name. Quiet: leftovers harm nobody. */
void dw_checkpoint_tidy(const char *directory, const dw_part *part);

#endif
