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
#include "rows.h"

enum { KEY_BYTES = 32 };

void dw_rank_name(char name[DW_RANK_NAME_BYTES], uint32_t rank)
{
    snprintf(name, DW_RANK_NAME_BYTES, "rank/%u", rank);
}

dw_status dw_keys_choose(dw_tls_options *tls, const char *link, dw_train_config *config,
                         dw_why *why)
{
    const char *file = getenv("DELTAWIRE_GROUP_KEY_FILE");
    if (!link) link = config->listen ? config->listen : config->connect;
    bool has_certificate = tls->certificate_file || tls->key_file || tls->ca_file;
    bool is_given = tls->group_key_file || has_certificate;
    *why = (dw_why){.offset = -1};
    if (is_given && config->insecure_plaintext) {
        return dw_say(
            why, DW_ERR_ARGUMENT,
            "--insecure-plaintext contradicts a key or certificate; leave one of them out");
    }
    if (tls->group_key_file && has_certificate) {
        return dw_say(
            why, DW_ERR_ARGUMENT,
            "--group-key and certificates cannot be used together; leave one of them out");
    }
    if (has_certificate && (!tls->certificate_file || !tls->key_file || !tls->ca_file)) {
        return dw_say(why, DW_ERR_ARGUMENT,
                      "--certificate, --key and --ca need each other; give all three");
    }
    if (!is_given && file && *file && !config->insecure_plaintext &&
        (!link || dw_row_carries_tls(link)))
        tls->group_key_file = file;
    tls->struct_size = sizeof *tls;
    config->tls = tls->group_key_file || has_certificate ? tls : NULL;
    return DW_OK;
}

/* ---- Making one ------------------------------------------------------------------------------ */

static const char help[] =
    "Usage: deltawire keygen FILE\n"
    "Creates FILE with 32 random bytes: the secret key that all ranks of a run share. Only the\n"
    "owner may read the file. An existing file is never overwritten.\n"
    "\n"
    "Copy FILE to every rank in a way that nobody else can read, and pass it to `deltawire train'\n"
    "as --group-key FILE or in the environment variable DELTAWIRE_GROUP_KEY_FILE.\n"
    "\n"
    "Exit status: 0 success, 1 the file could not be written, 2 wrong usage.\n";

/* Leaves either the whole key on the disk or no file. */
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
    if (argc != 2 || argv[1][0] == '-' || !*argv[1]) {
        dw_complain(argc > 2                ? "keygen creates one file at a time"
                    : argc < 2 || !*argv[1] ? "keygen needs the name of the file to create"
                                            : "keygen has no option but --help; a file name that "
                                              "begins with - is written as ./-");
        fputs("Try `deltawire keygen --help' for more information.\n", stderr);
        return DW_EXIT_USAGE;
    }
    if (write_key(argv[1]) == 0) return DW_EXIT_OK;
    if (errno == EEXIST)
        dw_complain("%s exists already and is not overwritten; choose another name", argv[1]);
    else
        dw_complain("cannot write a key to %s: %s", argv[1], strerror(errno));
    return DW_EXIT_FAILED;
}
