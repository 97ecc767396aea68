/* SPDX-License-Identifier: Apache-2.0
 * said.h - what the fuzzer's peer has sent to an end of tcp: its bytes, parsed a second time by the
 * rules in tcp_end.h.
 *
 * The end reads its connections in any order, so this knows only what it must have read at the
 * latest, and what it may have read already. Nothing is freed until said_forget frees
 * everything. */
#ifndef DELTAWIRE_TESTS_FUZZ_SAID_H
#define DELTAWIRE_TESTS_FUZZ_SAID_H

#include "fuzz.h"
#include "tcp/tcp_end.h"

enum { SAID_NUMBERS = 8192 }; /* messages; what is beyond makes no sense */

typedef struct said_part said_part;

/* What one connection said. */
typedef struct said_stream {
    int is_stripe;   /* the end has welcomed it */
    int is_sure;     /* nothing of it is lost */
    int is_nonsense; /* it said what must end the link; what follows does not count */
    size_t hello_n, header_n;
    unsigned char hello[DW_TCP_HELLO_BYTES], header[DW_TCP_CHUNK_RECORD_BYTES];
    uint64_t body_left;
    said_part *part;
    uint64_t most_whole, most_number;
    unsigned asks;
} said_stream;

typedef struct said_all {
    int may_fail;   /* there was something that may end the link */
    uint64_t limit; /* the end may send so much */
    uint64_t whole; /* and let go of so many messages */
} said_all;
extern said_all said;

void said_forget(void);
void said_forget_others(const said_stream *stream); /* a new session begins with it */

/* Said next, and soon written. The bytes must stay. taken, sent: messages that the end's link has
 * by now, and has sent. */
void said_bytes(said_stream *stream, const unsigned char *bytes, size_t n, uint64_t taken,
                uint64_t sent, uint64_t longest);
int said_is_full(void); /* no more can be remembered: it is time to end */
/* Whether the next byte begins a record. */
int said_is_between(const said_stream *stream);

int said_is_whole(uint64_t number, int surely);
int said_has_chunk(uint64_t number, uint64_t total, size_t chunk); /* whole, by any connection */
uint64_t said_prefix(void); /* messages, from the first on, that may be there whole */
uint64_t said_undelivered(uint64_t taken); /* bytes said of messages from that number on */
uint64_t said_bytes_of(uint64_t number);
/* Ends the process where a message is not made of what was said of it. */
void said_check(uint64_t number, const unsigned char *data, size_t len);
/* Whether two lengths were surely given for one message that never came whole. */
int said_two_lengths(void);

#endif
