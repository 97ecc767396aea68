/* SPDX-License-Identifier: Apache-2.0
 * storage_index.c - writes and reads the index of a storage's file. */
#define XXH_INLINE_ALL
#include "storage_index.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/bytes.h"
#include "base/sentence.h"
#include "storage_disk.h"

enum { AT_NUMBERS = 32, AT_BODY = 64, AT_SEAL = 72, HEAD_BYTES = 80, ENTRY_BYTES = 40 };

/* The indexes of all versions begin with the same bytes. */
static const char mark[AT_NUMBERS] = "deltawire: index of copies, v1\n";
enum { BEFORE_VERSION = 29 };

/* ---- Writing --------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    uint64_t left = ((const storage_entry *)a)->offset, right = ((const storage_entry *)b)->offset;
    return (left > right) - (left < right);
}

static uint8_t *encode(const storage_file *file, storage_index *index, uint64_t *length)
{
    *length = HEAD_BYTES + index->n * ENTRY_BYTES;
    uint8_t *bytes = malloc(*length), *at = bytes;
    if (!bytes) return NULL;
    if (index->n) qsort(index->entries, index->n, sizeof *index->entries, compare);
    memcpy(bytes, mark, sizeof mark);
    const uint64_t numbers[] = {file->id, index->newer, index->older, index->n};
    for (int i = 0; i < 4; i++) dw_put64(bytes + AT_NUMBERS + 8 * i, numbers[i]);
    at += HEAD_BYTES;
    for (uint64_t i = 0; i < index->n; i++) {
        const storage_entry *e = &index->entries[i];
        const uint64_t fields[] = {e->offset, e->bytes, e->digest.low, e->digest.high,
                                   e->snapshots};
        for (int k = 0; k < 5; k++, at += 8) dw_put64(at, fields[k]);
    }
    dw_put64(bytes + AT_BODY, XXH3_64bits(bytes + HEAD_BYTES, *length - HEAD_BYTES));
    dw_put64(bytes + AT_SEAL, XXH3_64bits(bytes, AT_SEAL));
    return bytes;
}

/* A file of this name is removed first: if it were a symbolic link, the index would be written to
 * where it points. */
static int write_file(const char *path, const uint8_t *bytes, uint64_t length)
{
    (void)dw_disk_remove(path);
    int fd, error = dw_disk_open(path, true, &fd);
    if (error) return error;
    error = dw_disk_write(fd, 0, bytes, length);
    if (!error) error = dw_disk_sync(fd);
    dw_disk_close(fd);
    return error;
}

dw_status dw_storage_index_write(const storage_file *file, storage_index *index, index_fate *fate,
                                 dw_why *why)
{
    uint64_t length;
    uint8_t *bytes = encode(file, index, &length);
    size_t room = strlen(file->index) + sizeof ".tmp";
    char *temporary = malloc(room);
    int error = dw_disk_is_named(file->fd, file->path);
    dw_status status = DW_OK;
    *fate = INDEX_IS_AS_BEFORE;
    if (!bytes || !temporary) {
        status = dw_say(why, DW_ERR_NO_MEMORY, "there is no memory for an index");
        error = 0;
    } else if (!error) {
        snprintf(temporary, room, "%s.tmp", file->index);
        error = write_file(temporary, bytes, length);
        if (!error) error = dw_disk_rename(temporary, file->index);
        if (error) {
            (void)dw_disk_remove(temporary);
        } else {
            error = dw_disk_sync_folder(file->index);
            *fate = error ? INDEX_IS_UNCERTAIN : INDEX_IS_WHOLE;
        }
    }
    free(bytes);
    free(temporary);
    if (!error) return status;
    if (error == ESTALE)
        return dw_say(why, DW_ERR_IO,
                      "%.100s was moved, replaced or removed while it is open, so it can have no "
                      "other snapshot: put it back",
                      file->path);
    return dw_say(why, DW_ERR_IO, "%.100s or %.100s.tmp cannot be written: %s", file->index,
                  file->index, strerror(error));
}

/* ---- Reading --------------------------------------------------------------------------------- */

static const char begin_anew[] =
    "delete it to begin anew; each sample is then sent in full once more";

/* Whether the slots lie in the file and apart, and somebody has each. */
static bool is_possible(const storage_file *file, const storage_index *index)
{
    uint64_t end = 4096;
    if (!index->newer || index->older >= index->newer) return false;
    for (uint64_t i = 0; i < index->n; i++) {
        const storage_entry *e = &index->entries[i];
        uint64_t all = OF_NEWER | (index->older ? OF_OLDER : 0);
        if (e->offset < end || e->offset % 4096 || !e->bytes || e->offset > file->size ||
            e->bytes > file->size - e->offset || !e->snapshots || e->snapshots > all)
            return false;
        end = e->offset + (e->bytes + 4095) / 4096 * 4096;
    }
    return true;
}

