/* SPDX-License-Identifier: Apache-2.0
 * storage_file.h - the file of a storage: opened by one process at a time, divided into slots.
 *
 * The file begins with a page that says what it is. Behind it lie slots, each a multiple of 4096
 * bytes long. A slot that was given back is used again for records of the same length; other free
 * slots are not joined. Errors: a sentence in *why. Threads: one at a time, but for read and
 * write. */
#ifndef DW_STORAGE_FILE_H
#define DW_STORAGE_FILE_H

#include <stdbool.h>

#include "deltawire/deltawire.h"

/* Free slots of one length. There is room for all slots of that length, so that giving one back
 * cannot fail. */
typedef struct storage_class {
    uint64_t bytes, slots, n_free, cap;
    uint64_t *free;
} storage_class;

typedef struct storage_file {
    int fd;
    char *path;
    uint64_t end; /* the size of the file */
    storage_class *classes;
    uint64_t n_classes;
} storage_file;

dw_status dw_storage_file_open(storage_file *file, const char *path, dw_why *why);
void dw_storage_file_close(storage_file *file, bool removes);

/* take: false: no memory. give: cannot fail. */
bool dw_storage_file_take(storage_file *file, uint64_t bytes, uint64_t *offset);
void dw_storage_file_give(storage_file *file, uint64_t offset, uint64_t bytes);

/* Return 0, or an errno; read: EIO where the file is too short. */
int dw_storage_file_read(const storage_file *file, uint64_t offset, void *to, uint64_t bytes);
int dw_storage_file_write(const storage_file *file, uint64_t offset, const void *from,
                          uint64_t bytes);

#endif
