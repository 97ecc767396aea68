/* SPDX-License-Identifier: Apache-2.0
 * tls_secret.c - files that only their owner may read. */
#include "tls/tls_secret.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/report.h"

dw_status dw_tls_open_secret(const char *path, const char *what, int *fd, dw_why *why)
{
    struct stat about;
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0 || fstat(*fd, &about) != 0) {
        int error = errno;
        if (*fd >= 0) close(*fd);
        return dw_say(why, DW_ERR_IO, "cannot read the %s in %.150s: %s", what, path,
                      strerror(error));
    }
    if (!(about.st_mode & S_IRWXO)) return DW_OK;
    close(*fd);
    return dw_say(why, DW_ERR_CONFIG,
                  "every user of this machine can read or change the %s in %.100s; "
                  "change its permissions with chmod 600",
                  what, path);
}
