/* SPDX-License-Identifier: Apache-2.0
 * storage_file.c - opens the file of a storage, reads and writes it, and hands out its slots. */
#include "storage_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sentence.h"

enum { PAGE = 4096 };

/* The first bytes of the file. */
static const char mark[32] = "deltawire: copies of prev, v1\n";

/* Refuses what is not empty and was not made by this library, so that a wrong path destroys
 * nothing. */
static dw_status check_file(const storage_file *file, dw_why *why)
{
    struct stat found;
    char head[sizeof mark] = {0};
    if (fstat(file->fd, &found))
        return dw_say(why, DW_ERR_IO, "%.100s cannot be examined: %s", file->path, strerror(errno));
    if (!S_ISREG(found.st_mode))
        return dw_say(why, DW_ERR_IO,
                      "%.100s is not a regular file: name one that may be made there", file->path);
    if (flock(file->fd, LOCK_EX | LOCK_NB))
        return dw_say(why, DW_ERR_IO,
                      errno == EWOULDBLOCK
                          ? "%.100s is in use: give every process a file of its own%s%s"
                          : "%.100s cannot be locked%s%s",
                      file->path, errno == EWOULDBLOCK ? "" : ": ",
                      errno == EWOULDBLOCK ? "" : strerror(errno));
    if (found.st_size == 0) return DW_OK;
    if (dw_storage_file_read(file, 0, head, sizeof head) || memcmp(head, mark, sizeof mark) != 0)
        return dw_say(why, DW_ERR_IO,
                      "%.100s is not a file for prev, and is left as it is: name another one",
                      file->path);
    return DW_OK;
}

dw_status dw_storage_file_open(storage_file *file, const char *path, dw_why *why)
{
    *file = (storage_file){.fd = -1, .path = strdup(path)};
    if (!file->path) return dw_say(why, DW_ERR_NO_MEMORY, "there is no memory");
    file->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file->fd < 0) {
        dw_status status =
            dw_say(why, DW_ERR_IO, "%.100s cannot be opened: %s", path, strerror(errno));
        dw_storage_file_close(file, false);
        return status;
    }
    dw_status status = check_file(file, why);
    int error = 0;
    if (!status && (ftruncate(file->fd, 0) || ftruncate(file->fd, PAGE))) error = errno;
    if (!status && !error) error = dw_storage_file_write(file, 0, mark, sizeof mark);
    if (error)
        status = dw_say(why, DW_ERR_IO, "%.100s cannot be written: %s", path, strerror(error));
    if (status) dw_storage_file_close(file, false);
    file->end = PAGE;
    return status;
}

void dw_storage_file_close(storage_file *file, bool removes)
{
    if (removes) (void)unlink(file->path);
    if (file->fd >= 0) (void)close(file->fd);
    for (uint64_t i = 0; i < file->n_classes; i++) free(file->classes[i].free);
    free(file->classes);
    free(file->path);
    *file = (storage_file){.fd = -1};
}

static uint64_t slot_bytes(uint64_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* The first class whose slots are not shorter. */
static uint64_t find_class(const storage_file *file, uint64_t bytes)
{
    uint64_t low = 0, high = file->n_classes;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (file->classes[middle].bytes < bytes)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static storage_class *class_of(storage_file *file, uint64_t bytes)
{
    uint64_t at = find_class(file, bytes);
    if (at < file->n_classes && file->classes[at].bytes == bytes) return &file->classes[at];
    storage_class *grown = realloc(file->classes, (file->n_classes + 1) * sizeof *grown);
    if (!grown) return NULL;
    file->classes = grown;
    memmove(grown + at + 1, grown + at, (file->n_classes - at) * sizeof *grown);
    file->n_classes++;
    grown[at] = (storage_class){.bytes = bytes};
    return &grown[at];
}

bool dw_storage_file_take(storage_file *file, uint64_t bytes, uint64_t *offset)
{
    storage_class *of = class_of(file, slot_bytes(bytes));
    if (!of) return false;
    if (of->n_free) {
        *offset = of->free[--of->n_free];
        return true;
    }
    if (of->slots == of->cap) {
        uint64_t cap = of->cap ? 2 * of->cap : 64;
        uint64_t *grown = realloc(of->free, cap * sizeof *grown);
        if (!grown) return false;
        of->free = grown;
        of->cap = cap;
    }
    of->slots++;
    *offset = file->end;
    file->end += of->bytes;
    return true;
}

void dw_storage_file_give(storage_file *file, uint64_t offset, uint64_t bytes)
{
    storage_class *of = &file->classes[find_class(file, slot_bytes(bytes))];
    of->free[of->n_free++] = offset;
}

int dw_storage_file_read(const storage_file *file, uint64_t offset, void *to, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes;) {
        ssize_t n = pread(file->fd, (char *)to + at, bytes - at, (off_t)(offset + at));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n ? errno : EIO;
        at += (uint64_t)n;
    }
    return 0;
}

int dw_storage_file_write(const storage_file *file, uint64_t offset, const void *from,
                          uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes;) {
        ssize_t n = pwrite(file->fd, (const char *)from + at, bytes - at, (off_t)(offset + at));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n ? errno : EIO;
        at += (uint64_t)n;
    }
    return 0;
}
