/* SPDX-License-Identifier: Apache-2.0
 * tls_pair.h - two ends under TLS and a simulated network between them, which the test controls:
 * bytes move only when the test says so. */
#ifndef DW_TESTS_TLS_PAIR_H
#define DW_TESTS_TLS_PAIR_H

#include <stdio.h>
#include <string.h>

#include "support/test.h"
#include "tls/tls.h"
#include "tls/tls_identity.h"
#include "tls/tls_psk.h"

enum { LISTENER = 0, CONNECTOR = 1 };

typedef struct tls_end {
    dw_stream stream;
    dw_tls_context *context; /* NULL: the test itself plays this end */
    int wire;                /* the network's side of this end's socket */
    dw_status status;        /* of the handshake; first DW_PENDING */
    dw_why why;              /* about the context */
    unsigned char *said;     /* all bytes that this end has sent */
    size_t said_len, said_cap;
    int is_gone; /* this end was closed, and the other one knows */
} tls_end;

typedef struct tls_pair {
    tls_end end[2];
    size_t at_most;   /* how many bytes the network moves at a time; 0: all */
    size_t flip_at;   /* number, from 1, of a listener's byte that is changed; 0: none */
    int socket_bytes; /* the size of the sockets' buffers; 0: the system's default */
} tls_pair;

/* Creates contexts, sockets and streams. NULL options: the test itself plays that end, with the
 * socket in pair.end[].stream.fd. */
void tls_pair_make(tls_pair *pair, const dw_tls_options *listener, const dw_tls_options *connector);
/* Moves what the ends have sent over the network, both ways. Returns the number of bytes. */
size_t tls_pair_carry(tls_pair *pair);
/* Continues both handshakes until neither is pending. An end whose handshake failed hangs up. */
void tls_pair_shake(tls_pair *pair);
/* Makes a pair and completes both handshakes; the test fails if they do not succeed. */
void tls_pair_meet(tls_pair *pair, const dw_tls_options *listener, const dw_tls_options *connector);
void tls_pair_free(tls_pair *pair);

/* Sends len bytes of a pattern from one end to the other, in pieces of many sizes. The test fails
 * unless they arrive unchanged. */
void tls_pair_move(tls_pair *pair, int from, size_t len, uint64_t pattern);

/* Sends these bytes from an end that the test plays. */
void tls_pair_say(tls_pair *pair, int end, const void *bytes, size_t len);

extern const unsigned char tls_group_key[32];
dw_tls_options tls_with_group_key(const char *own_name, const char *peer_name);

#endif
