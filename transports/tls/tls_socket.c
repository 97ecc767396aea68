/* SPDX-License-Identifier: Apache-2.0
 * tls_socket.c - a BIO through which OpenSSL uses a socket. It raises no SIGPIPE, and limits how
 * much it reads before the peer is authenticated.
 *
 * OpenSSL's own BIO calls write(), which raises SIGPIPE in the program's threads, and has no limit
 * for reading. */
#include "tls/tls_socket.h"

#include <errno.h>
#include <sys/socket.h>

#include "tls/tls_state.h"

static bool is_for_later(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

static int read_socket(BIO *bio, char *room, int cap)
{
    dw_tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (!tls->is_proven) {
        uint64_t left = DW_TLS_UNPROVEN_BYTES - tls->unproven_bytes;
        if (left == 0) {
            tls->said_too_much = true;
            return -1;
        }
        if ((uint64_t)cap > left) cap = (int)left;
    }
    ssize_t n = recv(tls->fd, room, (size_t)cap, 0);
    if (n > 0 && !tls->is_proven) tls->unproven_bytes += (uint64_t)n;
    if (n == 0) tls->has_eof = true;
    if (n >= 0) return (int)n;
    if (is_for_later(errno))
        BIO_set_retry_read(bio);
    else
        tls->error = errno;
    return -1;
}

static int write_socket(BIO *bio, const char *data, int len)
{
    dw_tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    ssize_t n = send(tls->fd, data, (size_t)len, MSG_NOSIGNAL);
    if (n >= 0) return (int)n;
    if (is_for_later(errno))
        BIO_set_retry_write(bio);
    else
        tls->error = errno;
    return -1;
}

static long control_socket(BIO *bio, int command, long number, void *pointer)
{
    const dw_tls *tls = BIO_get_data(bio);
    (void)number;
    (void)pointer;
    if (command == BIO_CTRL_EOF) return tls->has_eof;
    /* nothing is buffered here; other commands are not supported */
    return command == BIO_CTRL_FLUSH;
}

static int create_socket(BIO *bio)
{
    BIO_set_init(bio, 1);
    return 1;
}

BIO_METHOD *dw_tls_socket_method(void)
{
    /* No BIO_get_new_index: a process has only 128 such numbers, and would use one up per
     * context. */
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "deltawire stream");
    if (method && BIO_meth_set_read(method, read_socket) &&
        BIO_meth_set_write(method, write_socket) && BIO_meth_set_ctrl(method, control_socket) &&
        BIO_meth_set_create(method, create_socket)) {
        return method;
    }
    BIO_meth_free(method);
    return NULL;
}
