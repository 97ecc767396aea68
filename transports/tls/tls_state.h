/* SPDX-License-Identifier: Apache-2.0
 * tls_state.h - structs shared by the files of TLS: a context, and one connection.
 *
 * | file           | its one thing                                                           |
 * | tls_context.c  | makes an SSL_CTX of the options: group key or certificates, TLS 1.3     |
 * | tls_gate.c     | lets threads into OpenSSL until the program ends                        |
 * | tls_psk.c      | the group key, the keys derived from it, and PSK identities             |
 * | tls_identity.c | names of ends, and the name in a certificate                            |
 * | tls_secret.c   | opens files that only their owner may read                              |
 * | tls_stream.c   | one connection: handshake, records, key updates, close                  |
 * | tls_socket.c   | the BIO through which OpenSSL uses the socket                           |
 * | tls_error.c    | the text of OpenSSL's last error                                        |
 * | no_tls.c       | stands in for all of these in a build without OpenSSL                   |
 */
#ifndef DW_TLS_STATE_H
#define DW_TLS_STATE_H

#include <openssl/ssl.h>
#include <stdbool.h>

#include "tls/tls.h"

enum { DW_TLS_GROUP_KEY_LEAST = 32, DW_TLS_GROUP_KEY_MOST = 4096, DW_TLS_PAIR_KEY_BYTES = 32 };

/* "dw1 CLIENT SERVER" and a terminating zero. */
enum { DW_TLS_IDENTITY_BYTES = 4 + 2 * DW_TLS_NAME_BYTES };

struct dw_tls_context {
    /* for the context and its connections; OpenSSL allocates its own memory */
    dw_allocator allocator;
    SSL_CTX *ssl;
    BIO_METHOD *socket; /* the BIO method of all connections */
    dw_link_role role;
    bool uses_group_key;
    /* peer_name: "" if any name is accepted. */
    char own_name[DW_TLS_NAME_BYTES], peer_name[DW_TLS_NAME_BYTES];
    unsigned char group_key[DW_TLS_GROUP_KEY_MOST], dummy_key[DW_TLS_GROUP_KEY_LEAST];
    size_t group_key_bytes;
    char identity[DW_TLS_IDENTITY_BYTES]; /* our PSK identity, if we dial with a group key */
    uint64_t records_per_key;             /* after so many records the key for sending is updated */
};

/* One connection. */
typedef struct dw_tls {
    dw_tls_context *context;
    SSL *ssl;
    int fd;
    int64_t deadline_ns;
    uint64_t unproven_bytes;
    bool is_shaken, is_proven, is_broken, is_ended;
    bool said_too_much, has_eof; /* why the BIO returned an error */
    int error;                   /* errno of a failed socket call */
    int wants;                   /* poll events that the handshake waits for */
    bool read_wants_write, write_wants_read, read_waits;
    bool is_pending;  /* a record is encrypted, and the socket has not taken all of it */
    uint64_t records; /* sent since the last key update */
    char peer_name[DW_TLS_NAME_BYTES];
    unsigned char *joined; /* room to put one record together from several parts */
} dw_tls;

#endif
