/* SPDX-License-Identifier: Apache-2.0
 * raw_peer.h - plays the other end of a link over tcp, without a network: opens connections, writes
 * to them, and checks that everything that the end under test sends is valid.
 *
 * Programs that use it are linked with --wrap=dw_tcp_listen,--wrap=dw_tcp_connect: connections are
 * Unix-domain sockets. */
#ifndef DELTAWIRE_TESTS_FUZZ_RAW_PEER_H
#define DELTAWIRE_TESTS_FUZZ_RAW_PEER_H

#include "said.h"

enum { RAW_CONNECTIONS = 24, RAW_SENT_MOST = 2048, RAW_PATTERN_BYTES = 1 << 20 };

/* How the next hello that we send differs from a correct one. */
typedef struct raw_hello {
    int session; /* 0: the right one; 1: zeros, which ask for a new one; 2: one byte differs */
    unsigned stripe, stripes;
    int answer, version, role, cut;
    int odd_whole, odd_limit; /* 0: the true value */
} raw_hello;

typedef struct raw_connection {
    int fd; /* -1: not open, or closed */
    int is_stalled;
    said_stream says;
    raw_hello hello;
    /* What the end under test sends. */
    size_t hello_n, header_n;
    unsigned char hello_heard[DW_TCP_HELLO_BYTES], header[DW_TCP_CHUNK_RECORD_BYTES];
    uint64_t body_left, number, at;
    uint64_t last_whole, last_limit;
    unsigned echoes, asked_us;
} raw_connection;

/* A message that the end under test was told to send. */
typedef struct raw_sent {
    uint64_t len, position;
    unsigned chunks, seen;
    unsigned char has[DW_TCP_CHUNKS_MOST];
} raw_sent;

typedef struct raw_peer {
    raw_connection connections[RAW_CONNECTIONS];
    unsigned n_connections;
    int listens; /* the end under test listens, and we connect */
    int has_session, refuses, was_alone;
    unsigned char session[DW_TCP_SESSION_BYTES];
    unsigned stripes;
    raw_hello next; /* our answer to the next connection */
    raw_sent sent[RAW_SENT_MOST];
    uint64_t n_sent, sent_bytes;
    uint64_t n_numbered;         /* how many of these the end may know to be acknowledged */
    uint64_t seen;               /* how many messages arrived completely, from the first on */
    uint64_t taken, taken_bytes; /* what the end's link has received */
    uint64_t longest;
    uint64_t written;
    int moved; /* something was read or written since this was last set to 0 */
} raw_peer;
extern raw_peer peer;

void raw_start(void);
void raw_end(void);

/* len bytes that differ from those of all other parts. */
const unsigned char *raw_pattern(uint64_t number, uint64_t chunk, unsigned variant);

void raw_connect(const raw_hello *hello); /* only if the end listens */
void raw_close(raw_connection *connection);
/* Writes all bytes. While the sockets are full, the end under test gets turns. */
void raw_write(raw_connection *connection, const unsigned char *bytes, size_t n);
/* Fills in a record's header, with the true numbers for what was received and may be sent. */
void raw_header(unsigned char *header, int kind, uint64_t number, size_t len);
void raw_hear(void);
void raw_note_send(uint64_t len);
int raw_is_stripe(const raw_connection *connection);
uint64_t raw_honest_limit(void);

/* Defined by the fuzz target: gives the end under test a turn. Returns 0 if it has failed. */
int target_turn(void);

#endif
