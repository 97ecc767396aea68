/* SPDX-License-Identifier: Apache-2.0
 * said.h - remembers what the fuzzer's peer has sent ("said") to an end of the backend tcp, and
 * parses it a second time by the rules in tcp_wire.h.
 *
 * The end reads its connections in any order, so it is only known what it must have read at the
 * latest, and what it may have read already. Nothing is freed until said_forget frees
 * everything. */
#ifndef DELTAWIRE_TESTS_FUZZ_SAID_H
#define DELTAWIRE_TESTS_FUZZ_SAID_H

#include "fuzz.h"
#include "tcp/tcp_end.h"

enum { SAID_NUMBERS = 8192 }; /* how many messages there can be; higher numbers are invalid */

typedef struct said_part said_part;

/* What was sent on one connection. */
typedef struct said_stream {
    int is_stripe;   /* the end has welcomed the connection */
    int is_sure;     /* nothing that was sent on it is lost */
    int is_nonsense; /* something invalid was sent, which must end the link; the rest is ignored */
    size_t hello_n, header_n;
    unsigned char hello[DW_TCP_HELLO_BYTES], header[DW_TCP_CHUNK_RECORD_BYTES];
    uint64_t body_left;
    said_part *part;
    uint64_t most_whole, most_number;
    unsigned asks;
} said_stream;

typedef struct said_all {
    int may_fail;   /* something was sent that may end the link */
    uint64_t limit; /* how many bytes the end may send */
    uint64_t whole; /* how many messages the end need not keep any more */
} said_all;
extern said_all said;

void said_forget(void);
void said_forget_others(const said_stream *stream); /* it begins a new session */

/* Notes bytes that are about to be written. They must not be freed or changed. taken, sent: how
 * many messages the end's link has received and has sent so far. */
void said_bytes(said_stream *stream, const unsigned char *bytes, size_t n, uint64_t taken,
                uint64_t sent, uint64_t longest);
int said_is_full(void); /* no more can be remembered, so the input should end here */
/* Whether the next byte is the first one of a record. */
int said_is_between(const said_stream *stream);

int said_is_whole(uint64_t number, int surely);
int said_has_chunk(uint64_t number, uint64_t total, size_t chunk); /* by any connection */
uint64_t said_prefix(void); /* how many messages, from the first on, may have arrived completely */
uint64_t said_undelivered(uint64_t taken); /* bytes of the messages from that number on */
uint64_t said_bytes_of(uint64_t number);
/* Ends the process if the received message does not consist of bytes that were sent for it. */
void said_check(uint64_t number, const unsigned char *data, size_t len);
/* Whether different lengths were certainly sent for a message that was never completed. */
int said_two_lengths(void);

#endif
