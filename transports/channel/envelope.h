/* SPDX-License-Identifier: Apache-2.0
 * envelope.h - the channel's header in front of every message.
 *
 * | offset | bytes | field                                                        |
 * | 0      | 4     | kind                                                         |
 * | 4      | 4     | a status, as 32-bit two's complement; in FRAME and RESENT:   |
 * |        |       | the number of the config that made the frame, from 0         |
 * | 8      | 8     | number of a frame or control message, from 0 per direction;  |
 * |        |       | in PING and PONG: times                                      |
 * | 16     | 8     | bytes of the body                                            |
 * | 24     | 8     | XXH3-64 of bytes 0..24, seeded with the session of the link, |
 * |        |       | and of the body. Of a frame only the header is included,     |
 * |        |       | because it has digests of the rest                           |
 * All fields are little-endian. Because of the seed, a message of one session is rejected in every
 * other session. */
#ifndef DW_ENVELOPE_H
#define DW_ENVELOPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "deltawire/deltawire.h"

enum { DW_ENVELOPE_BYTES = 32 };

/* If a direction has several configs, the body of an ACK begins with these times, which are read
 * from the receiver's clock. The decoder's reply follows them.
 *
 * | offset | bytes | field                                                        |
 * | 0      | 4     | microseconds between the arrival of the previous frame and   |
 * |        |       | the arrival of this one, or DW_TIME_UNKNOWN                  |
 * | 4      | 4     | the time at which the frame arrived, in microseconds         |
 *
 * The first field is DW_TIME_UNKNOWN for the first frame, for a frame that was requested again, and
 * for a frame that arrived before the previous one, because that one was sent again. */
enum { DW_TIMES_BYTES = 8 };
#define DW_TIME_UNKNOWN UINT32_MAX

typedef enum dw_envelope_kind {
    DW_ENVELOPE_HELLO = 1, /* body: see channel_greeting.c */
    DW_ENVELOPE_FRAME = 2, /* body: a frame */
    /* Body: the frame that was requested: the same bytes again, or made by dw_encoder_resync. */
    DW_ENVELOPE_RESENT = 3,
    /* The frame was decoded. Body: the decoder's reply, or nothing. If the direction has several
     * configs, the DW_TIMES_BYTES described above are in front of the reply. The ACK for a
     * duplicate of a frame has an empty body. */
    DW_ENVELOPE_ACK = 4,
    /* A request to send the frame again. Status: why it was rejected. Body: the reply, or nothing.
     */
    DW_ENVELOPE_AGAIN = 5,
    DW_ENVELOPE_REFUSED = 6, /* the frame cannot be sent again; body: a sentence */
    DW_ENVELOPE_NOT_YET = 7, /* the requested frame has not been sent yet */
    /* Control message number `sequence` arrived damaged: if it was a request, send it again. */
    DW_ENVELOPE_REPEAT = 8,
    DW_ENVELOPE_CLOSED = 9, /* the last message on its tag */
    /* Both are sent on DW_TAG_TRIPS, without a body, and have times in microseconds in the field
     * `sequence`. PING: the time at which it was sent, by the clock of its sender. PONG, the
     * answer: the same time in the lower 32 bits, and in the upper 32 bits the time at which the
     * PING arrived, by the clock of its receiver. */
    DW_ENVELOPE_PING = 10,
    DW_ENVELOPE_PONG = 11
} dw_envelope_kind;

typedef struct dw_envelope {
    dw_envelope_kind kind;
    dw_status about;
    uint64_t sequence;
    const unsigned char *body;
    size_t body_len;
} dw_envelope;

/* Writes the envelope at the start of the message; the body behind it must be complete. session:
 * dw_link.session */
void dw_envelope_seal(void *message, uint64_t session, dw_envelope_kind kind, dw_status about,
                      uint64_t sequence, size_t body_len);

/* Reads and checks the envelope. false: the message is damaged, or has no envelope. */
bool dw_envelope_read(const void *message, size_t len, uint64_t session, dw_envelope *envelope);

#endif
