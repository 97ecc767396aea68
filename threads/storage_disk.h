/* SPDX-License-Identifier: Apache-2.0
 * storage_disk.h - what a storage asks of the operating system for its files.
 *
 * Tests have a disk of their own behind these functions, whose power can be cut. All return 0, or
 * an errno. Threads: any; a descriptor may be read and written by several at a time. */
#ifndef DW_STORAGE_DISK_H
#define DW_STORAGE_DISK_H

#include <stdbool.h>
#include <stdint.h>

/* The absolute path of a file that exists or can be made, with no symbolic link in it, so that it
 * names the same file for every caller and in every working directory. ENOLINK: a link to nothing.
 * The caller frees it. */
int dw_disk_resolve(const char *path, char **resolved);

/* Opens a file to read and write it. makes: it must not exist, or the error is EEXIST, and is made
 * with mode 0600. */
int dw_disk_open(const char *path, bool makes, int *fd);
void dw_disk_close(int fd);

/* EINVAL: it is not a regular file. */
int dw_disk_size(int fd, uint64_t *bytes);

/* Locks the file until it is closed. EWOULDBLOCK: another process, or another descriptor, has the
 * lock. */
int dw_disk_lock(int fd);

/* Whether the open file still has this name. ESTALE: it was moved, replaced or removed. */
int dw_disk_is_named(int fd, const char *path);

/* Read and write all bytes. read: EIO where the file is too short. */
int dw_disk_read(int fd, uint64_t offset, void *to, uint64_t bytes);
int dw_disk_write(int fd, uint64_t offset, const void *from, uint64_t bytes);
int dw_disk_resize(int fd, uint64_t bytes);

/* Returns when the disk has all that was written to the file before, and its size. */
int dw_disk_sync(int fd);

/* Change the names in a folder. The disk has them when the folder of `path` was synced. */
int dw_disk_rename(const char *from, const char *to);
int dw_disk_remove(const char *path);
int dw_disk_sync_folder(const char *path);

#endif
