/* SPDX-License-Identifier: Apache-2.0
 * file.c - writes a file under another name, and renames it when it has reached the disk. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/sentence.h"

static int write_all(int fd, const void *data, size_t len)
{
    const char *from = data;
    while (len) {
        ssize_t wrote = write(fd, from, len);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return -1;
        from += wrote;
        len -= (size_t)wrote;
    }
    return 0;
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

dw_status dw_file_write(const char *directory, const char *path, const char *temporary,
                        const void *head, size_t head_len, const void *body, size_t body_len,
                        dw_why *why)
{
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return dw_say(why, DW_ERR_IO, "cannot write the checkpoint file %s: %s", temporary,
                      strerror(errno));
    bool failed = write_all(fd, head, head_len) || write_all(fd, body, body_len) || fsync(fd);
    int error = errno;
    if (close(fd) && !failed) {
        failed = true;
        error = errno;
    }
    if (!failed && (rename(temporary, path) || flush_directory(directory))) {
        failed = true;
        error = errno;
    }
    if (!failed) return DW_OK;
    unlink(temporary);
    return dw_say(why, DW_ERR_IO,
                  "cannot write the checkpoint file %s: %s; the checkpoint before it is untouched",
                  path, strerror(error));
}
