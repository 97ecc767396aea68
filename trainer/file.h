/* SPDX-License-Identifier: Apache-2.0
 * file.h - a file of a checkpoint, which is written as a whole or not at all. */
#ifndef DW_TRAINER_FILE_H
#define DW_TRAINER_FILE_H

#include <stddef.h>

#include "deltawire/deltawire.h"

/* Writes `head` and then `body` to the file `path` in this directory. They are written to the file
 * `temporary` first, which is renamed when the system has stored them; so even after a power
 * failure `path` is either this file or what it was before. Errors: IO. */
dw_status dw_file_write(const char *directory, const char *path, const char *temporary,
                        const void *head, size_t head_len, const void *body, size_t body_len,
                        dw_why *why);

#endif
