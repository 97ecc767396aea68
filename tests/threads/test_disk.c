/* SPDX-License-Identifier: Apache-2.0
 * test_disk.c - what a storage asks of the operating system fails with the system's reason. */
#include "storage_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "support/folder.h"
#include "support/tool.h"

TEST(the_reason_of_the_system_is_returned)
{
    char folder[TEST_FOLDER_BYTES], path[TEST_FOLDER_BYTES + 10], byte = 0;
    uint64_t size;
    int fd, above;
    assert_int_equal(test_folder(folder, "disk"), 0);
    snprintf(path, sizeof path, "%s/file", folder);
    assert_int_equal(dw_disk_open(path, false, &fd), ENOENT);
    assert_int_equal(dw_disk_open(path, true, &fd), 0);
    assert_int_equal(dw_disk_open(path, true, &above), EEXIST);
    assert_int_equal(dw_disk_write(fd, 0, "1", 1), 0);
    assert_int_equal(dw_disk_read(fd, 1, &byte, 1), EIO); /* behind the end */
    assert_int_equal(dw_disk_lock(fd), 0);
    assert_int_equal(dw_disk_is_named(fd, path), 0);
    assert_int_equal(dw_disk_rename("/nowhere/at/all", path), ENOENT);
    assert_int_equal(dw_disk_remove(path), 0);
    assert_int_equal(dw_disk_remove(path), ENOENT);
    assert_int_equal(dw_disk_is_named(fd, path), ESTALE); /* another one may have it */
    assert_int_equal(dw_disk_is_named(fd, "/dev/null"), ESTALE);
    assert_int_equal(dw_disk_is_named(-1, path), EBADF);
    dw_disk_close(fd);
    assert_true((above = open(folder, O_RDONLY | O_DIRECTORY)) >= 0);
    assert_int_equal(dw_disk_size(above, &size), EINVAL);
    dw_disk_close(above);
    assert_int_equal(dw_disk_size(-1, &size), EBADF);
    assert_int_equal(dw_disk_lock(-1), EBADF);
    assert_int_equal(dw_disk_read(-1, 0, &byte, 1), EBADF);
    assert_int_equal(dw_disk_write(-1, 0, &byte, 1), EBADF);
    assert_int_equal(dw_disk_resize(-1, 1), EBADF);
    assert_int_equal(dw_disk_sync(-1), EBADF);
    assert_int_equal(dw_disk_sync_folder("/nowhere/at/all"), ENOENT);
    assert_int_equal(dw_disk_sync_folder("file"), 0);
    (void)rmdir(folder);
}

/* The path of a file that need not exist; its folder must. */
TEST(paths_are_made_absolute)
{
    static const struct {
        const char *path, *resolved;
        int error;
    } cases[] = {{"/no file", "/no file", 0},
                 {"/usr/../no file", "/no file", 0},
                 {"/usr/", "/usr", 0},
                 {"/nowhere/at/all", NULL, ENOENT},
                 {"/dev/null/file", NULL, ENOTDIR}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *resolved;
        assert_int_equal(dw_disk_resolve(cases[i].path, &resolved), cases[i].error);
        if (cases[i].resolved) assert_string_equal(resolved, cases[i].resolved);
        if (!cases[i].resolved) assert_null(resolved);
        free(resolved);
    }
}

RUN_TESTS(NULL, NULL)
