/* SPDX-License-Identifier: Apache-2.0
 * folder.h - a temporary folder for a test. */
#ifndef DW_TEST_FOLDER_H
#define DW_TEST_FOLDER_H

#include <stdio.h>
#include <stdlib.h>

/* Short, because the path of a socket has at most 107 bytes. */
enum { TEST_FOLDER_BYTES = 64 };

/* Creates a folder and stores its path. Returns -1 on failure. */
static inline int test_folder(char path[TEST_FOLDER_BYTES], const char *name)
{
    const char *place = getenv("TMPDIR");
    if (!place || !*place) place = P_tmpdir;
    int n = snprintf(path, TEST_FOLDER_BYTES, "%s/deltawire-%s-XXXXXX", place, name);
    if (n < 0 || n >= TEST_FOLDER_BYTES) {
        fprintf(stderr, "TMPDIR=%s is too long for the paths of sockets: using %s\n", place,
                P_tmpdir);
        snprintf(path, TEST_FOLDER_BYTES, "%s/deltawire-%s-XXXXXX", P_tmpdir, name);
    }
    return mkdtemp(path) ? 0 : -1;
}

#endif