static dw_status does_not_fit(const storage_file *file, dw_why *why)
{
    return dw_say(why, DW_ERR_CORRUPT,
                  "%.100s names places that %.100s does not have: restore both, or %s", file->index,
                  file->path, begin_anew);
}

static dw_status decode(const storage_file *file, const uint8_t *bytes, uint64_t length,
                        storage_index *index, dw_why *why)
{
    if (length >= sizeof mark && memcmp(bytes, mark, BEFORE_VERSION) == 0 &&
        memcmp(bytes, mark, sizeof mark) != 0)
        return dw_say(why, DW_ERR_VERSION,
                      "%.100s was written by another version of deltawire: use that one, or %s",
                      file->index, begin_anew);
    uint64_t n = length >= HEAD_BYTES ? (length - HEAD_BYTES) / ENTRY_BYTES : 0;
    if (length < HEAD_BYTES || memcmp(bytes, mark, sizeof mark) != 0 ||
        length != HEAD_BYTES + n * ENTRY_BYTES || dw_get64(bytes + AT_NUMBERS + 24) != n ||
        dw_get64(bytes + AT_SEAL) != XXH3_64bits(bytes, AT_SEAL) ||
        dw_get64(bytes + AT_BODY) != XXH3_64bits(bytes + HEAD_BYTES, length - HEAD_BYTES))
        return dw_say(why, DW_ERR_CORRUPT, "%.100s is damaged or cut short: restore it, or %s",
                      file->index, begin_anew);
    if (dw_get64(bytes + AT_NUMBERS) != file->id)
        return dw_say(why, DW_ERR_MISMATCH,
                      "%.100s is the index of another file than %.100s: put that file back, or %s",
                      file->index, file->path, begin_anew);
    index->newer = dw_get64(bytes + AT_NUMBERS + 8);
    index->older = dw_get64(bytes + AT_NUMBERS + 16);
    if (index->newer < file->generation)
        return dw_say(why, DW_ERR_MISMATCH,
                      "%.100s is older than %.100s: put the last one back, or %s", file->index,
                      file->path, begin_anew);
    index->entries = malloc((n + !n) * sizeof *index->entries);
    if (!index->entries) return dw_say(why, DW_ERR_NO_MEMORY, "there is no memory for an index");
    index->n = n;
    const uint8_t *at = bytes + HEAD_BYTES;
    for (uint64_t i = 0; i < n; i++, at += ENTRY_BYTES)
        index->entries[i] = (storage_entry){dw_get64(at),
                                            dw_get64(at + 8),
                                            {dw_get64(at + 16), dw_get64(at + 24)},
                                            dw_get64(at + 32)};
    return is_possible(file, index) ? DW_OK : does_not_fit(file, why);
}

/* EFBIG: it is longer than with an entry for each page of the file. */
static int read_file(int fd, uint64_t pages, uint8_t **bytes, uint64_t *length)
{
    int error = dw_disk_size(fd, length);
    if (error) return error;
    if (*length > HEAD_BYTES + (pages + 1) * ENTRY_BYTES) return EFBIG;
    *bytes = malloc(*length + 1);
    return *bytes ? dw_disk_read(fd, 0, *bytes, *length) : ENOMEM;
}

dw_status dw_storage_index_read(const storage_file *file, storage_index *index, dw_why *why)
{
    uint8_t *bytes = NULL;
    uint64_t length = 0;
    int fd, error = dw_disk_open(file->index, false, &fd);
    *index = (storage_index){.n = 0};
    if (error == ENOENT) return DW_OK;
    if (!error) {
        error = read_file(fd, file->size / DW_STORAGE_PAGE, &bytes, &length);
        /* It may be new, and an older one on the disk; slots of that one are about to be used. */
        if (!error) error = dw_disk_sync(fd);
        if (!error) error = dw_disk_sync_folder(file->index);
        dw_disk_close(fd);
    }
    dw_status status =
        error == ENOMEM  ? dw_say(why, DW_ERR_NO_MEMORY, "there is no memory for an index")
        : error == EFBIG ? does_not_fit(file, why)
        : error ? dw_say(why, DW_ERR_IO, "%.100s cannot be read: %s; make it readable, or %s",
                         file->index, strerror(error), begin_anew)
                : decode(file, bytes, length, index, why);
    free(bytes);
    return status;
}
