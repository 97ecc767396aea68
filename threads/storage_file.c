/* SPDX-License-Identifier: Apache-2.0
 * storage_file.c - opens the file of a storage, and reads and writes its first page. */
#define XXH_INLINE_ALL
#include "storage_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "base/sentence.h"
#include "storage_disk.h"

enum { PAGE = DW_STORAGE_PAGE, AT_ID = 32, HEAD_BYTES = 48, AT_GENERATION = 1024, NOTE_BYTES = 16 };

/* The first bytes of the file. Those of all versions begin with the same ones. */
static const char mark[AT_ID] = "deltawire: copies of prev, v3\n";
enum { BEFORE_VERSION = 28 };

/* Reads a number that its digest follows. */
static uint64_t read_sealed(const uint8_t *from, uint64_t bytes)
{
    return XXH3_64bits(from, bytes) == dw_get64(from + bytes) ? dw_get64(from + bytes - 8) : 0;
}

static bool is_zero(const uint8_t *page)
{
    return page[0] == 0 && memcmp(page, page + 1, PAGE - 1) == 0;
}

/* Refuses what is not empty and was not made by this library, so that a wrong path destroys
 * nothing. A page of zeros is a file whose first page had not reached the disk. */
static dw_status check_page(storage_file *file, dw_why *why)
{
    uint8_t page[PAGE] = {0};
    int error = dw_disk_read(file->fd, 0, page, file->size < PAGE ? file->size : PAGE);
    if (error)
        return dw_say(why, DW_ERR_IO, "%.100s cannot be read: %s", file->path, strerror(error));
    if (file->size <= PAGE && is_zero(page)) return DW_OK;
    if (memcmp(page, mark, BEFORE_VERSION) != 0)
        return dw_say(why, DW_ERR_IO,
                      "%.100s is not a file for prev, and is left as it is: name another one",
                      file->path);
    if (memcmp(page, mark, sizeof mark) != 0)
        return dw_say(why, DW_ERR_VERSION,
                      "%.100s was made by another version of deltawire, and is left as it is: name "
                      "another file, or delete this one",
                      file->path);
    file->id = read_sealed(page, HEAD_BYTES - 8);
    file->generation = read_sealed(page + AT_GENERATION, 8);
    return DW_OK;
}

static bool has_index(const storage_file *file)
{
    int fd;
    if (dw_disk_open(file->index, false, &fd)) return false;
    dw_disk_close(fd);
    return true;
}

static dw_status cannot_open(const char *path, int error, dw_why *why)
{
    return dw_say(
        why, DW_ERR_IO,
        "%.100s cannot be opened: %s; give a file in a directory that exists and can be written",
        path, strerror(error));
}

static dw_status open_file(storage_file *file, dw_why *why)
{
    int error = dw_disk_open(file->path, false, &file->fd);
    if (error == ENOENT && has_index(file))
        return dw_say(why, DW_ERR_IO,
                      "%.100s is not there, but its index %.100s is: put the file back, or "
                      "delete the index to begin anew",
                      file->path, file->index);
    if (error == ENOENT) error = dw_disk_open(file->path, true, &file->fd);
    if (error == EEXIST) error = dw_disk_open(file->path, false, &file->fd); /* it was just made */
    return error ? cannot_open(file->path, error, why) : DW_OK;
}

/* Locks the file, and reads what it is. *is_gone: another process has removed it. */
static dw_status check_file(storage_file *file, bool *is_gone, dw_why *why)
{
    int error = dw_disk_size(file->fd, &file->size);
    if (error == EINVAL)
        return dw_say(why, DW_ERR_IO,
                      "%.100s is not a regular file: name one that may be made there", file->path);
    if (error)
        return dw_say(why, DW_ERR_IO, "%.100s cannot be examined: %s", file->path, strerror(error));
    error = dw_disk_lock(file->fd);
    if (!error) error = dw_disk_is_named(file->fd, file->path);
    *is_gone = error == ESTALE;
    if (*is_gone) return DW_OK;
    if (error == EWOULDBLOCK)
        return dw_say(why, DW_ERR_IO, "%.100s is in use: give every process a file of its own",
                      file->path);
    if (error)
        return dw_say(why, DW_ERR_IO, "%.100s cannot be locked: %s", file->path, strerror(error));
    /* Another process may have written it before it gave the lock back. */
    error = dw_disk_size(file->fd, &file->size);
    if (error)
        return dw_say(why, DW_ERR_IO, "%.100s cannot be examined: %s", file->path, strerror(error));
    return check_page(file, why);
}

