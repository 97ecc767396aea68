/* SPDX-License-Identifier: Apache-2.0
 * tls_socket.h - how OpenSSL reaches the socket of a dw_tls, which the BIO carries as its data. */
#ifndef DW_TLS_SOCKET_H
#define DW_TLS_SOCKET_H

#include <openssl/bio.h>

/* NULL: no memory. The caller's, by BIO_meth_free. */
BIO_METHOD *dw_tls_socket_method(void);

#endif
