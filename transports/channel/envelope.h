/* SPDX-License-Identifier: Apache-2.0
 * envelope.h - the channel's header in front of every message.
 *
 * wide table:
 * | offset | bytes | field                                                        |
 * | 0      | 4     | kind                                                         |
 * | 4      | 4     | status that it is about, as 32-bit two's complement          |
 * | 8      | 8     | sequence of the frame that it is about, from 0 per direction |
 * | 16     | 8     | bytes of the body                                            |
 * | 24     | 8     | XXH3-64 of bytes 0..24, seeded with the link's session, and of the body; of a frame only the header, |
 * |        |       | which has digests of the rest                                |
 * All little-endian. So nothing that was sealed in one session is sound in another. */
#ifndef DW_ENVELOPE_H
#define DW_ENVELOPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "deltawire/deltawire.h"

enum { DW_ENVELOPE_BYTES = 32 };

typedef enum dw_envelope_kind {
    DW_ENVELOPE_HELLO = 1, /* body: see channel_greeting.c */
    DW_ENVELOPE_FRAME = 2, /* body: a frame */
    /* body: a frame, asked for: the same again, or one made by dw_encoder_resync. */
    DW_ENVELOPE_RESENT = 3,
    DW_ENVELOPE_ACK = 4,     /* body: the decoder's reply, or nothing */
    DW_ENVELOPE_AGAIN = 5,   /* status: why the frame was rejected; body as in ACK */
    DW_ENVELOPE_REFUSED = 6, /* the frame asked for cannot be sent anew; body: a sentence */
    DW_ENVELOPE_NOT_YET = 7, /* the frame asked for has not been sent so far */
    /* Control message number `sequence` arrived damaged: if it asked, ask again. */
    DW_ENVELOPE_REPEAT = 8,
    DW_ENVELOPE_CLOSED = 9 /* nothing follows */
} dw_envelope_kind;

typedef struct dw_envelope {
    dw_envelope_kind kind;
    dw_status about;
    uint64_t sequence;
    const unsigned char *body;
    size_t body_len;
} dw_envelope;

/* Writes the envelope in front of the body that already lies behind it. session: dw_link.session */
void dw_envelope_seal(void *message, uint64_t session, dw_envelope_kind kind, dw_status about,
                      uint64_t sequence, size_t body_len);

/* false: damaged, or no envelope. */
bool dw_envelope_read(const void *message, size_t len, uint64_t session, dw_envelope *envelope);

#endif
