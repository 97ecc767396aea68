/* SPDX-License-Identifier: Apache-2.0
 * tcp_wire.h - the format of the bytes on the wire of a link over TCP.
 *
 * The two ends of a link share a session. It has up to eight TCP connections, the *stripes*.
 * Stripes may be lost and reconnected; messages stay in order all the same. On every connection
 * each side first sends a hello. Then records follow, each a header and the bytes that the header
 * announces:
 *
 * wide table:
 * | offset | bytes | hello                                                                             |
 * | 0      | 6     | "DWTCP\n"                                                                         |
 * | 6      | 1     | framing version; these first 8 bytes have the same layout in every version        |
 * | 7      | 1     | 'L' in the listener's hello, 'C' in the dialler's                                 |
 * | 8      | 16    | session; zeros if the dialler has none yet: then the listener makes one           |
 * | 24     | 1     | index of the stripe that this connection is for                                   |
 * | 25     | 1     | number of stripes: requested by the dialler, decided by the listener              |
 * | 26     | 1     | answer: 0 from a dialler; DW_TCP_WELCOME ... from a listener                      |
 * | 27     | 1     | 0                                                                                 |
 * | 28     | 4     | the longest segment that it shall be dialled for; 0: no limit                     |
 * | 32     | 8     | whole, as in a record                                                             |
 * | 40     | 8     | limit, as in a record                                                             |
 *
 * wide table:
 * | offset | bytes | record                                                                            |
 * | 0      | 1     | kind                                                                              |
 * | 1      | 3     | 0                                                                                 |
 * | 4      | 4     | bytes that follow the header                                                      |
 * | 8      | 8     | number of the message, from 0                                                     |
 * | 16     | 8     | whole: the sender of this record has received the messages [0, whole) completely  |
 * | 24     | 8     | limit: how many bytes of messages the other end may send, counted from the first  |
 * | 32     | 8     | offset in the message; only in a CHUNK                                            |
 * | 40     | 8     | length of the message; only in a CHUNK                                            |
 *
 * - A message of up to DW_TCP_CHUNK_BYTES is sent as one record (MESSAGE), a longer one in chunks
 * (CHUNK). The length of the chunks follows from the length of the message. They are sent in order,
 * each on any stripe that the sender chooses (tcp_send.c).
 * - The sender keeps a message's bytes until the peer has received all of it. If a
 * stripe is lost, its bytes are sent again on another; the receiver drops those that it has.
 * - STATE carries only whole and limit. ASK requests an ECHO on the same stripe. LEAVE is the last
 * record of an end that closes.
 * - No end sends past the limit of its receiver, so a receiver never has to stop reading, and
 * acknowledgements always get through. */
#ifndef DW_TCP_WIRE_H
#define DW_TCP_WIRE_H

enum {
    DW_TCP_VERSION = 2,
    DW_TCP_PREAMBLE_BYTES = 8,
    DW_TCP_HELLO_BYTES = 48, /* the preamble is its first 8 bytes */
    DW_TCP_SESSION_BYTES = 16,
    DW_TCP_RECORD_BYTES = 32,
    DW_TCP_CHUNK_RECORD_BYTES = 48
};

enum { DW_TCP_WELCOME = 1, DW_TCP_UNKNOWN = 2, DW_TCP_TAKEN = 3 }; /* answers in a hello */
enum {
    DW_TCP_MESSAGE = 1,
    DW_TCP_CHUNK = 2,
    DW_TCP_STATE = 3,
    DW_TCP_ASK = 4,
    DW_TCP_ECHO = 5,
    DW_TCP_LEAVE = 6
};

#endif
