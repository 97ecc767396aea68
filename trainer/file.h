/* SPDX-License-Identifier: Apache-2.0
 * file.h - a file of a checkpoint, which is written as a whole or not at all.
 *
 * It is written to the file `temporary` first, which is renamed to `path` when the system has
 * stored it; so even after a power failure `path` is either this file or what it was before.
 * Errors: IO, NO_MEMORY, with a sentence in *why; nothing of the file is left then. */
#ifndef DW_TRAINER_FILE_H
#define DW_TRAINER_FILE_H

#include <stddef.h>

#include "deltawire/deltawire.h"

typedef struct dw_file {
    int fd;
    char temporary[4200];
    char *buffer;
    size_t filled;
    int error;    /* errno of the first write that failed; 0: none */
    uint64_t len; /* of all that was appended */
    void *digest; /* of that */
} dw_file;

/* begin: leaves room for a head of so many bytes. append: errors are kept for finish. digest: XXH3
 * of all that was appended. finish: writes the head, and renames the file. drop: removes a file
 * that is not to be finished. */
dw_status dw_file_begin(dw_file *file, const char *temporary, size_t head_len, dw_why *why);
void dw_file_append(dw_file *file, const void *bytes, size_t len);
uint64_t dw_file_digest(const dw_file *file);
dw_status dw_file_finish(dw_file *file, const char *directory, const char *path, const void *head,
                         size_t head_len, dw_why *why);
void dw_file_drop(dw_file *file);

/* All of this for a file whose body lies in memory. */
dw_status dw_file_write(const char *directory, const char *path, const char *temporary,
                        const void *head, size_t head_len, const void *body, size_t body_len,
                        dw_why *why);

#endif
