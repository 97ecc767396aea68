/* SPDX-License-Identifier: Apache-2.0
 * storage_file.h - the file of a storage, which one process opens at a time. It begins with a page
 * that says what it is; slots lie behind it. Threads: one at a time.
 *
 * The page, little-endian, zeros where nothing is named:
 *
 * | offset | bytes | field                                                               |
 * | 0      | 32    | "deltawire: copies of prev, v3", line feed, 0                       |
 * | 32     | 8     | id, drawn when the file was begun                                   |
 * | 40     | 8     | XXH3 of the bytes 0 to 40                                           |
 * | 1024   | 8     | generation of the last index that was whole (storage_index.h), or 0 |
 * | 1032   | 8     | XXH3 of the bytes 1024 to 1032                                      | */
#ifndef DW_STORAGE_FILE_H
#define DW_STORAGE_FILE_H

#include <stdbool.h>

#include "deltawire/deltawire.h"
#include "storage_slots.h"

typedef struct storage_file {
    int fd;
    char *path, *index; /* names of the file, and of its index */
    uint64_t id;        /* 0: it was not begun */
    uint64_t generation;
    uint64_t size; /* as it was opened */
    storage_slots slots;
} storage_file;

/* open: an existing file is read, but not changed; other files are refused. begin: makes it a file
 * without slots. resume: leaves the slots that were placed, and drops what lies behind them. Errors
 * of all: a sentence in *why. */
dw_status dw_storage_file_open(storage_file *file, const char *path, dw_why *why);
dw_status dw_storage_file_begin(storage_file *file, dw_why *why);
dw_status dw_storage_file_resume(storage_file *file, dw_why *why);
void dw_storage_file_close(storage_file *file, bool removes);

/* Notes that an index is whole. Without it, an older index that is put in its place would not be
 * told apart; its records would still be. So an error is of no matter. */
void dw_storage_file_note(storage_file *file, uint64_t generation);

#endif
