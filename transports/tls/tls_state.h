/* SPDX-License-Identifier: Apache-2.0
 * tls_state.h - what the files of TLS share: a context, and one connection.
 *
 * | file           | owns                                                                    |
 * | tls_context.c  | from options to an SSL_CTX: one mode each, TLS 1.3 and nothing else     |
 * | tls_psk.c      | the group key, keys of pairs derived from it, identities on the wire    |
 * | tls_identity.c | names; the name that a certificate proves                               |
 * | tls_stream.c   | one connection: handshake, records, key updates, the end                |
 * | tls_socket.c   | how OpenSSL reaches the socket                                          |
 * | tls_words.c    | OpenSSL's own words for what went wrong                                 |
 * | no_tls.c       | all of it, in a build without OpenSSL                                   |
 */
#ifndef DW_TLS_STATE_H
#define DW_TLS_STATE_H

#include <openssl/ssl.h>
#include <stdbool.h>

#include "tls/tls.h"

enum { DW_TLS_GROUP_KEY_LEAST = 32, DW_TLS_GROUP_KEY_MOST = 4096, DW_TLS_PAIR_KEY_BYTES = 32 };

/* "dw1 CLIENT SERVER", and a zero. */
enum { DW_TLS_IDENTITY_BYTES = 4 + 2 * DW_TLS_NAME_BYTES };

struct dw_tls_context {
    dw_allocator allocator; /* of it and its connections; OpenSSL's own memory is OpenSSL's affair
                             */
    SSL_CTX *ssl;
    BIO_METHOD *socket; /* of all its connections */
    dw_link_role role;
    bool uses_group_key;
    /* peer: "" where anybody may come. */
    char own_name[DW_TLS_NAME_BYTES], peer_name[DW_TLS_NAME_BYTES];
    unsigned char group_key[DW_TLS_GROUP_KEY_MOST], dummy_key[DW_TLS_GROUP_KEY_LEAST];
    size_t group_key_bytes;
    char identity[DW_TLS_IDENTITY_BYTES]; /* ours, where we dial with a group key */
    uint64_t records_per_key;             /* then our writing key is replaced */
};

/* One connection. */
typedef struct dw_tls {
    dw_tls_context *context;
    SSL *ssl;
    int fd;
    int64_t deadline_ns;
    uint64_t unproven_bytes;
    bool is_shaken, is_proven, is_broken, is_ended;
    bool said_too_much, has_eof; /* why the socket gave nothing */
    int error;                   /* errno of the socket */
    int wants;                   /* events of the handshake */
    bool read_wants_write, write_wants_read, read_waits;
    bool is_pending;  /* a record is encrypted, and the socket has not taken all of it */
    uint64_t records; /* since the last key */
    char peer_name[DW_TLS_NAME_BYTES];
    unsigned char *joined; /* one record, where it is put together of several parts */
} dw_tls;

#endif
