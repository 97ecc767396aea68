/* SPDX-License-Identifier: Apache-2.0
 * message.h - the header in front of every message of a group.
 *
 * | offset | bytes | field                                                                |
 * | 0      | 1     | kind                                                                 |
 * | 1      | 1     | DATA: the operation                                                  |
 * | 2      | 1     | DATA: the dtype                                                      |
 * | 3      | 1     | flags: DATA: 1: mean; 2: hop 2; 8: a digest of the result. ABORT: 4: |
 * |        |       | wants an answer                                                      |
 * | 4      | 4     | DATA: root. PING: the rank that the sender waits for, or 2^32 - 1.   |
 * |        |       | ABORT: the rank that the error is about                              |
 * | 8      | 8     | DATA, CLOSE: the number of the message, from 0 per direction.        |
 * |        |       | ACK: all numbers below this one have arrived                         |
 * | 16     | 8     | DATA: slot. ACK: bit i: number + 1 + i has arrived, too.             |
 * |        |       | ABORT: status, as two's complement                                   |
 * | 24     | 8     | DATA: number of earlier operations of the slot                       |
 * | 32     | 8     | DATA: length of the buffer                                           |
 * | 40     | 4     | DATA: part                                                           |
 * | 44     | 4     | DATA: piece of the part                                              |
 * | 48     | 8     | bytes of the body                                                    |
 * | 56     | 8     | XXH3-64 of bytes 0 to 55, seeded with the session, and on links that |
 * |        |       | may damage messages also of the body                                 |
 *
 * All fields are little-endian; fields without a meaning are 0. A session is made anew for each
 * group, link and direction from random numbers of both ends, so messages of an earlier group are
 * not accepted. HELLO and REFUSE, which come before a session exists, have seed 0 and a digest of
 * the body on every link.
 *
 * Bodies. HELLO: handshake.c. REFUSE, ABORT: a sentence. DATA: a frame; nothing where the buffer is
 * empty, and in hop 1 of a broadcast, by which a rank tells the root that it takes part; a digest:
 * verifying.c. */
#ifndef DW_GROUP_MESSAGE_H
#define DW_GROUP_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

enum { DW_MESSAGE_BYTES = 64 };

typedef enum dw_message_kind {
    DW_MESSAGE_HELLO = 1,
    DW_MESSAGE_REFUSE = 2, /* the sender does not open the group */
    DW_MESSAGE_DATA = 3,
    DW_MESSAGE_ACK = 4,
    DW_MESSAGE_PING = 5,  /* the sender waits for a rank */
    DW_MESSAGE_ABORT = 6, /* the group has failed */
    DW_MESSAGE_CLOSE = 7  /* the sender closes the group */
} dw_message_kind;

/* The bits of `flags`. */
enum { DW_MESSAGE_MEAN = 1, DW_MESSAGE_HOP2 = 2, DW_MESSAGE_ASKS = 4, DW_MESSAGE_DIGEST = 8 };

typedef struct dw_message {
    uint8_t kind, operation, dtype, flags;
    uint32_t rank;
    uint64_t number, slot, visit, n;
    uint32_t part, piece;
    uint64_t body_len;
} dw_message;

/* Writes the header in front of a body of head->body_len bytes. */
void dw_message_finalize(unsigned char *at, const dw_message *head, uint64_t seed, bool with_body);
/* Reads and checks a message of len bytes; returns false if it is damaged or malformed. */
bool dw_message_read(const unsigned char *at, size_t len, uint64_t seed, bool with_body,
                     dw_message *head);
/* A digest of any bytes. */
uint64_t dw_message_digest(const void *bytes, size_t len, uint64_t seed);
/* Whether messages of this kind have a number. */
bool dw_message_is_numbered(uint8_t kind);
/* The seed of messages from one rank to another. */
uint64_t dw_message_seed(uint64_t from_nonce, uint64_t to_nonce, uint32_t from);

/* Copies text that a peer has sent, up to its first zero byte, as far as it fits. What cannot be
 * printed safely becomes "?". */
void dw_message_text(char *text, size_t cap, const void *from, uint64_t len);

#endif
