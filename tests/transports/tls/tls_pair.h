/* SPDX-License-Identifier: Apache-2.0
 * tls_pair.h - two ends under TLS and a simulated network between them, which the test controls: no
 * byte moves unless the test says so. */
#ifndef DW_TESTS_TLS_PAIR_H
#define DW_TESTS_TLS_PAIR_H

#include "tls/tls.h"
#include "tls/tls_identity.h"
#include "tls/tls_psk.h"

enum { LISTENER = 0, CONNECTOR = 1 };

typedef struct tls_end {
    dw_stream stream;
    dw_tls_context *context; /* NULL: the test speaks for this end */
    int wire;                /* the other end of the stream's socket */
    dw_status status;        /* of the handshake; DW_PENDING */
    dw_why why;              /* of the context */
    unsigned char *said;     /* all that came out of it */
    size_t said_len, said_cap;
    int is_gone; /* it was closed, and the other end knows */
} tls_end;

typedef struct tls_pair {
    tls_end end[2];
    size_t at_most;   /* bytes that the wire carries at a time; 0: all */
    size_t flip_at;   /* byte of what the listener says that is changed on the way; 0: none */
    int socket_bytes; /* size of sockets' buffers; 0: the system's */
} tls_pair;

/* Makes contexts, sockets and covers. NULL options: that end is the test's own, which uses
 * pair.end[].wire's socket. */
void tls_pair_make(tls_pair *pair, const dw_tls_options *listener, const dw_tls_options *connector);
/* Carries what lies on the wire, both ways: what each end said is told to the other. Returns bytes
 * moved. */
size_t tls_pair_carry(tls_pair *pair);
/* Both ends shake until neither is pending. An end that failed hangs up. */
void tls_pair_shake(tls_pair *pair);
/* Made, and good: the test fails otherwise. */
void tls_pair_meet(tls_pair *pair, const dw_tls_options *listener, const dw_tls_options *connector);
void tls_pair_free(tls_pair *pair);

/* Moves len bytes of a pattern from one end to the other, in pieces as sizes say; fails the test
 * where they arrive changed. */
void tls_pair_move(tls_pair *pair, int from, size_t len, uint64_t pattern);

/* A raw end says this, whatever it is. */
void tls_pair_say(tls_pair *pair, int end, const void *bytes, size_t len);

extern const unsigned char tls_group_key[32];
dw_tls_options tls_with_group_key(const char *own_name, const char *peer_name);

#endif
