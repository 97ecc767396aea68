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
 * All replicas write the same files with the same bytes, so they may share a directory, or use one
 * on each machine. If the codec of the weight gradients keeps state (residuals or prev), or if
 * there are local steps (outer.h), each rank R also writes gradients-R-<digest>.state, and the
 * manifest names the grid, the codec and these files. With local steps mean and square differ
 * between replicas, so they are in the states, and zeros in the parts.
 *
 * What the codecs of boundaries keep is in codecs-R-<digest>.state of each rank R (codec_states.h).
 *
 * A part file is little-endian: a header of 64 bytes (checkpoint.c), then 3 n floats. A state file:
 * a header of 48 bytes, then the bytes of outer.h, then those of replicas.h. manifest.c writes and
 * reads the manifest, codec_states.c the states of codecs, and checkpoint.c the other files. */
#ifndef DW_TRAINER_CHECKPOINT_H
#define DW_TRAINER_CHECKPOINT_H

#include <stdbool.h>

#include "file.h"
#include "parameters.h"

enum { DW_CHECKPOINT_KEPT_BYTES = DW_CONFIG_TEXT_BYTES + 32, DW_CHECKPOINT_SETTINGS_BYTES = 320 };

/* The files with what each rank of a grid keeps: the codec of the gradients, and local steps. */
typedef struct dw_checkpoint_states {
    uint32_t stages, replicas;            /* 0: nothing is kept */
    char codec[DW_CHECKPOINT_KEPT_BYTES]; /* one hop or two, and whether there are local steps */
    uint64_t *digests; /* (stages * replicas): of the bytes; 0: this rank keeps nothing */
} dw_checkpoint_states;

/* The files with what each rank's codecs of boundaries keep, and what must be the same for them to
 * be of use. */
typedef struct dw_checkpoint_codecs {
    uint32_t stages, replicas; /* 0: nothing is kept */
    char *layout;              /* what keys mean (codec_states.c) */
    char *forward, *backward;  /* canonical texts of the settings */
    uint64_t *digests;         /* (stages * replicas): of the bytes; 0: this rank keeps nothing */
} dw_checkpoint_codecs;

typedef struct dw_checkpoint {
    char directory[4096];
    dw_model_shape shape;
    uint32_t step;
    uint32_t n_parts;
    uint64_t *digests; /* (n_parts): XXH3 of each part's floats */
    dw_checkpoint_states states;
    dw_checkpoint_codecs codecs;
    char settings[DW_CHECKPOINT_SETTINGS_BYTES]; /* of the run, as options; "": unknown */
    uint64_t digest; /* of the manifest, to compare the checkpoints of two ranks */
} dw_checkpoint;

/* Reads the manifest. Errors: IO (no checkpoint, unreadable), FORMAT, VERSION, CORRUPT,
 * NO_MEMORY. */
dw_status dw_checkpoint_open(dw_checkpoint *checkpoint, const char *directory, dw_why *why);
void dw_checkpoint_close(dw_checkpoint *checkpoint);
void dw_checkpoint_free_codecs(dw_checkpoint_codecs *codecs);

/* Reads params, and mean and square where optimizer is not 0. The part must have the shape that the
 * checkpoint has. Errors: IO, FORMAT, CORRUPT, NO_MEMORY; the part is then as it was. */
dw_status dw_checkpoint_read(const dw_checkpoint *checkpoint, dw_part *part, bool optimizer,
                             dw_why *why);

/* Creates the directory if it is missing. Refuses a directory with a checkpoint of another model,
 * so that a run fails at its start and not at its end. Errors: IO, MISMATCH. */
dw_status dw_checkpoint_prepare(const char *directory, const dw_model_shape *shape, dw_why *why);

/* Who writes a checkpoint, and of which step. writer is the rank, which makes the names of
 * temporary files different where ranks share a directory. */
typedef struct dw_checkpoint_place {
    const char *directory;
    dw_model_shape shape;
    uint32_t step, writer;
    bool has_outer; /* mean and square are written as zeros */
    const char *settings;
} dw_checkpoint_place;

/* write: writes one part. begin_state: begins the file of this rank's state, to which the caller
 * appends it, and which finish_state ends. No manifest names the file yet. Errors: IO, NO_MEMORY.
 */
dw_status dw_checkpoint_write(const dw_checkpoint_place *place, const dw_part *part,
                              uint64_t *digest, dw_why *why);
dw_status dw_checkpoint_begin_state(const dw_checkpoint_place *place, dw_file *file, dw_why *why);
dw_status dw_checkpoint_finish_state(const dw_checkpoint_place *place, dw_file *file,
                                     uint64_t *digest, dw_why *why);

/* Replaces the manifest; from then on this is the checkpoint. digests: of the parts. codecs: NULL:
 * none. Errors: IO, NO_MEMORY. */
dw_status dw_checkpoint_commit(const dw_checkpoint_place *place, const uint64_t *digests,
                               const dw_checkpoint_states *states,
                               const dw_checkpoint_codecs *codecs, dw_why *why);

/* Reads the state of a rank; *bytes is to be freed. Errors: IO, FORMAT, CORRUPT, NO_MEMORY. */
dw_status dw_checkpoint_read_state(const dw_checkpoint *checkpoint, uint32_t rank, uint8_t **bytes,
                                   size_t *len, dw_why *why);

/* Reads a digest of 16 hexadecimal digits. Returns 0, or -1 if the text is anything else or NULL.
 */
int dw_parse_hex(const char *text, uint64_t *value);

/* Removes the files of a part, or of a rank's states, that the manifest does not name; rank 0 also
 * those of ranks that neither this run has, of `ranks`, nor the manifest. Errors are ignored, for
 * leftover files do no harm. */
void dw_checkpoint_tidy(const char *directory, const dw_part *part);
void dw_checkpoint_tidy_state(const char *directory, uint32_t rank, uint32_t ranks);

#endif