static bool ends_in(const char *text, const char *ending)
{
    size_t length = strlen(text), of_ending = strlen(ending);
    return length >= of_ending && strcmp(text + length - of_ending, ending) == 0;
}

/* Finds the names of the file and of its index. */
static dw_status name_files(storage_file *file, const char *path, dw_why *why)
{
    int error = dw_disk_resolve(path, &file->path);
    size_t room = error ? 0 : strlen(file->path) + sizeof ".index";
    if (!error && (ends_in(file->path, ".index") || ends_in(file->path, ".index.tmp")))
        return dw_say(why, DW_ERR_CONFIG,
                      "%.100s has the name of the index of another file: choose another ending",
                      file->path);
    if (!error && !(file->index = malloc(room))) error = ENOMEM;
    if (error == ENOMEM) return dw_say(why, DW_ERR_NO_MEMORY, "there is no memory");
    if (error) return cannot_open(path, error, why);
    snprintf(file->index, room, "%s.index", file->path);
    return DW_OK;
}

dw_status dw_storage_file_open(storage_file *file, const char *path, dw_why *why)
{
    *file = (storage_file){.fd = -1};
    dw_storage_slots_begin(&file->slots);
    dw_status status = name_files(file, path, why);
    for (bool is_gone = true; !status && is_gone;) {
        if (file->fd >= 0) dw_disk_close(file->fd);
        file->fd = -1;
        status = open_file(file, why);
        if (!status) status = check_file(file, &is_gone, why);
    }
    if (status) dw_storage_file_close(file, false);
    return status;
}

static dw_status cannot_write(const storage_file *file, int error, dw_why *why)
{
    if (!error) return DW_OK;
    return dw_say(why, DW_ERR_IO, "%.100s cannot be written: %s", file->path, strerror(error));
}

/* The disk has the first page, and the name, before anything else is written, so that a file of
 * this library can always be told from others. */
dw_status dw_storage_file_begin(storage_file *file, dw_why *why)
{
    uint8_t page[PAGE] = {0};
    file->id = dw_mem_random();
    file->generation = 0;
    dw_storage_slots_free(&file->slots);
    memcpy(page, mark, sizeof mark);
    dw_put64(page + AT_ID, file->id);
    dw_put64(page + AT_ID + 8, XXH3_64bits(page, AT_ID + 8));
    int error = dw_disk_resize(file->fd, 0);
    if (!error) error = dw_disk_write(file->fd, 0, page, sizeof page);
    if (!error) error = dw_disk_sync(file->fd);
    if (!error) error = dw_disk_sync_folder(file->path);
    return cannot_write(file, error, why);
}

dw_status dw_storage_file_resume(storage_file *file, dw_why *why)
{
    return cannot_write(file, dw_disk_resize(file->fd, file->slots.end * PAGE), why);
}

void dw_storage_file_note(storage_file *file, uint64_t generation)
{
    uint8_t note[NOTE_BYTES];
    dw_put64(note, generation);
    dw_put64(note + 8, XXH3_64bits(note, 8));
    file->generation = generation;
    (void)dw_disk_write(file->fd, AT_GENERATION, note, sizeof note);
}

void dw_storage_file_close(storage_file *file, bool removes)
{
    if (removes && !dw_disk_is_named(file->fd, file->path)) (void)dw_disk_remove(file->path);
    if (file->fd >= 0) dw_disk_close(file->fd);
    dw_storage_slots_free(&file->slots);
    free(file->path);
    free(file->index);
    *file = (storage_file){.fd = -1};
}
