/* SPDX-License-Identifier: Apache-2.0
 * envelope.h - the channel's header in front of every message.
 *
 * | offset | bytes | field                                                        |
 * | 0      | 4     | kind                                                         |
 * | 4      | 4     | a status, as 32-bit two's complement; 0 where none is needed |
 * | 8      | 8     | number of a frame or control message, from 0 per direction   |
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

typedef enum dw_envelope_kind {
    DW_ENVELOPE_HELLO = 1, /* body: see channel_handshake.c */
    DW_ENVELOPE_FRAME = 2, /* body: a frame */
    /* Body: the frame that was requested: the same bytes again, or made by dw_encoder_resync. */
    DW_ENVELOPE_RESENT = 3,
    /* The frame was decoded. Body: the decoder's reply, or nothing. The ACK for a duplicate of a
     * frame has an empty body. */
    DW_ENVELOPE_ACK = 4,
    /* A request to send the frame again. Status: why it was rejected. Body: the reply, or nothing.
     */
    DW_ENVELOPE_AGAIN = 5,
    DW_ENVELOPE_REFUSED = 6, /* the frame cannot be sent again; body: a sentence */
    DW_ENVELOPE_NOT_YET = 7, /* the requested frame has not been sent yet */
    /* Control message number `sequence` arrived damaged: if it was a request, send it again. */
    DW_ENVELOPE_REPEAT = 8,
    DW_ENVELOPE_CLOSED = 9, /* the last message on its tag */
    /* Sequence: the step of the comparison times 2, and 1 more if it is of what the end that
     * connected sends. Body: see comparison.h. */
    DW_ENVELOPE_COMPARE = 10
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
void dw_envelope_finalize(void *message, uint64_t session, dw_envelope_kind kind, dw_status about,
                          uint64_t sequence, size_t body_len);

/* Reads and checks the envelope. false: the message is damaged, or has no envelope. */
bool dw_envelope_read(const void *message, size_t len, uint64_t session, dw_envelope *envelope);

#endif
