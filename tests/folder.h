/* SPDX-License-Identifier: Apache-2.0
 * folder.h - a folder of a test's own, where this machine keeps what does not stay. */
#ifndef DW_TEST_FOLDER_H
#define DW_TEST_FOLDER_H

#include <stdio.h>
#include <stdlib.h>

enum { TEST_FOLDER_BYTES = 64 };

/* Makes one and writes its path; -1 where that cannot be. A TMPDIR whose paths would not fit is as none. */
static inline int test_folder(char path[TEST_FOLDER_BYTES], const char *name)
{
    const char *place = getenv("TMPDIR");
    int n = snprintf(path, TEST_FOLDER_BYTES, "%s/deltawire-%s-XXXXXX", place && *place ? place : "/tmp", name);
    if (n < 0 || n >= TEST_FOLDER_BYTES) snprintf(path, TEST_FOLDER_BYTES, "/tmp/deltawire-%s-XXXXXX", name);
    return mkdtemp(path) ? 0 : -1;
}

#endif
