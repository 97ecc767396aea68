/* SPDX-License-Identifier: Apache-2.0
 * raw_peer.h - plays the other end of a link over tcp: connections without a network, what is
 * written to them, and what the end under test sends on them, which must always be valid.
 *
 * Programs that use it are linked with --wrap=dw_tcp_listen,--wrap=dw_tcp_dial: connections are
 * Unix-domain sockets. */
#ifndef DELTAWIRE_TESTS_FUZZ_RAW_PEER_H
#define DELTAWIRE_TESTS_FUZZ_RAW_PEER_H

#include "said.h"

enum { RAW_CONNECTIONS = 24, RAW_SENT_MOST = 2048, RAW_PATTERN_BYTES = 1 << 20 };

/* How the next hello of ours differs from what it should be. */
typedef struct raw_hello {
    int session; /* 0: the right one; 1: zeros, a new one; 2: one byte differs */
    unsigned stripe, stripes;
    int answer, version, role, cut;
    int odd_whole, odd_limit; /* 0: honest */
} raw_hello;

typedef struct raw_connection {
    int fd; /* -1: none, or over */
    int is_stalled;
    said_stream says;
    raw_hello hello;
    /* What the end says. */
    size_t hello_n, header_n;
    unsigned char hello_heard[DW_TCP_HELLO_BYTES], header[DW_TCP_CHUNK_RECORD_BYTES];
    uint64_t body_left, number, at;
    uint64_t last_whole, last_limit;
    unsigned echoes, asked_us;
} raw_connection;

/* A message that the end was told to send. */
typedef struct raw_sent {
    uint64_t len, position;
    unsigned chunks, seen;
    unsigned char has[DW_TCP_CHUNKS_MOST];
} raw_sent;

typedef struct raw_peer {
    raw_connection connections[RAW_CONNECTIONS];
    unsigned n_connections;
    int listens; /* the end under test does */
    int has_session, refuses, was_alone;
    unsigned char session[DW_TCP_SESSION_BYTES];
    unsigned stripes;
    raw_hello next; /* what the next dialler is answered */
    raw_sent sent[RAW_SENT_MOST];
    uint64_t n_sent, sent_bytes;
    uint64_t n_numbered;         /* of these, that the end may hear of again */
    uint64_t seen;               /* messages that came whole, from the first on */
    uint64_t taken, taken_bytes; /* by the end's link */
    uint64_t longest;
    uint64_t written;
    int moved; /* something was heard or written since this was last 0 */
} raw_peer;
extern raw_peer peer;

void raw_start(void);
void raw_end(void);

/* len bytes that look like no other part's. */
const unsigned char *raw_pattern(uint64_t number, uint64_t chunk, unsigned variant);

void raw_connect(const raw_hello *hello); /* to an end that listens */
void raw_close(raw_connection *connection);
/* Turns the end where its sockets are full. */
void raw_write(raw_connection *connection, const unsigned char *bytes, size_t n);
/* The fields of a record; whole and limit as honest as the peer is. */
void raw_header(unsigned char *header, int kind, uint64_t number, size_t len);
void raw_hear(void);
void raw_note_send(uint64_t len);
int raw_is_stripe(const raw_connection *connection);
uint64_t raw_honest_limit(void);

/* The target's: gives the end a turn. 0: it has failed. */
int target_turn(void);

#endif
