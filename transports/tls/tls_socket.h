/* SPDX-License-Identifier: Apache-2.0
 * tls_socket.h - a BIO through which OpenSSL uses the socket of a dw_tls, the BIO's data. */
#ifndef DW_TLS_SOCKET_H
#define DW_TLS_SOCKET_H

#include <openssl/bio.h>

/* Returns a new method, which the caller frees with BIO_meth_free. NULL: no memory. */
BIO_METHOD *dw_tls_socket_method(void);

#endif
