/* SPDX-License-Identifier: Apache-2.0
 * storage_disk.c - the calls of POSIX for the files of a storage. */
#include "storage_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

int dw_disk_resolve(const char *path, char **resolved)
{
    struct stat link;
    *resolved = realpath(path, NULL);
    if (*resolved) return 0;
    if (errno != ENOENT) return errno;
    if (!lstat(path, &link)) return ENOLINK;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char *given = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    char *folder = given ? realpath(given, NULL) : NULL;
    int error = folder ? 0 : errno;
    free(given);
    size_t length = folder ? strlen(folder) : 0, room = length + strlen(name) + 2;
    if (folder) *resolved = malloc(room);
    if (*resolved)
        snprintf(*resolved, room, "%s%s%s", folder, folder[length - 1] == '/' ? "" : "/", name);
    free(folder);
    return error || *resolved ? error : ENOMEM;
}

int dw_disk_open(const char *path, bool makes, int *fd)
{
    *fd = open(path, O_RDWR | O_CLOEXEC | (makes ? O_CREAT | O_EXCL : 0), 0600);
    return *fd < 0 ? errno : 0;
}

void dw_disk_close(int fd)
{
    (void)close(fd);
}

int dw_disk_size(int fd, uint64_t *bytes)
{
    struct stat found;
    if (fstat(fd, &found)) return errno;
    *bytes = (uint64_t)found.st_size;
    return S_ISREG(found.st_mode) ? 0 : EINVAL;
}

int dw_disk_lock(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB) ? errno : 0;
}

int dw_disk_is_named(int fd, const char *path)
{
    struct stat opened, named;
    if (fstat(fd, &opened)) return errno;
    if (stat(path, &named)) return errno == ENOENT ? ESTALE : errno;
    return opened.st_dev == named.st_dev && opened.st_ino == named.st_ino ? 0 : ESTALE;
}

int dw_disk_read(int fd, uint64_t offset, void *to, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes;) {
        ssize_t n = pread(fd, (char *)to + at, bytes - at, (off_t)(offset + at));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n ? errno : EIO;
        at += (uint64_t)n;
    }
    return 0;
}

int dw_disk_write(int fd, uint64_t offset, const void *from, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes;) {
        ssize_t n = pwrite(fd, (const char *)from + at, bytes - at, (off_t)(offset + at));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n ? errno : EIO;
        at += (uint64_t)n;
    }
    return 0;
}

int dw_disk_resize(int fd, uint64_t bytes)
{
    return ftruncate(fd, (off_t)bytes) ? errno : 0;
}

int dw_disk_sync(int fd)
{
    return fsync(fd) ? errno : 0;
}

int dw_disk_rename(const char *from, const char *to)
{
    return rename(from, to) ? errno : 0;
}

int dw_disk_remove(const char *path)
{
    return unlink(path) ? errno : 0;
}

int dw_disk_sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    if (!folder) return ENOMEM;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int error = fd < 0 || fsync(fd) ? errno : 0;
    if (fd >= 0) (void)close(fd);
    free(folder);
    return error == EINVAL ? 0 : error; /* file systems without folders on a disk */
}
