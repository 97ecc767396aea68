/* SPDX-License-Identifier: Apache-2.0
 * keys.c - keys and certificates of a run, and `deltawire keygen`. */
#include "keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "complain.h"
#include "link_text.h"

enum { KEY_BYTES = 32 };

void dw_rank_name(char name[DW_RANK_NAME_BYTES], uint32_t rank)
{
    snprintf(name, DW_RANK_NAME_BYTES, "rank/%u", rank);
}

dw_status dw_keys_choose(dw_tls_options *tls, const char *link, dw_train_config *config,
                         dw_why *why)
{
    const char *file = getenv("DELTAWIRE_GROUP_KEY_FILE");
    bool has_certificate = tls->certificate_file || tls->key_file || tls->ca_file;
    bool is_given = tls->group_key_file || has_certificate;
    *why = (dw_why){.offset = -1};
    if (is_given && config->insecure_plaintext) {
        return dw_fail(
            why, DW_ERR_ARGUMENT,
            "--insecure-plaintext and a key or certificate contradict each other; leave one out");
    }
    if (tls->group_key_file && has_certificate) {
        return dw_fail(why, DW_ERR_ARGUMENT,
                       "--group-key and certificates are two ways to the same end; leave one out");
    }
    if (has_certificate && (!tls->certificate_file || !tls->key_file || !tls->ca_file)) {
        return dw_fail(why, DW_ERR_ARGUMENT,
                       "--certificate, --key and --ca go together; give all three");
    }
    if (!is_given && file && *file && !config->insecure_plaintext && !dw_link_text_is(link, "mpi"))
        tls->group_key_file = file;
    tls->struct_size = sizeof *tls;
    config->tls = tls->group_key_file || has_certificate ? tls : NULL;
    return DW_OK;
}

/* ---- Making one ------------------------------------------------------------------------------ */

static const char help[] =
    "Usage: deltawire keygen FILE\n"
    "Writes 32 random bytes to FILE, which must not exist and which only its owner may read: the\n"
    "group key of a run. Give every rank a copy, by a way that nobody else can see, and name it\n"
    "by --group-key or DELTAWIRE_GROUP_KEY_FILE.\n";

/* Whole and on the disk, or not there. */
static int write_key(const char *path)
{
    unsigned char key[KEY_BYTES];
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    bool is_good = getrandom(key, sizeof key, 0) == (ssize_t)sizeof key &&
                   write(fd, key, sizeof key) == (ssize_t)sizeof key;
    is_good = is_good && fsync(fd) == 0;
    is_good = close(fd) == 0 && is_good;
    explicit_bzero(key, sizeof key);
    if (is_good) return 0;
    int error = errno;
    unlink(path);
    errno = error;
    return -1;
}

int dw_cli_keygen(int argc, char **argv)
{
    if (argc == 2 &&
        (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "-?"))) {
        fputs(help, stdout);
        return DW_EXIT_OK;
    }
    if (argc != 2 || argv[1][0] == '-') {
        fputs(help, stderr);
        return DW_EXIT_USAGE;
    }
    if (write_key(argv[1]) == 0) return DW_EXIT_OK;
    if (errno == EEXIST)
        dw_complain("%s is there already, and somebody may be using it; choose another name",
                    argv[1]);
    else
        dw_complain("cannot write a key to %s: %s", argv[1], strerror(errno));
    return DW_EXIT_FAILED;
}
