/* SPDX-License-Identifier: Apache-2.0
 * envelope.c - the channel's header in front of every message. */
#include "channel/envelope.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "link/link.h"

enum { CHECKED_BYTES = 24 };

/* A frame's header: docs/format.md, 1.1. */
enum { FRAME_HEADER_BYTES = 80 };

static uint64_t digest(const unsigned char *message, uint64_t session, dw_envelope_kind kind,
                       size_t body_len)
{
    uint64_t head = XXH3_64bits_withSeed(message, CHECKED_BYTES, session);
    bool is_frame = kind == DW_ENVELOPE_FRAME || kind == DW_ENVELOPE_RESENT;
    if (is_frame && body_len > FRAME_HEADER_BYTES) body_len = FRAME_HEADER_BYTES;
    return XXH3_64bits_withSeed(message + DW_ENVELOPE_BYTES, body_len, head);
}

void dw_envelope_finalize(void *message, uint64_t session, dw_envelope_kind kind, dw_status about,
                          uint64_t sequence, size_t body_len)
{
    unsigned char *at = message;
    dw_put32(at, (uint32_t)kind);
    dw_put32(at + 4, (uint32_t)about);
    dw_put64(at + 8, sequence);
    dw_put64(at + 16, body_len);
    dw_put64(at + CHECKED_BYTES, digest(at, session, kind, body_len));
}

bool dw_envelope_read(const void *message, size_t len, uint64_t session, dw_envelope *envelope)
{
    const unsigned char *at = message;
    if (len < DW_ENVELOPE_BYTES || dw_get64(at + 16) != len - DW_ENVELOPE_BYTES) return false;
    uint32_t kind = dw_get32(at);
    if (kind < DW_ENVELOPE_HELLO || kind > DW_ENVELOPE_COMPARE) return false;
    *envelope = (dw_envelope){.kind = (dw_envelope_kind)kind,
                              .about = (dw_status)(int32_t)dw_get32(at + 4),
                              .sequence = dw_get64(at + 8),
                              .body = at + DW_ENVELOPE_BYTES,
                              .body_len = len - DW_ENVELOPE_BYTES};
    return dw_get64(at + CHECKED_BYTES) == digest(at, session, envelope->kind, envelope->body_len);
}
