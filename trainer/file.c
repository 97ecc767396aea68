/* SPDX-License-Identifier: Apache-2.0
 * file.c - writes a file under another name, and renames it when it has reached the disk. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/sentence.h"

enum { BUFFER_BYTES = 1 << 18 };

static void write_all(dw_file *file, const void *data, size_t len)
{
    const char *from = data;
    while (len && !file->error) {
        ssize_t wrote = write(file->fd, from, len);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) {
            file->error = wrote < 0 ? errno : EIO;
            return;
        }
        from += wrote;
        len -= (size_t)wrote;
    }
}

/* Flushes the directory, so that the rename survives a power failure. */
static int flush_directory(const char *directory)
{
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return -1;
    int failed = fsync(fd);
    close(fd);
    return failed;
}

static void release(dw_file *file)
{
    free(file->buffer);
    XXH3_freeState(file->digest);
}

dw_status dw_file_begin(dw_file *file, const char *temporary, size_t head_len, dw_why *why)
{
    *file = (dw_file){.fd = -1, .buffer = malloc(BUFFER_BYTES), .digest = XXH3_createState()};
    if (!file->buffer || !file->digest) {
        release(file);
        return dw_say(why, DW_ERR_NO_MEMORY, "out of memory while writing %s", temporary);
    }
    XXH3_64bits_reset(file->digest);
    snprintf(file->temporary, sizeof file->temporary, "%s", temporary);
    file->fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file->fd < 0) {
        int error = errno;
        release(file);
        return dw_say(why, DW_ERR_IO, "cannot write the checkpoint file %s: %s", temporary,
                      strerror(error));
    }
    if (lseek(file->fd, (off_t)head_len, SEEK_SET) < 0) file->error = errno;
    return DW_OK;
}

uint64_t dw_file_digest(const dw_file *file)
{
    return XXH3_64bits_digest(file->digest);
}

void dw_file_append(dw_file *file, const void *bytes, size_t len)
{
    XXH3_64bits_update(file->digest, bytes, len);
    file->len += len;
    if (len > BUFFER_BYTES - file->filled) {
        write_all(file, file->buffer, file->filled);
        file->filled = 0;
    }
    if (len > BUFFER_BYTES) {
        write_all(file, bytes, len);
    } else if (len) {
        memcpy(file->buffer + file->filled, bytes, len);
        file->filled += len;
    }
}

void dw_file_drop(dw_file *file)
{
    if (file->fd >= 0) close(file->fd);
    unlink(file->temporary);
    release(file);
}

dw_status dw_file_finish(dw_file *file, const char *directory, const char *path, const void *head,
                         size_t head_len, dw_why *why)
{
    write_all(file, file->buffer, file->filled);
    if (!file->error && lseek(file->fd, 0, SEEK_SET) < 0) file->error = errno;
    write_all(file, head, head_len);
    if (!file->error && fsync(file->fd)) file->error = errno;
    if (close(file->fd) && !file->error) file->error = errno;
    file->fd = -1;
    if (!file->error && rename(file->temporary, path)) file->error = errno;
    if (!file->error) {
        int failed = flush_directory(directory);
        release(file);
        if (!failed) return DW_OK;
        return dw_say(why, DW_ERR_IO,
                      "the directory of the checkpoint file %s cannot be flushed: %s; a power "
                      "failure may bring back the file before it",
                      path, strerror(errno));
    }
    dw_file_drop(file);
    return dw_say(why, DW_ERR_IO,
                  "cannot write the checkpoint file %s: %s; the checkpoint before it is untouched",
                  path, strerror(file->error));
}

dw_status dw_file_write(const char *directory, const char *path, const char *temporary,
                        const void *head, size_t head_len, const void *body, size_t body_len,
                        dw_why *why)
{
    dw_file file;
    dw_status status = dw_file_begin(&file, temporary, head_len, why);
    if (status < 0) return status;
    dw_file_append(&file, body, body_len);
    return dw_file_finish(&file, directory, path, head, head_len, why);
}
